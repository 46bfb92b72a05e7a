"""Collectives in situations that random calls do not meet, and by several threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent

pytestmark = pytest.mark.quick


def run(host: Host, ranks: int, program: str, arguments: list[str], overdrive: bool) -> jobs.Result:
    """Run a program that must find nothing wrong."""
    result = jobs.run(
        host,
        ranks,
        [program, *arguments],
        overdrive=overdrive,
        env=sharing.environment(host),
        preload=([], sharing.libraries(host)),
    )
    if "SKIP " in result.stdout and result.returncode == 0:
        pytest.skip(result.stdout.split("SKIP ")[1].splitlines()[0])
    expect.passed(result)
    return result


@pytest.mark.parametrize("ranks", [2, 3])
def test_situations(
    ranks: int, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Errors, absolute addresses, many communicators, messages in between, requests.

    Not without Overdrive: Open MPI 4.1 lets go of a datatype that is freed while a collective uses
    it, and hosts differ in what they refuse.
    """
    program = compiled(HERE / "directed.c")
    result = run(host, ranks, program, [f"--seed={seed}", "--strict=1"], True)
    served = result.counter("collectives_served")
    assert served > 600 * ranks, f"only {served} collectives were served\n{result.report()}"


def test_what_hosts_say_of_one_buffer_for_both(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """Each collective whose input and output are the same memory is refused as by the host."""
    program = compiled(HERE / "aliased.c")
    said = []
    for overdrive in (False, True):
        lines = run(host, 3, program, [], overdrive).stdout.splitlines()
        said.append(sorted(line for line in lines if line.endswith((": refused", ": accepted"))))
    assert len(said[0]) == 2 * 30
    assert said[0] == said[1]


@pytest.mark.parametrize("ranks", [2, 4])
def test_lengths_that_disagree(
    ranks: int, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """Whoever expects another length than it is shown is told so, and nothing worse happens.

    Not without Overdrive: hosts notice it at some ranks only, and Open MPI writes too far or hangs.
    """
    result = run(host, ranks, compiled(HERE / "lengths.c"), [], True)
    assert result.counter("collectives_served") >= 2 * 9 * 16 * ranks, result.report()
    # The longest of those of which a rank knows its own only.
    assert (result.counter("team_messages") > 0) == (ranks == 2), result.report()


@pytest.mark.parametrize("reduction", ["allreduce,100000", "block,40", "block,40000"])
def test_reductions_of_lengths_that_disagree(
    reduction: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """They end the job and say why; before, some gave wrong results or waited for ever."""
    program = compiled(HERE / "lengths.c")
    result = jobs.run(host, 4, [program, f"--reduction={reduction}"], limit=60)
    assert not result.timed_out and result.returncode != 0, result.report()
    assert "do all ranks give the same count?" in result.stderr, result.report()
    assert "nobody has noticed" not in result.stderr, result.report()


def test_threads(host: Host, compiled: Callable[[Path], str], overdrive: bool, seed: int) -> None:
    """Four threads at the same time."""
    result = run(host, 2, compiled(HERE / "threads.c"), [f"--seed={seed}"], overdrive)
    if overdrive:
        served = result.counter("collectives_served")
        assert served >= 2 * 4 * 100, f"only {served} were served\n{result.report()}"


def test_nothing_of_no_type(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Calls without elements whose datatype is none, where the host lets that pass.

    Not without Overdrive: MPICH lets a broadcast pass and then ends the job by an assertion.
    """
    run(host, 3, compiled(HERE / "nothing.c"), [f"--seed={seed}"], True)


def test_a_result_at_a_null_pointer(
    host: Host, compiled: Callable[[Path], str], overdrive: bool
) -> None:
    """It ends the job, by the host's error or by the access; nobody waits for the others."""
    program = compiled(HERE / "nothing.c")
    result = jobs.run(host, 2, [program, "--null=1"], overdrive=overdrive, limit=30)
    assert not result.timed_out, result.report()
    assert result.returncode != 0, result.report()
    assert not result.leftovers, result.report()


@pytest.mark.everywhere
def test_communicators_between_windows(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """What Overdrive has the host make does no harm to what the host makes for itself."""
    if host.name == "openmpi4":
        pytest.skip("Open MPI 4.1: windows of two groups at the same time")
    env = {
        **sharing.environment(host),
        "OVERDRIVE_TEST_REMOTE": "0-2,0-3,1-2,1-3,2-3",
        "OVERDRIVE_ADJUST_BARRIER": "dissemination",
    }
    preload = ([], sharing.libraries(host))
    expect.passed(jobs.run(host, 4, [compiled(HERE / "created.c")], env=env, preload=preload))

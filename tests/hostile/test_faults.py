"""Error handlers that do not return, other functions that the library calls, and jobs that outlive
their ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs

HERE = Path(__file__).parent
Build = Callable[[Path], str]

FAULT_TOLERANT = {"openmpi5": ["--with-ft", "ulfm"]}
"""The hosts whose jobs can outlive a rank, and how. MPICH 4.0 and 5.0 have the functions, but their
own jobs end when a rank dies: with fault tolerance switched on MPICH 5.0 fails an assertion in
MPI_Init, and MPICH 4.0's process manager ends the survivors."""


@pytest.mark.quick
@pytest.mark.abis
@pytest.mark.parametrize("program", ["handlers.c", "handlers_cplusplus.cc"])
def test_error_handlers(program: str, host: Host, compiled: Build, overdrive: bool) -> None:
    """After an error handler has left by longjmp or an exception everything goes on."""
    if host.name == "mpich4" and program.endswith(".cc"):
        pytest.skip("MPICH 4.0 itself crashes after an exception has passed through it")
    result = jobs.run(host, 2, [compiled(HERE / program)], overdrive=overdrive, limit=120)
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 1000)


@pytest.mark.quick
@pytest.mark.everywhere
@pytest.mark.parametrize("ranks", [2, 3])
def test_callbacks(ranks: int, host: Host, compiled: Build, overdrive: bool) -> None:
    """Functions of attributes and generalized requests communicate, also in MPI_Finalize."""
    result = jobs.run(host, ranks, [compiled(HERE / "callbacks.c")], overdrive=overdrive, limit=60)
    expect.passed(result)
    if overdrive:
        # All that the program sends; those of MPI_Finalize are among them.
        expect.took_our_path(result, ranks * 23)


@pytest.mark.quick
@pytest.mark.everywhere
@pytest.mark.parametrize("waiting", ["recv", "wait", "collective", "icollective"])
def test_survivors(waiting: str, host: Host, compiled: Build, overdrive: bool) -> None:
    """A job that shrinks its communicator after a death; Overdrive leaves it to the host."""
    if host.name not in FAULT_TOLERANT:
        pytest.skip(f"{host.name}: the host's own jobs do not outlive a rank")
    result = jobs.run(
        host,
        4,
        [compiled(HERE / "shrink.c"), f"--wait={waiting}"],
        overdrive=overdrive,
        settings={"verbose": "1"},
        launcher_options=FAULT_TOLERANT[host.name],
        limit=120,
    )
    assert "PASS shrink: 3 survivors" in result.stdout, result.report()
    # Ranks that the host keeps in MPI_Finalize have looked that it is the host who does, and left.
    assert result.returncode == 0 or "stays in MPI_Finalize" in result.stderr, result.report()
    assert not result.timed_out, result.report()
    if overdrive:
        assert result.stderr.count("fault tolerance is on") == 1, result.report()
        assert not result.stats, result.report()


@pytest.mark.quick
@pytest.mark.everywhere
def test_death_without_tolerance(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """The same program where fault tolerance is off: the job ends and the dead rank is named."""
    if host.name not in FAULT_TOLERANT:
        pytest.skip("the host lacks the functions of the program, or they do not work")
    result = jobs.run(host, 4, [compiled(HERE / "shrink.c")], limit=120)
    assert result.returncode != 0, result.report()
    assert "rank 3" in result.stderr and "has died" in result.stderr, result.report()

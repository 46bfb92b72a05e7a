"""Overdrive and the host serve the same collectives in turn while they are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent

pytestmark = pytest.mark.quick

ROUNDS = 320
"""Of learning.c: enough for a verdict about rooted collectives."""

REMOTE = {"OVERDRIVE_TEST_REMOTE": "0-2,0-3,1-2,1-3"}
"""Ranks 0 and 1 on a node, 2 and 3 on another."""


WRONG_DESCRIPTIONS = {
    "openmpi4": "allgatherv",
    "openmpi5": "allgatherv",
    "impi": "allgather",
}
"""What hosts get wrong by themselves where ranks describe a message in different ways."""

BLOCKING_BETWEEN_GROUPS = ("mpich4", "impi")
"""Whose other collectives of inter-communicators are wrong by themselves; MPICH 5.0's blocking ones
hang, too."""


def run(
    host: Host,
    program: str,
    ranks: int,
    arguments: Sequence[str] = (),
    overdrive: bool = True,
    **env: str,
) -> jobs.Result:
    result = jobs.run(
        host,
        ranks,
        [program, *arguments],
        overdrive=overdrive,
        env={**env, **sharing.environment(host)},
        preload=([], sharing.libraries(host)),
    )
    expect.passed(result)
    return result


def algorithms(result: jobs.Result, collective: str) -> set[str]:
    """Return what has served the calls of `collective` at any rank."""
    return {
        row["algorithm"]
        for rank in result.stats.values()
        for row in rank["collectives"]
        if row["collective"] == collective
    }


@pytest.mark.parametrize(("ranks", "learn"), [(4, "nodes"), (3, "on")])
def test_turns(
    ranks: int, learn: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    remote = REMOTE if learn == "nodes" else {}
    result = run(host, compiled(HERE / "learning.c"), ranks, OVERDRIVE_LEARN=learn, **remote)
    # 9 calls on three communicators, or two of them within a node, each in 4 calls of the host;
    # between nodes also three among neighbours.
    calls = 9 + (3 if learn == "nodes" else 0)
    assert result.counter("collectives_host") >= 4 * calls * ranks, result.report()
    assert result.counter("trials") >= calls * ranks, result.report()
    if learn == "nodes":
        # A block of each; where that is clear enough there is no second one.
        assert result.counter("collectives_neighbour") >= 3 * 4 * ranks, result.report()


@pytest.mark.one
def test_calls_from_which_a_handler_jumps_away_count_on_all_ranks(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    if host.name in ("mpich5", "mpiabi"):
        pytest.skip("MPICH 5.0 hangs by itself when handlers leave its broadcasts")
    # Intel MPI finds nothing wrong with such a broadcast; then only those of Overdrive are left.
    jumps = "8" if host.name == "impi" else "200"
    arguments = ["--rounds=400", f"--jumps={jumps}"]
    result = run(host, compiled(HERE / "leaving.c"), 4, arguments, **REMOTE)
    # Those of broadcasts are among them, which the host serves in turn.
    assert {rank["counters"]["trials"] for rank in result.stats.values()} == {
        result.counter("trials") // 4
    }, result.report()
    assert result.counter("trials") >= 3 * 4, result.report()


@pytest.mark.one
@pytest.mark.parametrize(
    "algorithm", ("linear", "binary", "chain", "double_binary_tree", "scatter_doubling")
)
def test_a_handler_may_jump_away_from_every_algorithm(
    host: Host, compiled: Callable[[Path], str], algorithm: str, needs_overdrive: None
) -> None:
    # MPICH's functions that ask for requests call a handler by themselves, in the middle of ours.
    rounds = 40
    calls = sum(1 + number % 4 for number in range(rounds))
    arguments = [f"--rounds={rounds}", f"--jumps={calls}"]
    rule = {"OVERDRIVE_ADJUST_BCAST": f"{algorithm}/flat"}
    run(host, compiled(HERE / "leaving.c"), 4, arguments, **rule, **REMOTE)


@pytest.mark.one
def test_nothing_is_measured_where_it_is_not_wanted(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    program = compiled(HERE / "learning.c")
    # Left to the host are, of those among neighbours, all between nodes, and in one node those
    # whose blocks may differ or are short.
    between = {"OVERDRIVE_LEARN": "off", **REMOTE}
    for env, left in ((between, 3 * ROUNDS), ({}, ROUNDS + 2 * (ROUNDS // 8))):
        result = run(host, program, 4, **env)
        assert result.counter("trials") == 0, result.report()
        assert result.counter("collectives_host") == 4 * left, result.report()


@pytest.mark.one
def test_rules_are_obeyed_without_measuring(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    program = compiled(HERE / "learning.c")
    assert algorithms(run(host, program, 4, **REMOTE), "allgather") > {"host"}
    ruled = run(host, program, 4, OVERDRIVE_ADJUST_ALLGATHER="ring", **REMOTE)
    assert algorithms(ruled, "allgather") == {"ring"}, ruled.report()
    # Without a rule others are measured as before.
    assert ruled.counter("trials") > 0, ruled.report()


@pytest.mark.one
@pytest.mark.parametrize(
    "env", [{**REMOTE, "OVERDRIVE_FIRST_ARRIVAL": "1"}, {"OVERDRIVE_LEARN": "on"}]
)
def test_descriptions_of_a_message_decide_nothing(
    env: dict[str, str], host: Host, compiled: Callable[[Path], str], overdrive: bool
) -> None:
    """Ranks that describe the same message in different ways find the same."""
    without = WRONG_DESCRIPTIONS.get(host.name, "none")
    program = compiled(HERE / "descriptions.c")
    result = run(host, program, 4, [f"--without={without}"], overdrive, **env)
    if overdrive:
        assert result.counter("trials") >= 4 * 10, result.report()


@pytest.mark.one
@pytest.mark.parametrize("env", [REMOTE, {}])
def test_two_groups(
    env: dict[str, str], host: Host, compiled: Callable[[Path], str], overdrive: bool
) -> None:
    """Collectives of inter-communicators, and of what they merge into."""
    if host.name in ("mpich5", "mpiabi"):
        pytest.skip("MPICH 5.0 hangs by itself")
    blocking = "1" if host.name in BLOCKING_BETWEEN_GROUPS else "0"
    program = compiled(HERE / "two_groups.c")
    result = run(host, program, 4, [f"--blocking={blocking}"], overdrive, **env)
    if overdrive:
        # What was merged, twice from two duplicates and from parts that both sides have.
        assert result.counter("collectives_served") > 200, result.report()

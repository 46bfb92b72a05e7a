"""Broadcasts that start with whoever comes first: right data, and nobody waits for a late rank."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent
LIMIT = 150.0
PART = 5000  # of ten thousand calls


FORCED = {"OVERDRIVE_ADJUST_BCAST": "first_arrival"}


def run(
    host: Host,
    program: str,
    nodes: str,
    *arguments: str,
    chosen: dict[str, str] = FORCED,
    limit: float = LIMIT,
) -> jobs.Result:
    """Run the program with ranks on the nodes that the letters name."""
    apart = [f"{a}-{b}" for a, b in combinations(range(len(nodes)), 2) if nodes[a] != nodes[b]]
    result = jobs.run(
        host,
        len(nodes),
        [program, f"--nodes={nodes}", *arguments],
        env={
            "OVERDRIVE_TEST_REMOTE": ",".join(apart),
            **chosen,
            **sharing.environment(host),
        },
        preload=([], sharing.libraries(host)),
        limit=limit,
    )
    if "SKIP " in result.stdout and result.returncode == 0:
        pytest.skip(result.stdout.split("SKIP ")[1].splitlines()[0])
    expect.passed(result)
    return result


def judge(result: jobs.Result) -> None:
    """Check that it was the algorithm that served the calls, and that it was told so."""
    calls, claims = result.counter("arrival_calls"), result.counter("arrival_claims")
    assert calls > 300, result.report()
    assert 0 < claims < calls, result.report()
    late = int(result.stdout.split("LATE ")[1].split()[0])
    assert result.counter("arrival_late") >= late, result.report()


@pytest.mark.quick
@pytest.mark.parametrize("nodes", [pytest.param("0011", marks=pytest.mark.everywhere), "00112"])
def test_whoever_comes_when(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """With the plain algorithm ranks would wait for ever for those that come late."""
    judge(run(host, compiled(HERE / "arrival.c"), nodes, f"--seed={seed}"))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["010101", "001112", "0001223"])
def test_other_places(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Ranks of a node that do not follow each other, uneven nodes."""
    judge(run(host, compiled(HERE / "arrival.c"), nodes, f"--seed={seed}", "--calls=1000"))


@pytest.mark.quick
@pytest.mark.one
def test_many_nodes(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Winners that serve several others, as in a chain of two nodes nobody does."""
    words = ["--random=1", "--calls=150", f"--seed={seed}"]
    result = run(host, compiled(HERE / "arrival.c"), "01123345", *words)
    assert result.counter("arrival_calls") > 75 * 8, result.report()


@pytest.mark.quick
def test_threads(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """A communicator for each of three threads."""
    result = run(host, compiled(HERE / "arrival.c"), "0011", f"--seed={seed}", "--threads=1")
    assert result.counter("arrival_calls") == 4 * 3 * 40, result.report()


# The verdict depends on times: where other tests want the same cores a broadcast of four ranks
# takes as long as their late one, and then the usual algorithm is as good.
@pytest.mark.quick
@pytest.mark.alone
def test_it_is_chosen_where_ranks_wait_less(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """The leader of the second node is late by far more than a broadcast takes."""
    program = compiled(HERE / "arrival.c")
    result = run(host, program, "0011", "--late=2", chosen={"OVERDRIVE_FIRST_ARRIVAL": "true"})
    assert result.counter("arrival_trials") == 4, result.report()
    assert result.counter("arrival_chosen") == 4, result.report()
    result = run(host, program, "0011", "--late=2", chosen={"OVERDRIVE_FIRST_ARRIVAL": "false"})
    assert result.counter("arrival_calls") == 0, result.report()


@pytest.mark.quick
@pytest.mark.alone
def test_what_late_ranks_gain_by_is_not_kept(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    """Where they come together the next run would lose by it; so each finds it anew."""
    program, file = compiled(HERE / "arrival.c"), tmp_path / "learnt.json"
    for _ in range(2):
        result = run(host, program, "0011", "--late=2", chosen={"OVERDRIVE_LEARN_FILE": str(file)})
        assert result.counter("arrival_chosen") == 4, result.report()
    rules = json.loads(file.read_text())["rules"]
    assert rules, file.read_text()
    assert "first_arrival" not in [rule["algorithm"] for rule in rules], rules


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.alone
def test_places_in_the_program_are_told_apart(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """At one of two places that take turns nothing could be gained, so nothing is measured."""
    program = compiled(HERE / "arrival.c")
    chosen = {"OVERDRIVE_FIRST_ARRIVAL": "true"}
    result = run(host, program, "0011", "--places=1", chosen=chosen)
    # Of 160 calls, on each rank: when all else is measured, and perhaps before 32, 64 and 128.
    assert result.counter("arrival_agreements") in range(4, 4 * 4 + 1, 4), result.report()
    assert result.counter("arrival_trials") == 4, result.report()
    assert result.counter("arrival_chosen") == 4, result.report()


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("progress", ["calls", "agent"])
def test_broadcasts_that_do_not_block(
    progress: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Several at once; and ranks that come when all others have completed theirs."""
    chosen = {**FORCED, "OVERDRIVE_PROGRESS": progress, "OVERDRIVE_NONBLOCKING_MIN": "1"}
    program = compiled(HERE / "arrival.c")
    judge(run(host, program, "0011", "--later=1", f"--seed={seed}", chosen=chosen))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["0011", "00112", "001122", "0001223", "010101", "0123345"])
@pytest.mark.parametrize("name", ["arrival.c", "last_arrival.c"])
@pytest.mark.parametrize("part", [1, 2])
def test_ten_thousand_calls(
    part: int,
    name: str,
    nodes: str,
    host: Host,
    compiled: Callable[[Path], str],
    needs_overdrive: None,
    seed: int,
) -> None:
    """Everything by chance, when ranks come as well; in two parts of a minute or two each."""
    collectives = ("BCAST", "REDUCE", "GATHER", "GATHERV", "SCATTER", "SCATTERV")
    chosen = {f"OVERDRIVE_ADJUST_{each}": "first_arrival" for each in collectives}
    words = ["--random=1", f"--calls={PART}", f"--seed={seed + part}"]
    result = run(host, compiled(HERE / name), nodes, *words, chosen=chosen, limit=900.0)
    assert result.counter("arrival_calls") > PART / 2 * len(nodes), result.report()
    # Each rank has compared every result, and has come late to about half of the calls.
    found = result.stdout.split("CALLS ")[1].splitlines()[0]
    calls, _, results, _, delayed = found.split()
    assert calls == str(PART), found
    assert int(results) == PART * len(nodes), found
    assert int(delayed) > 0.45 * PART * len(nodes), found
    print(f"{name} on {host.name}, nodes {nodes}: {found}")

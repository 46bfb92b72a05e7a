"""Neighbourhood collectives on random topologies, in one node and between nodes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent

pytestmark = pytest.mark.quick


def run(
    host: Host, ranks: int, program: str, arguments: list[str], overdrive: bool, **settings: str
) -> jobs.Result:
    """Run the program, which must find nothing wrong."""
    env = {f"OVERDRIVE_{name.upper()}": value for name, value in settings.items()}
    result = jobs.run(
        host,
        ranks,
        [program, *arguments],
        overdrive=overdrive,
        env={**env, **sharing.environment(host)},
        preload=([], sharing.libraries(host)),
    )
    if "SKIP " in result.stdout and result.returncode == 0:
        pytest.skip(result.stdout.split("SKIP ")[1].splitlines()[0])
    expect.passed(result)
    return result


def of_nodes(nodes: str) -> str:
    """Return the pairs of ranks that are to be kept apart."""
    pairs = [f"{a}-{b}" for a, b in combinations(range(len(nodes)), 2) if nodes[a] != nodes[b]]
    return ",".join(pairs)


@pytest.mark.parametrize("ranks", [2, 4])
def test_neighbours(
    ranks: int, host: Host, compiled: Callable[[Path], str], overdrive: bool, seed: int
) -> None:
    """What hosts treat differently is left out where they serve it."""
    program = compiled(HERE / "neighbours.c")
    unique = [] if overdrive else ["--unique=1"]
    settings = {"neighbour_collectives": "all"} if overdrive else {}
    result = run(host, ranks, program, [f"--seed={seed}", *unique], overdrive, **settings)
    if overdrive:
        served = result.counter("collectives_neighbour")
        assert served > 40 * 3 * ranks, f"only {served} were served\n{result.report()}"


def test_threads(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Three threads at the same time, each with topologies of its own."""
    program = compiled(HERE / "neighbours.c")
    arguments = [f"--seed={seed}", "--threads=3", "--cases=15", "--most=3000"]
    result = run(host, 2, program, arguments, True, neighbour_collectives="all")
    served = result.counter("collectives_neighbour")
    assert served > 3 * 15 * 3 * 2, f"only {served} were served\n{result.report()}"


def test_what_gains(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """By default some calls are Overdrive's and others on the same communicator are the host's."""
    program = compiled(HERE / "neighbours.c")
    result = run(host, 4, program, [f"--seed={seed}", "--unique=1"], True)
    served = result.counter("collectives_neighbour")
    assert served > 0, result.report()
    assert result.counter("collectives_host") > served, result.report()


@pytest.mark.parametrize(("mode", "progress"), [("all", "off"), ("all", "agent"), ("node", "off")])
def test_between_nodes(
    mode: str,
    progress: str,
    host: Host,
    compiled: Callable[[Path], str],
    needs_overdrive: None,
    seed: int,
) -> None:
    """All are Overdrive's, the blocking ones are, or none is, before any has been measured."""
    program = compiled(HERE / "neighbours.c")
    settings = {
        "test_remote": of_nodes("0011"),
        "neighbour_collectives": mode,
        "progress": progress,
    }
    arguments = [f"--seed={seed}", "--cases=20", "--most=3000", "--unique=1"]
    result = run(host, 4, program, arguments, True, **settings)
    served = result.counter("collectives_neighbour")
    if mode == "node":
        # Each case is a communicator of its own, whose first calls are the host's (test_learning).
        assert served == 0, result.report()
    else:
        assert served > 20 * 4, f"only {served} were served\n{result.report()}"


@pytest.mark.parametrize("setting", ["neighbour_collectives", "collectives"])
def test_off(
    setting: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Everything can be left to the host."""
    program = compiled(HERE / "neighbours.c")
    arguments = [f"--seed={seed}", "--unique=1", "--cases=10", "--most=3000"]
    result = run(host, 2, program, arguments, True, **{setting: "off"})
    assert result.counter("collectives_neighbour") == 0, result.report()

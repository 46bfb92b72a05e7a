"""Blocking collectives that return before their data has arrived: nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent

pytestmark = pytest.mark.quick

NODES = {"1+1": "01", "2+2": "0011", "2+1": "010"}
"""Node of each rank."""


def run(
    host: Host,
    program: str,
    nodes: str,
    *arguments: str,
    preload: list[str] | None = None,
    **env: str,
) -> jobs.Result:
    placed = NODES[nodes]
    pairs = [f"{a}-{b}" for a, b in combinations(range(len(placed)), 2) if placed[a] != placed[b]]
    own = {
        "OVERDRIVE_TEST_REMOTE": ",".join(pairs),
        "OVERDRIVE_OVERLAP": "on",
        "OVERDRIVE_OVERLAP_MIN": "4K",
    }
    return jobs.run(
        host,
        len(placed),
        [program, *arguments],
        overdrive=True,
        env={**own, **sharing.environment(host), **env},
        preload=([], sharing.libraries(host)),
    )


@pytest.mark.parametrize("nodes", ["1+1", "2+2", pytest.param("2+1", marks=pytest.mark.one)])
def test_torture(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "torture.c"), nodes, "--rounds=120")
    expect.passed(result)
    assert result.counter("overlapped") > 0, result.report()
    assert result.counter("overlap_faults") > 0, result.report()


@pytest.mark.one
def test_handlers_of_the_program(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "crash.c"), "1+1", "--what=handler")
    expect.passed(result)
    assert result.counter("overlapped") > 0, result.report()


@pytest.mark.one
def test_a_crash_is_a_crash(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "crash.c"), "1+1", "--what=crash")
    assert not result.timed_out, result.report()
    assert result.returncode != 0, result.report()
    # The installed MPI may have a handler of its own, which says where.
    assert "0x10" in result.stderr, result.report()
    assert "signal 11" in result.stderr, result.report()


@pytest.mark.one
def test_off_is_off(host: Host, compiled: Callable[[Path], str], needs_overdrive: None) -> None:
    result = run(host, compiled(HERE / "torture.c"), "1+1", "--rounds=20", OVERDRIVE_OVERLAP="off")
    expect.passed(result)
    assert result.counter("overlapped") == 0, result.report()
    assert result.counter("overlap_complete") == 0, result.report()

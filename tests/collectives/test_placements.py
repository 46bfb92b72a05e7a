"""Collectives of ranks that lie on nodes in blocks, round robin, and some of them alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent

PLACEMENTS = {
    "2x2": "0011",
    "3x2": "001122",
    "3+1+2": "000122",
    "round-robin": "010101",
}
"""Node of each rank."""


@pytest.mark.quick
@pytest.mark.parametrize("shuffle", [0, pytest.param(7, marks=pytest.mark.one)])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_placements(
    placement: str, shuffle: int, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """Ranks of different nodes are kept apart by the setting for tests."""
    nodes = PLACEMENTS[placement]
    pairs = [f"{a}-{b}" for a, b in combinations(range(len(nodes)), 2) if nodes[a] != nodes[b]]
    env = {"OVERDRIVE_TEST_REMOTE": ",".join(pairs), "OVERDRIVE_COLLECTIVE_SHUFFLE": str(shuffle)}
    result = jobs.run(
        host,
        len(nodes),
        [compiled(HERE / "placements.c")],
        overdrive=True,
        env={**env, **sharing.environment(host)},
        preload=([], sharing.libraries(host)),
    )
    expect.passed(result)
    calls = 40 * 3 * 6 * len(nodes)
    served = result.counter("collectives_served") + result.counter("collectives_host")
    assert served >= calls * 0.9, result.report()
    if shuffle == 0:
        assert result.counter("collectives_shared") > 0, result.report()


@pytest.mark.slow
def test_long_blocks(host: Host, compiled: Callable[[Path], str], needs_overdrive: None) -> None:
    """Messages between nodes that are longer than an int can count, also where the host cannot."""
    result = jobs.run(
        host,
        3,
        [compiled(HERE / "long_blocks.c")],
        settings={
            "test_remote": "0-2,1-2",
            "adjust_gather": "linear",
            "adjust_scatter": "linear",
        },
        limit=300,
    )
    expect.passed(result)
    assert result.counter("collectives_served") == 2 * 3, result.report()

"""Reductions and gathers that end with whoever comes last, scatters that start with the first.

Right results, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host

from .test_arrival import run

HERE = Path(__file__).parent
FROM_ARRIVALS = ("REDUCE", "GATHER", "GATHERV", "SCATTER", "SCATTERV")
FORCED = {f"OVERDRIVE_ADJUST_{name}": "first_arrival" for name in FROM_ARRIVALS}
WITH_BCAST = {**FORCED, "OVERDRIVE_ADJUST_BCAST": "first_arrival"}


@pytest.mark.quick
@pytest.mark.parametrize("nodes", [pytest.param("0011", marks=pytest.mark.one), "00112"])
def test_whoever_comes_when(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """With the plain algorithms ranks would wait for ever for those that come late."""
    program = compiled(HERE / "last_arrival.c")
    result = run(host, program, nodes, f"--seed={seed}", chosen=WITH_BCAST)
    calls, claims = result.counter("arrival_calls"), result.counter("arrival_claims")
    assert calls > 300, result.report()
    assert 0 < claims < calls, result.report()
    assert result.counter("arrival_long") > 0, result.report()


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["010101", "001112", "0001223"])
def test_other_places(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Ranks of a node that do not follow each other, uneven nodes."""
    program = compiled(HERE / "last_arrival.c")
    result = run(host, program, nodes, f"--seed={seed}", "--calls=600", chosen=FORCED)
    assert result.counter("arrival_calls") > 300, result.report()


@pytest.mark.quick
def test_threads(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """A communicator for each of three threads."""
    program = compiled(HERE / "last_arrival.c")
    result = run(host, program, "0011", f"--seed={seed}", "--threads=1", chosen=FORCED)
    assert result.counter("arrival_calls") == 4 * 3 * 40, result.report()


@pytest.mark.quick
@pytest.mark.one
def test_ranks_that_do_not_agree_how_long_a_message_is(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """With the usual algorithms some of them would hang, or write too far."""
    program = compiled(HERE / "last_arrival.c")
    result = run(host, program, "0011", "--lengths=1", chosen=FORCED)
    assert result.counter("arrival_calls") > 0, result.report()


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("nodes", ["0011", "00112"])
def test_blocks_leave_their_node_as_they_come(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """Each rank of another node sends its own block to a root that is there."""
    result = run(host, compiled(HERE / "last_arrival.c"), nodes, "--apart=1", chosen=FORCED)
    assert result.counter("arrival_calls") == 21 * len(nodes), result.report()
    others = [node for node in nodes if node != nodes[0]]
    # In the first call all ranks come together: somebody of each node, and perhaps others.
    first = result.counter("arrival_claims") - 20 * len(others)
    assert len(set(others)) <= first <= len(others), result.report()

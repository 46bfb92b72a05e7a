"""The SMPI interface: the same answers on one node, over nodes and without Overdrive."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing
from support.nodes import Nodes

HERE = Path(__file__).parent
Build = Callable[[Path], str]

TWO_NODES = "0-2,0-3,1-2,1-3"
"""Of four ranks: pairs that are treated as on different nodes."""

SITUATIONS: dict[str, dict[str, str]] = {
    "one_node": {},
    "apart": {"test_remote": "all"},
    "two_nodes": {"test_remote": TWO_NODES},
    "crosswise": {"test_remote": "0-1,0-3,1-2,2-3"},
    "no_reach": {"reach": "off"},
    "debug": {"smpi_debug": "on"},
    "cells": {"copy_path": "cells", "collectives": "off"},
}


def answers(result: jobs.Result) -> list[str]:
    """Return what the cases have answered."""
    return re.findall(r"^case .*$", result.stdout, re.MULTILINE)


def near(result: jobs.Result) -> int:
    """Return to how many ranks rank 0 sends by address."""
    found = re.search(r"^near: (\d+)$", result.stdout, re.MULTILINE)
    assert found, result.report()
    return int(found.group(1))


@pytest.mark.quick
@pytest.mark.parametrize("ranks", [2, 4])
def test_same_answers(ranks: int, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """On one node by address, and by copies without Overdrive: what is seen is the same."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, ranks, [program], overdrive=False)
    expect.passed(alone)
    assert near(alone) == 1
    assert len(answers(alone)) >= 200
    result = jobs.run(host, ranks, [program])
    expect.passed(result)
    assert near(result) == ranks, result.report()
    assert answers(result) == answers(alone)
    assert result.counter("smpi_lent") > 100 and result.counter("smpi_passed") > 100
    assert result.counter("smpi_copied") == 0


@pytest.mark.parametrize("situation", list(SITUATIONS))
@pytest.mark.quick
@pytest.mark.one
def test_situations(situation: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Ranks apart, groups of ranks, nothing reachable, the debug mode, other ways of copying."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, 4, [program], overdrive=False)
    expect.passed(alone)
    result = jobs.run(host, 4, [program], settings=SITUATIONS[situation])
    expect.passed(result)
    expected = {"apart": 1, "no_reach": 1, "two_nodes": 2, "crosswise": 2}.get(situation, 4)
    assert near(result) == expected, result.report()
    assert answers(result) == answers(alone)


@pytest.mark.netns
def test_across_nodes(host: Host, two_nodes: Nodes, compiled: Build, needs_overdrive: None) -> None:
    """Two ranks on each of two nodes of a virtual cluster."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, 4, [program], overdrive=False)
    result = jobs.run(
        host,
        4,
        [program],
        launcher_prefix=two_nodes.enter(two_nodes.head),
        launcher_options=two_nodes.launcher_options(host.family, 2),
        preload=([], sharing.libraries(host, between_nodes=True)),
        limit=100,
    )
    expect.passed(result)
    assert near(result) == 2, result.report()
    assert answers(result) == answers(alone)

"""The ways in which random programs are run: hosts, layouts, and every path and algorithm."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from hosts import Host

from fuzz import faults
from fuzz.runner import Setup

LAYOUTS: dict[int, list[str]] = {
    2: ["", "", "01"],
    3: ["", "001", "010", "012"],
    4: ["", "0011", "0101", "0001", "0012"],
    5: ["", "00011", "01012"],
    6: ["", "001122", "010101", "000122"],
    8: ["", "00001111", "01010101", "00011222"],
}
"""Node of each rank; the empty layout is one node."""

SETTINGS: list[dict[str, str]] = [
    {},
    {},
    {},
    {"copy_path": "cells"},
    {"copy_path": "pull"},
    {"copy_path": "push"},
    {"copy_path": "cooperative"},
    {"copy_path": "kernel"},
    {"collectives": "off"},
    {"collective_driver": "generic"},
    {"collective_memory": "0"},
    {"collective_slots": "0"},
    {"wait": "sleep", "unmatched_wait": "0"},
    {"wait": "yield"},
    {"wait": "spin"},
    {"reach": "off"},
    {"reach_min": "4K"},
    {"pool_bytes": "64K", "cell_bytes": "4K", "fastbox_bytes": "1K", "inline_max": "200"},
    {"fastbox_peers": "0", "inline_max": "0"},
    {"fastbox_bytes": "16K"},
    {"fastbox_bytes": "64K"},
    {"eager_max": "0"},
    {"eager_max": "1M"},
    {"frame_bytes": "0"},
    {"piece_bytes": "256"},
    {"buffer_limit": "64K"},
    {"host_poll_interval": "1"},
    {"host_call_progress": "false"},
    {"copy": "nontemporal"},
    {"copy_path": "pull", "pull_wait": "0"},
    {"verify": "true"},
]
"""Overdrive's settings: every path, waiting in every way, everything small."""

LEFT_OUT: set[str] = set()
"""What all programs leave out, as asked for on the command line."""

SHUFFLED = 0.35
"""Part of the runs in which calls go by algorithms drawn from all that can serve them."""


def left_out(setup: Setup) -> frozenset[str]:
    """Return what programs leave out in a setup."""
    spans_nodes = bool(setup.layout) or setup.nodes is not None
    known = faults.of(setup.host.name, setup.overdrive, dict(setup.settings), spans_nodes)
    return known | LEFT_OUT


def endless(
    hosts: Sequence[Host],
    seed: int,
    overdrive: bool = True,
    ranks: Sequence[int] = (2, 2, 3, 3, 4, 4, 5, 6, 8),
) -> Iterator[Setup]:
    """Yield setups for ever, as the seed says."""
    rng = random.Random(seed)
    while True:
        number = rng.choice(list(ranks))
        settings = dict(rng.choice(SETTINGS))
        if rng.random() < SHUFFLED:
            settings["collective_shuffle"] = str(rng.randrange(1, 1000))
        yield Setup(
            rng.choice(list(hosts)),
            number,
            rng.choice(LAYOUTS[number]) if overdrive else "",
            tuple(sorted(settings.items())) if overdrive else (),
            overdrive=overdrive,
            threads=rng.random() < 0.12,
        )

"""The ways in which random programs are run: hosts, layouts, and every path and algorithm."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache

from hosts import Host
from support import jobs, programs

from fuzz import faults
from fuzz.runner import Setup

RANKS = (2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6, 8, 12, 16)
"""How many ranks, if nobody says."""

LAYOUTS: dict[int, list[str]] = {
    2: ["", "", "01"],
    3: ["", "001", "010", "012"],
    4: ["", "0011", "0101", "0001", "0012"],
    5: ["", "00011", "01012"],
    6: ["", "001122", "010101", "000122"],
    8: ["", "00001111", "01010101", "00011222"],
    12: ["", "000000111111", "001122001122"],
    16: ["", "0000000011111111", "0123012301230123"],
}
"""Node of each rank; the empty layout is one node."""

FROM_ARRIVALS = ("BCAST", "REDUCE", "GATHER", "GATHERV", "SCATTER", "SCATTERV")
"""Collectives that can start with whoever comes first, or end with whoever comes last."""

FIRST_ARRIVAL = {f"OVERDRIVE_ADJUST_{name}": "first_arrival" for name in FROM_ARRIVALS}

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
    {"host_poll_interval": "10"},
    {"copy": "nontemporal"},
    {"copy_path": "pull", "pull_wait": "0"},
    {"verify": "true"},
    {"neighbour_collectives": "off"},
    {"neighbour_collectives": "all"},
    {
        "progress": "calls",
        "nonblocking_min": "0",
        "nonblocking_reduce_min": "0",
        "neighbour_collectives": "all",
    },
    {
        "progress": "agent",
        "nonblocking_min": "0",
        "nonblocking_reduce_min": "0",
        "neighbour_collectives": "all",
    },
    {"learn": "on"},
    {"learn": "on", "first_arrival": "true"},
    {"learn": "on", "first_arrival": "true", "progress": "agent"},
    {"overlap": "on", "overlap_min": "1"},
    {"overlap": "on", "overlap_min": "4K", "host_poll_interval": "1"},
    {"overlap": "on", "overlap_min": "1K", "copy_path": "pull"},
    {"overlap": "auto", "overlap_min": "4K", "overlap_trace": "off"},
    {"overlap": "on", "overlap_min": "4K", **FIRST_ARRIVAL},
    FIRST_ARRIVAL,
    {"progress": "agent", **FIRST_ARRIVAL},
]
"""Overdrive's settings: every path, waiting in every way, everything small."""

UNEQUAL = [
    {"collectives": "off"},
    {"learn": "on"},
    {"learn": "off"},
    {"inline_max": "200"},
    {"fastbox_bytes": "1K"},
    {"pool_bytes": "256K"},
    {"cell_bytes": "16K"},
    {"stats": "1"},
    {"reach": "off"},
    {"wait": "spin"},
]
"""What one rank of a job may have beside SETTINGS, and others not."""

LEFT_OUT: set[str] = set()
"""What all programs leave out, as asked for on the command line."""

SHUFFLED = 0.35
"""Part of the runs in which calls go by algorithms drawn from all that can serve them."""


FORCED = 0.2
"""Part of the runs in which every collective goes by an algorithm that is named."""

PARAMETERS = {
    "RADIX": ["2", "3", "5", "16"],
    "SEGMENT": ["1", "100", "4096", "64K"],
    "WINDOW": ["1", "3", "8"],
    "LEADERS": ["1", "2", "3"],
    "PIPELINE": ["0", "1", "4"],
}
"""Values of what algorithms take besides."""


@cache
def algorithms() -> dict[str, list[str]]:
    """Return what each collective can be told, as `overdrive info --algorithms` says."""
    done = subprocess.run(
        [sys.executable, str(programs.ROOT / "overdrive"), "info", "--algorithms", "--json"],
        env={"PATH": "/usr/bin:/bin", "OVERDRIVE_LIBRARY": str(jobs.overdrive_library())},
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        family["collective"]: [
            name if name == "host" else f"{name}{form}"
            for name in (algorithm["name"] for algorithm in family["algorithms"])
            for form in ("", "/flat", "/hierarchical")
        ]
        for family in json.loads(done.stdout)
    }


def forced(rng: random.Random) -> dict[str, str]:
    """Return variables that name an algorithm for each collective, some with parameters."""
    found = {}
    for collective, values in algorithms().items():
        name = f"OVERDRIVE_ADJUST_{collective.upper()}"
        found[name] = rng.choice(values)
        for parameter, choices in PARAMETERS.items():
            if rng.random() < 0.2:
                found[f"{name}_{parameter}"] = rng.choice(choices)
    return found


def left_out(setup: Setup) -> frozenset[str]:
    """Return what programs leave out in a setup."""
    spans_nodes = bool(setup.layout) or setup.nodes is not None
    known: set[str] = set()
    if setup.nodes is not None:
        known |= {"window-shared", *faults.BETWEEN_NODES.get(setup.host.name, {})}
    settings = {name: value for own in setup.unequal for name, value in own}
    if setup.unequal:
        # All ranks have this one from the first.
        settings["neighbour_collectives"] = dict(setup.unequal[0]).get("neighbour_collectives", "")
    settings |= dict(setup.settings)
    known |= faults.of(setup.host.name, setup.overdrive, settings, spans_nodes)
    return frozenset(known | LEFT_OUT)


def equal(rng: random.Random, overdrive: bool) -> dict[str, str]:
    """Return settings of all ranks."""
    settings = dict(rng.choice(SETTINGS))
    if rng.random() < SHUFFLED:
        settings["collective_shuffle"] = str(rng.randrange(1, 1000))
    elif overdrive and rng.random() < FORCED:
        settings |= forced(rng)
    return settings


def unequal(
    rng: random.Random, ranks: int, levels_differ: bool = True
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return settings of each rank, which differ; a third of the ranks has none of its own.

    `levels_differ`: whether the host bears ranks that were initialised for other thread levels.
    """
    own = []
    for _ in range(ranks):
        settings: dict[str, str] = {}
        if rng.random() < 2 / 3:
            settings |= rng.choice(SETTINGS)
            for more in rng.sample(UNEQUAL, rng.randrange(3)):
                settings |= more
            if rng.random() < FORCED:
                settings |= forced(rng)
        if not levels_differ:
            for name in ("progress", "overlap"):
                settings.pop(name, None)
        own.append(tuple(sorted(settings.items())))
    return tuple(own)


def endless(
    hosts: Sequence[Host],
    seed: int,
    overdrive: bool = True,
    ranks: Sequence[int] = RANKS,
    differ: bool = False,
) -> Iterator[Setup]:
    """Yield setups for ever, as the seed says; ranks may `differ` in their settings."""
    rng = random.Random(seed)
    while True:
        number = rng.choice(list(ranks))
        settings = {} if differ else equal(rng, overdrive)
        host = rng.choice(list(hosts))
        levels_differ = "thread-levels" not in faults.FAULTS.get(host.name, {})
        yield Setup(
            host,
            number,
            rng.choice(LAYOUTS[number]) if overdrive else "",
            tuple(sorted(settings.items())) if overdrive else (),
            overdrive=overdrive,
            unequal=unequal(rng, number, levels_differ) if differ and overdrive else (),
            threads=rng.random() < 0.12,
        )

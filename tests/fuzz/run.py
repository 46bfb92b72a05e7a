#!/usr/bin/env python3
"""Runs random MPI programs for a while: what `make fuzz` does.

    run.py --time 1h                  all hosts, layouts and settings, from where the last run ended
    run.py --seed 4711 --count 1 --hosts openmpi4 --ranks 4 --layout 0011 --set copy_path=pull
    run.py --without-overdrive        what a host gets wrong by itself

Findings are kept in build/fuzz: the failing program, as small as it got, and a C file of its own.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS), str(ROOT / "tools" / "hosts")]
if str(Path(__file__).parent) in sys.path:
    sys.path.remove(str(Path(__file__).parent))

import hosts  # noqa: E402
from support import jobs  # noqa: E402
from support.nodes import Nodes  # noqa: E402

from fuzz import search, ways  # noqa: E402
from fuzz.runner import Setup  # noqa: E402

UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}


def duration(text: str) -> float:
    """Return seconds: 90, 90s, 5m, 1h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, 5m or 1h")
    return float(found[1]) * UNITS[found[2]]


def parse() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time", type=duration, default=300.0, help="such as 90s, 5m, 1h")
    parser.add_argument("--hosts", default="", help="comma-separated; default: all usable")
    parser.add_argument("--seed", type=int, help="the first; default: where the last run ended")
    parser.add_argument("--ranks", type=int, help="default: two to sixteen")
    parser.add_argument("--layout", help="node of each rank, such as 0011")
    parser.add_argument("--lab", metavar="NODESxRANKS", help="virtual nodes, such as 2x3")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--unequal", action="store_true", help="other settings at each rank")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for one program")
    parser.add_argument("--count", type=int, default=0, help="batches; default: until time is up")
    parser.add_argument("--programs", type=int, default=search.BATCH, help="in one MPI job")
    parser.add_argument("--leave-out", default="", help="features, such as huge-runs,probe")
    parser.add_argument("--without-overdrive", action="store_true")
    parser.add_argument("--no-shrink", action="store_true", help="only say what fails")
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "fuzz")
    return parser.parse_args()


def main() -> int:
    """Run."""
    options = parse()
    wanted = options.hosts.split(",") if options.hosts else None
    found = hosts.load(wanted)
    if not found:
        print("no usable host of that name", file=sys.stderr)
        return 2
    options.keep.mkdir(parents=True, exist_ok=True)
    ways.LEFT_OUT.update(name for name in options.leave_out.split(",") if name)
    mark = options.keep / "next-seed"
    seed = options.seed
    if seed is None:
        seed = int(mark.read_text()) if mark.exists() else 1
    overdrive = not options.without_overdrive
    if overdrive and not jobs.overdrive_library().exists():
        print(f"{jobs.overdrive_library()} is missing: run `make` first", file=sys.stderr)
        return 2
    ranks = [options.ranks] if options.ranks else ways.RANKS
    chosen = ways.endless(found, seed, overdrive, ranks, options.unequal)
    if options.layout is not None or options.set:
        settings = tuple(tuple(text.split("=", 1)) for text in options.set)
        number = options.ranks or len(options.layout or "00")
        fixed = [Setup(host, number, options.layout or "", settings, overdrive) for host in found]
        chosen = itertools.cycle(fixed)
    if options.lab:
        return in_lab(options, found, seed, overdrive)
    return finish(options, found, seed, chosen)


def in_lab(options: argparse.Namespace, found: list[hosts.Host], seed: int, overdrive: bool) -> int:
    """Run on virtual nodes."""
    number, per_node = (int(part) for part in options.lab.split("x"))
    with Nodes(number) as nodes:
        setups = [
            Setup(host, number * per_node, "", (), overdrive, nodes=nodes, per_node=per_node)
            for host in found
        ]
        return finish(options, found, seed, itertools.cycle(setups))


def finish(
    options: argparse.Namespace, found: list[hosts.Host], seed: int, chosen: Iterator[Setup]
) -> int:
    """Search in these setups and sum up."""
    chosen = (replace(setup, limit=options.limit) for setup in chosen)
    if options.count:
        chosen = itertools.islice(chosen, options.count)
    tally = search.search(
        found,
        seed,
        options.time,
        chosen,
        options.keep,
        print,
        not options.no_shrink,
        options.programs,
    )
    ours = [finding for finding in tally.findings if finding.verdict != "host"]
    print(
        f"{tally.programs} programs, {tally.operations} operations in {tally.seconds:.0f} s: "
        f"{len(ours)} failures, {len(tally.findings) - len(ours)} of hosts"
    )
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())

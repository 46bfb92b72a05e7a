#!/usr/bin/env python3
"""Measures blocking collectives between the nodes of a virtual cluster, from the first call on.

    between.py                                 measure everything; write the page
    between.py --host mpich4 --layout 4x2 --net 20us --seconds 60     only this (keeps the rest)
    between.py --evaluate                      write the page again from earlier samples

Each group is a host, a layout of ranks on nodes and a network. Jobs with and without Overdrive take
turns at every point (turns.py). The program is between/od_between.c; medians are kept in
docs/measurements/data/between-nodes.csv, the page is docs/measurements/between-nodes.md.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from analysis import geometric_mean, size_name
from campaign import (
    OVERDRIVE,
    PLAIN,
    PROGRAMS,
    SHARED_SOURCES,
    SOURCES,
    Sample,
    c_flags,
    compile_program,
    load_part,
    next_round,
    samples_file,
    save,
)
from coll_campaign import CALLS, COLL
from goals import HOST_TITLES
from jobs import BUILD, ROOT, Host, is_current, library, select_hosts
from lab_runs import NoLab, nodes_and_ranks, up
from page import machine, table
from turns import Variant, run_together

BETWEEN = ROOT / "bench" / "between"
RAW = BUILD / "bench" / "between"
DATA = ROOT / "docs" / "measurements" / "data" / "between-nodes.csv"
PAGE = ROOT / "docs" / "measurements" / "between-nodes.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
NETS = {
    "off": ("off", ()),
    "1gbit": ("1gbit", ()),
    "20us": ("1gbit", ("--fabric", "switch", "--latency", "20us")),
}
NET_TITLES = {
    "off": "links without a limit",
    "1gbit": "1 Gbit/s",
    "20us": "1 Gbit/s and 20 µs",
}
TESTS = ("bcast", "allgather", "reduce", "allreduce", "alltoall")
NUMBERS = ("10", "30", "100", "1000")
LAST = "last"
SLOWER = 0.97
MORE_TURNS = 2
COLUMNS = ["host", "layout", "net", "collective", "bytes", "calls", "variant", "us", "low", "high"]
Key = tuple[str, str, str, str, int, str]
"""Host, layout, network, collective, bytes, calls."""


def build(host: Host) -> Path:
    """Compile the program for a host unless it is newer than its sources."""
    folder = PROGRAMS / host.name
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "od_between"
    sources = [BETWEEN / "od_between.c", *CALLS, *SHARED_SOURCES]
    if not is_current(binary, [*sources, *COLL.glob("*.h"), *SOURCES.glob("*.h")]):
        names = [str(path) for path in sources]
        command = [*host.mpicc, *c_flags(host), *names, "-lm", "-o", str(binary)]
        problem = compile_program(command, host, folder)
        if problem:
            sys.exit(f"between: {problem}")
    return binary


def group_name(host: str, layout: str, net: str) -> str:
    """Return the name of the file with a group's samples."""
    return f"{host}-{layout}-{net}"


def measure(host: Host, layout: str, net: str, options: argparse.Namespace) -> list[str]:
    """Add samples of one group; return what went wrong."""
    nodes, per_node = nodes_and_ranks(layout)
    rate, fabric = NETS[net]
    name = group_name(host.name, layout, net)
    program = build(host)
    # The fabric's switch could add by itself; that is another page's business.
    settings = {"OVERDRIVE_SWITCH": "off"}
    settings |= dict(item.split("=", 1) for item in options.set)
    libraries = dict(item.split("=", 1) for item in options.libraries)
    variants = [Variant(PLAIN, host, program)]
    for title, path in (libraries or {OVERDRIVE: str(library())}).items():
        variants.append(Variant(title, host, program, Path(path), settings))
    arguments = ["--tests", options.tests, "--sizes", options.sizes, "--share", str(RAW)]
    arguments += ["--sample-ms", f"{options.sample_ms:g}", "--whole-round", "1"]
    RAW.mkdir(parents=True, exist_ok=True)
    first = next_round(load_part(name, RAW))
    try:
        with up(nodes, per_node, rate, fabric) as lab:
            found, problems = run_together(
                variants, arguments, nodes * per_node, options.seconds, first,
                start=lab.start, folder=RAW,
            )  # fmt: skip
    except NoLab as reason:
        return [f"no virtual cluster: {reason}"]
    save(found, samples_file(name, RAW), append=True)
    return [f"{name}: {problem}" for problem in problems]


def medians(samples: list[Sample]) -> dict[tuple[str, int, str, str], list[float]]:
    """Return all values by collective, bytes, number of calls and variant."""
    found: dict[tuple[str, int, str, str], list[float]] = defaultdict(list)
    for one in samples:
        found[one.test, one.size_bytes, one.mode, one.variant].append(one.value)
    return found


def evaluate() -> list[list[object]]:
    """Return the rows of the data file: median, smallest and largest value of each point."""
    rows: list[list[object]] = []
    for file in sorted(RAW.glob("*.csv")):
        host, layout, net = file.stem.split("-")
        for (test, size, calls, variant), values in sorted(
            medians(load_part(file.stem, RAW)).items()
        ):
            if calls not in (*NUMBERS, LAST):
                continue
            row = [
                f"{value:.4g}" for value in (statistics.median(values), min(values), max(values))
            ]
            rows.append([host, layout, net, test, size, calls, variant, *row])
    return rows


def ratios(rows: list[list[str]]) -> dict[Key, float]:
    """Return how many times as fast as the host each point is."""
    times = {tuple(row[:7]): float(row[7]) for row in rows}
    found: dict[Key, float] = {}
    for key, us in times.items():
        host, layout, net, test, size, calls, variant = key
        alone = times.get((*key[:6], PLAIN))
        if variant == OVERDRIVE and alone is not None:
            found[host, layout, net, test, int(size), calls] = alone / us
    return found


def _cell(values: list[float]) -> str:
    return f"{geometric_mean(values):.2f} ({min(values):.2f})" if values else "–"


def glance(found: dict[Key, float], calls: str) -> list[str]:
    """Return a table of means and smallest ratios: groups down, collectives across."""
    groups = sorted({key[:3] for key in found}, key=lambda g: (list(NETS).index(g[2]), g[1], g[0]))
    rows = []
    for group in groups:
        chosen = {
            t: [v for k, v in found.items() if k[:4] == (*group, t) and k[5] == calls]
            for t in TESTS
        }
        host, layout, net = group
        rows.append(
            [f"{layout}, {NET_TITLES[net]}", HOST_TITLES[host], *(_cell(chosen[t]) for t in TESTS)]
        )
    return table(["", "host", *TESTS], rows)


def part(rows: list[list[str]], commit: str) -> list[str]:
    """Return the figures of the page."""
    found = ratios(rows)
    steady = {key: value for key, value in found.items() if key[5] == LAST}
    slower = sorted((value, key) for key, value in steady.items() if value < SLOWER)
    lines = [
        f"Machine: {machine()} Commit {commit}.",
        "",
        "**Once the choice is made** (later calls): mean over sizes (smallest)",
        "",
        *glance(found, LAST),
        "**From the first call on**: mean over all points (smallest)",
        "",
    ]
    groups = sorted({key[:3] for key in found}, key=lambda g: (list(NETS).index(g[2]), g[1], g[0]))
    cells = []
    for host, layout, net in groups:
        row = [f"{layout}, {NET_TITLES[net]}", HOST_TITLES[host]]
        for calls in NUMBERS:
            row.append(
                _cell(
                    [v for k, v in found.items() if k[:3] == (host, layout, net) and k[5] == calls]
                )
            )
        cells.append(row)
    lines += table(["", "host", *(f"{number} calls" for number in NUMBERS)], cells)
    lines += [f"Points below {SLOWER} once the choice is made: {len(slower)} of {len(steady)}."]
    lines += (
        [
            "",
            *table(
                ["", "host", "call", "size", "ratio"],
                [
                    [
                        f"{k[1]}, {NET_TITLES[k[2]]}",
                        HOST_TITLES[k[0]],
                        k[3],
                        size_name(k[4]),
                        f"{v:.2f}",
                    ]
                    for v, k in slower
                ],
            ),
        ]
        if slower
        else []
    )
    return lines


def write(commit: str, rows: list[list[object]]) -> None:
    """Write data and page."""
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with DATA.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    lines = part([[str(cell) for cell in row] for row in rows], commit)
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, END]) + rest.split(END)[1])


def show(name: str) -> None:
    """Print the points of a group: times of the host and ratios."""
    every = medians(load_part(name, RAW))
    variants = sorted({key[3] for key in every} - {PLAIN})
    print(name, "host us, then", ", ".join(variants))
    for test, size in sorted(
        {key[:2] for key in every}, key=lambda k: (TESTS.index(k[0]) if k[0] in TESTS else 9, k[1])
    ):
        line = f"  {test:10} {size_name(size):8}"
        for calls in (*NUMBERS, LAST):
            alone = every.get((test, size, calls, PLAIN))
            if alone is None:
                line += f" {calls}: –"
                continue
            line += f" {calls}: {statistics.median(alone):8.1f}"
            for variant in variants:
                mine = every.get((test, size, calls, variant))
                if mine is None:
                    line += " –"
                    continue
                line += f" {statistics.median(alone) / statistics.median(mine):.2f}"
                if calls == LAST:
                    each = sorted(a / b for a, b in zip(alone, mine))
                    line += " [" + " ".join(f"{v:.2f}" for v in each) + "]"
        print(line)


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", default="openmpi4,mpich4", help="comma-separated names")
    parser.add_argument("--layout", default="2x2,4x2", help="nodes x ranks on each")
    parser.add_argument("--net", default=",".join(NETS), help=", ".join(NETS))
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--sizes", default="8,1K,16K,128K,1M")
    parser.add_argument("--sample-ms", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=20, help="of each group, at least a round")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--library",
        dest="libraries",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="builds to compare instead of the usual one",
    )
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--show", action="store_true", help="print points; write no page")
    parser.add_argument("--commit", default="not said")
    options = parser.parse_args()
    hosts, missing = select_hosts(options.host)
    for name, why in missing.items():
        print(f"between: without {name}: {why}", file=sys.stderr)
    failed = []
    names = [
        (host, layout, net)
        for layout in options.layout.split(",")
        for net in options.net.split(",")
        for host in hosts
    ]
    for host, layout, net in names:
        if not options.evaluate:
            failed += measure(host, layout, net, options)
        if options.show:
            show(group_name(host.name, layout, net))
    for problem in failed:
        print(f"between: {problem}", file=sys.stderr)
    if not options.show:
        write(options.commit, evaluate())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

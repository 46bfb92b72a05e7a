#!/usr/bin/env python3
"""Measures how much of a non-blocking collective between nodes is hidden behind computation.

    nonblocking.py                            measure over a virtual cluster; write the page's part
    nonblocking.py --host mpich4 --layout 4x1 --progress agent     only this (keeps other figures)
    nonblocking.py --evaluate                 write the part again from earlier figures

Figures are kept in docs/measurements/data/nonblocking.csv; the part is the one between two marks in
docs/measurements/nonblocking.md. The program is nonblocking/hidden.c.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

from jobs import BUILD, ROOT, Host, library, select_hosts
from lab_runs import LabRuns, NoLab, nodes_and_ranks, up
from page import table
from turns import Variant

DATA = ROOT / "docs" / "measurements" / "data" / "nonblocking.csv"
PAGE = ROOT / "docs" / "measurements" / "nonblocking.md"
SOURCE = ROOT / "bench" / "nonblocking" / "hidden.c"
BEGIN, END = "<!-- between nodes: begin -->", "<!-- between nodes: end -->"
KEYS = ["host", "layout", "rate", "variant", "what", "bytes"]
COLUMNS = [*KEYS, "pure_ms", "start_ms", "compute_ms", "wait_ms", "hidden"]
WHAT = ("ibcast", "iallgather", "ialltoall", "iallreduce")
VARIANTS = ("host", "calls", "agent")
GOAL = 0.9
SECONDS = 200
Row = dict[str, str]


def build(host: Host) -> Path:
    """Compile the program for a host."""
    target = BUILD / "bench" / host.name / "nonblocking_hidden"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*host.mpicc, "-std=gnu11", "-O2", str(SOURCE), "-o", str(target)]
    subprocess.run(command, env=host.environment(), check=True, capture_output=True)
    return target


def measure(cluster: LabRuns, host: Host, layout: str, rate: str, chosen: list[str]) -> list[Row]:
    """Run one job: a way to make progress, the collectives and the sizes."""
    variant, whats, sizes = chosen
    nodes, per_node = nodes_and_ranks(layout)
    program = build(host)
    # Those that the host would serve, because they are short, are wanted as well.
    settings = {"OVERDRIVE_PROGRESS": variant, "OVERDRIVE_NONBLOCKING_REDUCE_MIN": "64K"}
    way = (
        Variant(variant, host, program)
        if variant == "host"
        else Variant(variant, host, program, library(), settings)
    )
    words = [str(program), f"--what={whats}", f"--sizes={sizes}"]
    job = cluster.start(way, nodes * per_node, words, SECONDS, 0, None)
    if not job.ok:
        print(f"nonblocking: {variant}: {' '.join(words)}: {job.problem('too slow')}")
    found = []
    for line in job.stdout.splitlines():
        fields = line.split(",")
        if len(fields) == len(COLUMNS) - 4:
            found.append(dict(zip(COLUMNS, [host.name, layout, rate, variant, *fields])))
    return found


def _size(size: str) -> str:
    kib = int(size) // 1024
    return f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"


def _cell(rows: list[Row], variant: str) -> list[str]:
    one = next((row for row in rows if row["variant"] == variant), None)
    if one is None:
        return ["–", "–"]
    return [f"{float(one['pure_ms']):.2f}", f"{100 * float(one['hidden']):.0f}"]


def part(rows: list[Row], note: str) -> list[str]:
    """Return the lines of the page's part."""
    lines = [
        "## Between nodes",
        "",
        "`python3 bench/nonblocking.py` measures this again over virtual nodes; figures in",
        "[data/nonblocking.csv](data/nonblocking.csv). *ms*: start and wait back to back.",
        "*Hidden*: 1 - (start + wait) / that, in percent, with computation in between that takes",
        "each rank as long, and no call of MPI in it (the definition of the OSU benchmarks). Sizes",
        "are of the vector, or of the block from one rank to one rank. Medians of 7, means of the",
        "ranks.",
        "",
    ]
    if note:
        lines += [note, ""]
    header = ["call", "size"]
    for variant in VARIANTS:
        title = "host" if variant == "host" else f"`progress={variant}`"
        header += [f"{title}: ms", "hidden, %"]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for one in rows:
        groups.setdefault((one["host"], one["layout"], one["rate"]), []).append(one)
    missed = []
    for (host, layout, rate), group in groups.items():
        lines += [f"### {host}, {layout} ranks, {rate}", ""]
        cells = []
        for what, size in dict.fromkeys((one["what"], one["bytes"]) for one in group):
            chosen = [one for one in group if (one["what"], one["bytes"]) == (what, size)]
            line = [what, _size(size)]
            for variant in VARIANTS:
                line += _cell(chosen, variant)
            cells.append(line)
            missed += [
                f"{host} {layout} {what} {_size(size)} ({100 * float(one['hidden']):.0f} %)"
                for one in chosen
                if one["variant"] == "agent" and float(one["hidden"]) < GOAL
            ]
        lines += [*table(header, cells), ""]
    goal = f"The goal is {100 * GOAL:.0f} % with `progress=agent`. "
    lines.append(goal + ("Missed: " + "; ".join(missed) + "." if missed else "No point misses it."))
    return [*lines, ""]


def read() -> list[Row]:
    """Return the figures so far."""
    if not DATA.exists():
        return []
    with DATA.open() as file:
        return list(csv.DictReader(file))


def write(rows: list[Row], note: str) -> None:
    """Write figures and page."""
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with DATA.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = PAGE.read_text()
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text("\n".join([before + BEGIN, "", *part(rows, note), END]) + after)


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="openmpi4,mpich4", help="comma-separated names")
    parser.add_argument("--layout", default="2x1,4x1", help="nodes x ranks on each")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--sizes", default="65536,262144,1048576,4194304")
    parser.add_argument("--what", default=",".join(WHAT))
    parser.add_argument("--progress", default=",".join(VARIANTS), help="host, calls, agent")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--note", default="", help="a sentence about the machine at the time")
    chosen = parser.parse_args()
    rows = read()
    if not chosen.evaluate:
        hosts, missing = select_hosts(chosen.host)
        for name, why in missing.items():
            print(f"nonblocking: without {name}: {why}", file=sys.stderr)
        for layout in chosen.layout.split(","):
            nodes, per_node = nodes_and_ranks(layout)
            try:
                with up(nodes, per_node, chosen.rate) as cluster:
                    for host in hosts:
                        for variant in chosen.progress.split(","):
                            wanted = [variant, chosen.what, chosen.sizes]
                            new = measure(cluster, host, layout, chosen.rate, wanted)
                            done = {tuple(one[name] for name in KEYS) for one in new}
                            kept = [o for o in rows if tuple(o[n] for n in KEYS) not in done]
                            rows = [*kept, *new]
            except NoLab as reason:
                print(f"nonblocking: no virtual cluster: {reason}", file=sys.stderr)
                return 1
    order = {name: number for number, name in enumerate([*VARIANTS, *WHAT])}
    rows.sort(
        key=lambda o: (o["host"], o["layout"], order[o["what"]], int(o["bytes"]), o["variant"])
    )
    write(rows, chosen.note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures how much of a collective is hidden behind the computation after it (setting `overlap`).

    overlap.py                            measure over a virtual cluster; write the page
    overlap.py --host mpich5 --layout 2x2 --rate 100mbit     only this (keeps the other figures)
    overlap.py --what none --kernels ft,is      only the programs FT and IS of bench/kernels
    overlap.py --evaluate                 write the page again from earlier figures

Figures are kept in docs/measurements/data/overlap.csv and overlap-kernels.csv. The program
(overlap/hidden.c) runs twice at each point, with `overlap=off` and `on`; what `on` saves is
compared with what the model allows: the smaller one of the computation and of the time of the
call beyond its own.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path
from statistics import median

from campaign import build_programs, parse
from jobs import BUILD, ROOT, Host, library, select_hosts
from lab_runs import NoLab, up
from page import table
from turns import Variant

DATA = ROOT / "docs" / "measurements" / "data" / "overlap.csv"
PAGE = ROOT / "docs" / "measurements" / "overlap.md"
SOURCE = ROOT / "bench" / "overlap" / "hidden.c"
COLUMNS = ["host", "layout", "rate", "what", "bytes", "overlap"]
COLUMNS += ["kind", "part", "ms", "call", "whole"]
KERNEL_DATA = DATA.with_name("overlap-kernels.csv")
KERNEL_COLUMNS = ["host", "layout", "rate", "kernel", "input", "overlap", "ms", "messages"]
MODES = ("off", "on", "auto")
TURNS = 3
WHAT = ("bcast", "allgather", "alltoall", "alltoallv")
SECONDS = 120
Row = dict[str, str]


def build(host: Host) -> Path:
    """Compile the program for a host."""
    target = BUILD / "bench" / host.name / "overlap_hidden"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*host.mpicc, "-std=gnu11", "-O2", str(SOURCE), "-o", str(target)]
    subprocess.run(command, env=host.environment(), check=True, capture_output=True)
    return target


def measure(host: Host, layout: str, rate: str, sizes: list[int], whats: list[str]) -> list[Row]:
    """Run all points of a host over one cluster."""
    nodes, per_node = (int(number) for number in layout.split("x"))
    program = build(host)
    found: list[Row] = []
    with up(nodes, per_node, rate) as cluster:
        for what in whats:
            for size in sizes:
                blocking = 0.0
                for overlap in ("off", "on"):
                    settings = {"OVERDRIVE_OVERLAP": overlap, "OVERDRIVE_LEARN": "off"}
                    variant = Variant(overlap, host, program, library(), settings)
                    words = [str(program), f"--what={what}", f"--bytes={size}"]
                    words.append(f"--comm-ms={blocking}")
                    job = cluster.start(variant, nodes * per_node, words, SECONDS, 0, None)
                    if not job.ok:
                        print(f"overlap: {' '.join(words)}: {job.problem('too slow')}")
                        continue
                    for line in job.stdout.splitlines():
                        fields = line.split(",")
                        if len(fields) != 7:
                            continue
                        values = [host.name, layout, rate, what, str(size), overlap, *fields[2:]]
                        found.append(dict(zip(COLUMNS, values)))
                        if fields[2] == "none" and overlap == "off":
                            blocking = float(fields[6])
    return found


def measure_kernels(host: Host, layout: str, rate: str, kernels: str, inputs: str) -> list[Row]:
    """Run whole programs in all modes, in turns; medians of the samples of all turns."""
    nodes, per_node = (int(number) for number in layout.split("x"))
    programs = build_programs(host)
    if programs.problem or programs.od_kernels is None:
        print(f"overlap: no kernels over {host.name}: {programs.problem}", file=sys.stderr)
        return []
    words = [str(programs.od_kernels), "--tests", kernels, "--shapes", inputs]
    words += ["--modes", "collective", "--repetitions", "3"]
    times: dict[tuple[str, str, str], list[float]] = {}
    shares: dict[tuple[str, str, str], list[float]] = {}
    with up(nodes, per_node, rate) as cluster:
        for _ in range(TURNS):
            for mode in MODES:
                settings = {"OVERDRIVE_OVERLAP": mode, "OVERDRIVE_LEARN": "off"}
                settings["OVERDRIVE_OVERLAP_TRACE"] = "off"
                variant = Variant(mode, host, programs.od_kernels, library(), settings)
                job = cluster.start(variant, nodes * per_node, words, SECONDS, 0, None)
                if not job.ok:
                    print(f"overlap: {' '.join(words)}: {job.problem('too slow')}")
                    continue
                for sample in parse(job.stdout, host.name, mode, 0):
                    key = (sample.test, sample.shape, mode)
                    into = times if sample.kind == "time" else shares
                    into.setdefault(key, []).append(sample.value)
    found = []
    for (kernel, size, mode), values in times.items():
        share = median(shares.get((kernel, size, mode), [0.0]))
        row = [host.name, layout, rate, kernel, size, mode]
        found.append(dict(zip(KERNEL_COLUMNS, [*row, f"{median(values):.3f}", f"{share:.3f}"])))
    return found


def kernel_tables(rows: list[Row]) -> list[str]:
    """Return the part of the page about whole programs."""
    if not rows:
        return []
    lines = ["## FT and IS", ""]
    lines += [
        "Programs of `bench/kernels` in the manner of the NAS parallel benchmarks: ms per run with",
        "`off`, how much of that lies in messages, and how many times as fast `on` and `auto` are.",
        "Medians, modes in turns.",
        "",
    ]
    cells = []
    points = dict.fromkeys(tuple(one[name] for name in KERNEL_COLUMNS[:5]) for one in rows)
    for point in points:
        at = {one["overlap"]: one for one in rows
              if tuple(one[name] for name in KERNEL_COLUMNS[:5]) == point}  # fmt: skip
        if "off" not in at:
            continue
        off = float(at["off"]["ms"])
        gains = [f"{off / float(at[mode]['ms']):.2f}" if mode in at else "–" for mode in MODES[1:]]
        share = f"{100 * float(at['off']['messages']):.0f} %"
        cells.append([*point, f"{off:.1f}", share, *gains])
    header = ["host", "layout", "rate", "program", "input", "off, ms", "in messages", "on", "auto"]
    return [*lines, *table(header, cells), ""]


def summary(rows: list[Row]) -> list[str]:
    """Return one line of the page's table: what was hidden at one size."""
    at = {(one["overlap"], one["kind"], one["part"]): one for one in rows}
    none_off, none_on = at.get(("off", "none", "0.00")), at.get(("on", "none", "0.00"))
    if none_off is None or none_on is None:
        return []
    blocking = float(none_off["whole"])
    cells = [f"{blocking:.1f}"]
    calls = [float(one["call"]) for one in rows if one["overlap"] == "on"]
    cells.append(f"{100 * sorted(calls)[len(calls) // 2] / blocking:.0f} %")
    call = sorted(calls)[len(calls) // 2]
    for kind in ("unrelated", "related"):
        for part in ("0.50", "1.00", "2.00"):
            off, on = at.get(("off", kind, part)), at.get(("on", kind, part))
            if off is None or on is None:
                cells.append("–")
                continue
            allowed = min(float(off["ms"]), blocking - call)
            saved = float(off["whole"]) - float(on["whole"])
            cells.append(f"{saved:.1f} ({100 * saved / allowed:.0f} %)" if allowed > 0 else "–")
    slower = float(none_on["whole"]) / blocking
    cells.append(f"{slower:.2f}")
    return cells


def page(rows: list[Row], kernels: list[Row], notes: str) -> str:
    """Return the page."""
    lines = [
        "# Measurements: overlap",
        "",
        "`python3 bench/overlap.py` measures this again, over virtual nodes of one machine with",
        "two cores; figures in [data/overlap.csv](data/overlap.csv). The same program runs with",
        "`overlap=off` and `on`: a collective, then computation of 0.5, 1 and 2 times the blocking",
        "call, then the received data is read (*unrelated*), or computation that reads it bit by",
        "bit (*related*). A cell is what `on` saves, in ms, and how much that is of what the model",
        "allows, min(computation, T_comm - T_init). The last column is the whole without any",
        "computation, `on` by `off`. Medians of 7, slowest rank.",
        "",
    ]
    if notes:
        lines += [notes, ""]
    header = ["call", "sub-message", "T_comm, ms", "T_init of it"]
    header += [f"{kind} {part}" for kind in ("unrelated", "related") for part in ("½", "1", "2")]
    header.append("nothing to hide")
    groups: dict[tuple[str, ...], list[Row]] = {}
    for one in rows:
        key = (one["host"], one["layout"], one["rate"])
        groups.setdefault(key, []).append(one)
    for (host, layout, rate), group in groups.items():
        lines += [f"## {host}, {layout} ranks, {rate}", ""]
        cells = []
        points = dict.fromkeys((one["what"], one["bytes"]) for one in group)
        for what, size in points:
            chosen = [one for one in group if (one["what"], one["bytes"]) == (what, size)]
            values = summary(chosen)
            if values:
                cells.append([what, f"{int(size) // 1024} KiB", *values])
        lines += [*table(header, cells), ""]
    return "\n".join([*lines, *kernel_tables(kernels)])


def read(path: Path) -> list[Row]:
    """Return the figures so far."""
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def replace_rows(
    path: Path, columns: list[str], point: int, rows: list[Row], new: list[Row]
) -> list[Row]:
    """Put new figures in the place of those of the same points; write and return all."""
    keys = {tuple(one[name] for name in columns[:point]) for one in new}
    kept = [one for one in rows if tuple(one[name] for name in columns[:point]) not in keys]
    kept += new
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    return kept


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", help="comma-separated names")
    parser.add_argument("--layout", default="2x1", help="nodes x ranks on each")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--sizes", default="262144,1048576,4194304")
    parser.add_argument("--what", default=",".join(WHAT))
    parser.add_argument("--kernels", default="ft,is", help="whole programs; empty: none")
    parser.add_argument("--inputs", default="long")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--note", default="", help="a sentence about the machine at the time")
    chosen = parser.parse_args()
    rows, kernels = read(DATA), read(KERNEL_DATA)
    if not chosen.evaluate:
        hosts, missing = select_hosts(chosen.host)
        for name, why in missing.items():
            print(f"overlap: without {name}: {why}", file=sys.stderr)
        sizes = [int(size) for size in chosen.sizes.split(",")]
        for host in hosts:
            try:
                new = []
                if chosen.what != "none":
                    new = measure(host, chosen.layout, chosen.rate, sizes, chosen.what.split(","))
                new_kernels = []
                if chosen.kernels:
                    new_kernels = measure_kernels(
                        host, chosen.layout, chosen.rate, chosen.kernels, chosen.inputs
                    )
            except NoLab as reason:
                print(f"overlap: no virtual cluster: {reason}", file=sys.stderr)
                return 1
            rows = replace_rows(DATA, COLUMNS, 5, rows, new)
            kernels = replace_rows(KERNEL_DATA, KERNEL_COLUMNS, 5, kernels, new_kernels)
    PAGE.write_text(page(rows, kernels, chosen.note))
    return 0


if __name__ == "__main__":
    sys.exit(main())

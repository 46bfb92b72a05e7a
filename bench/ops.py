#!/usr/bin/env python3
"""Measures the reduction kernels against every host's MPI_Reduce_local.

    ops.py                   measure over all hosts; write docs/measurements/ops.md
    ops.py --hosts mpich4    only these hosts (keeps the earlier figures of the others)
    ops.py --evaluate        write the page again from earlier figures

Figures are kept in docs/measurements/data/ops.csv. `--prefix` names a command to start the
measuring program with, for instance `nice -n -19` or one that keeps the machine quiet.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import subprocess
import sys
from pathlib import Path

from analysis import geometric_mean
from jobs import HOST_NAMES, ROOT, Host, select_hosts
from page import table

DATA = ROOT / "docs" / "measurements" / "data" / "ops.csv"
PAGE = ROOT / "docs" / "measurements" / "ops.md"
COLUMNS = ["host", "what", "kind", "op", "bytes", "sources", "ns"]
SIZES = {4096: "4 KiB", 65536: "64 KiB", 4194304: "4 MiB"}
SLOWER_BELOW = 0.95
"""Less than 5 % can be chance."""
Row = dict[str, str]


def build(host: Host) -> Path:
    """Compile the measuring program for a host with the kernels of the release build."""
    archive = ROOT / "build" / "release" / "archive" / "liboverdrive_core.a"
    if not archive.exists():
        raise SystemExit(f"{archive} is missing: run `make` first")
    program = ROOT / "build" / "bench" / host.name / "od_ops"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *host.mpicxx,
        *(f"-D{name}" for name in host.defines),
        "-std=c++20",
        "-O2",
        f"-I{ROOT / 'src'}",
        str(ROOT / "bench" / "ops" / "od_ops.cc"),
        str(archive),
        "-o",
        str(program),
    ]
    subprocess.run(command, env=host.environment(), check=True)
    return program


def run(host: Host, prefix: list[str], arguments: list[str]) -> list[Row]:
    """Measure over one host."""
    command = [*prefix, *host.mpiexec(1, {}), str(build(host)), *arguments]
    result = subprocess.run(
        command, env=host.environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    lines = [line.split(",") for line in result.stdout.splitlines()]
    return [dict(zip(COLUMNS, [host.name, *line], strict=True)) for line in lines if len(line) == 6]


def load() -> list[Row]:
    """Return the figures measured so far."""
    if not DATA.exists():
        return []
    with DATA.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def save(rows: list[Row]) -> None:
    """Keep the figures."""
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with DATA.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def page(rows: list[Row]) -> str:
    """Return the page: summaries, and where a host is faster."""
    times: dict[tuple, float] = {}
    for row in rows:
        key = (row["host"], row["what"], row["kind"], row["op"], int(row["bytes"]))
        if row["sources"] == "2" and row["what"] in ("kernel", "host"):
            times.setdefault(key, float(row["ns"]))
    names = [name for name in HOST_NAMES if any(key[0] == name for key in times)]
    pairs = list(dict.fromkeys((key[2], key[3]) for key in times if key[4] in SIZES))
    summary = []
    for name in names:
        line = [name]
        for size in SIZES:
            ratios = [
                times[name, "host", kind, op, size] / times[name, "kernel", kind, op, size]
                for kind, op in pairs
            ]
            mean = geometric_mean(ratios)
            slower = sum(ratio < SLOWER_BELOW for ratio in ratios)
            line.append(f"{mean:.1f} ({min(ratios):.2f} … {max(ratios):.0f}; {slower})")
        summary.append(line)
    text = [
        "# Reduction kernels\n",
        "How fast the kernels of `src/coll/ops` combine two arrays, against `MPI_Reduce_local` of"
        " each host, in one process. Reproduce with `python3 bench/ops.py`; all figures:"
        " [data/ops.csv](data/ops.csv).\n",
        "All elements are equal, which suits loops that branch. `long_double` has no vectors: there"
        " kernels and hosts run at the speed of the x87 unit.\n",
        "## Times as fast as the host\n",
        "Geometric mean over all kinds and operations (smallest … largest; how many of"
        f" {len(pairs)} are more than 5 % slower than the host).\n",
        *table(["host", *SIZES.values()], summary),
        "## Several operands\n",
        "Sums of doubles, ns: all operands in one pass, one after the other, and in one pass with"
        " streaming stores.\n",
        *several(rows),
    ]
    slow = [
        [kind, op, label, name, f"{ratio:.2f}"]
        for kind, op in pairs
        for size, label in SIZES.items()
        for name in names
        if (ratio := times[name, "host", kind, op, size] / times[name, "kernel", kind, op, size])
        < SLOWER_BELOW
    ]
    text += [
        "## Where a host is faster\n",
        *table(["kind", "operation", "size", "host", "times as fast"], slow),
    ]
    return "\n".join(text)


def several(rows: list[Row]) -> list[str]:
    """Return the lines of the table of more than two operands."""
    found: dict[tuple[int, int], dict[str, str]] = {}
    first = next((row["host"] for row in rows if row["what"] == "chain"), None)
    host_rows = [row for row in rows if row["host"] == first]
    begin = next((i for i, row in enumerate(host_rows) if row["what"] == "chain"), 1) - 1
    for row in host_rows[begin:]:
        found.setdefault((int(row["bytes"]), int(row["sources"])), {})[row["what"]] = row["ns"]
    body = [
        [str(size), str(sources), *(f"{float(each[what]):.0f}" for what in each)]
        for (size, sources), each in found.items()
    ]
    return table(["bytes", "operands", "one pass", "chain", "streaming"], body)


def main() -> None:
    """Measure and write, as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="", help="comma-separated; default: all usable")
    parser.add_argument("--prefix", default="", help="command to start the program with")
    parser.add_argument("--evaluate", action="store_true", help="only write the page")
    options = parser.parse_args()
    rows = load()
    prefix = shlex.split(options.prefix)
    if not options.evaluate:
        hosts, missing = select_hosts(options.hosts)
        for name, why in missing.items():
            print(f"{name}: {why}", file=sys.stderr)
        for host in hosts:
            rows = [row for row in rows if row["host"] != host.name]
            rows += run(host, prefix, [])
            rows += run(host, prefix, ["--sources"])
            save(rows)
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

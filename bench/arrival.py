"""Measures broadcasts to which ranks come at different times, and writes a page of it.

Virtual clusters of two nodes with four ranks and of four nodes with two, with links of 1 Gbit/s and
unlimited ones; `overdrive bench arrival` imposes the patterns.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools" / "hosts"), str(ROOT / "cli")]

import hosts  # noqa: E402
from goals import HOST_TITLES  # noqa: E402
from lab_runs import libraries_for  # noqa: E402

COMMAND = [sys.executable, str(ROOT / "overdrive")]
PAGE = ROOT / "docs" / "measurements" / "arrival.md"
DATA = ROOT / "docs" / "measurements" / "data" / "arrival.csv"
LAYOUTS = {"2x4": (2, 4), "4x2": (4, 2)}
RATES = {"1 Gbit/s": "1gbit", "unlimited": ""}
JOBS = ("host", "plain", "first_arrival")
PATTERNS = ("together", "one-late", "linear", "random", "late-leader", "late-root")
FIELDS = ("host", "layout", "rate", "job", "pattern", "bytes", "wait", "others", "whole", "off")


def measure(
    host: hosts.Host, layout: str, rate: str, options: argparse.Namespace
) -> Iterator[list[str]]:
    """Measure over one cluster; yield rows of samples."""
    nodes, per_node = LAYOUTS[layout]
    name = f"arrival{os.getpid()}"
    words = ["lab", "up", "--name", name, "--nodes", str(nodes)]
    words += ["--rate", RATES[rate]] if RATES[rate] else []
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL)
    file = ROOT / "build" / "arrival.csv"
    environment = {**os.environ, **host.env}
    libraries = libraries_for(host)
    if libraries:
        environment["LD_PRELOAD"] = ":".join(libraries)
    try:
        words = ["bench", "arrival", "--lab", name, "--ppn", str(per_node)]
        words += ["--launcher", host.launcher, "--sizes", options.sizes]
        words += ["--repeats", str(options.repeats), "--delay", str(options.delay)]
        words += ["--pattern", options.pattern, "--csv", str(file)]
        done = subprocess.run([*COMMAND, *words], env=environment, check=False)
        if done.returncode != 0:
            print(f"{host.name} {layout} {rate}: exit status {done.returncode}", file=sys.stderr)
    finally:
        subprocess.run([*COMMAND, "lab", "down", "--name", name], check=False)
    with file.open() as lines:
        for row in csv.DictReader(lines):
            yield [host.name, layout, rate, *(row[field] for field in FIELDS[3:])]


def median(rows: Sequence[dict[str, str]], value: str, **point: str) -> float | None:
    """Return a median in milliseconds of the samples of a point."""
    found = [
        float(row[value]) / 1e3
        for row in rows
        if all(row[name] == wanted for name, wanted in point.items())
    ]
    return statistics.median(found) if found else None


def size_text(size: str) -> str:
    """Return a size as people write it."""
    number = int(size)
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"


def tables(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """Yield the tables of the page, one per host, layout and rate."""
    points = dict.fromkeys((row["host"], row["layout"], row["rate"]) for row in rows)
    for host, layout, rate in points:
        nodes, per_node = LAYOUTS[layout]
        yield f"\n### {HOST_TITLES.get(host, host)}: {nodes} nodes of {per_node} ranks, {rate}\n"
        yield "| pattern | size | mean wait: host | plain | first | whole: host | plain | first |"
        yield "|---|---|---|---|---|---|---|---|"
        here = [r for r in rows if (r["host"], r["layout"], r["rate"]) == (host, layout, rate)]
        for pattern in PATTERNS:
            for size in dict.fromkeys(row["bytes"] for row in here):
                values = [
                    median(here, value, job=job, pattern=pattern, bytes=size)
                    for value in ("wait", "whole")
                    for job in JOBS
                ]
                if None in values:
                    continue
                cells = " | ".join(f"{value:.2f}" for value in values)
                yield f"| {pattern} | {size_text(size)} | {cells} |"


def write(rows: Sequence[dict[str, str]], delay: str) -> None:
    """Write the page."""
    off = statistics.median(float(row["off"]) for row in rows)
    lines = [
        "# Broadcasts to which ranks come at different times",
        "",
        "Written by `python3 bench/arrival.py`. *host*: the MPI library alone; *plain*: the usual",
        "algorithm of Overdrive; *first*: [first_arrival](../design/first-arrival.md). They",
        f"take turns call by call over one virtual cluster (`overdrive lab`). Delay {delay} ms;",
        "milliseconds, medians over calls. *mean wait*: time inside the call, mean over ranks, the",
        "late ones included; *whole*: from the moment when the first ranks come until the last has",
        "left, so it contains the delay. The patterns are those of `overdrive bench arrival`; in",
        f"the median of calls ranks came within {off:.0f} us of where they should. All nodes share",
        f"the {os.cpu_count()} processors of this machine.",
    ]
    lines += tables(rows)
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Measure what is asked for, and write the page from all samples there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="openmpi4")
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--rates", default=",".join(RATES))
    parser.add_argument("--sizes", default="64K,1M,4M")
    parser.add_argument("--pattern", default=",".join(PATTERNS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--delay", default="40")
    parser.add_argument("--evaluate", action="store_true", help="write the page again, no more")
    options = parser.parse_args()
    rows: list[dict[str, str]] = []
    if DATA.exists():
        with DATA.open() as lines:
            rows = list(csv.DictReader(lines))
    for name in [] if options.evaluate else options.hosts.split(","):
        host = hosts.get(name)
        if host is None:
            print(f"{name} is not here", file=sys.stderr)
            continue
        for layout in options.layouts.split(","):
            for rate in options.rates.split(","):
                new = [
                    dict(zip(FIELDS, values, strict=True))
                    for values in measure(host, layout, rate, options)
                ]
                asked = (name, layout, rate)
                rows = [r for r in rows if (r["host"], r["layout"], r["rate"]) != asked] + new
    DATA.parent.mkdir(exist_ok=True)
    with DATA.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write(rows, options.delay)
    return 0


if __name__ == "__main__":
    sys.exit(main())

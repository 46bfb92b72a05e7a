"""Measures collectives to which ranks come at different times, and writes a page of it.

Virtual clusters of two nodes with four ranks and of four nodes with two, with links of 1 Gbit/s,
unlimited ones, and through a switch with latency; `overdrive bench arrival` imposes the patterns.
Ranks come late by as much as a call takes when all come together, and by 40 ms. Larger clusters are
simulated; the part about programs is arrival_programs.py's, and the choice that is learnt has a
page of its own (arrival_learnt.py).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools" / "hosts"), str(ROOT / "cli")]

import arrival_page  # noqa: E402
import hosts  # noqa: E402
from arrival_page import (  # noqa: E402
    FIELDS,
    JOBS,
    PATTERNS,
    VALUES,
)
from lab_runs import libraries_for  # noqa: E402

COMMAND = [sys.executable, str(ROOT / "overdrive")]
DATA = arrival_page.DATA / "arrival.csv"
LAYOUTS = {"2x4": (2, 4), "4x2": (4, 2)}
NETWORKS = {
    "1 Gbit/s": ["--rate", "1gbit"],
    "unlimited": [],
    "switch of 50 us": ["--fabric", "switch", "--latency", "50us"],
}
LATE_MS = 40


@contextlib.contextmanager
def cluster(layout: str, network: str) -> Iterator[tuple[str, int]]:
    """Make a virtual cluster for the while; give its name and the ranks on each node."""
    nodes, per_node = LAYOUTS[layout]
    lab = f"arrival{os.getpid()}"
    words = ["lab", "up", "--name", lab, "--nodes", str(nodes), *NETWORKS[network]]
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL)
    try:
        yield lab, per_node
    finally:
        subprocess.run([*COMMAND, "lab", "down", "--name", lab], check=False)


def places(options: argparse.Namespace) -> Iterator[tuple[hosts.Host, str, str]]:
    """Yield the hosts, layouts and networks that are asked for."""
    for name in options.hosts.split(","):
        host = hosts.get(name)
        if host is None:
            print(f"{name} is not here", file=sys.stderr)
            continue
        for layout in options.layouts.split(","):
            for network in options.networks.split(","):
                yield host, layout, network


def bench(
    host: hosts.Host, lab: str, per_node: int, collective: str, patterns: str, sizes: str,
    delay: str, repeats: int, more: Sequence[str] = (),
) -> list[dict[str, str]]:  # fmt: skip
    """Run `overdrive bench arrival` once; return its samples."""
    file = ROOT / "build" / f"arrival{os.getpid()}.csv"
    environment = {**os.environ, **host.env}
    libraries = libraries_for(host)
    if libraries:
        environment["LD_PRELOAD"] = ":".join(libraries)
    words = ["bench", "arrival", "--lab", lab, "--ppn", str(per_node), "--collective", collective]
    words += ["--launcher", host.launcher, "--sizes", sizes, "--pattern", patterns]
    words += ["--repeats", str(repeats), "--delay", delay, *more, "--csv", str(file)]
    # A run that fails must not leave the samples of the one before in its place.
    file.unlink(missing_ok=True)
    done = subprocess.run(
        [*COMMAND, *words], env=environment, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        print(f"{' '.join(words)}: exit status {done.returncode}", file=sys.stderr)
    if not file.exists():
        return []
    with file.open() as lines:
        found = list(csv.DictReader(lines))
    file.unlink()
    return found


def commit() -> str:
    """Return the last commit that has changed the library; with a plus if it is changed."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "src")
    return git("log", "-1", "--format=%h", "--", "src") + ("+" if changed else "")


def median_of(samples: Sequence[dict[str, str]], value: str, **point: str) -> float:
    """Return a median in milliseconds."""
    return statistics.median(
        float(sample[value]) / 1e3
        for sample in samples
        if all(sample[name] == wanted for name, wanted in point.items())
    )


def summarise(samples: Sequence[dict[str, str]], delays: dict[str, float]) -> Iterator[list[str]]:
    """Yield medians: size, pattern, delay, job and the values of a row."""
    for pattern, size in dict.fromkeys((s["pattern"], s["bytes"]) for s in samples):
        for job in JOBS:
            point = (pattern, size, job)
            here = [s for s in samples if (s["pattern"], s["bytes"], s["job"]) == point]
            if not here:
                continue
            values = [f"{median_of(here, value):.4f}" for value in (*VALUES, "off")]
            yield [size, pattern, f"{delays[size]:g}", job, str(len(here)), *values, commit()]


def measure(
    host: hosts.Host, layout: str, network: str, wanted: Sequence[str], options: argparse.Namespace
) -> Iterator[list[str]]:
    """Measure over one cluster; yield rows of medians."""
    sizes = options.sizes.split(",")
    patterns = [name for name in options.pattern.split(",") if name != "together"]
    with cluster(layout, network) as (lab, per_node):
        for collective in wanted:
            common = (host, lab, per_node, collective)
            together = bench(*common, "together", options.sizes, "0", options.repeats + 2)
            named = list(dict.fromkeys(sample["bytes"] for sample in together))
            if len(named) != len(sizes):
                continue
            found = []
            if "own" in options.delays.split(","):
                found.append((together, dict.fromkeys(named, 0.0)))
                # What a call of the usual algorithm takes.
                own = {
                    size: median_of(together, "whole", bytes=size, job="plain") for size in named
                }
                text = ",".join(f"{delay:.3f}" for delay in own.values())
                more = (",".join(patterns), options.sizes)
                if patterns:
                    found.append((bench(*common, *more, text, options.repeats), own))
            if "late" in options.delays.split(","):
                late = dict.fromkeys(named, float(LATE_MS))
                repeats = max(1, options.repeats - 2)
                # Also together, with the same pauses between calls: connections that have been idle
                # begin slowly.
                more = (options.pattern, options.sizes)
                found.append((bench(*common, *more, str(LATE_MS), repeats), late))
            for samples, delays in found:
                for row in summarise(samples, delays):
                    yield [collective, host.name, layout, network, *row]


def load(path: Path) -> list[dict[str, str]]:
    """Return the rows of earlier invocations."""
    if not path.exists():
        return []
    with path.open() as lines:
        return list(csv.DictReader(lines))


def keep(path: Path, rows: Sequence[dict[str, str]], fields: Sequence[str] = FIELDS) -> None:
    """Write all rows."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def replace(rows: Sequence[dict[str, str]], measured: Iterator[list[str]]) -> list[dict[str, str]]:
    """Put what has been measured into the place of what was; all else stays."""
    new = [dict(zip(FIELDS, values, strict=True)) for values in measured]

    def key(row: dict[str, str]) -> tuple[str | bool, ...]:
        point = (*arrival_page.POINT, "bytes", "pattern")
        return (*(row[name] for name in point), arrival_page.is_late(row))

    asked = {key(row) for row in new}
    return [row for row in rows if key(row) not in asked] + new


def main() -> int:
    """Measure what is asked for, and write the page from all rows there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectives", default=",".join(arrival_page.COLLECTIVES))
    parser.add_argument("--hosts", default="openmpi4,mpich4")
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--sizes", default="64K,1M,4M")
    parser.add_argument("--pattern", default=",".join(PATTERNS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--delays", default="own,late", help="late: 40 ms")
    parser.add_argument("--simulated-size", default="1M")
    parser.add_argument("--no-page", action="store_true", help="measure, no more")
    parser.add_argument("--evaluate", action="store_true", help="write the page again, no more")
    options = parser.parse_args()
    wanted = options.collectives.split(",")
    rows = load(DATA)
    for host, layout, network in [] if options.evaluate else places(options):
        rows = replace(rows, measure(host, layout, network, wanted, options))
        keep(DATA, rows)
    if not options.no_page:
        arrival_page.write(rows, options.simulated_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())

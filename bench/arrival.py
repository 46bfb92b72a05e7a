"""Measures collectives to which ranks come at different times, and writes a page of it.

Virtual clusters of two nodes with four ranks and of four nodes with two, with links of 1 Gbit/s and
unlimited ones; `overdrive bench arrival` imposes the patterns. Larger clusters are simulated.
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
from overdrive import collectives, installation  # noqa: E402

COMMAND = [sys.executable, str(ROOT / "overdrive")]
PAGE = ROOT / "docs" / "measurements" / "arrival.md"
DATA = ROOT / "docs" / "measurements" / "data" / "arrival.csv"
PLOT = ROOT / "docs" / "measurements" / "plots" / "arrival-simulated.png"
LAYOUTS = {"2x4": (2, 4), "4x2": (4, 2)}
RATES = {"1 Gbit/s": "1gbit", "unlimited": ""}
JOBS = ("host", "plain", "first_arrival")
PATTERNS = ("together", "one-late", "linear", "random", "late-leader", "late-root")
COLLECTIVES = ("bcast", "reduce", "gather", "scatter")
SIMULATED_NODES = (16, 64, 256, 1024)
SIMULATED_RANKS = 4
SIMULATED_DELAY_US = 1000
FIELDS = (
    "collective",
    "host",
    "layout",
    "rate",
    "job",
    "pattern",
    "bytes",
    "wait",
    "others",
    "whole",
    "off",
)


def measure(
    host: hosts.Host,
    layout: str,
    rate: str,
    wanted: Sequence[str],
    options: argparse.Namespace,
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
        for collective in wanted:
            words = ["bench", "arrival", "--lab", name, "--ppn", str(per_node)]
            words += ["--collective", collective, "--launcher", host.launcher]
            words += ["--sizes", options.sizes, "--pattern", options.pattern]
            words += ["--repeats", str(options.repeats), "--delay", str(options.delay)]
            words += ["--csv", str(file)]
            # A run that fails must not leave the samples of the one before in its place.
            file.unlink(missing_ok=True)
            done = subprocess.run([*COMMAND, *words], env=environment, check=False)
            if done.returncode != 0:
                point = f"{collective} {host.name} {layout} {rate}"
                print(f"{point}: exit status {done.returncode}", file=sys.stderr)
            if not file.exists():
                continue
            with file.open() as lines:
                for row in csv.DictReader(lines):
                    found = (row[field] for field in FIELDS[4:])
                    yield [collective, host.name, layout, rate, *found]
    finally:
        subprocess.run([*COMMAND, "lab", "down", "--name", name], check=False)


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
    """Yield the tables of the page, one per collective, host, layout and rate."""
    keys = ("collective", "host", "layout", "rate")
    for point in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        collective, host, layout, rate = point
        nodes, per_node = LAYOUTS[layout]
        title = f"{collective.title()}, {HOST_TITLES.get(host, host)}"
        yield f"\n### {title}: {nodes} nodes of {per_node} ranks, {rate}\n"
        yield "| pattern | size | mean wait: host | plain | first | whole: host | plain | first |"
        yield "|---|---|---|---|---|---|---|---|"
        here = [row for row in rows if tuple(row[key] for key in keys) == point]
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


def simulate(size: str) -> list[tuple[str, int, str, str, float, float]]:
    """Return collective, nodes, plain algorithm, pattern and mean waits (ms), plain and first."""
    found = []
    here = installation.find(os.environ, ROOT)
    for collective in COLLECTIVES:
        for nodes in SIMULATED_NODES:
            report, _ = collectives.query(
                here, os.environ, "arrivals", collective, size,
                "--ranks", str(nodes * SIMULATED_RANKS), "--nodes", str(nodes),
                "--delay-us", str(SIMULATED_DELAY_US), "--most-steps", "2000000",
            )  # fmt: skip
            found += [
                (collective, nodes, report["plain"]["algorithm"], row["pattern"],
                 row["plain"]["inside_ns"] / 1e6, row["first_arrival"]["inside_ns"] / 1e6)
                for row in report["patterns"] if "plain" in row
            ]  # fmt: skip
    return found


def simulated_text(size: str) -> Iterator[str]:
    """Yield the part of the page about larger clusters."""
    found = simulate(size)
    machine = "1.5 us, 100 Gbit/s for all ranks of a node"
    yield "\n## Larger clusters, simulated\n"
    yield "By `overdrive-collectives arrivals`: the library's schedules, and the protocol of"
    yield f"first_arrival, on a LogGP machine ({machine}); {SIMULATED_RANKS} ranks on each node,"
    words = size.replace("K", " KiB").replace("M", " MiB")
    yield f"{words}, ranks up to {SIMULATED_DELAY_US / 1000:g} ms late. How many times as long"
    yield "ranks wait in the mean with the plain algorithm (below 1: `first_arrival` is slower)."
    for collective in dict.fromkeys(row[0] for row in found):
        here = [row for row in found if row[0] == collective]
        nodes = list(dict.fromkeys(row[1] for row in here))
        names = [next(row[2] for row in here if row[1] == count) for count in nodes]
        yield f"\n### {collective.title()}\n"
        heads = [f"{count} nodes ({name})" for count, name in zip(nodes, names, strict=True)]
        yield f"| pattern | {' | '.join(heads)} |"
        yield "|---" * (len(nodes) + 1) + "|"
        for pattern in PATTERNS:
            ratios = {row[1]: row[4] / row[5] for row in here if row[3] == pattern}
            cells = [f"{ratios[count]:.2f}" if count in ratios else "–" for count in nodes]
            yield f"| {pattern} | {' | '.join(cells)} |"
    yield ""
    yield "The chain of nodes and the root that takes from every node itself are for few nodes, or"
    yield "for ranks that come further apart than the message takes; beyond, trees win although"
    yield "their ranks wait for each other. With `first_arrival` on, measuring decides."
    yield f"\n![Gain by nodes](plots/{PLOT.name})"
    draw(found)


def draw(found: Sequence[tuple[str, int, str, str, float, float]]) -> None:
    """Draw the gains over the number of nodes."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, panes = plt.subplots(1, len(COLLECTIVES), figsize=(11, 3.4), sharey=True)
    for pane, collective in zip(panes, COLLECTIVES, strict=True):
        for pattern in PATTERNS:
            points = [(r[1], r[4] / r[5]) for r in found if (r[0], r[3]) == (collective, pattern)]
            pane.plot(*zip(*points, strict=True), marker="o", markersize=3, label=pattern)
        pane.set_xscale("log", base=2)
        pane.set_yscale("log", base=2)
        pane.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        pane.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        pane.axhline(1, color="black", linewidth=0.8)
        pane.set_title(collective, fontsize=10)
        pane.set_xlabel("nodes", fontsize=9)
        pane.grid(alpha=0.3)
    panes[0].set_ylabel("mean wait, plain / first_arrival", fontsize=9)
    panes[-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(PLOT, dpi=110)


def write(rows: Sequence[dict[str, str]], delay: str, size: str) -> None:
    """Write the page."""
    lines = ["# Collectives to which ranks come at different times", ""]
    if rows:
        off = statistics.median(float(row["off"]) for row in rows)
        lines += [
            "Written by `python3 bench/arrival.py`. *host*: the MPI library alone; *plain*: the",
            "usual algorithm of Overdrive; *first*: [first_arrival](../design/first-arrival.md).",
            "They take turns call by call over one virtual cluster (`overdrive lab`). Delay",
            f"{delay} ms; milliseconds, medians over calls. *mean wait*: time inside the call,",
            "mean over ranks, the late ones included; *whole*: from the moment when the first",
            "ranks come until the last has left, so it contains the delay. The patterns are those",
            "of `overdrive bench arrival`; in the median of calls ranks came within",
            f"{off:.0f} us of where they should. All nodes share the {os.cpu_count()} processors",
            "of this machine, which may have been busy with other work.",
        ]
        lines += tables(rows)
    lines += simulated_text(size)
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Measure what is asked for, and write the page from all samples there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--hosts", default="openmpi4")
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--rates", default=",".join(RATES))
    parser.add_argument("--sizes", default="64K,1M,4M")
    parser.add_argument("--pattern", default=",".join(PATTERNS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--delay", default="40")
    parser.add_argument("--simulated-size", default="1M")
    parser.add_argument("--evaluate", action="store_true", help="write the page again, no more")
    options = parser.parse_args()
    wanted = options.collectives.split(",")
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
                    for values in measure(host, layout, rate, wanted, options)
                ]
                asked = [(collective, name, layout, rate) for collective in wanted]
                rows = [r for r in rows if tuple(r[k] for k in FIELDS[:4]) not in asked] + new
    DATA.parent.mkdir(exist_ok=True)
    with DATA.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write(rows, options.delay, options.simulated_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())

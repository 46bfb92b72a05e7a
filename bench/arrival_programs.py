"""Two programs whose ranks come to broadcasts at different times, and what is gained.

    arrival_programs.py [--host openmpi4] [--runs 7]

A matrix product by SUMMA with columns of blocks of two widths (mpi4py), and Jacobi's method with
bands of rows of two heights, which tests convergence by Reduce and Bcast. Each runs once recorded,
which says when ranks came to which calls, and then several times in turns: with the MPI library
alone, with Overdrive's usual algorithms, with `first_arrival` forced, and with the choice that is
learnt. `arrival.py` puts what is kept here into its page.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools" / "hosts"), str(ROOT / "cli")]

import hosts  # noqa: E402
from goals import HOST_TITLES  # noqa: E402
from lab_runs import libraries_for  # noqa: E402
from overdrive.report import arrivals, record  # noqa: E402

COMMAND = [sys.executable, str(ROOT / "overdrive")]
INPUTS = ROOT / "bench" / "programs"
DATA = ROOT / "docs" / "measurements" / "data"
TIMES, PLACES = DATA / "arrival-programs.csv", DATA / "arrival-patterns.csv"
NODES, PER_NODE, RATE = 2, 4, "1gbit"
JOBS: dict[str, list[str] | None] = {
    "host": None,
    "plain": ["OVERDRIVE_LEARN=off"],
    "first": [
        "OVERDRIVE_LEARN=off",
        "OVERDRIVE_ADJUST_BCAST=first_arrival",
        "OVERDRIVE_ADJUST_REDUCE=first_arrival",
    ],
    "learnt": ["OVERDRIVE_FIRST_ARRIVAL=on"],
}
TITLES = {"summa": "SUMMA, 1536 x 1536, panels of 128", "jacobi": "Jacobi, 1024 x 1024"}
TIME_FIELDS = ("program", "host", "job", "run", "seconds", "checksum")
PLACE_FIELDS = (
    "program", "host", "function", "ranks", "calls", "median_ms", "longest_ms", "on_node_ms",
    "nodes_ms", "last",
)  # fmt: skip
DRAWS = 2000


def commands(host: hosts.Host) -> Iterator[tuple[str, list[str]]]:
    """Yield what can run over a host."""
    if host.python:
        yield "summa", [str(host.python), str(INPUTS / "summa.py"), "1536", "128", "4"]
    program = ROOT / "build" / "bench" / f"jacobi-{host.name}"
    program.parent.mkdir(parents=True, exist_ok=True)
    words = [*host.mpicc, "-O2", str(INPUTS / "jacobi.c"), "-o", str(program), "-lm"]
    subprocess.run(words, check=True, env={**os.environ, **host.env})
    yield "jacobi", [str(program), "1024", "200", "4"]


def start(
    host: hosts.Host, lab: str, command: Sequence[str], job: str, record_to: str = ""
) -> tuple[float, str]:
    """Run a program once; return its seconds and its checksum."""
    environment = {**os.environ, **host.env}
    libraries = libraries_for(host)
    if libraries:
        environment["LD_PRELOAD"] = ":".join(libraries)
    words = [*COMMAND, *([f"--record={record_to}"] if record_to else [])]
    words += ["lab", host.launcher, "--name", lab, "-n", str(NODES * PER_NODE)]
    words += ["--ppn", str(PER_NODE)]
    settings = JOBS[job]
    if settings is None:
        words.append("--without-overdrive")
    for setting in settings or []:
        words += ["-x", setting]
    done = subprocess.run(
        [*words, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.split()}
    if done.returncode != 0 or "seconds" not in lines:
        raise RuntimeError(
            f"{' '.join(words)}: exit status {done.returncode}\n{done.stderr[-2000:]}"
        )
    # The first of several products pays for what is made at first calls.
    seconds = [float(word) for word in lines["seconds"]]
    return statistics.median(seconds[1:] or seconds), " ".join(lines["checksum"])


def places(host: hosts.Host, lab: str, program: str, command: Sequence[str]) -> Iterator[list[str]]:
    """Run a program recorded; yield when ranks came to its collectives."""
    with tempfile.TemporaryDirectory() as folder:
        start(host, lab, command, "plain", folder)
        found = arrivals.summarise(record.load(Path(folder)))
    for place in found["places"]:
        if place["calls"] < 8:
            continue
        rank, count = place["last"][0]
        last = f"rank {rank}: {100 * count / place['calls']:.0f} %"
        values = (
            place[name] / 1e6 for name in ("median_ns", "longest_ns", "on_node_ns", "nodes_ns")
        )
        yield [
            program, host.name, place["function"], str(place["ranks"]), str(place["calls"]),
            *(f"{value:.3f}" for value in values), last,
        ]  # fmt: skip


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file, if it is there."""
    if not path.exists():
        return []
    with path.open() as lines:
        return list(csv.DictReader(lines))


def keep(path: Path, fields: Sequence[str], new: Sequence[Sequence[str]], host: str) -> None:
    """Put the rows of a host into the place of its older ones."""
    rows = [row for row in rows_of(path) if row["host"] != host]
    rows += [dict(zip(fields, values, strict=True)) for values in new]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the median of ratios within rounds, and where 95 % of resampled medians lie."""
    ratios = [first / second for first, second in pairs]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return statistics.median(ratios), medians[DRAWS // 40], medians[-DRAWS // 40]


def text() -> Iterator[str]:
    """Yield the part of the page about programs."""
    found, known = rows_of(PLACES), rows_of(TIMES)
    yield "\n## Programs\n"
    if not known:
        yield "Not measured."
        return
    yield (
        f"{NODES} nodes of {PER_NODE} ranks, 1 Gbit/s; the programs are in `bench/programs`. When "
        "their ranks came to which collectives (at least 8 calls; medians in ms; `--record` with "
        "the plain algorithms):\n"
    )
    yield "| program | call | ranks | calls | apart | at most | on a node | nodes | often last |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in found:
        title = f"{row['program']}, {HOST_TITLES.get(row['host'], row['host'])}"
        yield (
            f"| {title} | {row['function']} | {row['ranks']} | {row['calls']} | "
            f"{row['median_ms']} | {row['longest_ms']} | {row['on_node_ms']} | "
            f"{row['nodes_ms']} | {row['last']} |"
        )
    yield (
        "\nSeconds (medians of runs in turns), and how many times as fast as plain and as the "
        "host, with 95 % intervals of the median of ratios within rounds:\n"
    )
    heads = "host | plain | first | learnt | first : plain | learnt : plain | learnt : host"
    yield f"| program | {heads} |"
    yield "|---|---|---|---|---|---|---|---|"
    verdicts = []
    for program, host in dict.fromkeys((row["program"], row["host"]) for row in known):
        times: dict[str, dict[str, float]] = {job: {} for job in JOBS}
        for row in known:
            if (row["program"], row["host"]) == (program, host):
                times[row["job"]][row["run"]] = float(row["seconds"])
        if not all(times.values()):
            continue
        cells = [f"{statistics.median(times[job].values()):.3f}" for job in JOBS]
        for job, base in (("first", "plain"), ("learnt", "plain"), ("learnt", "host")):
            runs = times[job].keys() & times[base].keys()
            value, low, high = interval(
                [(times[base][run], times[job][run]) for run in sorted(runs)]
            )
            cells.append(f"{value:.2f} ({low:.2f}–{high:.2f})")
            if base == "plain":
                what = "slower" if high < 1 else "faster" if low > 1 else "not shown to differ"
                verdicts.append(f"{program}, *{job}*: {what}")
        yield f"| {TITLES[program]}, {HOST_TITLES.get(host, host)} | {' | '.join(cells)} |"
    yield f"\nAgainst plain: {'; '.join(verdicts)}."


def main() -> int:
    """Measure over one host."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="openmpi4")
    parser.add_argument("--programs", default="summa,jacobi")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    host = hosts.get(options.host)
    if host is None:
        print(f"{options.host} is not here", file=sys.stderr)
        return 1
    lab = f"programs{os.getpid()}"
    words = ["lab", "up", "--name", lab, "--nodes", str(NODES), "--rate", RATE]
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL)
    seen: list[list[str]] = []
    times: list[list[str]] = []
    try:
        for program, command in commands(host):
            if program not in options.programs.split(","):
                continue
            seen += places(host, lab, program, command)
            sums = set()
            for run in range(options.runs):
                for job in JOBS:
                    seconds, checksum = start(host, lab, command, job)
                    sums.add(checksum)
                    times.append([program, host.name, job, str(run), f"{seconds:.6f}", checksum])
            if len(sums) != 1:
                print(f"{program}: different results: {sums}", file=sys.stderr)
                return 1
    finally:
        subprocess.run([*COMMAND, "lab", "down", "--name", lab], check=False)
    keep(PLACES, PLACE_FIELDS, seen, host.name)
    keep(TIMES, TIME_FIELDS, times, host.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures Linpack and LAMMPS with each way of binding ranks to cores.

    pinning.py                     measure; write docs/measurements/pinning.md
    pinning.py --rounds 15         more jobs of each way (9)
    pinning.py --ranks 2,4         also with more ranks than cores, where a round takes minutes

Both programs are the distribution's, for its Open MPI. The jobs take turns; each way has as many
as the others. What the launcher does by itself is the measure of all of them.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobs import ROOT, host_table, library
from page import machine, table
from real_programs import PROGRAMS as REAL
from real_programs import why_unavailable

PAGE = ROOT / "docs" / "measurements" / "pinning.md"
DATA = ROOT / "docs" / "measurements" / "data" / "pinning.csv"
HOST = "openmpi4"
POLICIES = ("compact", "scatter", "core", "cache", "socket", "numa", "list:1,0")
MEASURE = "launcher"
COLUMNS = ["program", "ranks", "way", "round", "figure"]
SECONDS = 120
HPL_ORDER = 1920
"""Linpack's matrix: less than a second on two cores."""


@dataclass(frozen=True)
class Way:
    """How ranks are bound: by an option of the command, of the launcher, or not at all."""

    name: str
    overdrive: tuple[str, ...] | None = ()
    """Options of the command; None: without Overdrive."""
    launcher: tuple[str, ...] = ()


WAYS = (
    Way("without Overdrive", None),
    Way(MEASURE),
    Way("unbound", (), ("--bind-to", "none")),
    *(Way(f"--pin={policy}", (f"--pin={policy}",)) for policy in POLICIES),
)


@dataclass(frozen=True)
class Program:
    """Which program runs (of real_programs.py), and which figure of it counts; more is better."""

    name: str
    entry: str
    figure: str
    unit: str
    prepare: Callable[[Path], None] = lambda _folder: None
    """Changes the input in the job's folder."""


def _enlarge(folder: Path) -> None:
    source = folder / "hpccinf.txt"
    text = re.sub(r"^720 ", f"{HPL_ORDER} ", source.read_text(), flags=re.MULTILINE)
    source.write_text(text)


PROGRAMS = (
    Program("LAMMPS", "lammps", "speed", "steps/s"),
    Program("Linpack", "hpcc", "Linpack", "Gflop/s", _enlarge),
)


def run(program: Program, way: Way, ranks: int) -> float | None:
    """Run one job and return its figure; None when it failed, which is said."""
    host, real = host_table.get(HOST), REAL[program.entry]
    assert host is not None
    command = [] if way.overdrive is None else [str(ROOT / "overdrive"), *way.overdrive]
    with tempfile.TemporaryDirectory(prefix="overdrive-pinning-") as name:
        folder = Path(name)
        [step] = real.steps(real.binaries[HOST], folder)
        program.prepare(folder)
        launcher = [host.launcher, "--oversubscribe", *way.launcher]
        variables = {"OMP_NUM_THREADS": "1"}
        if way.overdrive is not None:
            variables["OVERDRIVE_LIBRARY"] = str(library())
        job = subprocess.run(
            [*command, *launcher, "-np", str(ranks), *step],
            cwd=folder,
            env={**host.environment(), **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        figures = real.read([job.stdout], folder)[1] if job.returncode == 0 else {}
    if program.figure not in figures:
        print(f"pinning: {program.name}, {way.name}: {job.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return figures[program.figure].value


def save(rows: list[dict[str, str]]) -> None:
    """Keep the figures so far."""
    with DATA.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def measure(rounds: int, counts: list[int]) -> None:
    """Run all jobs in turns; a row for each, kept after each round."""
    rows = []
    for number in range(rounds):
        for ranks in counts:
            for program in PROGRAMS:
                # Another order in each round, so that no way always follows the same one.
                for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
                    figure = run(program, way, ranks)
                    if figure is not None:
                        values = (program.name, str(ranks), way.name, str(number), f"{figure:.6g}")
                        rows.append(dict(zip(COLUMNS, values)))
        save(rows)


def cell(rows: list[dict[str, str]], way: str) -> str:
    """Return how fast a way is by the launcher's: the median over rounds, and its quartiles."""
    by_round = {row["round"]: float(row["figure"]) for row in rows if row["way"] == MEASURE}
    ratios = [
        float(row["figure"]) / by_round[row["round"]]
        for row in rows
        if row["way"] == way and row["round"] in by_round
    ]
    if len(ratios) < 3:
        return "–"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.2f} to {high:.2f})"


def page(rows: list[dict[str, str]]) -> list[str]:
    """Return the lines of the page."""
    cases = sorted({(row["program"], int(row["ranks"])) for row in rows})
    lines = [
        "# Pinning: Linpack and LAMMPS with each policy",
        "",
        "This page is generated by `bench/pinning.py`; do not edit it. To reproduce it:",
        "",
        "```",
        "python3 bench/pinning.py",
        "```",
        "",
        f"- Machine: {machine()}",
        "- Open MPI of the distribution, its launcher's own binding as the measure: two ranks get "
        "a core each, more than there are cores stay unbound. A thread per rank.",
        f"- Linpack of HPC Challenge, order {HPL_ORDER}; LAMMPS: the liquid of the demo.",
        "- Jobs in turns, in another order in each round; ratio to the launcher's job of the same "
        "round, its median and quartiles over "
        f"{len({row['round'] for row in rows})} rounds. Above 1 is faster.",
        "",
        "Without `--pin` Overdrive leaves ranks where the launcher binds them, so its default is "
        f"the row *{MEASURE}*. On one socket with one cache for all cores the policies bind the "
        "same way or not at all; what they do on larger machines is tested on drawn ones "
        "([manual](../manual.md#where-ranks-run)).",
        "",
    ]
    header = ["", *(f"{program}, {ranks} ranks" for program, ranks in cases)]
    chosen = [
        [row for row in rows if (row["program"], int(row["ranks"])) == case] for case in cases
    ]
    body = [[way.name, *(cell(part, way.name) for part in chosen)] for way in WAYS]
    lines += table(header, body)
    medians = [
        f"{program} of {ranks} ranks {statistics.median(float(r['figure']) for r in part):.4g} "
        + next(p.unit for p in PROGRAMS if p.name == program)
        for (program, ranks), part in zip(cases, chosen)
    ]
    lines += ["Medians of all jobs: " + "; ".join(medians) + "."]
    return lines


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", default="2", help="comma-separated numbers")
    parser.add_argument("--evaluate", action="store_true", help="write the page again")
    options = parser.parse_args()
    if not options.evaluate:
        for program in PROGRAMS:
            if reason := why_unavailable(program.entry, HOST):
                print(f"pinning: {reason}", file=sys.stderr)
                return 1
        measure(options.rounds, [int(count) for count in options.ranks.split(",")])
    with DATA.open() as file:
        PAGE.write_text("\n".join(page(list(csv.DictReader(file)))).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

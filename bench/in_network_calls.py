#!/usr/bin/env python3
"""Compares calls of MPI that a switch serves with the MPI library's and with Overdrive's others.

    in_network_calls.py [--host openmpi4,mpich4] [--nodes 4,9,16] [--latencies 0,20us] [--turns 3]
        [--ppn 1] [--program allreduce|cg|cavity] [--hosts-own]
                                               measure; write docs/measurements/in-network.md
    in_network_calls.py --evaluate             write the page again from earlier figures

A virtual cluster whose nodes are joined by overdrive-switch. The ways to do the same take turns; of
the MPI library the best of its algorithms counts for each point. With `cg` an iteration of
conjugate gradients is timed, which has two sums of one number; with `cavity` a time step of
OpenFOAM's tutorial of that name (Debian's package openfoam, Open MPI only). Figures are kept in
docs/measurements/data/in_network.csv; those of a host, program, cluster, size and way that is
measured again are replaced. Of the page only the section about calls of MPI is written.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import statistics
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path

from jobs import BUILD, ROOT, Host, library, select_hosts
from lab_runs import LabRuns, NoLab, up
from page import table
from turns import Variant

DATA = ROOT / "docs" / "measurements" / "data" / "in_network.csv"
PAGE = ROOT / "docs" / "measurements" / "in-network.md"
HEADING = "## MPI calls"
POINT = ["host", "program", "nodes", "each", "latency", "bytes", "way"]
COLUMNS = [*POINT, "us", "both_us", "first_us"]
"""`both_us` is the time of a call together with that of the barrier before it; `first_us` the mean
of both in the first 200 rounds, in which ways are tried and which are not in the other times."""
SECONDS = 120
GOAL = 1.35
GOAL_BYTES = 256
SHOWN_BYTES = ("256", "4096", "16384")
"""What the page shows; below 256 bytes times are nearly the same. All are in the data."""
LOSS = 1.1
"""How many times slower than what there is without a switch the free choice must be to have lost
by it. Which algorithm the host takes then is the host's own choice."""
TITLES = {"openmpi4": "Open MPI 4.1", "mpich4": "MPICH 4.0"}
Row = dict[str, str]


@dataclass(frozen=True)
class Way:
    """A way to do a call."""

    name: str
    overdrive: bool
    settings: dict[str, str]


HOSTS_OWN = "host, its choice"
TUNED = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1"}
OPEN_MPI = "OMPI_MCA_coll_tuned_allreduce_algorithm"
MPICH = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"
HOST_WAYS = {
    "openmpi4": [
        Way("host, recursive doubling", False, {**TUNED, OPEN_MPI: "3"}),
        Way("host, reduce and broadcast", False, {**TUNED, OPEN_MPI: "2"}),
    ],
    "mpich4": [
        Way("host, recursive doubling", False, {MPICH: "recursive_doubling"}),
        Way("host, reduce-scatter", False, {MPICH: "reduce_scatter_allgather"}),
    ],
}
RULE = {"OVERDRIVE_LEARN": "off"}
OWN_WAYS = [
    Way("without", True, {**RULE, "OVERDRIVE_SWITCH": "off"}),
    Way("switch", True, {**RULE, "OVERDRIVE_ADJUST_ALLREDUCE": "in_network_node"}),
    Way("choice", True, {}),
]


def ways(host: Host, own_only: bool = False) -> list[Way]:
    """Return what is compared; the host's other algorithms may be left out."""
    others = [] if own_only else HOST_WAYS.get(host.name, [])
    return [Way(HOSTS_OWN, False, {}), *others, *OWN_WAYS]


CAVITY = Path("/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity")
FOAM = {"WM_PROJECT_DIR": "/usr/share/openfoam"}
DECOMPOSITION = """FoamFile
{ version 2.0; format ascii; class dictionary; object decomposeParDict; }
numberOfSubdomains RANKS;
method simple;
simpleCoeffs { n (COLUMNS ROWS 1); delta 0.001; }
"""


def cavity(ranks: int, steps: int) -> list[str]:
    """Prepare OpenFOAM's case, of 80 x 80 cells; return the command of a rank."""
    case = BUILD / "bench" / f"cavity-{ranks}"
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(CAVITY, case)
    for packed in case.rglob("*.gz"):
        subprocess.run(["gunzip", str(packed)], check=True)
    rows = next(n for n in range(int(ranks**0.5), 0, -1) if ranks % n == 0)
    text = DECOMPOSITION.replace("RANKS", str(ranks)).replace("ROWS", str(rows))
    text = text.replace("COLUMNS", str(ranks // rows))
    (case / "system" / "decomposeParDict").write_text(text)
    mesh = case / "system" / "blockMeshDict"
    mesh.write_text(mesh.read_text().replace("(20 20 1)", "(80 80 1)"))
    control = case / "system" / "controlDict"
    text = control.read_text().replace("0.005;", "0.00125;")
    text = text.replace("endTime         0.5", f"endTime         {steps * 0.00125:g}")
    control.write_text(text.replace("writeInterval   20", f"writeInterval   {10 * steps}"))
    for tool in ("blockMesh", "decomposePar"):
        subprocess.run(
            [tool, "-case", str(case)],
            env={**os.environ, **FOAM},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    steps_of = ROOT / "bench" / "in_network_mpi" / "steps.py"
    return [sys.executable, str(steps_of), "icoFoam", "-parallel", "-case", str(case)]


def build(host: Host, program: str) -> Path:
    """Compile a program for a host."""
    source = ROOT / "bench" / "in_network_mpi" / f"{program}.c"
    target = BUILD / "bench" / host.name / f"in_network_{program}"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*host.mpicc, "-std=gnu11", "-O2", str(source), "-o", str(target), "-lm"]
    subprocess.run(command, env=host.environment(), check=True)
    return target


def one(
    cluster: LabRuns, host: Host, way: Way, command: list[str], ranks: int
) -> dict[int, list[str]]:
    """Run a job; return the median times in microseconds of each size."""
    lib = library() if way.overdrive else None
    settings = {**way.settings, **(FOAM if "icoFoam" in command else {})}
    variant = Variant(way.name, host, Path(command[0]), lib, settings)
    job = cluster.start(variant, ranks, command, SECONDS, 0, threading.Event())
    if not job.ok:
        print(f"in_network_calls: {way.name}: {job.problem('too slow')}", file=sys.stderr)
        return {}
    lines = (line.split() for line in job.stdout.splitlines())
    return {int(line[0]): line[1:] for line in lines if len(line) in (2, 3, 4)}


def measure(options: argparse.Namespace, host: Host, nodes: int, latency: str) -> list[Row]:
    """Measure all ways in turn on one cluster."""
    ranks = nodes * options.ppn
    sizes = options.bytes.split(",") if options.program == "allreduce" else ["8"]
    if options.program == "cavity":
        command = cavity(ranks, options.calls)
    else:
        command = [str(build(host, options.program)), str(options.calls), *sizes]
    place = [host.name, options.program, str(nodes), str(options.ppn), latency]
    found = []
    with up(nodes, options.ppn, "", ["--fabric", "switch", "--latency", latency]) as cluster:
        for _ in range(options.turns):
            for way in ways(host, options.hosts_own):
                for size, times in one(cluster, host, way, command, ranks).items():
                    values = [*place, str(size), way.name, *times, "", ""]
                    found.append(dict(zip(COLUMNS, values)))
    return found


class Point:
    """What was measured of one size at one place: medians of the turns."""

    def __init__(self, key: tuple[str, ...], rows: list[Row]) -> None:
        self.host, self.program, self.nodes, self.each, self.latency, self.bytes = key
        self.times = by_way(rows, "us")
        self.both = {
            way: statistics.median(values) for way, values in by_way(rows, "both_us").items()
        }
        self.first = {
            way: statistics.median(values) for way, values in by_way(rows, "first_us").items()
        }
        medians = {way: statistics.median(values) for way, values in self.times.items()}
        self.by_host = min(
            (time for way, time in medians.items() if way.startswith("host")), default=None
        )
        self.without = medians.get("without")
        self.switch, self.choice = medians.get("switch"), medians.get("choice")
        self.best = min(filter(None, (self.by_host, self.without)), default=None)
        self.no_switch = min(filter(None, (medians.get(HOSTS_OWN), self.without)), default=None)

    def gain(self) -> float | None:
        """Return how many times faster the switch is than the best other way."""
        return self.best / self.switch if self.best and self.switch else None

    def wrong(self) -> bool:
        """Tell whether a program loses by the free choice between the switch and what there is."""
        best = self.no_switch
        return bool(best and self.choice and self.choice > LOSS * best)

    def choice_of_both(self) -> float | None:
        """Return the free choice's time, barrier included, by that of what there is without."""
        return of_choice(self.both)

    def choice_of_first(self) -> float | None:
        """Return likewise the time of the first calls, in which ways are tried."""
        return of_choice(self.first)

    def cells(self) -> list[str]:
        """Return its row of the table."""
        cells = [TITLES.get(self.host, self.host), f"{self.nodes} x {self.each}"]
        cells += ["none" if self.latency == "0" else self.latency]
        cells += [self.bytes] if self.program == "allreduce" else []
        own = (HOSTS_OWN, "without", "switch", "choice")
        cells += [us(self.by_host), *(several(self.times.get(way, [])) for way in own)]
        return [*cells, f"{gain:.2f}" if (gain := self.gain()) else "–"]


def of_choice(times: dict[str, float]) -> float | None:
    """Return the free choice's time by that of what there is without."""
    others = [times[way] for way in (HOSTS_OWN, "without") if way in times]
    choice = times.get("choice")
    return choice / min(others) if choice and others else None


def by_way(rows: list[Row], column: str) -> dict[str, list[float]]:
    """Return what was measured of each way."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.get(column):  # older figures lack some
            found.setdefault(row["way"], []).append(float(row[column]))
    return found


def us(time: float | None) -> str:
    """Return a time with three digits."""
    return "–" if time is None else f"{time:.0f}" if time >= 100 else f"{time:.1f}"


def several(times: list[float]) -> str:
    """Return one or two times, or of more the median and the range."""
    if len(times) < 3:
        return ", ".join(map(us, times)) or "–"
    return f"{us(statistics.median(times))} ({us(min(times))}–{us(max(times))})"


def points(rows: list[Row]) -> list[Point]:
    """Return the points of all rows, in the order of the page."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in COLUMNS[:6]), []).append(row)

    def order(key: tuple[str, ...]) -> tuple[object, ...]:
        return key[1], key[0], int(key[2]), int(key[3]), key[4] != "0", int(key[5])

    return [Point(key, found[key]) for key in sorted(found, key=order)]


def findings(all_points: list[Point]) -> list[str]:
    """Say in words what the table says."""
    lines = []
    goals = [point for point in all_points if point.bytes == str(GOAL_BYTES) and point.gain()]
    if goals:
        reached = [point for point in goals if (point.gain() or 0) >= GOAL]
        gains = [point.gain() or 0 for point in goals]
        lines.append(
            f"With {GOAL_BYTES} bytes the switch is {min(gains):.2f} to {max(gains):.2f} times as "
            f"fast as the best other way; {GOAL} times or more in {len(reached)} of {len(goals)} "
            "cases."
        )
    chosen = [point for point in all_points if point.no_switch and point.choice]
    wrong = [point for point in chosen if point.wrong()]
    cases = []
    for point in wrong:
        case = (
            f"{TITLES.get(point.host, point.host)}, {point.nodes} x {point.each}, "
            f"{'no latency' if point.latency == '0' else point.latency}, {point.bytes} bytes: "
            f"{(point.choice or 0) / (point.no_switch or 1):.2f}"
        )
        both = point.choice_of_both()
        cases.append(case + (f" (both {both:.2f})" if both else ""))
    text = (
        "The median of the free choice between the host's own, Overdrive's usual algorithm and the "
        f"switch is more than {LOSS} times that of the better of the first two in {len(wrong)} of "
        f"{len(chosen)} cases of all sizes" + (": " if wrong else "")
    )
    text += "; ".join(cases) + "."
    both_times = [both for point in chosen if (both := point.choice_of_both())]
    if both_times:
        lost = sum(both > LOSS for both in both_times)
        text += (
            " What a program waits is the barrier before each call too, which the choice may give "
            f"to the switch: of both together it is more than {LOSS} times the better of the two "
            f"in {lost} of {len(both_times)} cases, {max(both_times):.2f} times at most, and "
            f"{statistics.median(both_times):.2f} times in the middle."
        )
    firsts = [first for point in chosen if (first := point.choice_of_first())]
    if firsts:
        text += (
            " The first 200 calls with their barriers, in which ways are tried and which are not "
            f"in these times, took {min(firsts):.2f} to {max(firsts):.2f} times those of the "
            f"better of the two, {statistics.median(firsts):.2f} times in the middle, in "
            f"{len(firsts)} cases in which they were looked at."
        )
    return [*lines, *textwrap.wrap(text, 120), ""]


PROGRAMS = {
    "cg": [
        "Conjugate gradients (`bench/in_network_mpi/cg.c`: two sums of one number and two messages "
        "in an iteration), us for an iteration:",
    ],
    "cavity": [
        "OpenFOAM 1912 (`icoFoam`, the tutorial `cavity` with 80 x 80 cells), us for a time step, "
        "each the median of a job:",
    ],
}


def section(rows: list[Row]) -> list[str]:
    """Return the page's section."""
    all_points = points(rows)
    calls = [point for point in all_points if point.program == "allreduce"]
    header = ["MPI", "nodes x ranks", "latency", "bytes", "best of host", "host's own", "without"]
    header += ["switch", "choice", "times faster"]
    lines = [
        HEADING,
        "",
        "`MPI_Allreduce`, sum of doubles, quiet machine: us, medians of single calls, each as long "
        "as its slowest rank; one or two",
        "jobs in which the ways take turns, or median and range of more "
        '([data](data/in_network.csv)). "Best of host" is the best of',
        'three algorithms of the host for each point, "host\'s own" the one that it takes by '
        'itself, "without" is Overdrive without a',
        'switch (learning off), "switch" is forced, "choice" is free; "times faster" is the '
        "switch against the best of the first three.",
        "",
        *table(header, [point.cells() for point in calls if point.bytes in SHOWN_BYTES]),
        *findings(calls),
    ]
    del header[3]
    for program, sentences in PROGRAMS.items():
        found = [point for point in all_points if point.program == program]
        if found:
            lines += [*sentences, "", *table(header, [point.cells() for point in found])]
    return lines


def write_page(rows: list[Row]) -> None:
    """Put the section in the place of the earlier one, or at the end."""
    before, found, rest = PAGE.read_text().partition(f"{HEADING}\n")
    _, more, after = rest.partition("\n## ") if found else ("", "", "")
    text = before.rstrip("\n") + "\n\n" + "\n".join(section(rows)).rstrip("\n") + "\n"
    PAGE.write_text(text + (f"\n## {after}" if more else ""))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="openmpi4,mpich4", help="comma-separated")
    parser.add_argument("--nodes", default="4,9,16")
    parser.add_argument("--latencies", default="0,20us")
    parser.add_argument("--bytes", default="4,8,64,256,1024,4096,16384,65536")
    parser.add_argument("--turns", type=int, default=3, help="jobs of each way and cluster")
    parser.add_argument(
        "--calls", type=int, default=200, help="calls, iterations of a solve, or time steps"
    )
    parser.add_argument("--ppn", type=int, default=1, help="ranks on each node")
    parser.add_argument("--program", choices=("allreduce", "cg", "cavity"), default="allreduce")
    parser.add_argument(
        "--hosts-own", action="store_true", help="of the host only the algorithm it takes itself"
    )
    parser.add_argument("--evaluate", action="store_true", help="only write the page again")
    options = parser.parse_args()
    rows: list[Row] = []
    if DATA.exists():
        with DATA.open(newline="") as file:
            rows = list(csv.DictReader(file))
    for host in [] if options.evaluate else select_hosts(options.host)[0]:
        for nodes in map(int, options.nodes.split(",")):
            for latency in options.latencies.split(","):
                try:
                    new = measure(options, host, nodes, latency)
                except NoLab as reason:
                    print(f"in_network_calls: no virtual cluster: {reason}", file=sys.stderr)
                    return 1
                measured = {tuple(row[name] for name in POINT) for row in new}
                kept = [row for row in rows if tuple(row[n] for n in POINT) not in measured]
                rows = kept + new
                with DATA.open("w", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)
    if not rows:
        print("in_network_calls: nothing has been measured", file=sys.stderr)
        return 1
    write_page(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

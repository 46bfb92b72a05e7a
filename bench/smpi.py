#!/usr/bin/env python3
"""Measures SMPI: views against messages, and Cannon's algorithm by both.

    smpi.py                         measure everything; write docs/measurements/smpi.md
    smpi.py --part cases            only ask every host whether the interface gives the same answers
    smpi.py --part views --host mpich4   only this part and host (keeps the other figures)
    smpi.py --seconds 420           begin nothing after this time; the next call goes on from there
    smpi.py --evaluate              write the page again from earlier figures

Figures are kept in docs/measurements/data/smpi.csv; every point is the median of `--turns` jobs in
which the compared variants take turns. What has been measured so far of a campaign lies in
build/bench/smpi.csv. Cannon needs a BLAS that runs in one thread per rank (from Debian); without
one its local product is a plain loop, and the page says so.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs import BUILD, ROOT, Host, library, run_job, select_hosts
from lab_runs import NoLab, libraries_for, up
from packages import GROUPS, SetupError, ensure
from smpi_report import COLUMNS, Row, write_page
from turns import Variant

DATA = ROOT / "docs" / "measurements" / "data" / "smpi.csv"
UNDER_WAY = BUILD / "bench" / "smpi.csv"
"""What has been measured of a campaign that is not over."""
FIELDS = [*COLUMNS, "commit"]
PARTS = ("cases", "views", "rewritten", "cannon", "lab")
SITUATIONS = ("none", "node", "nodes")
"""Of the interface's cases: without Overdrive, on one node, two ranks on each of two nodes."""
CANNON = re.compile(
    r"(\w+): order (\d+), \d+ ranks, ([\d.]+) s, of which communication ([\d.]+) s, "
    r"without waiting ([\d.]+) s"
)
CASE = re.compile(r"^case .*$", re.MULTILINE)
ORDERS = {4: (256, 512, 1024, 2048, 4000), 16: (512, 1024, 2048, 4000)}
REPETITIONS = 3
"""Products in a job, of the larger orders."""
SHORT_REPETITIONS = 15
"""Of those below SHORT_ORDERS, which take milliseconds: where ranks share cores, these come as the
scheduler happens to place them, product by product."""
SHORT_ORDERS = 2048
LAB_LAYOUTS = ((2, 2), (4, 4))
"""Nodes, and ranks on each."""
LAB_ORDERS = (1024, 4000)
LAB_RATE = "1gbit"
MAIN_HOSTS = ("openmpi4", "mpich4")
SECONDS = 200
NEAR_NS = 100.0
ATTEMPTS = 3
"""How often a job is run at most whose cores change their distance."""
NOTES = [
    "The machine's speed changes: compare within rows only. Tables of be36fc1, ed4f482: alone on",
    "  the machine, optimised across files, two or three jobs, without the scheduler's autogroups.",
    "New data of 256 KiB, far, of which a tenth is read: the viewer waits for its lines, 0.75 of",
    "  Overdrive's messages, whose first half the receiver copies itself. Between sizes of the",
    "  tables, near, new (491eb5d): 600 B to 2 KiB 0.89 to 1.14, 8 to 32 KiB 1.06 to 1.8.",
    "4 x 10^6 random operations on ownership, 8 ranks, near, far, unknown, asan: passed.",
    "Cannon: three jobs of three products, of 15 below order 2048; over nodes four jobs, by",
    "  turns (491eb5d); the wire needs 0.51 s for the 64 MB of a node at order 4000.",
]
"""What the present figures do not say by themselves, as lines; to be written anew with them."""


def blas() -> list[str]:
    """Return the compiler's options for a BLAS, nothing where there is none."""
    probe = "#include <cblas.h>\nint main(void) { cblas_dscal(0, 1, 0, 1); }\n"
    for flags in (["-lopenblas"], ["-lblas"]):
        command = ["cc", "-x", "c", "-", "-o", "/dev/null", *flags]
        if subprocess.run(command, input=probe, text=True, capture_output=True).returncode == 0:
            return ["-DUSE_CBLAS", *flags]
    return []


def install_blas() -> None:
    """Ask for the package; without it Cannon's local product is a loop."""
    try:
        ensure(GROUPS["blas"])
    except SetupError as error:
        print(f"smpi: {error}", file=sys.stderr)


def build(host: Host, source: Path, flags: Iterable[str] = ()) -> Path:
    """Compile a program for a host."""
    target = BUILD / "bench" / host.name / f"smpi_{source.stem}"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*host.mpicc, "-std=gnu11", "-O2", f"-I{ROOT / 'include'}", f"-I{source.parent}"]
    command += [*(f"-D{name}" for name in host.defines), str(source), "-o", str(target), *flags]
    subprocess.run([*command, "-lm"], env=host.environment(), check=True, capture_output=True)
    return target


def run(host: Host, ranks: int, command: list[str], side: str, preloads: Sequence[str] = ()) -> str:
    """Run a job with or without Overdrive, and with other libraries; return its output."""
    libraries = [*preloads, *([str(library())] if side == "overdrive" else [])]
    variables = {"LD_PRELOAD": ":".join(libraries)} if libraries else {}
    variables["OPENBLAS_NUM_THREADS"] = "1"
    words = [*host.mpiexec(ranks, variables), *command]
    result = run_job(words, host.environment(), SECONDS)
    if not result.ok:
        print(f"smpi: {' '.join(words)}: {result.problem('too slow')}", file=sys.stderr)
        return ""
    return result.stdout


def row(*values: object) -> Row:
    """Return one figure as a row of the table."""
    return dict(zip(COLUMNS, map(str, values)))


def regime_of(output: str) -> tuple[str, list[float]]:
    """Return whether the ranks of a job were near or far all the time, and times of a line."""
    lines_ns = [float(text) for text in re.findall(r"^line_ns,([\d.]+)$", output, re.MULTILINE)]
    near = [value < NEAR_NS for value in lines_ns]
    if len(near) != 2 or near[0] != near[1]:
        return "", lines_ns
    return ("near" if near[0] else "far"), lines_ns


def views(host: Host, rewrite: bool) -> list[Row]:
    """Measure round trips on one node, by message and by view; nothing where the cores moved."""
    program = build(host, ROOT / "bench" / "smpi" / "views.c")
    part = "rewritten" if rewrite else "views"
    command = [str(program), f"--rewrite={int(rewrite)}", "--budget=0.003"]
    found = []
    for side in ("plain", "overdrive"):
        for _ in range(ATTEMPTS):
            output = run(host, 2, command, side)
            regime, lines_ns = regime_of(output)
            if regime:
                break
            print(f"smpi: left out, a line took {lines_ns} ns", file=sys.stderr)
        if not regime:
            continue
        for ns in lines_ns:
            found.append(row(part, host.name, side, regime, "1x2", 0, "line_ns", ns))
        for line in output.splitlines():
            fields = line.split(",")
            if len(fields) == 5:
                what = f"{fields[3]}-{fields[1]}"
                found.append(row(part, host.name, side, regime, "1x2", fields[0], what, fields[4]))
    return found


def cannon_rows(part: str, host: Host, side: str, layout: str, output: str) -> list[Row]:
    """Return the medians of the figures that a version of Cannon's algorithm has printed."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for name, order, *times in CANNON.findall(output):
        version = name.removeprefix("cannon_")
        for what, text in zip(("program", "communication", "exchange"), times):
            seconds.setdefault((order, f"{version}-{what}"), []).append(float(text))
    return [
        row(part, host.name, side, "", layout, order, what, f"{statistics.median(values):.6g}")
        for (order, what), values in seconds.items()
    ]


def cannon_ways(host: Host) -> list[tuple[str, Path]]:
    """Compile Cannon's algorithm; return what is compared: plain MPI, with Overdrive, SMPI."""
    flags = blas()
    by_messages, by_views = (
        build(host, ROOT / "examples" / f"cannon_{kind}.c", flags) for kind in ("mpi", "smpi")
    )
    return [("plain", by_messages), ("overdrive", by_messages), ("overdrive", by_views)]


def product_row(part: str, host: Host) -> Row:
    """Return whether the local products are a BLAS's, which the page says of its figures."""
    return row(part, host.name, "", "", "", 0, "blas", int(bool(blas())))


def cannon(host: Host, ranks: int, order: int) -> list[Row]:
    """Measure both versions on one node."""
    found = [product_row("cannon", host)]
    for side, program in cannon_ways(host):
        products = REPETITIONS if order >= SHORT_ORDERS else SHORT_REPETITIONS
        output = run(host, ranks, [str(program), str(order), str(products)], side)
        found += cannon_rows("cannon", host, side, f"1x{ranks}", output)
    return found


def lab(host: Host, nodes: int, each: int) -> list[Row]:
    """Measure both versions on so many nodes of a virtual cluster with so many ranks each."""
    ways = cannon_ways(host)
    layout, ranks = f"{nodes}x{each}", nodes * each
    found = [product_row("lab", host)]
    with up(nodes, each, LAB_RATE) as cluster:
        for order in LAB_ORDERS:
            for side, program in ways:
                lib = library() if side == "overdrive" else None
                threads = {"OPENBLAS_NUM_THREADS": "1"}
                variant = Variant("smpi", host, program, lib, threads)
                command = [str(program), str(order), str(REPETITIONS)]
                job = cluster.start(variant, ranks, command, SECONDS, 0, threading.Event())
                if not job.ok:
                    print(f"smpi: {job.problem('too slow')}", file=sys.stderr)
                found += cannon_rows("lab", host, side, layout, job.stdout)
    return found


def cases(host: Host) -> list[Row]:
    """Count the cases of the interface's own suite, and those answered as without Overdrive."""
    support = ROOT / "tests" / "support"
    program = build(host, ROOT / "tests" / "smpi" / "conformance.c", [f"-I{support}", "-lpthread"])
    preloads = libraries_for(host)  # more ranks than cores
    outputs = {
        "none": run(host, 4, [str(program)], "plain", preloads),
        "node": run(host, 4, [str(program)], "overdrive", preloads),
    }
    with up(2, 2, "") as cluster:
        variant = Variant("smpi", host, program, library())
        job = cluster.start(variant, 4, [str(program)], SECONDS, 0, threading.Event())
        outputs["nodes"] = job.stdout if job.ok else ""
        if not job.ok:
            print(f"smpi: {job.problem('too slow')}", file=sys.stderr)
    answers = {name: set(CASE.findall(outputs[name])) for name in SITUATIONS}
    found = []
    for name in SITUATIONS:
        same = len(answers[name] & answers["none"]) if "PASS" in outputs[name] else 0
        for what, count in (("cases", len(answers[name])), ("same", same)):
            found.append(row("cases", host.name, name, "", "", 0, what, count))
    return found


@dataclass(frozen=True)
class Step:
    """What is measured in one go; its rows are kept as soon as it is over."""

    name: str
    measure: Callable[[], list[Row]]


def steps(hosts: Iterable[Host], parts: Iterable[str], turns: int) -> Iterator[Step]:
    """Return what is to be measured; the first turn of everything comes before the second."""
    hosts, parts = list(hosts), list(parts)
    for turn in range(turns):
        for part in parts:
            for host in hosts:
                name = f"{turn} {part} {host.name}"
                if part == "cases":
                    yield Step(name, lambda h=host: cases(h))
                elif part in ("views", "rewritten"):
                    yield Step(name, lambda h=host, p=part: views(h, p == "rewritten"))
                elif part == "cannon":
                    for ranks, orders in ORDERS.items():
                        for order in orders:
                            yield Step(
                                f"{name} {ranks} {order}",
                                lambda h=host, r=ranks, o=order: cannon(h, r, o),
                            )
                else:
                    for nodes, each in LAB_LAYOUTS:
                        yield Step(
                            f"{name} {nodes}x{each}", lambda h=host, n=nodes, e=each: lab(h, n, e)
                        )


def read(path: Path) -> list[Row]:
    """Return the rows of a table; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: list[str], rows: Iterable[Row]) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def commit() -> str:
    """Return which sources are measured."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def measure(planned: list[Step], seconds: float) -> bool:
    """Measure what is still missing, as long as there is time; return whether it is all there."""
    begin = time.monotonic()
    done = read(UNDER_WAY)
    sources = commit()
    for step in planned:
        if any(one["step"] == step.name for one in done):
            continue
        if time.monotonic() - begin > seconds:
            return False
        try:
            new = step.measure()
        except NoLab as reason:
            print(f"smpi: no virtual cluster: {reason}", file=sys.stderr)
            continue
        print(f"smpi: {step.name}: {len(new)} figures", file=sys.stderr)
        done += [one | {"step": step.name, "commit": sources} for one in new]
        write(UNDER_WAY, ["step", *FIELDS], done)
    return True


def merged(before: list[Row], new: list[Row]) -> list[Row]:
    """Return all rows, without what has been measured again.

    What was seen near stays when this time the cores were far from each other, or when only one of
    host and Overdrive was seen near: they are compared.
    """

    def regime(one: Row) -> tuple[str, ...]:
        return tuple(one[name] for name in ("part", "host", "regime"))

    sides: dict[tuple[str, ...], set[str]] = {}
    for one in new:
        sides.setdefault(regime(one), set()).add(one["side"])
    new = [one for one in new if not one["regime"] or len(sides[regime(one)]) == 2]

    def point(one: Row) -> tuple[str, ...]:
        return tuple(one[name] for name in ("part", "host", "side", "regime", "layout", "x"))

    again = {point(one) for one in new}
    return [one for one in before if point(one) not in again] + new


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--host", help="comma-separated; by default the main ones, and all for the cases"
    )
    parser.add_argument("--part", default=",".join(PARTS), help="comma-separated")
    parser.add_argument("--turns", type=int, default=3, help="jobs of each variant and point")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after this time")
    parser.add_argument("--evaluate", action="store_true", help="only write the page again")
    options = parser.parse_args()
    if not options.evaluate:
        parts = options.part.split(",")
        if {"cannon", "lab"} & set(parts):
            install_blas()
        planned = []
        if "cases" in parts:
            hosts, missing = select_hosts(options.host)
            for name, reason in missing.items():
                print(f"smpi: no {name}: {reason}", file=sys.stderr)
            planned += steps(hosts, ["cases"], 1)
            parts.remove("cases")
        names = options.host or ",".join(MAIN_HOSTS)
        planned += steps(select_hosts(names)[0], parts, options.turns)
        if not measure(planned, options.seconds):
            print("smpi: not all measured yet; the same command goes on", file=sys.stderr)
            return 3
    new = [{name: one[name] for name in FIELDS} for one in read(UNDER_WAY)]
    rows = merged(read(DATA), new)
    write(DATA, FIELDS, rows)
    if not options.evaluate:
        UNDER_WAY.unlink(missing_ok=True)
    write_page(rows, NOTES, LAB_RATE)
    return 0


if __name__ == "__main__":
    sys.exit(main())

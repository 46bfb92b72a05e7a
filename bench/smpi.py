#!/usr/bin/env python3
"""Measures SMPI: views against messages, and Cannon's algorithm by both.

    smpi.py                         measure everything; write docs/measurements/smpi.md
    smpi.py --part views --host mpich4   only this part and host (keeps the other figures)
    smpi.py --evaluate              write the page again from earlier figures

Figures are kept in docs/measurements/data/smpi.csv; every point is the median of `--turns` jobs in
which the compared variants take turns. Cannon needs a BLAS that runs in one thread per rank
(libopenblas-serial-dev); without one its local product is a plain loop, and the page says so.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from jobs import BUILD, ROOT, Host, library, overdrive_variables, run_job, select_hosts
from lab_runs import NoLab, up
from page import table
from turns import Variant

DATA = ROOT / "docs" / "measurements" / "data" / "smpi.csv"
PAGE = ROOT / "docs" / "measurements" / "smpi.md"
PLOTS = ROOT / "docs" / "measurements" / "plots"
COLUMNS = ["part", "host", "side", "layout", "x", "what", "value"]
PARTS = ("views", "rewritten", "cannon", "lab")
CANNON = re.compile(r"(\w+): order (\d+), \d+ ranks, ([\d.]+) s, of which communication ([\d.]+) s")
ORDERS = {4: (256, 512, 1024, 2048, 4000), 16: (512, 2048, 4000)}
LAB_LAYOUTS = ((2, 2), (4, 4))
"""Nodes, and ranks on each."""
LAB_ORDERS = (512, 2048)
LAB_RATE = "1gbit"
SECONDS = 200
NOTES = [
    "Cannon's rows are three jobs of each variant, alone on the machine. At order 4000 single",
    "jobs of one and the same variant differ by 1.4 times, the local products alone by as",
    "much (plain MPI 1.28, 1.50, 1.76 s; SMPI 1.27, 1.46, 1.58 s). So differences of a tenth",
    "there mean nothing; an earlier single job had 0.78. Message memory costs the products",
    "nothing that would show. With more ranks than cores communication is mostly waiting for",
    "a core: at order 2048 with 4 ranks it took SMPI 0.024 to 0.077 s and plain MPI 0.033 to",
    "0.062 s, too little to tell them apart.",
    "",
    "The tables of round trips are older than two changes: views given and views ended are",
    "counted on lines of their own, and messages of up to 512 bytes carry their data. Both",
    "are meant for the small sizes, where these tables show views behind Overdrive's",
    "messages.",
    "",
]
"""What the present figures do not say by themselves; to be written anew with them."""
Row = dict[str, str]


def blas() -> list[str]:
    """Return the compiler's options for a BLAS, nothing where there is none."""
    probe = "#include <cblas.h>\nint main(void) { cblas_dscal(0, 1, 0, 1); }\n"
    for flags in (["-lopenblas"], ["-lblas"]):
        command = ["cc", "-x", "c", "-", "-o", "/dev/null", *flags]
        if subprocess.run(command, input=probe, text=True, capture_output=True).returncode == 0:
            return ["-DUSE_CBLAS", *flags]
    return []


def build(host: Host, source: Path, flags: Iterable[str] = ()) -> Path:
    """Compile a program for a host."""
    target = BUILD / "bench" / host.name / f"smpi_{source.stem}"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*host.mpicc, "-std=gnu11", "-O2", f"-I{ROOT / 'include'}", f"-I{source.parent}"]
    command += [*(f"-D{name}" for name in host.defines), str(source), "-o", str(target), *flags]
    subprocess.run([*command, "-lm"], env=host.environment(), check=True, capture_output=True)
    return target


def run(host: Host, ranks: int, command: list[str], side: str) -> str:
    """Run a job with or without Overdrive; return its output."""
    variables = overdrive_variables(library()) if side == "overdrive" else {}
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


def views(host: Host, turns: int, rewrite: bool) -> list[Row]:
    """Measure round trips on one node, by message and by view."""
    program = build(host, ROOT / "bench" / "smpi" / "views.c")
    part = "rewritten" if rewrite else "views"
    found = []
    for _ in range(turns):
        for side in ("plain", "overdrive"):
            command = [str(program), f"--rewrite={int(rewrite)}", "--budget=0.004"]
            for line in run(host, 2, command, side).splitlines():
                fields = line.split(",")
                if fields[0] == "line_ns" and side == "overdrive":
                    found.append(row(part, host.name, side, "1x2", 0, "line_ns", fields[1]))
                elif len(fields) == 5:
                    what = f"{fields[3]}-{fields[1]}"
                    found.append(row(part, host.name, side, "1x2", fields[0], what, fields[4]))
    return found


def cannon_rows(part: str, host: Host, side: str, layout: str, output: str) -> list[Row]:
    """Return the figures that a version of Cannon's algorithm has printed."""
    found = []
    for name, order, whole, communication in CANNON.findall(output):
        version = name.removeprefix("cannon_")
        found.append(row(part, host.name, side, layout, order, f"{version}-program", whole))
        text = f"{version}-communication"
        found.append(row(part, host.name, side, layout, order, text, communication))
    return found


def cannon_programs(host: Host) -> list[Path]:
    """Compile both versions."""
    flags = blas()
    return [build(host, ROOT / "examples" / f"cannon_{kind}.c", flags) for kind in ("mpi", "smpi")]


def cannon(host: Host, turns: int) -> list[Row]:
    """Measure both versions on one node: plain MPI, with Overdrive, SMPI."""
    programs = cannon_programs(host)
    found = []
    for ranks, orders in ORDERS.items():
        for order in orders:
            for _ in range(turns):
                for side, program in (
                    ("plain", programs[0]),
                    ("overdrive", programs[0]),
                    ("overdrive", programs[1]),
                ):
                    output = run(host, ranks, [str(program), str(order)], side)
                    found += cannon_rows("cannon", host, side, f"1x{ranks}", output)
    return found


def lab(host: Host, turns: int) -> list[Row]:
    """Measure both versions on nodes of a virtual cluster with several ranks each."""
    return [row for shape in LAB_LAYOUTS for row in lab_layout(host, turns, *shape)]


def lab_layout(host: Host, turns: int, nodes: int, each: int) -> list[Row]:
    """Measure both versions on so many nodes with so many ranks each."""
    programs = cannon_programs(host)
    layout, ranks = f"{nodes}x{each}", nodes * each
    found = []
    try:
        with up(nodes, each, LAB_RATE) as cluster:
            for order in LAB_ORDERS:
                for _ in range(turns):
                    for lib, program in (
                        (None, programs[0]),
                        (library(), programs[0]),
                        (library(), programs[1]),
                    ):
                        variant = Variant("smpi", host, program, lib)
                        job = cluster.start(
                            variant, ranks, [str(program), str(order)], SECONDS, 0, None
                        )
                        side = "overdrive" if lib else "plain"
                        if not job.ok:
                            print(f"smpi: {job.problem('too slow')}", file=sys.stderr)
                        found += cannon_rows("lab", host, side, layout, job.stdout)
    except NoLab as reason:
        print(f"smpi: no virtual cluster: {reason}", file=sys.stderr)
    return found


class Figures:
    """The medians of all rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.values: dict[tuple[str, ...], list[float]] = {}
        for one in rows:
            key = tuple(one[name] for name in COLUMNS[:-1])
            self.values.setdefault(key, []).append(float(one["value"]))

    def get(self, *key: object) -> float | None:
        """Return a median, or None."""
        found = self.values.get(tuple(map(str, key)))
        return statistics.median(found) if found else None

    def hosts(self, part: str) -> list[str]:
        """Return the hosts with figures of a part."""
        return sorted({one["host"] for one in self.rows if one["part"] == part})

    def xs(self, part: str, layout: str) -> list[int]:
        """Return the sizes or orders of a part."""
        chosen = [one for one in self.rows if (one["part"], one["layout"]) == (part, layout)]
        return sorted({int(one["x"]) for one in chosen if one["x"] != "0"})


def shown(value: float | None, digits: int = 3) -> str:
    """Return a figure with few digits, or a dash."""
    return "–" if value is None else f"{value:.{digits}g}" if value < 1000 else f"{value:.0f}"


def ratio(a: float | None, b: float | None) -> str:
    """Return how many times b goes into a."""
    return "–" if a is None or b is None else f"{a / b:.2f}"


def size_name(size: int) -> str:
    """Return a size in bytes for people."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def views_section(figures: Figures, part: str) -> list[str]:
    """Return the tables of round trips."""
    lines = []
    for host in figures.hosts(part):
        lines_ns = figures.values.get((part, host, "overdrive", "1x2", "0", "line_ns"), [])
        regime = ", ".join(f"{value:.0f}" for value in lines_ns)
        lines += [f"**{host}** (a cache line took {regime} ns in the jobs):", ""]
        rows = []
        for size in figures.xs(part, "1x2"):
            cells = [size_name(size)]
            for read in ("nothing", "tenth", "all"):
                own = figures.get(part, host, "overdrive", "1x2", size, f"message-{read}")
                plain = figures.get(part, host, "plain", "1x2", size, f"message-{read}")
                view = figures.get(part, host, "overdrive", "1x2", size, f"view-{read}")
                cells += [shown(plain), shown(own), shown(view)]
            rows.append(cells)
        header = ["size"]
        for read in ("nothing read", "a tenth", "all"):
            header += [f"{read}: host", "Overdrive", "view"]
        lines += table(header, rows)
    return lines


def cannon_section(figures: Figures, part: str, layouts: Iterable[str]) -> list[str]:
    """Return the table of Cannon's algorithm."""
    rows = []
    for host in figures.hosts(part):
        for layout in layouts:
            for order in figures.xs(part, layout):

                def get(
                    side: str,
                    what: str,
                    at: tuple[str, str, str, int] = (part, host, layout, order),
                ) -> float | None:
                    return figures.get(at[0], at[1], side, at[2], at[3], what)

                plain, own = get("plain", "mpi-program"), get("overdrive", "mpi-program")
                view = get("overdrive", "smpi-program")
                plain_c = get("plain", "mpi-communication")
                own_c = get("overdrive", "mpi-communication")
                view_c = get("overdrive", "smpi-communication")
                cells = [host, layout, str(order), shown(plain), shown(own), shown(view)]
                cells += [ratio(plain, view), shown(plain_c), shown(own_c), shown(view_c)]
                rows.append([*cells, ratio(plain_c, view_c)])
    header = ["host", "nodes x ranks", "order", "program: host", "Overdrive", "SMPI", "times"]
    return table([*header, "communication: host", "Overdrive", "SMPI", "times"], rows)


def gains(figures: Figures) -> list[str]:
    """Say at which orders the program is 1.3 times as fast, and where it is slower."""
    lines = []
    for host in figures.hosts("cannon"):
        for layout in ("1x4", "1x16"):
            faster, slower = [], []
            for order in figures.xs("cannon", layout):
                plain = figures.get("cannon", host, "plain", layout, order, "mpi-program")
                view = figures.get("cannon", host, "overdrive", layout, order, "smpi-program")
                if plain and view and plain >= 1.3 * view:
                    faster.append(str(order))
                if plain and view and plain < view:
                    slower.append(str(order))
            lines.append(
                f"{host}, {layout[2:]} ranks: 1.3 times as fast, or more, at the orders "
                f"{', '.join(faster) or 'none'}; slower at {', '.join(slower) or 'none'}.  "
            )
    return [*lines, ""]


def draw(figures: Figures) -> None:
    """Draw the two pictures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    PLOTS.mkdir(parents=True, exist_ok=True)
    figure, all_axes = plt.subplots(1, 2, figsize=(11, 4))
    hosts = figures.hosts("views")[:1]
    for axes, read in zip(all_axes, ("nothing", "all")):
        for host in hosts:
            for side, way, label in (
                ("plain", "message", f"message, {host}"),
                ("overdrive", "message", "message, Overdrive"),
                ("overdrive", "view", "view"),
            ):
                sizes = figures.xs("views", "1x2")
                values = [
                    figures.get("views", host, side, "1x2", s, f"{way}-{read}") for s in sizes
                ]
                axes.loglog(sizes, values, marker="o", label=label)
        axes.set_title(f"receiver reads {read}")
        axes.set_xlabel("bytes")
        axes.set_ylabel("us for one direction")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(PLOTS / "smpi_views.png", dpi=90)
    figure, axes = plt.subplots(figsize=(6, 4))
    for host in figures.hosts("cannon"):
        for layout in ("1x4", "1x16"):
            points = []
            for order in figures.xs("cannon", layout):
                plain = figures.get("cannon", host, "plain", layout, order, "mpi-program")
                view = figures.get("cannon", host, "overdrive", layout, order, "smpi-program")
                if plain and view:
                    points.append((order, plain / view))
            if points:
                axes.semilogx(*zip(*points), marker="o", label=f"{host}, {layout[2:]} ranks")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.axhline(1.3, color="grey", linestyle="--", linewidth=0.8)
    axes.set_xlabel("order of the matrices")
    axes.set_ylabel("plain MPI / SMPI, whole program")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(PLOTS / "smpi_cannon.png", dpi=90)
    plt.close("all")


def write_page(rows: list[Row]) -> None:
    """Write the page and its pictures."""
    figures = Figures(rows)
    counts = [len(values) for values in figures.values.values()]
    fewest, most = min(counts, default=0), max(counts, default=0)
    jobs = f"{most} jobs" if fewest == most else f"{fewest} to {most} jobs"
    product = "cblas_dgemm, one thread per rank" if blas() else "a loop, no BLAS was found"
    lines = [
        "# Measurements: views instead of messages",
        "",
        "`python3 bench/smpi.py` measures all this again; the figures are in",
        f"[data/smpi.csv](data/smpi.csv). Two cores; every point is the median of {jobs} in",
        "which the variants take turns, and within a job messages and views take turns in batches.",
        "How near the two cores are to each other changes while measuring (the times of a cache",
        "line tell), so rows of different hosts are not comparable.",
        "",
        "## Round trips between two ranks of a node",
        "",
        "Microseconds for one direction: the installed MPI's message, Overdrive's, and a view. The",
        "receiver sums up nothing, a tenth or all of it; the sender sends the same data again.",
        "",
        *views_section(figures, "views"),
        "![views](plots/smpi_views.png)",
        "",
        "The same when the sender writes the whole buffer anew before each send (with views: after",
        "`SMPI_Reclaim`); writing is part of the time:",
        "",
        *views_section(figures, "rewritten"),
        "## Cannon's algorithm",
        "",
        f"`examples/cannon_mpi.c` and `cannon_smpi.c`; local product: {product}. Seconds, the",
        "slowest rank; `times` is plain MPI without Overdrive divided by SMPI. With 4 and 16 ranks",
        "on two cores all rows are oversubscribed: waiting for the core is part of every",
        "communication time.",
        "",
        *cannon_section(figures, "cannon", ("1x4", "1x16")),
        *gains(figures),
        *NOTES,
        "![Cannon](plots/smpi_cannon.png)",
        "",
    ]
    if figures.hosts("lab"):
        lines += [
            f"Nodes of a virtual cluster ({LAB_RATE}), all on the same two cores, which makes",
            "these oversubscribed, too:",
            "",
            *cannon_section(figures, "lab", [f"{n}x{each}" for n, each in LAB_LAYOUTS]),
        ]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    draw(figures)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="openmpi4,mpich4", help="comma-separated")
    parser.add_argument("--part", default=",".join(PARTS), help="comma-separated")
    parser.add_argument("--turns", type=int, default=3, help="jobs of each variant and point")
    parser.add_argument("--evaluate", action="store_true", help="only write the page again")
    options = parser.parse_args()
    rows: list[Row] = []
    if DATA.exists():
        with DATA.open(newline="") as file:
            rows = list(csv.DictReader(file))
    if not options.evaluate:
        hosts, _ = select_hosts(options.host)
        for host in hosts:
            for part in options.part.split(","):
                measure = {
                    "views": lambda h: views(h, options.turns, False),
                    "rewritten": lambda h: views(h, options.turns, True),
                    "cannon": lambda h: cannon(h, options.turns),
                    "lab": lambda h: lab(h, options.turns),
                }[part]
                new = measure(host)
                rows = [o for o in rows if (o["part"], o["host"]) != (part, host.name)] + new
                DATA.parent.mkdir(parents=True, exist_ok=True)
                with DATA.open("w", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)
    write_page(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

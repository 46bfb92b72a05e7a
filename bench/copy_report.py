"""Writes the page on copies from the samples of its parts."""

from __future__ import annotations

from pathlib import Path

from analysis import (
    FAR_FROM_NS,
    FAR_TO_NS,
    MAX_WAITED,
    MIN_SAMPLES,
    NEAR_BELOW_NS,
    RATE_UNITS,
    REGIMES,
    Cell,
    Point,
    Results,
    geometric_mean,
    size_name,
)
from campaign import FIVE, OVERDRIVE, PLAIN, parse_sizes
from copy_campaign import (
    ENVELOPE_SIZES,
    MAIN_HOST,
    MAX_PROGRAM_WAITED,
    PARTS,
    PATHS,
)
from copy_goals import (
    SHAPE_TITLES,
    SHAPES,
    choice_at,
    envelope_point,
    judge,
)
from goals import HOST_TITLES, Finding, known_ratios
from page import (
    DASH,
    Circumstances,
    at_a_glance,
    goals_section,
    number,
    opening,
    pictures,
    table,
    titled_table,
    write,
)

CHOICE = "Overdrive"
KERNEL_TITLES = {"ft": "FT", "is": "IS", "cg": "CG", "mg": "MG"}
PROGRAM_TITLES = {"hpcc": "HPC Challenge", "lammps": "LAMMPS"}
PROGRAM_FIGURES = {
    "hpcc": ["Linpack", "matrix transpose", "FFT", "random access"],
    "lammps": ["speed", "communication"],
}


def _interval(cell: Cell | None) -> str:
    if cell is None or len(cell.values) < MIN_SAMPLES:
        return DASH
    return f"{number(cell.median)} ± {number(cell.median * cell.uncertainty)}"


def _envelope(results: Results) -> list[str]:
    rows = []
    for shape in SHAPES:
        for regime in REGIMES:
            found = [
                (choice.ratio, size_name(size))
                for size in parse_sizes(ENVELOPE_SIZES)
                if (choice := choice_at(results, regime, envelope_point(shape, size))) is not None
            ]
            if found:
                least, where = min(found)
                mean = geometric_mean([ratio for ratio, _ in found])
                steps = _crossovers(results, regime, shape)
                title = f"{SHAPE_TITLES[shape]}, {regime}"
                rows.append([title, f"{mean:.2f}", f"{least:.2f} at {where}", ", ".join(steps)])
    if not rows:
        return []
    return [
        "## The choice among the paths",
        "",
        f"Half a round trip of two ranks over {HOST_TITLES[MAIN_HOST]}, {ENVELOPE_SIZES}: the "
        "engine's own choice against each path forced with `OVERDRIVE_COPY_PATH`. Speed of the "
        "choice relative to the best single path at each size, and which path is best beyond "
        "doubt from which size on. All times, and those of a plain `memcpy` by the receiver from "
        "memory that both processes map: `data/copy-envelope.csv`.",
        "",
        *table(["buffers", "mean", "smallest", "best path from"], rows),
    ]


def _crossovers(results: Results, regime: str, shape: str) -> list[str]:
    """Say from which size on which path is best, where it is so beyond doubt."""
    steps: list[str] = []
    last = ""
    for size in parse_sizes(ENVELOPE_SIZES):
        point = envelope_point(shape, size)
        choice = choice_at(results, regime, point)
        if choice is None or choice.best == last:
            continue
        against = [
            ratio
            for path in PATHS
            if path != choice.best
            and (ratio := results.speedup(regime, point, MAIN_HOST, choice.best, MAIN_HOST, path))
            is not None
        ]
        # Below 3 % two paths count as equal, and the one that was best before stays.
        if against and min(against) >= 1.03:
            last = choice.best
            steps.append(f"{last} {size_name(size)}")
    return steps


def _variant_header() -> list[str]:
    return ["host alone", CHOICE, *PATHS, f"{CHOICE} : host", f"{CHOICE} : best path"]


def _variant_cells(results: Results, regime: str, point: Point) -> list[str] | None:
    """Return medians with intervals of all variants and the gains of the choice."""
    variants = [PLAIN, OVERDRIVE, *PATHS]
    cells = [results.cell(regime, MAIN_HOST, variant, point) for variant in variants]
    found = [_interval(cell) for cell in cells]
    if found[0] == DASH or found[1] == DASH:
        return None

    def gain(base: str) -> str:
        ratio = results.speedup(regime, point, MAIN_HOST, OVERDRIVE, MAIN_HOST, base)
        uncertainty = results.uncertainty(regime, point, MAIN_HOST, OVERDRIVE, MAIN_HOST, base)
        return DASH if ratio is None else f"{ratio:.2f} ± {uncertainty:.2f}"

    best = best_path(results, regime, point)
    return [*found, gain(PLAIN), f"{gain(best)} ({best})" if best else DASH]


def best_path(results: Results, regime: str, point: Point) -> str | None:
    """Return the single path with the best median, None if one is not known."""
    known = {
        path: cell.median
        for path in PATHS
        if (cell := results.cell(regime, MAIN_HOST, path, point)) is not None
        and len(cell.values) >= MIN_SAMPLES
    }
    if len(known) < len(PATHS):
        return None
    cell = results.cell(regime, MAIN_HOST, OVERDRIVE, point)
    best = max if cell is not None and cell.unit in RATE_UNITS else min
    return best(known, key=lambda path: known[path])


def kernel_points(results: Results) -> list[Point]:
    """Return the points of the kernels in the order in which they are shown."""
    points = results.points(kind="time")
    order = list(KERNEL_TITLES)
    return sorted(
        points, key=lambda p: (p.shape == "long", order.index(p.test), p.mode == "collective")
    )


def kernel_title(point: Point) -> str:
    """Return the name of a kernel with its input."""
    title = f"{KERNEL_TITLES[point.test]}, {point.shape} messages"
    return f"{title}, host's all-to-all" if point.mode == "collective" else title


def _kernels(results: Results) -> list[str]:
    lines = [
        "## Kernels",
        "",
        "Kernels in the manner of the NAS parallel benchmarks FT, IS, CG and MG (`bench/kernels`), "
        f"two ranks over {HOST_TITLES[MAIN_HOST]}: milliseconds per iteration, median and the half "
        "width of its interval. Each has an input of short and one of long messages, both chosen "
        "so small that communication counts; the share of the time that goes into messages, "
        "waiting for the other rank included, is that of the host alone. Every run compares its "
        "results with a serial run. In the lines *host's all-to-all* the collective of the host "
        "carries the data, which Overdrive leaves as it is. Published for a choice among ways to "
        "copy: applications up to 17 % faster than with either of two single ways.",
        "",
    ]
    for regime in REGIMES:
        rows = []
        for point in kernel_points(results):
            cells = _variant_cells(results, regime, point)
            share = results.median(
                regime,
                MAIN_HOST,
                PLAIN,
                Point(point.test, point.shape, point.mode, "messages", 0, 2),
            )
            if cells is not None:
                part = DASH if share is None else f"{share:.0%}"
                rows.append([kernel_title(point), part, *cells])
        if rows:
            lines += titled_table(regime, ["", "messages", *_variant_header()], rows)
            lines += _summary(results, regime, kernel_points(results), "kernels")
    return lines


def _summary(results: Results, regime: str, points: list[Point], what: str) -> list[str]:
    """Say in a sentence what the choice gains."""
    judged = [point for point in points if point.mode != "collective"]
    gains = {}
    for base in (PLAIN, *PATHS):
        ratios = [r.value for r in known_ratios(results, judged, regime, MAIN_HOST, base=base)]
        if ratios:
            gains[base] = (geometric_mean(ratios), max(ratios), min(ratios))
    if PLAIN not in gains or len(gains) < 2:
        return []
    text = [
        f"{'the host alone' if base == PLAIN else base} {mean:.2f} ({least:.2f} to {most:.2f})"
        for base, (mean, most, least) in gains.items()
    ]
    return [
        f"How many times as fast the choice is, geometric mean over these {what} (smallest to "
        f"largest): against {'; '.join(text)}.",
        "",
    ]


def _programs(results: Results) -> list[str]:
    lines = [
        "## Programs",
        "",
        f"Unmodified programs of the distribution, two ranks over {HOST_TITLES[MAIN_HOST]}, median "
        "and the half width of its interval over whole runs; what the programs compute is compared "
        "with the runs without Overdrive. A run counts as near or far if the machine was so before "
        "and after it, and is dropped if a process waited for a core for more than "
        f"{MAX_PROGRAM_WAITED:.0%} of the time. The inputs are small (`bench/programs`): LAMMPS "
        "moves 864 atoms and exchanges their neighbours in every step, the transposed matrix has "
        "order 480.",
        "",
    ]
    for regime in REGIMES:
        rows = []
        for program, names in PROGRAM_FIGURES.items():
            for name in names:
                for point in results.points(test=program, shape=name):
                    cells = _variant_cells(results, regime, point)
                    cell = results.cell(regime, MAIN_HOST, OVERDRIVE, point)
                    if cells is not None and cell is not None:
                        title = f"{PROGRAM_TITLES[program]}: {name}, {cell.unit}"
                        rows.append([title, *cells])
        if rows:
            lines += titled_table(regime, ["", *_variant_header()], rows)
            points = [
                point
                for program, names in PROGRAM_FIGURES.items()
                for point in results.points(test=program, shape=names)
            ]
            lines += _summary(results, regime, points, "figures")
    return lines


def _method(results: dict[str, Results]) -> list[str]:
    counts = [
        [part.name, *(str(results[part.name].counts[key]) for key in (*REGIMES, "noisy"))]
        for part in PARTS
    ]
    return [
        "## How it is measured",
        "",
        "The compared variants (the host alone, Overdrive, each forced path, and where hosts are "
        "compared all of them) are jobs that run *at the same time and take turns*: while one "
        "takes a sample of some milliseconds the others sleep, and the order changes from round to "
        "round. So the samples that are compared lie milliseconds apart. Ranks are pinned to one "
        "core each. Before and after each sample the two processes exchange one cache line without "
        f"MPI: below {NEAR_BELOW_NS:.0f} ns the sample counts as *near*, between "
        f"{FAR_FROM_NS:.0f} and {FAR_TO_NS:.0f} ns as *far*, otherwise, and if a rank waited for "
        f"its core for more than {MAX_WAITED:.0%} of the time, it is dropped. A ratio is the "
        "median over rounds of the ratio within a round, above 1 where Overdrive is faster; a mean "
        "is a geometric mean. The uncertainty is 1.57 times the distance of the quartiles divided "
        "by the square root of the number of samples.",
        "",
        "With *unchanged buffers* the send buffer is never written; with *rewritten buffers* the "
        "sender writes the whole buffer before each send, the receiver reads all of it, and both "
        "are timed. A *late* rank computes until a time that both have agreed on.",
        "",
        *table(["samples of", *REGIMES, "dropped"], counts),
    ]


def write_page(path: Path, results: dict[str, Results], around: Circumstances) -> list[Finding]:
    """Write the page and return the findings that are in it; results by part."""
    hosts = [host for host in FIVE if host in around.versions]
    findings = judge(results, hosts)
    lines = [
        *opening(
            "Copies: which way is best, and does the engine choose it", "copy_paths.py", around
        ),
        "Times of every size with their quartiles: `data/copy-*.csv`.",
        "",
        *at_a_glance(findings, [HOST_TITLES[host] for host in hosts]),
        *_envelope(results["envelope"]),
        *_kernels(results["kernels"]),
        *_programs(results["programs"]),
        *goals_section(path, findings, "what the goal names"),
        *pictures(around),
        *_method(results),
    ]
    write(path, lines)
    return findings

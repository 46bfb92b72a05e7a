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
from campaign import FIVE, MAIN_HOSTS, OVERDRIVE, PLAIN, parse_sizes
from copy_campaign import (
    COLLECTIVE_SIZES,
    ENVELOPE_SIZES,
    HOST_SIZES,
    MAIN_HOST,
    MAX_PROGRAM_WAITED,
    PARTS,
    PATHS,
    SKEW_SIZES,
)
from copy_goals import (
    DELAYS,
    ENVELOPE_GOAL,
    MEMCPY,
    SHAPE_TITLES,
    SHAPES,
    choice_at,
    collective_points,
    envelope_point,
    judge,
    skew_point,
)
from goals import COLLECTIVES, HOST_TITLES, Finding, known_ratios
from page import (
    DASH,
    Circumstances,
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


def _gain_cell(results: Results, regime: str, host: str, point: Point) -> str:
    """Return how many times as fast Overdrive is, and the time of the host alone."""
    ratio = results.speedup(regime, point, host, OVERDRIVE, host)
    plain = results.median(regime, host, PLAIN, point)
    return DASH if ratio is None else f"{ratio:.2f} ({number(plain)})"


def _envelope_rows(results: Results, regime: str, shape: str) -> list[list[str]]:
    rows = []
    for size in parse_sizes(ENVELOPE_SIZES):
        point = envelope_point(shape, size)
        choice = choice_at(results, regime, point)
        if choice is None:
            continue
        medians = [
            number(results.median(regime, MAIN_HOST, variant, point))
            for variant in (OVERDRIVE, *PATHS, MEMCPY)
        ]
        text = f"{choice.ratio:.2f} ± {choice.uncertainty:.2f}"
        if choice.ratio + min(choice.uncertainty, 0.03) < ENVELOPE_GOAL:
            text = f"**{text}**"
        rows.append([size_name(size), *medians, choice.best, text])
    return rows


def _envelope(results: Results) -> list[str]:
    lines = [
        "## Every size by every path",
        "",
        f"Half a round trip of two ranks in µs over {HOST_TITLES[MAIN_HOST]}: the engine's own "
        "choice, each path forced with `OVERDRIVE_COPY_PATH`, and, for comparison, a plain "
        "`memcpy` by the receiver from memory that both processes map. The last column is the "
        "speed of the choice relative to the best single path, with the uncertainty of the ratio: "
        "1 is equal. Messages too short for a path take the ordinary one for short messages, so "
        "the first rows differ by chance only.",
        "",
    ]
    header = ["size", CHOICE, *PATHS, MEMCPY, "best path", "choice : best"]
    for shape in SHAPES:
        for regime in REGIMES:
            rows = _envelope_rows(results, regime, shape)
            if rows:
                title = f"{SHAPE_TITLES[shape].capitalize()}, {regime}"
                lines += titled_table(title, header, rows)
                lines += _crossovers(results, regime, shape)
    return lines


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
            steps.append(f"{last} at {size_name(size)}")
    return [f"Clearly best: {', then '.join(steps)}.", ""] if steps else []


def _hosts(results: Results, hosts: list[str]) -> list[str]:
    lines = [
        "## Against the host MPIs",
        "",
        "How many times as fast a blocking ping-pong is as over the host alone (of which the time "
        "in µs is in brackets).",
        "",
    ]
    sizes = parse_sizes(HOST_SIZES)
    for shape in SHAPES:
        for regime in REGIMES:
            rows = []
            for host in (h for h in FIVE if h in hosts):
                cells = [
                    _gain_cell(results, regime, host, envelope_point(shape, size)) for size in sizes
                ]
                if set(cells) != {DASH}:
                    rows.append([HOST_TITLES[host], *cells])
            title = f"{SHAPE_TITLES[shape].capitalize()}, {regime}"
            lines += titled_table(title, ["over", *map(size_name, sizes)], rows)
    return lines


def _skew(results: Results, hosts: list[str]) -> list[str]:
    lines = [
        "## Late receivers and late senders",
        "",
        "Both ranks agree on a time; one of them is late by the time given and computes until "
        "then. *Call*: how long `MPI_Send` takes. *Total*: from the moment when both are there "
        "until `MPI_Recv` returns. The buffer is written before each message. Each cell is the "
        "host alone → with Overdrive, in µs. A host for which a message is short enough to be sent "
        "at once (8 KiB over MPICH 4.0) lets its sender go as early itself.",
        "",
    ]
    sizes = parse_sizes(SKEW_SIZES)
    for regime in REGIMES:
        for mode in ("call", "total"):
            rows = []
            cases = [f"{side} late {delay}" for side in ("receiver", "sender") for delay in DELAYS]
            for case in ["together", *cases]:
                # How long a late sender's call takes says nothing that its total does not say.
                if mode == "call" and case.startswith("sender"):
                    continue
                for host in (h for h in MAIN_HOSTS if h in hosts):
                    cells = []
                    for size in sizes:
                        point = skew_point(case, mode, size)
                        plain = results.median(regime, host, PLAIN, point)
                        mine = results.median(regime, host, OVERDRIVE, point)
                        known = plain is not None and mine is not None
                        cells.append(f"{number(plain)} → {number(mine)}" if known else DASH)
                    if set(cells) != {DASH}:
                        rows.append([case, HOST_TITLES[host], *cells])
            header = ["", "over", *map(size_name, sizes)]
            lines += titled_table(f"{mode.capitalize()}, {regime}", header, rows)
    return lines


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


def _collectives(results: Results, hosts: list[str]) -> list[str]:
    lines = [
        "## Collectives of the host",
        "",
        "They run over the host's own paths. Speed with Overdrive relative to the host alone, and "
        "in brackets the time of the host in µs.",
        "",
    ]
    for ranks in COLLECTIVE_SIZES:
        for regime in REGIMES:
            rows = []
            for name in COLLECTIVES:
                points = collective_points(name, ranks)
                for host in (h for h in FIVE if h in hosts):
                    cells = [_gain_cell(results, regime, host, point) for point in points]
                    if set(cells) != {DASH}:
                        rows.append([name, HOST_TITLES[host], *cells])
            sizes = [size_name(point.size_bytes) for point in collective_points("bcast", ranks)]
            more = ", more than cores" if ranks > 2 else ""
            lines += titled_table(f"{ranks} ranks{more}, {regime}", ["", "over", *sizes], rows)
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
        "In the *usual shape* the send buffer is never rewritten; in the *application's shape* the "
        "sender writes the whole buffer before each send, the receiver reads all of it, and both "
        "are timed.",
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
        *goals_section(findings, "what the goal names"),
        *pictures(around),
        *_method(results),
        *_envelope(results["envelope"]),
        *_hosts(results["hosts"], hosts),
        *_skew(results["skew"], hosts),
        *_kernels(results["kernels"]),
        *_programs(results["programs"]),
        *_collectives(results["collectives"], hosts),
    ]
    write(path, lines)
    return findings

"""The figures that point-to-point has to reach, each with its goal and what was measured.

Everything here is computed from the samples. A mean counts as reached if it reaches the goal when
rounded to two decimals; for a single size a shortfall within the uncertainty of its ratio, and at
most 3 %, is forgiven, since the smallest of dozens of equal ratios is always below one. A goal is
judged reached only if all its points were measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from analysis import MIN_SAMPLES, REGIMES, Point, Results, geometric_mean, size_name
from campaign import (
    FIVE,
    INTEL,
    LATENCY_SIZES,
    MAIN_HOSTS,
    OVERDRIVE,
    PLAIN,
    RANKS_SIZES,
    STREAM_SIZES,
    parse_sizes,
)

HOST_TITLES = {
    "openmpi4": "Open MPI 4.1",
    "openmpi5": "Open MPI 5.0",
    "mpich4": "MPICH 4.0",
    "mpich5": "MPICH 5.0",
    "impi": "Intel MPI",
    "mpiabi": "MPICH 5.0 (standard ABI)",
}
KIB, MIB = 1 << 10, 1 << 20
MODES = ["blocking", "nonblocking"]
KIND_TITLES = {
    "heap": "heap",
    "stack": "stack",
    "static": "static array",
    "common": "Fortran COMMON",
    "allocatable": "Fortran allocatable",
    "numpy": "numpy array (mpi4py)",
    "vector": "strided, 64-byte blocks",
    "vector_contig": "strided to contiguous",
    "column": "strided, 8-byte blocks",
}
MAX_TOLERANCE = 0.03
MAX_RAW_MULTIPLE = 2.5
COLLECTIVES = ["bcast", "alltoall", "allreduce"]
CALLS = ["MPI_Comm_rank", "MPI_Type_size", "MPI_Wtime", "MPI_Comm_get_attr"]
MAX_CALL_NS = 10.0
MAX_INIT_MS = 5.0
MAX_MEMORY_MIB = 8.0


@dataclass
class Finding:
    """One goal for one host in one regime. `met` is None when it could not be measured."""

    topic: str
    goal: str
    host: str
    regime: str
    measured: str
    smallest: str
    met: bool | None


@dataclass
class Ratio:
    """How many times as fast one point is; `tolerance` is what a single size is forgiven."""

    value: float
    tolerance: float
    point: Point

    @property
    def slower(self) -> bool:
        """Tell whether it is below one by more than it is forgiven."""
        return self.value * (1 + self.tolerance) < 1


def variant_title(host: str, variant: str) -> str:
    """Return what pages call a variant of a host."""
    more = {PLAIN: "", OVERDRIVE: " + Overdrive"}.get(variant, f" + {variant}")
    return HOST_TITLES[host] + more


def _reached(value: float, goal: float) -> bool:
    return round(value, 2) >= goal


def ratio_of(
    results: Results,
    point: Point,
    regime: str,
    host: str,
    base_host: str,
    base: str = PLAIN,
    variant: str = OVERDRIVE,
) -> Ratio | None:
    """Return how many times as fast a variant is as another one; None if that is unknown."""
    value = results.speedup(regime, point, host, variant, base_host, base)
    if value is None:
        return None
    uncertainty = results.uncertainty(regime, point, host, variant, base_host, base)
    return Ratio(value, min(uncertainty, MAX_TOLERANCE), point)


def known_ratios(
    results: Results,
    points: list[Point],
    regime: str,
    host: str,
    base_host: str | None = None,
    base: str = PLAIN,
    variant: str = OVERDRIVE,
) -> list[Ratio]:
    """Return how many times as fast a variant is as the base, at the points where that is known.

    The base is a variant of the same host unless another one is named.
    """
    found = [ratio_of(results, p, regime, host, base_host or host, base, variant) for p in points]
    return [ratio for ratio in found if ratio is not None]


def _describe(point: Point) -> str:
    parts = [size_name(point.size_bytes)]
    if point.test == "latency":
        parts += [point.shape, point.mode]
    elif point.test == "skew":
        parts.append(point.shape)
    elif point.test in COLLECTIVES:
        parts.insert(0, point.test)
    return " ".join(parts)


def judge_ratios(
    topic: str,
    title: str,
    regime: str,
    ratios: list[Ratio],
    expected: int,
    mean_goal: float | None,
    each_goal: float | None,
) -> Finding:
    """Judge the geometric mean and each of some ratios; `expected` is how many there should be."""
    goals = []
    if mean_goal is not None:
        goals.append(f"mean ≥ {mean_goal:g}")
    if each_goal is not None:
        goals.append(f"each ≥ {each_goal:g}")
    goal = ", ".join(goals)
    if not ratios:
        return Finding(topic, goal, title, regime, "not measured", "-", None)
    mean = geometric_mean([ratio.value for ratio in ratios])
    smallest = min(ratios, key=lambda ratio: ratio.value)
    met: bool | None = mean_goal is None or _reached(mean, mean_goal)
    if each_goal is not None:
        met = met and all(_reached(r.value * (1 + r.tolerance), each_goal) for r in ratios)
    measured = f"{mean:.2f}"
    if len(ratios) < expected:
        measured += f" ({len(ratios)} of {expected} points)"
        met = None if met else met
    place = f"{smallest.value:.2f} at {_describe(smallest.point)}"
    return Finding(topic, goal, title, regime, measured, place, met)


def ratio_finding(
    results: Results,
    topic: str,
    points: list[Point],
    regime: str,
    host: str,
    mean_goal: float | None,
    each_goal: float | None,
    base_host: str | None = None,
) -> Finding:
    """Judge Overdrive over a host against that host, or against another one."""
    title = HOST_TITLES[host]
    if base_host is not None and base_host != host:
        title += f" vs {HOST_TITLES[base_host]}"
    ratios = known_ratios(results, points, regime, host, base_host)
    return judge_ratios(topic, title, regime, ratios, len(points), mean_goal, each_goal)


def latency_points(shapes: list[str], low: int, high: int) -> list[Point]:
    """Return the points of the ping-pong from heap buffers of two ranks."""
    return [
        Point("latency", shape, mode, "heap", size, 2)
        for shape in shapes
        for mode in MODES
        for size in parse_sizes(LATENCY_SIZES)
        if low <= size <= high
    ]


def _latency(results: Results, hosts: list[str]) -> list[Finding]:
    usual = latency_points(["usual", "alternating"], 8 * KIB, 2 * MIB)
    app = latency_points(["app"], 8 * KIB, 2 * MIB)
    found = []
    for title, points in (
        ("Latency 8 KiB - 2 MiB, unchanged and 16 alternating buffers", usual),
        ("Latency 8 KiB - 2 MiB, rewritten buffers", app),
    ):
        for host in (h for h in MAIN_HOSTS if h in hosts):
            for regime in REGIMES:
                found.append(ratio_finding(results, title, points, regime, host, 2.5, 1.0))
    if INTEL in hosts:
        for regime, goal in (("near", 1.0), ("far", 1.5)):
            topic = "Latency 8 KiB - 2 MiB, rewritten buffers, against Intel MPI"
            for host in (h for h in FIVE if h in hosts):
                smallest = 1.0 if host == INTEL else None
                found.append(
                    ratio_finding(results, topic, app, regime, host, goal, smallest, INTEL)
                )
    return found


def _short_messages(results: Results, hosts: list[str]) -> list[Finding]:
    points = latency_points(["usual"], 0, 4 * KIB)
    found = []
    for host in (h for h in FIVE if h in hosts):
        for regime in REGIMES:
            topic = "Latency 0 B - 4 KiB, over the host"
            found.append(ratio_finding(results, topic, points, regime, host, 1.3, None))
    for host in (h for h in FIVE if h in hosts):
        for regime in REGIMES:
            found.append(_against_fastest(results, points, regime, host, hosts))
    for host in (h for h in FIVE if h in hosts):
        for regime in REGIMES:
            found.append(_against_raw(results, regime, host))
    return found


def _against_fastest(
    results: Results, points: list[Point], regime: str, host: str, hosts: list[str]
) -> Finding:
    topic = "Latency 0 B - 4 KiB, against the fastest of the five at each size"
    others = [other for other in FIVE if other in hosts]
    ratios = []
    for point in points:
        against = [ratio_of(results, point, regime, host, other) for other in others]
        known = [ratio for ratio in against if ratio is not None]
        if len(known) == len(FIVE):
            ratios.append(min(known, key=lambda ratio: ratio.value))
    return judge_ratios(topic, HOST_TITLES[host], regime, ratios, len(points), None, 1.0)


def _against_raw(results: Results, regime: str, host: str) -> Finding:
    topic = "8 bytes against the raw cache-line exchange of the same minute"
    goal = f"≤ {MAX_RAW_MULTIPLE:g} times"
    point = Point("latency", "usual", "blocking", "heap", 8, 2)
    latency = results.cell(regime, host, OVERDRIVE, point)
    if latency is None or len(latency.values) < MIN_SAMPLES:
        return Finding(topic, goal, HOST_TITLES[host], regime, "not measured", "-", None)
    latency_ns, raw_ns = latency.median * 1e3, median(latency.probes_ns)
    multiple = latency_ns / raw_ns
    text = f"{multiple:.2f} times ({latency_ns:.0f} ns / {raw_ns:.0f} ns)"
    # For information: what an exchange costs in which each direction has a line of its own.
    two_lines = results.cell(regime, host, OVERDRIVE, Point("raw", "two_lines", "-", "-", 0, 2))
    if two_lines is not None:
        text += f"; over two lines {two_lines.median:.0f} ns"
    met = round(multiple, 2) <= MAX_RAW_MULTIPLE
    return Finding(topic, goal, HOST_TITLES[host], regime, text, "-", met)


def _streams(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    for test, title in (
        ("bw", "Streaming bandwidth"),
        ("bibw", "Bidirectional bandwidth"),
        ("rate", "Message rate"),
    ):
        points = [
            Point(test, "usual", "nonblocking", "heap", size, 2)
            for size in parse_sizes(STREAM_SIZES)
        ]
        for host in (h for h in FIVE if h in hosts):
            for regime in REGIMES:
                topic = f"{title}, 64 in flight, 1 B - 4 MiB"
                found.append(ratio_finding(results, topic, points, regime, host, 1.3, 1.0))
    return found


def best_variant(results: Results, regime: str, host: str, points: list[Point]) -> str | None:
    """Return the plain variant (host setting) with the best geometric mean over the points."""
    means: dict[str, float] = {}
    for variant in {v for point in points for v in results.variants(host, point)} - {OVERDRIVE}:
        medians = [results.median(regime, host, variant, point) for point in points]
        known = [median for median in medians if median is not None]
        if known and len(known) == len(medians):
            means[variant] = geometric_mean(known)
    return min(means, key=lambda name: means[name]) if means else None


def variants_to_show(results: Results, host: str, points: list[Point]) -> list[str]:
    """Return the variants measured at some of the points: the host alone first, Overdrive last."""
    names = {variant for point in points for variant in results.variants(host, point)}
    return sorted(names, key=lambda name: (name == OVERDRIVE, name != PLAIN, name))


def _oversubscribed(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    for ranks in (4, 8):
        for test, mode, name in (
            ("pairs", "blocking", "ping-pong of all pairs"),
            ("ring", "blocking", "Sendrecv ring"),
            ("halo", "nonblocking", "non-blocking halo"),
        ):
            points = [
                Point(test, "usual", mode, "heap", size, ranks) for size in parse_sizes(RANKS_SIZES)
            ]
            topic = f"{ranks} ranks on 2 cores, {name}"
            for host in (h for h in FIVE if h in hosts):
                for regime in REGIMES:
                    base = best_variant(results, regime, host, points) or PLAIN
                    ratios = known_ratios(results, points, regime, host, base=base)
                    title = HOST_TITLES[host] + (f" ({base})" if base != PLAIN else "")
                    found.append(judge_ratios(topic, title, regime, ratios, len(points), 2.0, None))
    return found


def in_any_regime(results: Results, host: str, variant: str, point: Point) -> list[float]:
    """Return all clean values of a figure that has nothing to do with the regime."""
    cells = [results.cell(regime, host, variant, point) for regime in REGIMES]
    return [value for cell in cells if cell is not None for value in cell.values]


def _costs(results: Results, hosts: list[str]) -> list[Finding]:
    figures = [
        (f"Cost of {call}", Point("cost", call, "-", "-", 0, 2), MAX_CALL_NS, "ns", 1.0)
        for call in CALLS
    ]
    init = Point("init", "-", "-", "-", 0, 2)
    figures.append(("MPI_Init, 2 ranks", init, MAX_INIT_MS, "ms", 1.0))
    for name in ("Pss", "Rss"):
        topic, memory = f"Memory per rank ({name}), 2 ranks", Point("memory", name, "-", "-", 0, 2)
        figures.append((topic, memory, MAX_MEMORY_MIB, "MiB", 1 / KIB))
    found = []
    for host in hosts:
        for topic, point, limit, unit, scale in figures:
            plain, mine = (
                _scaled_median(in_any_regime(results, host, variant, point), scale)
                for variant in (PLAIN, OVERDRIVE)
            )
            found.append(_difference(topic, HOST_TITLES[host], plain, mine, limit, unit))
    return found


def _scaled_median(values: list[float], scale: float) -> float | None:
    return median(values) * scale if values else None


def _difference(
    topic: str, title: str, plain: float | None, mine: float | None, limit: float, unit: str
) -> Finding:
    goal = f"≤ {limit:g} {unit} more"
    if plain is None or mine is None:
        known = f" (host alone: {plain:.1f} {unit})" if plain is not None else ""
        return Finding(topic, goal, title, "any", f"not measured{known}", "-", None)
    text = f"{plain:.1f} → {mine:.1f} {unit} ({mine - plain:+.1f})"
    return Finding(topic, goal, title, "any", text, "-", round(mine - plain, 1) <= limit)


def judge(results: Results, hosts: list[str]) -> list[Finding]:
    """Return all findings, in the order in which they are shown."""
    return [
        *_latency(results, hosts),
        *_short_messages(results, hosts),
        *_streams(results, hosts),
        *_oversubscribed(results, hosts),
        *_costs(results, hosts),
    ]

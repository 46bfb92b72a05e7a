"""The goals for collectives, each with what was measured.

The rules of goals.py hold: a mean counts when rounded to two decimals; a single point is forgiven
at most 3 %, and no more than the uncertainty of its ratio.
"""

from __future__ import annotations

from statistics import median_high

from analysis import MIN_SAMPLES, REGIMES, Point, Results
from campaign import FIVE, INTEL, OVERDRIVE, PLAIN, parse_sizes
from coll_campaign import (
    DRIVER_SIZES,
    FEW_SIZES,
    JUDGED,
    LAB_JUDGED,
    LAB_RANKS,
    NET,
    REDUCTIONS,
    SIZES,
)
from goals import (
    HOST_TITLES,
    KIB,
    Finding,
    Ratio,
    best_variant,
    in_any_regime,
    judge_ratios,
    known_ratios,
)

SHAPES = {"usual": "unchanged buffers", NET: "rewritten buffers"}
LARGE_FROM = 4 * KIB
LARGE_GOAL, SMALL_GOAL, EACH_GOAL, PEAK_GOAL = 2.0, 1.2, 1.0, 4.6
EIGHT_GOAL = 3.0
LAB_GOAL, LAB_EACH_GOAL = 1.5, 0.95
LABS = {"lab": "links without a limit", "lab-1gbit": "links of 1 Gbit/s"}
DRIVERS_TOPIC = "The segmented driver against the generic one, 64 KiB … 64 MiB"
FIRST_USE_US = 200.0
SELECTION_NS = 100.0
GROWTH_KIB = 512.0
"""What 10,000 communicators may seem to leave, 52 bytes of each: memory is counted in pages."""
BARRIER = "barrier"


def points(
    collective: str, shape: str, ranks: int, sizes: str, low: int = 0, high: int = 1 << 40
) -> list[Point]:
    """Return the points of a collective with sizes from `low` to below `high`; a barrier has 0."""
    wanted = [0] if collective == BARRIER else parse_sizes(sizes)
    if collective == BARRIER and shape != "usual":
        return []
    return [
        Point(collective, shape, "blocking", "all", size, ranks)
        for size in wanted
        if low <= size < high
    ]


def _by_collective(
    results: Results,
    hosts: list[str],
    topic: str,
    wanted: dict[str, list[Point]],
    mean_goal: float,
    each_goal: float | None = None,
    base_host: str | None = None,
    best_setting: bool = False,
) -> list[Finding]:
    """Judge the points of each collective over each host.

    The base is the host alone, with `best_setting` in its best setting, or `base_host` alone.
    """
    found = []
    for collective, those in wanted.items():
        for host in hosts if those else []:
            for regime in REGIMES:
                best = best_variant(results, regime, host, those) if best_setting else None
                base = best or PLAIN
                ratios = known_ratios(results, those, regime, host, base_host, base)
                who = f"{HOST_TITLES[host]}, {collective}"
                who += f" ({base})" if base != PLAIN else ""
                found.append(
                    judge_ratios(topic, who, regime, ratios, len(those), mean_goal, each_goal)
                )
    return found


def _pair(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    for shape, name in SHAPES.items():
        for title, low, high, goal in (
            ("4 KiB … 4 MiB", LARGE_FROM, 1 << 40, LARGE_GOAL),
            ("below 4 KiB", 0, LARGE_FROM, SMALL_GOAL),
        ):
            topic = f"One node, 2 ranks, {title}, {name}"
            wanted = {c: points(c, shape, 2, SIZES, low, high) for c in JUDGED}
            found += _by_collective(results, hosts, topic, wanted, goal, EACH_GOAL)
    return [*found, *_peaks(results, hosts), *_against_intel(results, hosts)]


def _peaks(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    for shape, name in SHAPES.items():
        wanted = [p for c in JUDGED for p in points(c, shape, 2, SIZES, LARGE_FROM)]
        for host in hosts:
            for regime in REGIMES:
                topic = f"One node, 2 ranks, the largest ratio over 4 KiB … 4 MiB, {name}"
                goal = f"> {PEAK_GOAL:g}"
                ratios = known_ratios(results, wanted, regime, host)
                if not ratios:
                    text = ("not measured", "-", None)
                else:
                    best = max(ratios, key=lambda ratio: ratio.value)
                    where = f"{best.point.test} {best.point.size_bytes // KIB}K"
                    text = (f"{best.value:.2f} at {where}", "-", best.value > PEAK_GOAL)
                found.append(Finding(topic, goal, HOST_TITLES[host], regime, *text))
    return found


def _against_intel(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    if INTEL not in hosts:
        return found
    for shape, name in SHAPES.items():
        topic = f"One node, 2 ranks, no slower than Intel MPI alone, {name}"
        wanted = {c: points(c, shape, 2, SIZES) for c in JUDGED}
        found += _by_collective(results, hosts, topic, wanted, EACH_GOAL, base_host=INTEL)
    return found


def _eight(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    for shape, name in SHAPES.items():
        topic = f"One node, 8 ranks on 2 cores, {name}"
        wanted = {c: points(c, shape, 8, FEW_SIZES) for c in JUDGED}
        found += _by_collective(results, hosts, topic, wanted, EIGHT_GOAL, best_setting=True)
    return found


def _lab(results: Results, title: str, hosts: list[str]) -> list[Finding]:
    found = []
    for shape, name in SHAPES.items():
        topic = f"Lab, 4 nodes of 2 ranks, {title}, {name}"
        wanted = {c: points(c, shape, LAB_RANKS, FEW_SIZES) for c in LAB_JUDGED}
        found += _by_collective(results, hosts, topic, wanted, LAB_GOAL, LAB_EACH_GOAL)
    return found


def driver_ratios(results: Results, wanted: list[Point], regime: str, host: str) -> list[Ratio]:
    """Return how many times as fast the segmented driver is as the generic one."""
    return known_ratios(results, wanted, regime, host, base="generic", variant="segmented")


def _drivers(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    topic = DRIVERS_TOPIC
    for shape, name in SHAPES.items():
        for collective in REDUCTIONS:
            wanted = points(collective, shape, 2, DRIVER_SIZES)
            for host in hosts[:1]:
                for regime in REGIMES:
                    ratios = driver_ratios(results, wanted, regime, host)
                    who = f"{HOST_TITLES[host]}, {collective}, {name}"
                    found.append(
                        judge_ratios(topic, who, regime, ratios, len(wanted), EACH_GOAL, None)
                    )
    return found


FIRST_CALLS = [
    ("barrier", 0),
    ("allreduce", 8),
    ("allreduce", 65536),
    ("bcast", 8),
    ("bcast", 65536),
]


def first_use_us(results: Results, regime: str, host: str, variant: str) -> dict[str, float]:
    """Return what the first call on a communicator takes beyond a third one, by call."""
    found = {}
    for name, size in FIRST_CALLS:
        first, third = (
            results.cell(regime, host, variant, Point("first", name, which, "-", size, 2))
            for which in ("first", "third")
        )
        if first is not None and third is not None and len(first.values) >= MIN_SAMPLES:
            title = f"{name} {size} B" if size else name
            found[title] = first.median - third.median
    return found


def selection_ns(results: Results, mode: str = "look-up") -> dict[str, float]:
    """Return what choosing an algorithm takes, by collective, in whatever regime."""
    found: dict[str, list[float]] = {}
    for point in results.points(test="select", mode=mode):
        found.setdefault(point.shape, []).extend(in_any_regime(results, "-", OVERDRIVE, point))
    return {name: median_high(values) for name, values in found.items() if values}


def growth_kib(results: Results, host: str, variant: str) -> float | None:
    """Return the growth of a rank's memory over 10,000 communicators, in whatever regime."""
    point = Point("communicators", "growth", "-", "-", 0, 2)
    values = in_any_regime(results, host, variant, point)
    return median_high(values) if values else None


def _cost(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    for host in hosts:
        for regime in REGIMES:
            topic = "First use of a communicator, beyond a third call"
            goal = f"≤ {FIRST_USE_US:g} µs"
            mine = first_use_us(results, regime, host, OVERDRIVE)
            text, met = "not measured", None
            if mine:
                worst = max(mine, key=lambda name: mine[name])
                text, met = f"{mine[worst]:.0f} µs ({worst})", mine[worst] <= FIRST_USE_US
            found.append(Finding(topic, goal, HOST_TITLES[host], regime, text, "-", met))
    look_ups = selection_ns(results)
    text, met = "not measured", None
    if look_ups:
        worst = max(look_ups, key=lambda name: look_ups[name])
        text, met = f"{look_ups[worst]:.0f} ns ({worst})", look_ups[worst] <= SELECTION_NS
    goal = f"≤ {SELECTION_NS:g} ns"
    found.append(Finding("Choosing an algorithm", goal, "64 ranks, 8 nodes", "any", text, "-", met))
    for host in hosts:
        topic = "10,000 communicators made, used and freed: memory per rank"
        goal = f"≤ {GROWTH_KIB:g} KiB more than the host alone"
        plain, mine = growth_kib(results, host, PLAIN), growth_kib(results, host, OVERDRIVE)
        text, met = "not measured", None
        if plain is not None and mine is not None:
            text = f"{plain:.0f} → {mine:.0f} KiB"
            met = mine - max(plain, 0.0) <= GROWTH_KIB
        found.append(Finding(topic, goal, HOST_TITLES[host], "any", text, "-", met))
    return found


def judge(results: dict[str, Results], hosts: list[str]) -> list[Finding]:
    """Return all findings, in the order in which they are shown; results by part."""
    hosts = [host for host in FIVE if host in hosts]
    return [
        *_pair(results["pair"], hosts),
        *_eight(results["eight"], hosts),
        *(f for part, title in LABS.items() for f in _lab(results[part], title, hosts)),
        *_drivers(results["drivers"], hosts),
        *_cost(results["cost"], hosts),
    ]

"""The goals for copies, each with what was measured.

The rules of goals.py hold: a single size is forgiven at most 3 %, and no more than the uncertainty
of its ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analysis import MIN_SAMPLES, REGIMES, Point, Results
from campaign import FIVE, INTEL, MAIN_HOSTS, OVERDRIVE, Sample, parse_sizes
from copy_campaign import (
    COLLECTIVE_SIZES,
    ENVELOPE_SIZES,
    MAIN_HOST,
    PATHS,
    SKEW_SIZES,
)
from goals import (
    COLLECTIVES,
    KIB,
    MIB,
    Finding,
    judge_ratios,
    known_ratios,
    latency_points,
    ratio_finding,
    ratio_of,
)

MEMCPY = "memcpy"
SHAPES = ["usual", "app"]
SHAPE_TITLES = {"usual": "unchanged buffers", "app": "rewritten buffers"}
ENVELOPE_GOAL = 0.95
MEMCPY_GOAL = 0.9
MEMCPY_FROM = MIB
CALL_GOAL = 5.0
LATE = ["100 us", "1 ms"]
"""How late the receiver is where the sender's call has a goal."""
DELAYS = ["10 us", "100 us", "1 ms", "10 ms"]
UNTOUCHED_GOAL = 0.95


def with_memcpy_beside(samples: list[Sample]) -> list[Sample]:
    """Return the samples with the plain copies as one more variant of the ping-pong.

    Every job of the envelope takes them; those of the engine's own choice are enough.
    """
    found = []
    for sample in samples:
        if sample.test != MEMCPY:
            found.append(sample)
        elif sample.variant == OVERDRIVE:
            found.append(replace(sample, test="latency", mode="blocking", variant=MEMCPY))
    return found


def envelope_point(shape: str, size_bytes: int) -> Point:
    """Return the point of the envelope with this shape and size."""
    return Point("latency", shape, "blocking", "heap", size_bytes, 2)


@dataclass
class Choice:
    """The engine's choice at one point beside the best single path.

    `ratio` is the speed of the choice relative to it: below 1 the choice is slower.
    """

    best: str
    ratio: float
    uncertainty: float


def choice_at(results: Results, regime: str, point: Point, host: str = MAIN_HOST) -> Choice | None:
    """Compare the choice with the path whose median is best; None without enough samples."""
    medians = {}
    for path in PATHS:
        cell = results.cell(regime, host, path, point)
        if cell is not None and len(cell.values) >= MIN_SAMPLES:
            medians[path] = cell.median
    if len(medians) < len(PATHS):
        return None
    best = min(medians, key=lambda path: medians[path])
    ratio = results.speedup(regime, point, host, OVERDRIVE, host, best)
    if ratio is None:
        return None
    uncertainty = results.uncertainty(regime, point, host, OVERDRIVE, host, best)
    return Choice(best, ratio, uncertainty)


def _envelope(results: Results) -> list[Finding]:
    found = []
    topic = "The choice against the best single path, 64 B - 8 MiB"
    for shape in SHAPES:
        points = [envelope_point(shape, size) for size in parse_sizes(ENVELOPE_SIZES)]
        for regime in REGIMES:
            ratios = []
            for point in points:
                choice = choice_at(results, regime, point)
                if choice is not None:
                    ratio = ratio_of(results, point, regime, MAIN_HOST, MAIN_HOST, choice.best)
                    ratios += [ratio] if ratio is not None else []
            title = SHAPE_TITLES[shape]
            found.append(
                judge_ratios(topic, title, regime, ratios, len(points), None, ENVELOPE_GOAL)
            )
    topic = "Long messages (1 - 8 MiB) against a plain memcpy between the two processes"
    for shape in SHAPES:
        points = [
            envelope_point(shape, size)
            for size in parse_sizes(ENVELOPE_SIZES)
            if size >= MEMCPY_FROM
        ]
        for regime in REGIMES:
            ratios = known_ratios(results, points, regime, MAIN_HOST, base=MEMCPY)
            title = SHAPE_TITLES[shape]
            found.append(judge_ratios(topic, title, regime, ratios, len(points), None, MEMCPY_GOAL))
    return found


def _hosts(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    usual = latency_points(["usual"], 8 * KIB, 2 * MIB)
    app = latency_points(["app"], 8 * KIB, 2 * MIB)
    for host in (h for h in MAIN_HOSTS if h in hosts):
        for regime in REGIMES:
            topic = "Unchanged buffers, 8 KiB - 2 MiB, against the host"
            found.append(ratio_finding(results, topic, usual, regime, host, 3.0, None))
    for host in (h for h in MAIN_HOSTS if h in hosts):
        for regime, goal in (("near", 2.5), ("far", 4.0)):
            topic = "Rewritten buffers, 8 KiB - 2 MiB, against the host"
            found.append(ratio_finding(results, topic, app, regime, host, goal, None))
    if INTEL in hosts:
        for host in (h for h in FIVE if h in hosts):
            for regime in REGIMES:
                topic = "Unchanged buffers, 8 KiB - 2 MiB, against Intel MPI"
                found.append(ratio_finding(results, topic, usual, regime, host, 1.3, None, INTEL))
        for host in (h for h in FIVE if h in hosts):
            for regime in REGIMES:
                topic = "Rewritten buffers, 8 KiB - 2 MiB, against Intel MPI"
                found.append(ratio_finding(results, topic, app, regime, host, None, 1.0, INTEL))
    return found


def skew_point(case: str, mode: str, size_bytes: int) -> Point:
    """Return the point of a message with a late side; `mode` is `call` or `total`."""
    return Point("skew", case, mode, "heap", size_bytes, 2)


def _skew(results: Results, hosts: list[str]) -> list[Finding]:
    sizes = parse_sizes(SKEW_SIZES)
    receiver = [f"receiver late {delay}" for delay in LATE]
    sender = [f"sender late {delay}" for delay in DELAYS]
    found = []
    for late, cases, what, mode, goal in (
        ("Receiver late by 100 us or 1 ms", receiver, "the sender's call", "call", CALL_GOAL),
        ("Receiver late by 100 us or 1 ms", receiver, "until the receiver has it", "total", 1.0),
        ("Sender late by 10 us - 10 ms", sender, "until the receiver has it", "total", 1.0),
    ):
        topic = f"{late}, 8 KiB - 1 MiB: {what}"
        points = [skew_point(case, mode, size) for case in cases for size in sizes]
        for host in (h for h in MAIN_HOSTS if h in hosts):
            for regime in REGIMES:
                found.append(ratio_finding(results, topic, points, regime, host, None, goal))
    return found


def collective_points(name: str, ranks: int) -> list[Point]:
    """Return the points of one collective of the host."""
    return [
        Point(name, "usual", "blocking", "heap", size, ranks)
        for size in parse_sizes(COLLECTIVE_SIZES[ranks])
    ]


def _collectives(results: Results, hosts: list[str]) -> list[Finding]:
    found = []
    for ranks in COLLECTIVE_SIZES:
        topic = f"Collectives of the host are as fast as without Overdrive, {ranks} ranks"
        points = [point for name in COLLECTIVES for point in collective_points(name, ranks)]
        for host in (h for h in FIVE if h in hosts):
            for regime in REGIMES:
                each = UNTOUCHED_GOAL if ranks == 2 else None
                mean = UNTOUCHED_GOAL if ranks > 2 else None
                found.append(ratio_finding(results, topic, points, regime, host, mean, each))
    return found


def judge(results: dict[str, Results], hosts: list[str]) -> list[Finding]:
    """Return all findings, in the order in which they are shown; results by part."""
    return [
        *_envelope(results["envelope"]),
        *_hosts(results["hosts"], hosts),
        *_skew(results["skew"], hosts),
        *_collectives(results["collectives"], hosts),
    ]

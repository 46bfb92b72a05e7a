"""Medians with intervals, which variants may still win, and which one does.

Nothing here depends on time or chance: the same samples give the same rules, so that a tuning that
was stopped and resumed ends as one that was not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

BUILT_IN = "built-in"
"""The variant without any rule: what the cost model, or measuring in the program, chooses."""

LEAST_GAIN = 0.03
"""By which a variant has to be faster than the built-in choice to be worth a rule."""

LEAST_SAMPLES = 3


@dataclass(frozen=True)
class Measured:
    """Times of one variant at one point, in microseconds."""

    median: float
    low: float
    high: float
    samples: int


def measured(values: Iterable[float]) -> Measured | None:
    """Return the median and an interval that holds it with a probability of about 95 %."""
    ordered = sorted(values)
    count = len(ordered)
    if count < LEAST_SAMPLES:
        return None
    reach = 0.98 * math.sqrt(count)
    first = max(0, math.floor(count / 2 - reach))
    last = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return Measured(statistics.median(ordered), ordered[first], ordered[max(first, last)], count)


Table = Mapping[str, Mapping[int, Measured]]
"""What is known of a collective: by variant and size."""


def ratios(table: Table, variant: str) -> list[float]:
    """Return how much longer a variant takes than the best one, at each size it was seen at."""
    found = []
    for size, mine in table.get(variant, {}).items():
        best = min(other[size].median for other in table.values() if size in other)
        found.append(mine.median / best)
    return found


def survivors(table: Table, usual: str = BUILT_IN) -> list[str]:
    """Return the variants that are measured on: those that may win at some size, half at most.

    The usual choice always stays, because all others are compared with it.
    """
    rivals = []
    for variant, sizes in table.items():
        if variant == usual:
            continue
        possible = False
        for size, mine in sizes.items():
            others = [other[size] for other in table.values() if size in other]
            best = min(others, key=lambda m: m.median)
            possible = possible or mine.low <= best.high
        if possible:
            rivals.append(variant)
    rivals.sort(key=lambda variant: (min(ratios(table, variant)), variant))
    kept = rivals[: max(1, math.ceil((len(table) - 1) / 2))]
    return [variant for variant in table if variant == usual or variant in kept]


def winner(table: Table, size: int, built_in: str = BUILT_IN) -> str:
    """Return the variant to take at a size; the built-in one unless another is faster for sure."""
    usual = table.get(built_in, {}).get(size)
    found = built_in
    best = None
    for variant, sizes in table.items():
        mine = sizes.get(size)
        if variant == built_in or mine is None:
            continue
        if usual is not None and (
            mine.median > usual.median * (1 - LEAST_GAIN) or mine.high >= usual.low
        ):
            continue
        if best is None or mine.median < best:
            found, best = variant, mine.median
    return found


def regret(table: Table, size: int, variant: str) -> float | None:
    """Return by what share a variant is slower than the best one seen."""
    mine = table.get(variant, {}).get(size)
    if mine is None:
        return None
    best = min(sizes[size].median for sizes in table.values() if size in sizes)
    return mine.median / best - 1


def buckets(sizes: Sequence[int]) -> list[list[int]]:
    """Return sizes in groups that are measured together: algorithms differ between the groups."""
    groups: list[list[int]] = [[], [], []]
    for size in sorted(sizes):
        groups[0 if size <= 2 << 10 else 1 if size <= 64 << 10 else 2].append(size)
    return [group for group in groups if group]

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
"""For a verdict. Fewer only tell who cannot win."""

FEW_TIMES = 1.5
"""By how much a median of fewer samples may be wrong, up and down."""


@dataclass(frozen=True)
class Measured:
    """Times of one variant at one point, in microseconds."""

    median: float
    low: float
    high: float
    samples: int
    kinds: tuple[float, ...] = ()
    """Medians of the kinds of buffers, where there are several: `median` is their mean."""


def measured(values: Iterable[float]) -> Measured:
    """Return the median and an interval that holds it with a probability of about 95 %."""
    ordered = sorted(values)
    count = len(ordered)
    if count < LEAST_SAMPLES:
        return Measured(statistics.median(ordered), ordered[0] / FEW_TIMES,
                        ordered[-1] * FEW_TIMES, count)  # fmt: skip
    reach = 0.98 * math.sqrt(count)
    first = max(0, math.floor(count / 2 - reach))
    last = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return Measured(statistics.median(ordered), ordered[first], ordered[max(first, last)], count)


def combined(kinds: Sequence[Measured]) -> Measured:
    """Return what several kinds of buffers say together: geometric means."""
    if len(kinds) == 1:
        return kinds[0]
    return Measured(
        statistics.geometric_mean(one.median for one in kinds),
        statistics.geometric_mean(one.low for one in kinds),
        statistics.geometric_mean(one.high for one in kinds),
        min(one.samples for one in kinds),
        tuple(one.median for one in kinds),
    )


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


def _gains(mine: Measured, usual: Measured) -> bool:
    """Tell whether a variant is faster than the usual one, and with no kind of buffers slower."""
    return mine.median <= usual.median * (1 - LEAST_GAIN) and all(
        one <= other * (1 + LEAST_GAIN) for one, other in zip(mine.kinds, usual.kinds, strict=False)
    )


def _is_sure(mine: Measured, usual: Measured) -> bool:
    return mine.high < usual.low and min(mine.samples, usual.samples) >= LEAST_SAMPLES


def candidate(table: Table, size: int, built_in: str = BUILT_IN, *, sure: bool = False) -> str:
    """Return the variant that seems best at a size; the built-in one unless another gains.

    With `sure` the gain must be beyond chance. Where the built-in one was not measured nobody can
    gain over it.
    """
    usual = table.get(built_in, {}).get(size)
    if usual is None:
        return built_in
    found = built_in
    best = None
    for variant, sizes in table.items():
        mine = sizes.get(size)
        if variant == built_in or mine is None:
            continue
        if not (_gains(mine, usual) and (not sure or _is_sure(mine, usual))):
            continue
        if best is None or mine.median < best:
            found, best = variant, mine.median
    return found


def winner(table: Table, size: int, built_in: str = BUILT_IN) -> str:
    """Return the variant to take at a size; the built-in one unless another is faster for sure."""
    return candidate(table, size, built_in, sure=True)


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


def halfway(low: int, high: int) -> int:
    """Return a size between two others, as far from each; a multiple of eight if there is one."""
    middle = math.isqrt(low * high)
    whole = (middle + 4) // 8 * 8
    return whole if low < whole < high else middle

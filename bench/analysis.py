"""Turns samples into figures: regimes, medians, their spread, and ratios between variants.

Only samples of one regime are ever compared. The ratio of two variants is the median over rounds of
the ratio within the round, because the machine also drifts within a regime (clock rate, neighbours)
and the runs of one round lie seconds apart; with too few common rounds it is the ratio of the
overall medians.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

from campaign import PLAIN, Sample

NEAR_BELOW_NS = 90.0
FAR_FROM_NS, FAR_TO_NS = 120.0, 450.0
REGIMES = ["near", "far"]
MAX_WAITED = 0.05
"""A pinned rank that waited longer for its core than this share of a sample was disturbed."""
MAX_FOREIGN_CORES = 0.5
"""With more ranks than cores waiting is normal; there foreign use of the cores is the criterion."""
MIN_COMMON_ROUNDS = 3
MIN_ROUNDS_FOR_INTERVAL = 5
MIN_SAMPLES = 3
"""Fewer clean samples of a point are shown but not judged."""
DATA_FILES = {
    "latency": {"latency", "raw"},
    "bandwidth": {"bw", "bibw", "rate"},
    "ranks": {"pairs", "ring", "halo"},
    "cost": {"cost", "init", "memory"},
}
RATE_UNITS = {"MB/s", "GB/s", "msg/s", "Gflop/s", "Mupdates/s", "steps/s"}
MEDIAN_INTERVAL = 1.57
"""Half width of the notch of a median: this times the quartile distance over sqrt(n)."""


@dataclass(frozen=True)
class Point:
    """What a sample measures, apart from who is measured."""

    test: str
    shape: str
    mode: str
    kind: str
    size_bytes: int
    ranks: int


@dataclass
class Cell:
    """All clean samples of a point for one variant of one host in one regime."""

    unit: str
    by_round: dict[int, list[float]]
    probes_ns: list[float] = field(default_factory=list)
    """The mean of the two probes around each sample."""

    @property
    def values(self) -> list[float]:
        """Return all values."""
        return [value for values in self.by_round.values() for value in values]

    @property
    def median(self) -> float:
        """Return the median of all values."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Return the lower and upper quartile."""
        return quartiles(self.values)

    @property
    def uncertainty(self) -> float:
        """Return the relative half width of the median's interval."""
        return notch(self.values)


def quartiles(values: list[float]) -> tuple[float, float]:
    """Return the lower and upper quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def notch(values: list[float]) -> float:
    """Return the relative half width of the interval of the values' median."""
    low, high = quartiles(values)
    middle = max(statistics.median(values), 1e-9)
    return MEDIAN_INTERVAL * (high - low) / math.sqrt(len(values)) / middle


def _ratios_by_round(base: Cell, mine: Cell) -> list[float]:
    return [
        statistics.median(base.by_round[number]) / statistics.median(mine.by_round[number])
        for number in sorted(set(mine.by_round) & set(base.by_round))
    ]


def regime_of(sample: Sample) -> str:
    """Return near, far or noisy for a sample."""
    if sample.ranks <= 2 and sample.waited > MAX_WAITED:
        return "noisy"
    if sample.ranks > 2 and sample.foreign_cores > MAX_FOREIGN_CORES:
        return "noisy"
    return regime_of_probes(sample.probe_before_ns, sample.probe_after_ns)


def regime_of_probes(before_ns: float, after_ns: float) -> str:
    """Return near, far or noisy for something done between two probes."""
    low, high = min(before_ns, after_ns), max(before_ns, after_ns)
    if 0 < low and high < NEAR_BELOW_NS:
        return "near"
    if low >= FAR_FROM_NS and high <= FAR_TO_NS:
        return "far"
    return "noisy"


Key = tuple[str, str, str, Point]


class Results:
    """Medians and ratios of a set of samples."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        """Sort the samples into cells."""
        self.cells: dict[Key, Cell] = {}
        self.counts: dict[str, int] = defaultdict(int)
        for s in samples:
            regime = regime_of(s)
            self.counts[regime] += 1
            if regime == "noisy":
                continue
            point = Point(s.test, s.shape, s.mode, s.kind, s.size_bytes, s.ranks)
            key = (regime, s.host, s.variant, point)
            cell = self.cells.setdefault(key, Cell(s.unit, defaultdict(list)))
            cell.by_round[s.round].append(s.value)
            cell.probes_ns.append((s.probe_before_ns + s.probe_after_ns) / 2)

    def cell(self, regime: str, host: str, variant: str, point: Point) -> Cell | None:
        """Return the cell or None when there is no clean sample."""
        return self.cells.get((regime, host, variant, point))

    def median(self, regime: str, host: str, variant: str, point: Point) -> float | None:
        """Return the median or None."""
        cell = self.cell(regime, host, variant, point)
        return cell.median if cell else None

    def points(self, **wanted: object) -> list[Point]:
        """Return the points whose attributes equal (or, for a container, lie in) those wanted."""

        def fits(point: Point) -> bool:
            for name, value in wanted.items():
                have = getattr(point, name)
                if isinstance(value, (list, tuple, set, range)):
                    if have not in value:
                        return False
                elif have != value:
                    return False
            return True

        found = {point for _, _, _, point in self.cells if fits(point)}
        return sorted(found, key=lambda p: (p.test, p.shape, p.mode, p.kind, p.ranks, p.size_bytes))

    def variants(self, host: str, point: Point) -> list[str]:
        """Return the variants measured at this point."""
        return sorted({v for _, h, v, p in self.cells if h == host and p == point})

    def speedup(
        self,
        regime: str,
        point: Point,
        host: str,
        variant: str,
        base_host: str,
        base_variant: str = PLAIN,
    ) -> float | None:
        """Return how many times as fast `variant` is as the base (above 1: faster)."""
        mine = self.cell(regime, host, variant, point)
        base = self.cell(regime, base_host, base_variant, point)
        if mine is None or base is None:
            return None
        if min(len(mine.values), len(base.values)) < MIN_SAMPLES:
            return None
        ratios = _ratios_by_round(base, mine)
        if len(ratios) >= MIN_COMMON_ROUNDS:
            ratio = statistics.median(ratios)
        else:
            ratio = base.median / mine.median
        return 1 / ratio if mine.unit in RATE_UNITS else ratio

    def uncertainty(
        self,
        regime: str,
        point: Point,
        host: str,
        variant: str,
        base_host: str,
        base_variant: str = PLAIN,
    ) -> float:
        """Return the relative uncertainty of the ratio that `speedup` returns."""
        mine = self.cell(regime, host, variant, point)
        base = self.cell(regime, base_host, base_variant, point)
        if mine is None or base is None:
            return 0.0
        ratios = _ratios_by_round(base, mine)
        if len(ratios) >= MIN_ROUNDS_FOR_INTERVAL:
            return notch(ratios)
        return math.hypot(mine.uncertainty, base.uncertainty)

    def tight_share(self, limit: float) -> float:
        """Return the share of cells whose median is known to within the limit."""
        cells = [cell for key, cell in self.cells.items() if key[3].ranks <= 2]
        if not cells:
            return 0.0
        good = sum(len(cell.values) >= 5 and cell.uncertainty <= limit for cell in cells)
        return good / len(cells)

    def save(self, folder: Path) -> None:
        """Write one line per cell, in one file per group of tests."""
        for group, tests in DATA_FILES.items():
            self.save_cells(folder / f"{group}.csv", tests)

    def save_cells(self, path: Path, tests: set[str] | None = None) -> None:
        """Write one line per cell of these tests, or of all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        names = [f.name for f in fields(Point)] + ["regime", "host", "variant"]
        rows = []
        for (regime, host, variant, p), cell in self.cells.items():
            if tests is None or p.test in tests:
                head = [p.test, p.shape, p.mode, p.kind, p.size_bytes, p.ranks]
                numbers = [f"{value:.5g}" for value in (cell.median, *cell.quartiles)]
                rows.append([*head, regime, host, variant, cell.unit, len(cell.values), *numbers])
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*names, "unit", "samples", "median", "quartile1", "quartile3"])
            writer.writerows(sorted(rows, key=lambda row: row[: len(names)]))


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of positive values."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def size_name(size_bytes: int) -> str:
    """Return a short name of a number of bytes."""
    for shift, unit in ((20, "M"), (10, "K")):
        if size_bytes >= 1 << shift and size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift}{unit}"
    return str(size_bytes)

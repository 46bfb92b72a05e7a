"""From samples of every copy path to the thresholds that choose among them.

For each distance the engine has thresholds for a buffer that is sent again unchanged (`pull_min`)
and for one that was rewritten (`pull_rewritten_min`), one from which both sides copy
(`cooperative_min`), one from which the sender writes the receive buffer (`push_min`), and one for
the operating system (`kernel_min`, of what is not shared). They belong together, so all
combinations are tried: what counts is how much longer than the best path the chosen one takes, as
a ratio, over all sizes and both shapes. Differences within the noise count as none, and of equally
good combinations the one with the larger thresholds is taken: it leaves more messages to cells,
where the sender is free earlier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from overdrive.measure import PATHS, Sample, medians

NEVER = 1 << 40
"""The largest value of a size setting: no message reaches it."""

NOISE = 0.03
"""Medians that differ by less are taken for equal."""

MIN_SAMPLES = 5
"""Of each path at a point; below that the point does not count."""

MIN_SIZES = 6
"""Of each shape; below that the distance counts as not seen."""

UNSHARED_WEIGHT = 0.5
"""Of messages whose source is not shared, against those whose is."""

UNCHANGED, REWRITTEN = "usual", "app"
"""The shapes that stand for the two guesses about a buffer."""

NAMES = ("pull_min", "pull_rewritten_min", "cooperative_min", "push_min", "kernel_min")


@dataclass
class Derived:
    """The thresholds of one distance, and the medians behind them."""

    distance: str
    sizes: list[int]
    medians_ns: dict[tuple[str, int, str], float]
    values: dict[str, int] = field(default_factory=dict)
    slowdown: float = 1.0
    """Geometric mean of chosen over best path, of messages between shared buffers."""
    worst: float = 1.0
    samples: int = 0
    line_ns: float = 0.0

    def settings(self) -> dict[str, int]:
        """Return the values under their names as settings."""
        return {f"{self.distance}_{name}": self.values[name] for name in NAMES}

    def chosen(self, shape: str, size: int) -> str:
        """Return the path that a message between shared buffers takes with these thresholds."""
        v = self.values
        first = v["pull_min"] if shape == UNCHANGED else v["pull_rewritten_min"]
        if size >= min(first, v["pull_rewritten_min"]):
            return "cooperative" if size >= v["cooperative_min"] else "pull"
        return "push" if size >= v["push_min"] else "cells"


def size_text(size: int) -> str:
    """Write a size as settings do."""
    for unit, factor in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _loss(value: float, best: float) -> float:
    return 0.0 if value <= best * (1 + NOISE) else math.log(value / best)


class _Search:
    """Tries all combinations of thresholds for one distance."""

    def __init__(self, derived: Derived) -> None:
        self._d = derived
        self._sizes = derived.sizes
        self._options = range(len(derived.sizes) + 1)  # index of the first size, or none

    def _ns(self, shape: str, i: int, path: str) -> float:
        return self._d.medians_ns[shape, self._sizes[i], path]

    def _losses(self, shape: str, i: int, paths: Iterable[str]) -> dict[str, float]:
        best = min(self._ns(shape, i, path) for path in paths)
        return {path: _loss(self._ns(shape, i, path), best) for path in paths}

    def _value(self, index: int) -> int:
        return self._sizes[index] if index < len(self._sizes) else NEVER

    def run(self) -> dict[str, int]:
        shapes = (UNCHANGED, REWRITTEN)
        n = len(self._sizes)
        shared = {
            (s, i): self._losses(s, i, [p for p in PATHS if p != "kernel"])
            for s in shapes
            for i in range(n)
        }
        private = {
            (s, i): self._losses(s, i, ["cells", "push", "kernel"])
            for s in shapes
            for i in range(n)
        }
        # The best use of the operating system below each push threshold: its loss and its place.
        kernel: dict[int, tuple[float, int]] = {}
        for push in self._options:
            kernel[push] = min(
                (
                    sum(
                        private[s, i]["push" if i >= push else "kernel" if i >= k else "cells"]
                        for s in shapes
                        for i in range(n)
                    ),
                    -k,
                )
                for k in self._options
                if k <= push or k == n
            )
        best: tuple[float, ...] | None = None
        for cooperative in self._options:
            direct = {
                (s, i): shared[s, i]["cooperative" if i >= cooperative else "pull"]
                for s in shapes
                for i in range(n)
            }
            for push in self._options:
                unshared = UNSHARED_WEIGHT * kernel[push][0]
                totals = {}
                for s in shapes:
                    below = [shared[s, i]["push" if i >= push else "cells"] for i in range(n)]
                    totals[s] = [
                        sum(below[:t]) + sum(direct[s, i] for i in range(t, n))
                        for t in self._options
                    ]
                for rewritten in self._options:
                    for pull in range(rewritten + 1):
                        loss = totals[UNCHANGED][pull] + totals[REWRITTEN][rewritten] + unshared
                        # Rounded: sums in another order must not decide between equals.
                        found = (round(loss, 9), -rewritten, -pull, -cooperative, -push)
                        if best is None or found < best:
                            best = found
        assert best is not None
        rewritten, pull, cooperative, push = (-int(index) for index in best[1:])
        return {
            "pull_min": self._value(pull),
            "pull_rewritten_min": self._value(rewritten),
            "cooperative_min": self._value(cooperative),
            "push_min": self._value(push),
            "kernel_min": self._value(-kernel[push][1]),
        }


def _judge(derived: Derived) -> None:
    logs = []
    for shape in (UNCHANGED, REWRITTEN):
        for size in derived.sizes:
            best = min(derived.medians_ns[shape, size, p] for p in PATHS if p != "kernel")
            ratio = derived.medians_ns[shape, size, derived.chosen(shape, size)] / best
            derived.worst = max(derived.worst, ratio)
            logs.append(math.log(ratio))
    derived.slowdown = math.exp(sum(logs) / len(logs))


def derive(samples: Iterable[Sample], far_threshold_ns: float) -> dict[str, Derived]:
    """Return the thresholds of each distance that was seen often enough."""
    exchanges = [s for s in samples if s.test == "pingpong" and s.shape in (UNCHANGED, REWRITTEN)]
    result = {}
    for distance in ("near", "far"):
        here = [s for s in exchanges if s.distance(far_threshold_ns) == distance]
        found = medians(here, lambda s: (s.shape, s.bytes, s.path), lambda s: s.ns)
        sizes = sorted(
            size
            for size in {s.bytes for s in here}
            if all(
                found.get((shape, size, path), (0, 0))[1] >= MIN_SAMPLES
                for shape in (UNCHANGED, REWRITTEN)
                for path in PATHS
            )
        )
        if len(sizes) < MIN_SIZES:
            continue
        derived = Derived(distance, sizes, {key: value for key, (value, _) in found.items()})
        derived.samples = len(here)
        derived.line_ns = medians(here, lambda _: 0, lambda s: s.probe_before_ns)[0][0]
        derived.values = _Search(derived).run()
        _judge(derived)
        result[distance] = derived
    return result


def table(derived: Derived, shape: str) -> list[str]:
    """Return the medians of one shape as lines of text; the chosen path is marked."""
    lines = ["  ".join(["    size", *(f"{path:>12}" for path in PATHS)])]
    for size in derived.sizes:
        chosen = derived.chosen(shape, size)
        cells = [
            f"{derived.medians_ns[shape, size, path] / 1e3:>11.2f}{'*' if path == chosen else ' '}"
            for path in PATHS
        ]
        lines.append("  ".join([f"{size_text(size):>8}", *cells]).rstrip())
    return lines

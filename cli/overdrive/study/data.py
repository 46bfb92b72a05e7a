"""The samples of `overdrive study copy`, and what report and figures read out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from overdrive import thresholds
from overdrive.measure import PATHS, Sample, medians

ALL_PATHS = ("auto", *PATHS)
DISTANCES = ("near", "far")

SHAPES = {
    "usual": "the same buffer, never written",
    "rotate": "16 buffers in turn, never written",
    "rewrite": "the sender rewrites its buffer",
    "app": "the sender rewrites, the receiver reads",
}


@dataclass(frozen=True)
class Study:
    """All samples of one study."""

    samples: Sequence[Sample]
    far_threshold_ns: float
    fingerprint: str
    date: str

    def of(self, test: str, distance: str) -> list[Sample]:
        """Return the samples of a test that were taken at one distance."""
        return [
            s
            for s in self.samples
            if s.test == test and s.distance(self.far_threshold_ns) == distance
        ]

    def exchanges(self, distance: str) -> dict[tuple[str, str, int], float]:
        """Return half round trips in ns by shape, path and size."""
        found = medians(
            # Those of the topology part use few sizes; `auto` marks the others.
            self.of("pingpong", distance),
            lambda s: (s.shape, s.path, s.bytes) if s.bytes >= 1024 else None,
            lambda s: s.ns,
        )
        return {key: value for key, (value, count) in found.items() if count >= 2}

    def skew(self, distance: str, second: bool) -> dict[tuple[str, int, int], float]:
        """Return ns in the sender's call, or (`second`) until the message is there."""
        found = medians(
            self.of("skew", distance),
            lambda s: (s.path, s.bytes, s.parameter),
            lambda s: s.second_ns if second else s.ns,
        )
        return {key: value for key, (value, count) in found.items() if count >= 2}

    def survival(self, distance: str) -> dict[tuple[str, int, int], float]:
        """Return the share of the working set that is left, by path, working set and size.

        1: going round takes as long as after a message of 8 bytes; 0: as long as when all was
        thrown out of the caches.
        """
        found = medians(
            self.of("cache", distance),
            lambda s: (s.path, s.parameter, s.bytes),
            lambda s: s.ns / s.second_ns,
        )
        result = {}
        for (path, working_set, size), (value, _) in found.items():
            warm = found.get(("none", working_set, size), (0.0, 0))[0]
            cold = found.get(("flushed", working_set, size), (0.0, 0))[0]
            if path in ALL_PATHS and cold > 1.2 * warm > 0:
                result[path, working_set, size] = min(1.0, max(0.0, (cold - value) / (cold - warm)))
        return result

    def derived(self) -> dict[str, thresholds.Derived]:
        """Return the thresholds that follow."""
        return thresholds.derive(self.samples, self.far_threshold_ns)


def time_text(ns: float) -> str:
    """Write a time with three digits."""
    for unit, factor in (("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns:.3g} ns"

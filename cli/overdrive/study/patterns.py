"""`overdrive study copy --patterns`: how programs use their buffers, and whether the choice fits.

Every pattern is measured with each path forced and with the engine's own choice, which has had a
moment to learn before each point. What counts is how near it comes to the best forced path.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from overdrive import page
from overdrive.errors import CommandError
from overdrive.measure import PATHS as ALL_FORCED
from overdrive.measure import Sample, medians, pairs_of_each_kind
from overdrive.study.data import DISTANCES
from overdrive.thresholds import size_text

PATTERNS = {
    "fresh": "memory that was not sent before",
    "usual": "the same buffer, never written",
    "rotate": "16 buffers in turn, never written",
    "rewrite": "the sender rewrites its buffer",
    "app": "the sender rewrites, the receiver reads",
    "partial": "an eighth of the buffer is rewritten",
    "echo": "what was received is sent back from its place",
    "update": "the same, with every word updated in between",
    "accumulate": "what was received is added to what is sent",
    "many": "one buffer sent eight times, then an answer",
    "ring": "both pass on what they received, at the same time",
    "halo": "both exchange rows of a matrix, a derived datatype",
}

PATHS = tuple(path for path in ALL_FORCED if path != "kernel")
"""Those that a program meets without asking for them."""

SIZES = tuple(1 << power for power in range(12, 22))

SECONDS, QUICK_SECONDS = 150.0, 40.0

SETTLE = "20ms"
"""How long the choice may learn before the samples of a point."""

VISITS = 5
"""Samples of each path at a point before the next one."""

LEAST_SAMPLES = 3


def arguments(machine: Mapping[str, object]) -> list[tuple[str, tuple[str, ...]]]:
    """Return a title and the arguments of the measuring program for each kind of pair."""
    pairs = pairs_of_each_kind(machine)
    if not pairs:
        raise CommandError("two processors are needed, and one may be used here")
    return [
        (
            f"patterns, {pair.kind}",
            ("pingpong", "--cpus", f"{pair.cpus[0]},{pair.cpus[1]}",
             "--paths", ",".join(("auto", *PATHS)), "--shapes", ",".join(PATTERNS),
             "--sizes", ",".join(str(size) for size in SIZES),
             "--settle", SETTLE, "--visits", str(VISITS)),
        )
        for pair in pairs
    ]  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One pattern and size at one distance: times in ns by path."""

    distance: str
    pattern: str
    bytes: int
    auto_ns: float
    forced_ns: Mapping[str, float]

    @property
    def best(self) -> str:
        """Return the fastest forced path."""
        return min(self.forced_ns, key=lambda path: self.forced_ns[path])

    @property
    def reached(self) -> float:
        """Return the speed of the choice as a share of the best path's."""
        return self.forced_ns[self.best] / self.auto_ns


def points(samples: Iterable[Sample], far_threshold_ns: float) -> list[Point]:
    """Return every point that was seen often enough by every path."""

    def key(sample: Sample) -> tuple[str, str, int, str] | None:
        distance = sample.distance(far_threshold_ns)
        if sample.test != "pingpong" or distance is None or sample.shape not in PATTERNS:
            return None
        return distance, sample.shape, sample.bytes, sample.path

    found = {
        name: ns
        for name, (ns, count) in medians(samples, key, lambda s: s.ns).items()
        if count >= LEAST_SAMPLES
    }
    result = []
    for distance in DISTANCES:
        for pattern in PATTERNS:
            for size in sorted({s for d, p, s, _ in found if (d, p) == (distance, pattern)}):
                times = {path: found.get((distance, pattern, size, path)) for path in PATHS}
                auto = found.get((distance, pattern, size, "auto"))
                known = {path: ns for path, ns in times.items() if ns is not None}
                if auto is not None and len(known) == len(PATHS):
                    result.append(Point(distance, pattern, size, auto, known))
    return result


def mean(shares: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(math.log(share) for share in shares) / len(shares))


def conclusions(found: Sequence[Point]) -> list[str]:
    """Return in sentences how good the choice is."""
    lines = []
    for distance in DISTANCES:
        here = [point for point in found if point.distance == distance]
        if not here:
            lines.append(f"{distance}: not seen often enough to say anything.")
            continue
        worst = min(here, key=lambda point: point.reached)
        low = sum(point.reached < 0.8 for point in here)
        lines.append(
            f"{distance}: the choice reaches {mean([p.reached for p in here]):.3f} of the best "
            f"forced path in geometric mean over {len(here)} points, at worst {worst.reached:.2f} "
            f"({worst.pattern}, {size_text(worst.bytes)}: {worst.best} is best); {low} below 0.8."
        )
    return lines


def rows(found: Sequence[Point], distance: str) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: the share reached by pattern and size."""
    here = {(p.pattern, p.bytes): p for p in found if p.distance == distance}
    sizes = sorted({size for _, size in here})
    body = []
    for pattern in PATTERNS:
        shares = [here[pattern, size].reached for size in sizes if (pattern, size) in here]
        if not shares:
            continue
        cells = [
            f"{point.reached:.2f} {point.best}" if (point := here.get((pattern, size))) else ""
            for size in sizes
        ]
        body.append([pattern, f"{mean(shares):.3f}", f"{min(shares):.2f}", *cells])
    return ["pattern", "mean", "smallest", *(size_text(size) for size in sizes)], body


def _times(found: Sequence[Point], distance: str, pattern: str) -> str:
    here = [p for p in found if (p.distance, p.pattern) == (distance, pattern)]
    if not here:
        return ""
    body = [
        [size_text(p.bytes), f"{p.auto_ns / 1e3:.2f}"]
        + [f"{p.forced_ns[path] / 1e3:.2f}{' *' if path == p.best else ''}" for path in PATHS]
        for p in here
    ]
    title = html.escape(f"{distance}: {pattern}, {PATTERNS[pattern]}")
    return f"<h3>{title}</h3>" + page.table(["size", "auto", *PATHS], body)


def write(found: Sequence[Point], folder: Path, fingerprint: str, date: str) -> None:
    """Write index.html and conclusions.txt."""
    text = "\n".join(conclusions(found)) + "\n"
    (folder / "conclusions.txt").write_text(text)
    parts = [
        "<h1>Patterns of use of buffers</h1>",
        f'<p class="sub">{html.escape(fingerprint)} · {html.escape(date)}</p>',
        "<h2>What follows</h2>",
        f"<pre>{html.escape(text)}</pre>",
    ]
    for distance in DISTANCES:
        head, body = rows(found, distance)
        if not body:
            continue
        parts.append(
            f"<section><h2>{distance}</h2><p>Speed of the engine's choice as a share of the best "
            "forced path's, which is named; 1.00 is as good as the best.</p>"
        )
        parts.append(page.table(head, body))
        parts.append("<p>Half a round trip in us by path; * marks the best forced one.</p>")
        parts += [_times(found, distance, pattern) for pattern in PATTERNS]
        parts.append("</section>")
    (folder / "index.html").write_text(
        page.document("Patterns of use of buffers", "\n".join(parts)), encoding="utf-8"
    )

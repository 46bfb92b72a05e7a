"""Turns the samples of `overdrive bench` into CSV and tables like those of the usual benchmarks."""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from overdrive.errors import CommandError

NEAR_BELOW_NS, FAR_FROM_NS, FAR_TO_NS = 90.0, 120.0, 450.0
MOST_WAITED = 0.05
"""A rank that waited longer for its own core than this share of a sample was disturbed."""
ANYWHERE = "distance unknown"
WIDTH = 11
SHAPES = {
    "usual": "buffers never rewritten",
    "app": "all input written before and all results read after each call",
}


@dataclass(frozen=True)
class Sample:
    """One line of the measuring program, of one of the compared jobs."""

    job: str
    collective: str
    shape: str
    mode: str
    what: str
    bytes: int
    ranks: int
    us: float
    probe_before_ns: float
    probe_after_ns: float
    waited: float

    def regime(self, cores: int) -> str:
        """Return how far apart the cores were, or nothing if the sample was disturbed."""
        if self.ranks <= cores and self.waited > MOST_WAITED:
            return ""
        low = min(self.probe_before_ns, self.probe_after_ns)
        high = max(self.probe_before_ns, self.probe_after_ns)
        if low < 0:
            return ANYWHERE
        if high < NEAR_BELOW_NS:
            return "near"
        return "far" if low >= FAR_FROM_NS and high <= FAR_TO_NS else ""


def parse_size(text: str) -> int:
    """Return a number of bytes such as 64K."""
    factors = {"K": 1 << 10, "M": 1 << 20}
    digits = text.rstrip("KM")
    if not (digits.isascii() and digits.isdigit()) or len(text) - len(digits) > 1:
        raise CommandError(f"'{text}' is not a size: write bytes, such as 8 or 64K or 1M")
    return int(digits) * factors.get(text[len(digits) :], 1)


def parse(text: str, job: str) -> list[Sample]:
    """Return the samples among the lines that a job has printed."""
    found = []
    for line in text.splitlines():
        words = line.split(",")
        if len(words) != 12:
            continue
        try:
            found.append(
                Sample(
                    job, *words[:4], int(words[4]), int(words[5]), float(words[6]),
                    float(words[8]), float(words[9]), float(words[10]),
                )
            )  # fmt: skip
        except ValueError:
            continue
    return found


def write_csv(path: Path, samples: Iterable[Sample]) -> None:
    """Write all samples."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Sample)])
        for sample in samples:
            writer.writerow([getattr(sample, field.name) for field in fields(Sample)])


class _Medians:
    """Medians of the samples of one collective, of the distance that most of them have."""

    def __init__(self, samples: list[Sample], cores: int) -> None:
        regimes = Counter(r for sample in samples if (r := sample.regime(cores)))
        self.regime = regimes.most_common(1)[0][0] if regimes else "all disturbed by other programs"
        self.dropped = sum(n for r, n in regimes.items() if r != self.regime)
        self.dropped += len(samples) - sum(regimes.values())
        if not regimes:
            self.dropped = 0
        kept: dict[tuple[str, str, str, int], list[float]] = {}
        for s in samples:
            if not regimes or s.regime(cores) == self.regime:
                kept.setdefault((s.job, s.shape, s.what, s.bytes), []).append(s.us)
        self._values = {key: statistics.median(values) for key, values in kept.items()}

    def get(self, job: str, shape: str, what: str, size: int) -> float | None:
        return self._values.get((job, shape, what, size))


def _cell(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.2f}':>{WIDTH}}"


def _line(size: int, cells: Sequence[str]) -> str:
    return f"{size:<{WIDTH}}" + "".join(cells)


def _ratio(host: float | None, mine: float | None, work: float = 0.0) -> float | None:
    if host is None or mine is None or mine <= work or host <= work:
        return None
    return (host - work) / (mine - work)


def _two_jobs(medians: _Medians, shape: str, jobs: Sequence[str], sizes: list[int]) -> list[str]:
    """Return smallest, mean and largest time of a rank for each job, and how they compare."""
    whats = ("min", "avg", "max")
    head = "".join(f"{name:>{WIDTH}}" for _ in jobs for name in whats)
    over = "".join(f"{f'-- {job} (us) --':^{WIDTH * len(whats)}}" for job in jobs)
    extra = ["work"] if shape == "app" else []
    extra += ["ratio"] if len(jobs) > 1 else []
    extra += ["ratio-work"] if shape == "app" and len(jobs) > 1 else []
    lines = [f"#{'':<{WIDTH - 1}}{over}", f"# {'Size':<{WIDTH - 2}}{head}"]
    lines[-1] += "".join(f"{name:>{WIDTH}}" for name in extra)
    ratios: dict[str, list[float]] = {name: [] for name in extra if name != "work"}
    for size in sizes:
        cells = [_cell(medians.get(job, shape, what, size)) for job in jobs for what in whats]
        host = medians.get(jobs[0], shape, "all", size)
        mine = medians.get(jobs[-1], shape, "all", size)
        work = medians.get(jobs[0], "work", "all", size)
        values = {"work": work, "ratio": _ratio(host, mine)}
        values["ratio-work"] = None if work is None else _ratio(host, mine, work)
        cells += [_cell(values[name]) for name in extra]
        for name, found in ratios.items():
            found += [value] if (value := values[name]) is not None else []
        lines.append(_line(size, cells))
    for name, found in ratios.items():
        if found:
            mean = math.exp(statistics.fmean(math.log(value) for value in found))
            what = "" if name == "ratio" else ", the work subtracted"
            lines.append(
                f"# {jobs[-1]} is {mean:.2f} times as fast (geometric mean; smallest "
                f"{min(found):.2f}){what}"
            )
    return lines


def _many_jobs(medians: _Medians, shape: str, jobs: Sequence[str], sizes: list[int]) -> list[str]:
    """Return one column per job and the name of the best."""
    widths = {job: max(WIDTH, len(job) + 2) for job in jobs}
    head = "".join(f"{job:>{widths[job]}}" for job in jobs)
    lines = [f"# {'Size':<{WIDTH - 2}}{head}  best"]
    for size in sizes:
        values = {job: medians.get(job, shape, "all", size) for job in jobs}
        known = {job: value for job, value in values.items() if value is not None}
        cells = [f"{_cell(value).strip():>{widths[job]}}" for job, value in values.items()]
        best = min(known, key=lambda job: known[job]) if known else "-"
        lines.append(_line(size, [*cells, f"  {best}"]))
    return lines


def render(
    samples: list[Sample], jobs: Sequence[str], collectives: Sequence[str], cores: int
) -> str:
    """Return the tables as text; the first job is what the others are compared with."""
    lines: list[str] = []
    for collective in collectives:
        mine = [sample for sample in samples if sample.collective == collective]
        medians = _Medians(mine, cores)
        for shape, title in SHAPES.items():
            sizes = sorted({sample.bytes for sample in mine if sample.shape == shape})
            if not sizes:
                continue
            dropped = f", {medians.dropped} samples dropped" if medians.dropped else ""
            lines += [
                "",
                f"# {collective}, {mine[0].ranks} ranks: {title} ({medians.regime}{dropped})",
            ]
            if len(jobs) > 2:
                lines += _many_jobs(medians, shape, jobs, sizes)
            else:
                lines += _two_jobs(medians, shape, jobs, sizes)
    return "\n".join(lines) + "\n" if lines else ""

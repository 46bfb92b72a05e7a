"""Runs several variants of a benchmark at the same time, one job each, which take turns.

While one job takes a sample the others sleep (p2p/turns.h), so the samples of the variants lie
milliseconds apart. The n-th samples of a point in all jobs belong together: they become one round.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from campaign import Sample, parse
from jobs import Host, JobResult, run_mpi

MORE_SECONDS = 45
"""What a group may take beyond its measuring time, for starting, calibrating and ending."""


@dataclass(frozen=True)
class Variant:
    """One of the compared jobs."""

    name: str
    host: Host
    program: Path
    lib: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)


def numbered(samples: Sequence[Sample], first: int) -> list[Sample]:
    """Return the samples of one job with the repetition of their point as their round."""
    seen: Counter[tuple[object, ...]] = Counter()
    found = []
    for sample in samples:
        point = (sample.test, sample.shape, sample.mode, sample.kind, sample.size_bytes)
        found.append(replace(sample, round=first + seen[point]))
        seen[point] += 1
    return found


def start_here(
    variant: Variant,
    ranks: int,
    command: list[str],
    seconds: float,
    niceness: int,
    abandon: threading.Event,
) -> JobResult:
    """Run a job on this node."""
    return run_mpi(
        variant.host,
        ranks,
        command,
        seconds,
        variant.lib,
        variant.settings,
        niceness,
        abandon=abandon,
    )


def run_together(
    variants: Sequence[Variant],
    arguments: Sequence[str],
    ranks: int,
    seconds: float,
    first_round: int,
    niceness: int = 0,
    start: Callable[..., JobResult] = start_here,
    folder: Path | None = None,
) -> tuple[list[Sample], list[str]]:
    """Run all variants for so many seconds; return samples and what went wrong.

    `start` runs one job; `folder`, instead of the usual one for temporary files, holds what the
    jobs share.
    """
    results: dict[int, JobResult] = {}
    failed = threading.Event()

    def run(index: int, turns: str) -> None:
        variant = variants[index]
        command = [str(variant.program), *arguments, "--seconds", f"{seconds:.1f}"]
        command += ["--turns", f"{turns},{index},{len(variants)}"]
        results[index] = start(variant, ranks, command, seconds + MORE_SECONDS, niceness, failed)
        if not results[index].ok:
            failed.set()

    with tempfile.NamedTemporaryFile(prefix="od_turns_", dir=folder) as turns:
        threads = [
            threading.Thread(target=run, args=(index, turns.name)) for index in range(len(variants))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            failed.set()
            for thread in threads:
                thread.join()
            raise
    samples: list[Sample] = []
    problems = []
    for index, variant in enumerate(variants):
        result = results.get(index)
        if result is None:
            problems.append(f"{variant.host.name}, {variant.name}: not started")
            continue
        samples += numbered(parse(result.stdout, variant.host.name, variant.name, 0), first_round)
        if not result.ok:
            what = "ended with the others" if result.timed_out else f"status {result.status}"
            tail = " | ".join(result.stderr.strip().splitlines()[-4:])
            problems.append(f"{variant.host.name}, {variant.name}: {what}: {tail}")
    return samples, problems

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
from jobs import Host, JobResult, all_at_once, run_mpi

MORE_SECONDS = 90
"""What a group may take beyond its measuring time, for starting, for the point that is under way
when the time is over, and for ending. With more ranks than cores some hosts take seconds for a
call."""

WITH_OTHERS = "ended with the others"
"""Why a job ended that was in order itself."""


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
    first_to_fail: list[int] = []

    with tempfile.NamedTemporaryFile(prefix="od_turns_", dir=folder) as turns:

        def run(index: int) -> None:
            variant, limit = variants[index], seconds + MORE_SECONDS
            command = [str(variant.program), *arguments, "--seconds", f"{seconds:.1f}"]
            command += ["--turns", f"{turns.name},{index},{len(variants)}"]
            results[index] = start(variant, ranks, command, limit, niceness, failed)
            if not results[index].ok:
                if not failed.is_set():
                    first_to_fail.append(index)
                failed.set()

        all_at_once(len(variants), run, failed)
    samples: list[Sample] = []
    problems = []
    for index, variant in enumerate(variants):
        result = results.get(index)
        if result is None:
            problems.append(f"{variant.host.name}, {variant.name}: not started")
            continue
        samples += numbered(parse(result.stdout, variant.host.name, variant.name, 0), first_round)
        if not result.ok:
            why = "time limit" if index in first_to_fail else WITH_OTHERS
            problem = result.problem(why)
            problems.append(f"{variant.host.name}, {variant.name}: {problem}")
    return samples, problems

"""`overdrive study copy`: the four micro-benchmarks behind the choice of a copy path, with plots.

(a) topology: what a cache line and copies cost between each pair of processors; (b) buffers that
are reused, rewritten, read, rotated; (c) sender and receiver apart in time; (d) how much of the
receiver's working set survives a message. Every path is forced in turn, and `auto` is measured
beside them.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from overdrive.arguments import Parser
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.measure import (
    Measuring,
    Pair,
    Sample,
    Stopped,
    all_pairs,
    pairs_of_each_kind,
    read_samples,
    write_samples,
)
from overdrive.progress import Progress
from overdrive.study import patterns, report
from overdrive.study.data import ALL_PATHS, Study

MOST_PAIRS = 36
"""Of processors whose distance is measured; on larger machines an even choice of all pairs."""

PATHS = ",".join(ALL_PATHS)

DELAYS = "-10ms,-1ms,-100us,-10us,-1us,0,1us,10us,100us,1ms,10ms"


@dataclass(frozen=True)
class Part:
    """One run of the measuring program: its arguments and its share of the time."""

    title: str
    arguments: tuple[str, ...]
    seconds: float


def _spread(pairs: Sequence[Pair], most: int) -> list[Pair]:
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[i * len(pairs) // most] for i in range(most)]


def working_sets(machine: Mapping[str, object]) -> list[int]:
    """Return the sizes of working sets: half the second-level cache and an eighth of the third."""
    sizes: dict[int, int] = {}
    for cache in machine["caches"]:  # type: ignore[attr-defined]
        sizes[cache["level"]] = cache["size_bytes"]
    found = []
    for level, part, otherwise in ((2, 2, 1 << 20), (3, 8, 32 << 20)):
        found.append(max(64 << 10, sizes.get(level, otherwise) // part))
    return sorted({size // 4096 * 4096 for size in found})


def plan(machine: Mapping[str, object], quick: bool) -> list[Part]:
    """Return what is measured."""
    scale = 0.2 if quick else 1.0
    pairs = all_pairs(machine)
    if not pairs:
        raise CommandError("two processors are needed, and one may be used here")
    parts = []
    some = _spread(pairs, MOST_PAIRS)
    each = max(1.0, 40 * scale / len(some))
    for pair in some:
        a, b = pair.cpus
        parts.append(
            Part(
                f"topology, processors {a} and {b}",
                ("pingpong", "--cpus", f"{a},{b}", "--paths", "cells,pull", "--shapes", "app",
                 "--sizes", "8,64K,1M", "--sample", "200us"),
                each,
            )
        )  # fmt: skip
    kinds = pairs_of_each_kind(machine)
    for pair in kinds:
        cpus = ("--cpus", f"{pair.cpus[0]},{pair.cpus[1]}", "--paths", PATHS)
        share = scale / len(kinds)
        sets = ",".join(str(size) for size in working_sets(machine))
        parts += [
            Part(
                f"buffers, {pair.kind}",
                ("pingpong", *cpus, "--shapes", "usual,rewrite,app,rotate"),
                120 * share,
            ),
            Part(
                f"skew, {pair.kind}",
                ("skew", *cpus, "--sizes", "16K,128K,1M", "--delays", DELAYS),
                80 * share,
            ),
            Part(
                f"working set, {pair.kind}",
                ("cache", *cpus, "--sizes", "16K,64K,256K,1M,4M", "--working-sets", sets),
                60 * share,
            ),
        ]
    return parts


def plan_patterns(machine: Mapping[str, object], quick: bool) -> list[Part]:
    """Return what is measured of patterns."""
    found = patterns.arguments(machine)
    seconds = patterns.QUICK_SECONDS if quick else patterns.SECONDS
    return [Part(title, arguments, seconds / len(found)) for title, arguments in found]


def measure(measuring: Measuring, parts: Sequence[Part]) -> tuple[list[Sample], bool]:
    """Run all parts; after Ctrl-C return what there is. The second value tells if that is all."""
    total = sum(part.seconds for part in parts)
    samples: list[Sample] = []
    progress = Progress(total)
    done = 0.0
    try:
        for part in parts:

            def tick(passed: float, part: Part = part, done: float = done) -> None:
                progress.show((done + min(passed, part.seconds)) / total, part.title)

            measuring.run(part.arguments, part.seconds, samples.append, tick)
            done += part.seconds
    except Stopped:
        return samples, False
    finally:
        progress.end()
    return samples, True


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive study copy",
        description="Measure every way a message can take on this node and draw the results.",
    )
    made.add_argument("what", choices=["copy"], help="copy: the ways between two buffers")
    made.add_argument(
        "--output", type=Path, default=Path("overdrive-study-copy"), metavar="DIR",
        help="folder for index.html, figures and samples.csv",
    )  # fmt: skip
    made.add_argument("--quick", action="store_true", help="one minute instead of five")
    made.add_argument(
        "--patterns", action="store_true",
        help="how near the engine's choice comes to the best path in many uses of buffers",
    )  # fmt: skip
    made.add_argument(
        "--samples", type=Path, metavar="FILE", help="draw these samples instead of measuring"
    )
    made.add_argument(
        "--hosts-launcher", default="", metavar="COMMAND",
        help="measure where this command starts programs, such as 'ssh node7'",
    )  # fmt: skip
    return made


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Study; return the exit status."""
    chosen = parser().parse_args(arguments)
    folder: Path = chosen.output
    if chosen.patterns:
        # What it is about; the user's own word counts.
        environment = {"OVERDRIVE_LEARN": "on", **environment}
    measuring = Measuring(installation, environment, shlex.split(chosen.hosts_launcher))
    complete = True
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if chosen.samples is not None:
            samples = read_samples(chosen.samples)
        else:
            planned = plan_patterns if chosen.patterns else plan
            samples, complete = measure(measuring, planned(measuring.machine, chosen.quick))
            write_samples(folder / "samples.csv", samples)
        if not samples:
            raise CommandError("nothing has been measured")
        if chosen.patterns:
            found = patterns.points(samples, measuring.far_threshold_ns)
            patterns.write(found, folder, measuring.fingerprint, time.strftime("%Y-%m-%d %H:%M"))
            print("\n".join(patterns.conclusions(found)))
            return _end(folder, complete)
        study = Study(
            samples, measuring.far_threshold_ns, measuring.fingerprint,
            time.strftime("%Y-%m-%d %H:%M"),
        )  # fmt: skip
        report.write(study, folder)
    except OSError as reason:
        raise CommandError(f"{reason.filename or folder}: {reason.strerror}") from reason
    return _end(folder, complete)


def _end(folder: Path, complete: bool) -> int:
    if not complete:
        print("stopped early: the report holds what had been measured", file=sys.stderr)
    print(f"written: {folder / 'index.html'}")
    return 0 if complete else 130

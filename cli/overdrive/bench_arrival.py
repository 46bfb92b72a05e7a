"""`overdrive bench arrival`: broadcasts, reductions, gathers, scatters, and ranks that come late.

The MPI library alone, Overdrive's plain algorithm, and the one that starts with whoever comes
first, or ends with whoever comes last, take turns, call by call.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import shutil
import statistics
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from overdrive import bench, bench_tables, launch, launchers, together
from overdrive.arguments import Parser, number
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.lab import state as lab_state
from overdrive.options import Options, take_settings
from overdrive.report import arrivals, record

PATTERNS = ("together", "one-late", "linear", "random", "late-leader", "late-root")
PROGRAM = bench.Program(
    "od_arrival",
    ("arrival/od_arrival.c", "p2p/turns.c", "p2p/probe.c"),
    ("p2p/turns.h", "p2p/probe.h"),
)
COLLECTIVES = ("bcast", "reduce", "gather", "scatter")
PLAIN, FIRST, LEARNT, USUAL = "plain", "first_arrival", "learnt", "usual"
VALUES = ("wait", "others", "whole")
MORE_SECONDS = 120
MOST_DELAY = 10_000
"""In milliseconds."""
MOST_CALLS = 500
"""Of a record, that are played again."""

EPILOG = """\
patterns: together; one-late (the last rank); linear (rank by rank up to the delay); random (up to
the delay, another one in each call); late-leader (the first rank of the second node); late-root;
file (from --file: delays in microseconds, a number per rank, call after call; or the folder of a
run with --record, whose calls with as many ranks are played again, those that --calls names).

The times are milliseconds: wait = mean over ranks inside the call; others = the same without the
rank that came last; whole = from the moment when the first ones come until the last one has left.

Examples:
  overdrive lab up --nodes 4 --rate 1gbit && overdrive bench arrival --lab --ppn 2
  overdrive bench arrival --lab --ppn 2 --pattern late-leader,linear --sizes 64K,1M --delay 5
"""


@dataclass(frozen=True)
class Sample:
    """One call, in microseconds."""

    job: str
    pattern: str
    bytes: int
    ranks: int
    wait: float
    others: float
    whole: float
    off: float


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive bench arrival",
        description="Measures collectives to which ranks come at different times.",
        epilog=EPILOG,
    )
    made.add_argument(
        "--collective",
        choices=COLLECTIVES,
        default="bcast",
        help="bcast, reduce, gather, scatter (bcast)",
    )
    made.add_argument("--pattern", default=",".join(PATTERNS), metavar="LIST", help="see below")
    made.add_argument("--file", type=Path, metavar="FILE", help="delays for the pattern `file`")
    made.add_argument(
        "--calls", metavar="TEXT", help="functions or places of a record (those of --collective)"
    )
    made.add_argument("--sizes", default="1M", metavar="LIST", help="bytes; suffixes K and M")
    made.add_argument(
        "--delay",
        default="40",
        metavar="MS",
        help="how late, or a list with one for each size (40)",
    )
    made.add_argument("--repeats", type=number(1, 10_000), default=9, metavar="N", help="calls (9)")
    made.add_argument(
        "--learnt",
        type=number(1, 10_000),
        metavar="N",
        help="also with the choice that is learnt, and with what is learnt without it (usual), "
        "after N calls of each pattern",
    )
    made.add_argument(
        "--chance",
        type=number(2, 8),
        metavar="N",
        help="with --learnt: N jobs each of learnt and usual alone, to see what chance does",
    )
    made.add_argument("--root", type=number(0, bench.MOST_RANKS), default=0, metavar="RANK")
    made.add_argument("-n", type=number(1, 1024), metavar="RANKS", help="number of ranks (2)")
    made.add_argument("--launcher", default="mpirun", help="mpirun or another one, or its path")
    made.add_argument("--mpicc", help="compiler of the MPI library, where it is not found")
    made.add_argument("--options", default="", metavar="TEXT", help="options for the launcher")
    made.add_argument(
        "--without-overdrive", action="store_true", help="measure the MPI library alone"
    )
    made.add_argument(
        "--lab",
        nargs="?",
        const=lab_state.DEFAULT_NAME,
        metavar="NAME",
        help="over a lab that is up",
    )
    made.add_argument(
        "--ppn", type=number(1, 1024), metavar="RANKS", help="ranks on each node of the lab"
    )
    made.add_argument("--csv", type=Path, metavar="FILE", help="write all samples there")
    return made


def _delays(made: Parser, text: str, sizes: int) -> list[float]:
    """Return the delays in milliseconds: one, or one for each size."""
    each = number(0, MOST_DELAY, whole=False)
    try:
        found = [each(word) for word in text.split(",")]
    except argparse.ArgumentTypeError as reason:
        made.error(f"--delay {text}: {reason}")
    if len(found) not in (1, sizes):
        made.error(f"--delay takes one number, or one for each size ({sizes}), and not '{text}'")
    return found


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser()
    words = list(arguments)
    if "--options" in words[:-1]:
        # What follows may start with a hyphen itself.
        place = words.index("--options")
        words[place : place + 2] = [f"--options={words[place + 1]}"]
    options = made.parse_args(words)
    for name in options.pattern.split(","):
        if name not in (*PATTERNS, "file"):
            made.error(f"--pattern takes {', '.join(PATTERNS)} and file, and not '{name}'")
    if ("file" in options.pattern.split(",")) != (options.file is not None):
        made.error("--file and the pattern `file` belong together")
    if options.file is not None and not options.file.exists():
        made.error(f"--file {options.file}: there is no such file")
    options.delays = _delays(made, options.delay, len(options.sizes.split(",")))
    for text in options.sizes.split(","):
        if not 1 <= bench_tables.parse_size(text) <= bench.MOST_BYTES:
            made.error(f"--sizes takes sizes from 1 to {bench.MOST_BYTES >> 20}M, and not '{text}'")
    try:
        shlex.split(options.options)
    except ValueError as reason:
        made.error(f"--options {options.options}: {reason}")
    if options.ppn is not None and not options.lab:
        made.error("--ppn belongs to --lab; for other nodes use --options")
    if options.chance and (not options.learnt or options.without_overdrive):
        made.error("--chance belongs to --learnt")
    if options.csv is not None and not options.csv.parent.is_dir():
        made.error(f"--csv {options.csv}: there is no such folder")
    options.algorithms = False
    return options


def variants(options: argparse.Namespace) -> list[bench.Variant]:
    """Return the jobs to compare."""
    learnt = bench.Variant(LEARNT, {"OVERDRIVE_FIRST_ARRIVAL": "on"})
    usual = bench.Variant(USUAL, {"OVERDRIVE_FIRST_ARRIVAL": "off"})
    if options.chance:
        return [
            replace(variant, name=f"{variant.name}-{number}")
            for number in range(1, options.chance + 1)
            for variant in (usual, learnt)
        ]
    found = [bench.Variant(bench.HOST, None)]
    if not options.without_overdrive:
        # Measuring against the host would leave some of the calls to it.
        found.append(bench.Variant(PLAIN, {"OVERDRIVE_LEARN": "off"}))
        rule = {f"OVERDRIVE_ADJUST_{options.collective.upper()}": FIRST}
        found.append(bench.Variant(FIRST, {"OVERDRIVE_LEARN": "off", **rule}))
        found += [learnt, usual] if options.learnt else []
    return found


def read(text: str, job: str) -> tuple[list[Sample], tuple[float, float] | None]:
    """Return the samples and what was found about clocks among the lines that a job has printed."""
    samples: list[Sample] = []
    clock = None
    for line in text.splitlines():
        words = line.split(",")
        try:
            if words[0] == "clock" and len(words) == 3:
                clock = (float(words[1]) / 1e3, float(words[2]) / 1e3)
            elif words[0] == "arrival" and len(words) == 8:
                values = [float(word) for word in words[4:]]
                samples.append(Sample(job, words[1], int(words[2]), int(words[3]), *values))
        except ValueError:
            continue
    return samples, clock


def render(samples: Sequence[Sample], jobs: Sequence[str]) -> str:
    """Return the table: medians in milliseconds, and the ratios to the last job."""
    width = 9
    head = f"# {'pattern':<13}{'bytes':>9}"
    over = f"# {'':<22}"
    for value in VALUES:
        over += f"{f'-- {value} (ms) --':^{(width + 5) * len(jobs)}}"
        head += "".join(f"{job:>{width + 5}}" for job in jobs)
    lines = [over, head]
    points = list(dict.fromkeys((sample.pattern, sample.bytes) for sample in samples))
    for pattern, size in points:
        line = f"{pattern:<15}{size:>9}"
        for value in VALUES:
            for job in jobs:
                found = [
                    getattr(sample, value) / 1e3
                    for sample in samples
                    if (sample.pattern, sample.bytes, sample.job) == (pattern, size, job)
                ]
                line += f"{statistics.median(found):>{width + 5}.2f}" if found else f"{'-':>14}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def delays_of_record(folder: Path, ranks: int, where: str) -> str:
    """Return the delays of the calls of a recorded run, as a file has them."""
    found = arrivals.delays_us(record.load(folder), ranks, where, MOST_CALLS)
    if not found:
        raise CommandError(
            f"{folder} has no calls of {ranks} ranks by '{where}' of which all ranks are known; "
            f"choose others with --calls and -n, or --lab and --ppn"
        )
    spreads = [max(call) / 1e3 for call in found]
    print(
        f"# {len(found)} calls of {folder.name}: ranks came {statistics.median(spreads):.3f} ms "
        f"apart (median; at most {max(spreads):.3f})"
    )
    return "".join(",".join(f"{delay:.1f}" for delay in call) + "\n" for call in found)


def _measure(made: bench.Bench, options: argparse.Namespace, delays: Path | None) -> list[Sample]:
    """Run all jobs at the same time; they take turns over a file."""
    jobs = variants(options)
    outcomes: dict[int, tuple[str, str, bool]] = {}
    stop = threading.Event()
    calls = (
        (options.repeats + (options.learnt or 0))
        * len(options.pattern.split(","))
        * len(options.sizes.split(","))
    )
    longest = max(options.delays) * 1e3
    if delays is not None:
        longest = max(
            [longest, *(float(word) for word in delays.read_text().replace(",", " ").split())]
        )
    limit = MORE_SECONDS + calls * len(jobs) * (longest / 1e6 + 1)
    arguments = ["--patterns", options.pattern, "--sizes", options.sizes]
    delays_us = ",".join(f"{delay * 1e3:.9g}" for delay in options.delays)
    arguments += ["--delay-us", delays_us, "--repeats", str(options.repeats)]
    arguments += ["--root", str(options.root), "--collective", options.collective]
    arguments += ["--file", str(delays)] if delays is not None else []
    arguments += ["--rehearsals", str(options.learnt)] if options.learnt is not None else []
    with tempfile.NamedTemporaryFile(
        prefix="turns-", dir=bench.cache_folder(made.environment)
    ) as turns:

        def job(index: int) -> None:
            words = [*arguments, "--turns", f"{turns.name},{index},{len(jobs)}"]
            # The others only take part in the last rehearsals.
            learns = jobs[index].name.startswith((LEARNT, USUAL))
            words += ["--learns", "1" if learns else "0"]
            command, environment = made.command(jobs[index], words)
            with made.session(environment) as own:
                outcomes[index] = bench.run_job(command, own, limit, stop)
            if not outcomes[index][2]:
                stop.set()

        together.all_at_once(len(jobs), job, stop)
    samples: list[Sample] = []
    clocks = []
    for index, variant in enumerate(jobs):
        out, err, good = outcomes[index]
        found, clock = read(out, variant.name)
        samples += found
        clocks += [clock] if clock is not None else []
        if not good:
            tail = "\n  ".join(err.strip().splitlines()[-6:])
            made.problems.append(f"{variant.name} failed:\n  {tail}")
    if clocks:
        most, error = max(clocks)
        print(f"# clocks of the ranks differ by at most {most:.1f} us, known to {error:.1f} us")
    if samples:
        off = statistics.median(sample.off for sample in samples)
        print(f"# ranks came within {off:.0f} us of where they should (median over calls)")
    return samples


def run(
    installation: Installation,
    chosen: Options,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> int:
    """Measure and print; return the exit status."""
    words = take_settings(chosen, list(arguments))
    environment = {**environment, **chosen.variables()}
    options = _parse(words)
    path = shutil.which(options.launcher)
    if path is None:
        raise CommandError(
            f"{options.launcher} was not found: load or install the MPI you want to use, or name "
            f"its launcher with --launcher"
        )
    found = launchers.identify(path)
    made = bench.Bench(installation, chosen, options, environment, path, found.family)
    if made.spans_nodes():
        raise CommandError(
            "the compared jobs take turns over a file, which nodes that are reached by options or "
            "a batch system may not share: use --lab"
        )
    if options.lab:
        made.nodes = len(lab_state.select(options.lab).nodes)
    made.ranks = options.n or (made.nodes * (options.ppn or 1) if options.lab else 2)
    if options.root >= made.ranks:
        raise CommandError(f"--root {options.root}: there are {made.ranks} ranks")
    if not options.without_overdrive:
        job, _ = launch.job_environment(installation, chosen, environment)
        launch.check_settings(installation, chosen, job)
    sources = bench.source_folder(installation.home, PROGRAM)
    compiler = bench.find_compiler(path, options.mpicc)
    made.program = bench.build(sources, compiler, environment, PROGRAM)
    place = f"{made.nodes} nodes of lab '{options.lab}'" if options.lab else "this node"
    print(f"# {found.title}; {made.ranks} ranks, {place}; delay {options.delay} ms", flush=True)
    delays = options.file.resolve() if options.file is not None else None
    with tempfile.NamedTemporaryFile(
        "w", prefix="delays-", dir=bench.cache_folder(made.environment)
    ) as file:
        if delays is not None and delays.is_dir():
            named = options.calls or f"MPI_{options.collective.title()}"
            file.write(delays_of_record(delays, made.ranks, named))
            file.flush()
            delays = Path(file.name)
        samples = _measure(made, options, delays)
    if options.csv is not None:
        with options.csv.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Sample.__dataclass_fields__)
            writer.writerows(vars(sample).values() for sample in samples)
        print(f"{len(samples)} samples: {options.csv}", file=sys.stderr)
    print(render(samples, [variant.name for variant in variants(options)]), end="")
    for problem in made.problems:
        print(f"overdrive: error: {problem}", file=sys.stderr)
    return 1 if made.problems else 0

#!/usr/bin/env python3
"""Runs somebody else's benchmarks (OSU's) with and without Overdrive, in turns.

    osu.py --programs DIR --host mpich --ranks 16 --repeats 3 --csv FILE PROGRAM [OPTION...]
    osu.py --summary FILE...

DIR holds the compiled programs. Each repeat starts one job per variant, in an order that rotates;
every line `size value` of the output is a sample. Variants are `host`, and `overdrive` or what
--library names (NAME=liboverdrive.so, any number of times: two builds are compared that way). The
summary shows medians of the repeats; ratios above 1 are in Overdrive's favour.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import signal
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"^(\d+)\s+([\d.]+)\s*$")
ALONE = re.compile(r"^\s*([\d.]+)\s*$")
"""Of a barrier, whose benchmark prints one number."""
HIGHER_IS_BETTER = ("osu_bw", "osu_bibw", "osu_mbw_mr")

Key = tuple[str, str, int, int]
"""Host, program, ranks, bytes."""


def command(host: str, ranks: int, library: str | None, program: list[str]) -> list[str]:
    """Return the job's command; ranks have cores of their own where there are enough."""
    enough = ranks <= len(os.sched_getaffinity(0))
    if host == "openmpi":
        line = ["mpirun.openmpi", *(["--bind-to", "core"] if enough else ["--oversubscribe"])]
        preload = ["-x", f"LD_PRELOAD={library}"]
    else:
        line = ["mpirun.mpich", *(["-bind-to", "core"] if enough else [])]
        preload = ["-genv", "LD_PRELOAD", library or ""]
    return [*line, "-n", str(ranks), *(preload if library else []), *program]


def samples(text: str) -> list[tuple[int, float]]:
    """Return what a benchmark printed, as (bytes, value)."""
    found = []
    for line in text.splitlines():
        if match := LINE.match(line):
            found.append((int(match[1]), float(match[2])))
        elif match := ALONE.match(line):
            found.append((0, float(match[1])))
    return found


def run(line: list[str], seconds: float) -> tuple[int, str]:
    """Run a job; one that takes too long is ended with all its processes."""
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    job = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
        start_new_session=True,
    )  # fmt: skip
    try:
        text, _ = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        text, _ = job.communicate()
        return -signal.SIGKILL, f"{text}\nended after {seconds:.0f} s"
    return job.returncode, text


def measure(options: argparse.Namespace) -> int:
    """Run all variants in turns and add their samples to the file; return how many jobs failed."""
    libraries: dict[str, str | None] = {"host": None}
    libraries |= dict(item.split("=", 1) for item in options.libraries or ())
    if len(libraries) == 1:
        libraries["overdrive"] = str(ROOT / "build" / "release" / "lib" / "liboverdrive.so")
    for library in libraries.values():
        if library is not None and not Path(library).exists():
            sys.exit(f"osu: {library} is missing: build Overdrive first (make)")
    program = options.programs / options.program[0]
    if not program.exists():
        sys.exit(f"osu: {program} is missing: compile OSU's benchmarks into --programs")
    names = list(libraries)
    failed = 0
    with open(options.csv, "a", encoding="ascii", newline="") as file:
        writer = csv.writer(file)
        for repeat in range(options.repeats):
            first = repeat % len(names)
            for name in names[first:] + names[:first]:
                line = command(
                    options.host, options.ranks, libraries[name],
                    [str(program), *options.program[1:]],
                )  # fmt: skip
                status, text = run(line, options.seconds)
                found = samples(text)
                if status != 0 or not found:
                    failed += 1
                    print(f"osu: {name}: `{' '.join(line)}` ended with {status}\n{text[-800:]}")
                for size, value in found:
                    row = [options.host, program.name, options.ranks, name, repeat, size, value]
                    writer.writerow(row)
    return failed


def read(files: list[Path]) -> dict[Key, dict[str, float]]:
    """Return the medians of all points, by variant."""
    every: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in files:
        with open(path, encoding="ascii", newline="") as file:
            for host, program, ranks, name, _, size, value in csv.reader(file):
                every[host, program, int(ranks), int(size)][name].append(float(value))
    return {
        key: {name: statistics.median(values) for name, values in variants.items()}
        for key, variants in every.items()
    }


def summary(files: list[Path]) -> None:
    """Print a line for each benchmark: geometric means of the ratios to the host, and the worst."""
    groups: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for (host, program, ranks, _), values in sorted(read(files).items()):
        own = values.pop("host", 0)
        for name, value in values.items():
            if own <= 0 or value <= 0:
                continue
            ratio = value / own if program.startswith(HIGHER_IS_BETTER) else own / value
            group = groups.setdefault((host, program, ranks), defaultdict(list))
            group[name].append(ratio)
    for (host, program, ranks), ratios in groups.items():
        texts = [
            f"{name} {statistics.geometric_mean(found):.2f} (worst {min(found):.2f})"
            for name, found in ratios.items()
        ]
        print(f"{host:8} {program:20} {ranks:3} ranks  {'  '.join(texts)}")


def main() -> int:
    """Measure, or summarise."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--programs", type=Path, help="folder of the compiled benchmarks")
    add("--host", choices=["openmpi", "mpich"], default="openmpi")
    add("--ranks", type=int, default=2)
    add("--repeats", type=int, default=3)
    add("--seconds", type=float, default=60, help="limit of a job")
    add(
        "--library",
        dest="libraries",
        action="append",
        metavar="NAME=FILE",
        help="a build to measure",
    )
    add("--csv", type=Path, default=Path("osu.csv"), help="samples are added here")
    add("--summary", type=Path, nargs="+", metavar="FILE", help="evaluate samples")
    add("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.summary:
        summary(options.summary)
        return 0
    if not options.programs or not options.program:
        parser.error("--programs and the name of a program are needed")
    return 1 if measure(options) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures whether programs compute as fast in Overdrive's heap as in the C library's.

Runs bench/memory_speed.c alternately without and with Overdrive, for each setting of the kernel's
transparent huge pages that it may choose (that needs root; otherwise only the present one), and
writes docs/measurements/memory.md. With --add the runs join those of earlier commands.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measurements" / "memory.md"
THP = Path("/sys/kernel/mm/transparent_hugepage")
SAMPLES = ROOT / "build" / "bench" / "memory_samples.json"
GOAL = 0.98
WARM_MIB = 3072
"""What is touched before each run, in huge pages: more than a run uses."""

Figures = dict[str, list[float]]
Samples = dict[str, dict]
"""What one mode has: `plain` and `ours` (Figures) and `units`."""


def chosen(path: Path) -> str:
    """Return the word in brackets of a file of the kernel."""
    text = path.read_text(encoding="ascii")
    return text[text.index("[") + 1 : text.index("]")]


@contextlib.contextmanager
def huge_pages(mode: str) -> Iterator[None]:
    """Set the kernel's policy for anonymous memory, and restore it."""
    file = THP / "enabled"
    before = chosen(file)
    if mode != before:
        file.write_text(mode, encoding="ascii")
    try:
        yield
    finally:
        if mode != before:
            file.write_text(before, encoding="ascii")


def build() -> Path:
    """Compile the program."""
    target = ROOT / "build" / "bench" / "memory_speed"
    target.parent.mkdir(parents=True, exist_ok=True)
    # No builtin malloc: the compiler would leave out pairs of malloc and free.
    command = ["cc", "-O3", "-march=native", "-fno-builtin", "-pthread"]
    subprocess.run(
        [*command, "-o", str(target), str(ROOT / "bench" / "memory_speed.c")], check=True
    )
    return target


def run(program: Path, options: argparse.Namespace, preload: bool) -> dict[str, tuple[float, str]]:
    """Run once; return the figures by name."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OVERDRIVE_")}
    environment["PMI_RANK"] = "0"  # what makes a process look like a rank
    if preload:
        environment["LD_PRELOAD"] = str(options.lib)
        for setting in options.set:
            name, value = setting.split("=", 1)
            environment[f"OVERDRIVE_{name.upper()}"] = value
    command = [str(program), *(["--quick"] if options.quick else [])]
    if options.only:
        command.append(f"--only={options.only}")
    if options.nice:
        command = ["nice", "-n", str(options.nice), *command]
    if options.cpus:
        command = ["taskset", "-c", options.cpus, *command]
    # Both variants find memory that the machine has had in use just before.
    subprocess.run([str(program), f"--warm={WARM_MIB}"], check=True)
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    figures = {}
    for line in output.stdout.splitlines():
        name, value, unit = line.split()
        figures[name] = (float(value), unit)
    return figures


def measure(program: Path, options: argparse.Namespace, samples: Samples) -> None:
    """Alternate; add all samples without and with Overdrive."""
    for number in range(options.rounds):
        order = (False, True) if number % 2 == 0 else (True, False)
        found = {preload: run(program, options, preload) for preload in order}
        for preload, key in ((False, "plain"), (True, "ours")):
            for name, (value, unit) in found[preload].items():
                samples[key].setdefault(name, []).append(value)
                samples["units"][name] = unit
        print(f"  round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)


def table(plain: Figures, ours: Figures, units: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the lines of the table, and the names that miss the goal."""
    lines = [
        "| | unit | without | with | ratio | quartiles of the ratio |",
        "|---|---|---:|---:|---:|---|",
    ]
    missed = []
    for name, without in plain.items():
        ratios = sorted(b / a for a, b in zip(without, ours[name], strict=True))
        ratio = statistics.median(ratios)
        quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratio] * 3
        lines.append(
            f"| {name} | {units[name]} | {statistics.median(without):.4g} "
            f"| {statistics.median(ours[name]):.4g} | {ratio:.3f} "
            f"| {quarters[0]:.3f} to {quarters[2]:.3f} |"
        )
        if ratio < GOAL:
            missed.append(f"{name} ({ratio:.3f})")
    return lines, missed


def write_page(options: argparse.Namespace, samples: dict[str, Samples]) -> None:
    """Write the page from all samples."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--add"]
    command = " ".join(["python3 bench/memory_speed.py", *arguments])
    runs = max(len(values) for mode in samples.values() for values in mode["plain"].values())
    page = [
        "# Speed of a program's own memory",
        "",
        f"Made by `{command}`, repeated with `--add`: {runs} runs each, alternating without and",
        "with Overdrive; medians, and the ratio with to without of neighbouring runs. Larger is",
        f"better, the goal is {GOAL}. Linux {platform.release()}, {os.cpu_count()} processors,",
        f"`shmem_enabled` {chosen(THP / 'shmem_enabled')}.",
        "",
    ]
    for mode, found in samples.items():
        lines, missed = table(found["plain"], found["ours"], found["units"])
        print("\n".join(lines), flush=True)
        verdict = "Everything reaches the goal." if not missed else f"Below: {', '.join(missed)}."
        page += [f"## Transparent huge pages: {mode}", "", *lines, "", verdict, ""]
    options.page.write_text("\n".join(page).rstrip() + "\n")


def main() -> int:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="small arrays")
    parser.add_argument("--only", default="", help="beginnings of names of figures")
    parser.add_argument("--modes", default="madvise,always", help="of transparent huge pages")
    parser.add_argument("--nice", type=int, default=0, help="negative needs privilege")
    parser.add_argument("--cpus", default="", help="for taskset, such as 0,1")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--library",
        dest="lib",
        type=Path,
        default=ROOT / "build" / "release" / "lib" / "liboverdrive.so",
    )
    parser.add_argument("--add", action="store_true", help="to the samples of earlier commands")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    # Ended early, it must restore the kernel's policy all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    program = build()
    modes = options.modes.split(",") if os.access(THP / "enabled", os.W_OK) else []
    samples: dict[str, Samples] = {}
    if options.add and SAMPLES.exists():
        samples = json.loads(SAMPLES.read_text(encoding="utf-8"))
    for mode in modes or [chosen(THP / "enabled")]:
        print(f"transparent huge pages: {mode}", file=sys.stderr, flush=True)
        with huge_pages(mode):
            empty: Samples = {"plain": {}, "ours": {}, "units": {}}
            measure(program, options, samples.setdefault(mode, empty))
        SAMPLES.write_text(json.dumps(samples), encoding="utf-8")
    write_page(options, samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How long the `overdrive` command takes before a job starts.

    start.py [--overdrive COMMAND] [--rounds N]

Starts `true` by itself, through a bare Python, and through the command in several ways, in turns;
prints milliseconds: the least, the median and the slowest tenth. The goal is 40 ms for the command
(least of quiet rounds; on a busy machine the least still tells what the command itself costs).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

GOAL_MS = 40


def once(command: list[str]) -> float:
    """Run a command that does nothing; return how long it took in milliseconds."""
    begin = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status = os.waitpid(child, 0)
    took = (time.perf_counter() - begin) * 1e3
    if status != 0:
        raise RuntimeError(f"`{' '.join(command)}` ended with status {status}")
    return took


def load() -> str:
    """Return how busy the machine is."""
    return f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors"


def main() -> int:
    """Measure and print; the exit status says whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--overdrive", default=str(ROOT / "overdrive"), help="the command")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    command = options.overdrive
    ways = {
        "`true`": ["true"],
        "`python3 -I -S -c pass`": ["python3", "-I", "-S", "-c", "pass"],
        "`overdrive run true`": [command, "run", "true"],
        "`overdrive --stats=FILE run true`": [command, "--stats=/dev/null", "run", "true"],
        "`overdrive --set spin=2us run true`": [command, "--set", "spin=2us", "run", "true"],
    }
    before = load()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for words in ways.values():
        once(words)  # Python writes its compiled modules once
    for _ in range(options.rounds):
        for name, words in ways.items():
            found[name].append(once(words))
    version = subprocess.check_output([command, "--version"], text=True).strip()
    print(f"{version}, {options.rounds} rounds, {before} before, {load()} after\n")
    print("| started | least | median | slowest tenth |")
    print("|---|---:|---:|---:|")
    for name, times in found.items():
        tenth = statistics.quantiles(times, n=10)[-1]
        print(f"| {name} | {min(times):.1f} | {statistics.median(times):.1f} | {tenth:.1f} |")
    least = min(found["`overdrive run true`"])
    print(f"\n{least:.1f} ms of {GOAL_MS} ms: {'reached' if least <= GOAL_MS else 'missed'}")
    return 0 if least <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())

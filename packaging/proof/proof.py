#!/usr/bin/env python3
"""Starts a job through the `overdrive` command and demands that Overdrive carried its messages.

    proof.py [--overdrive COMMAND | --inside] [--ranks N] [--expect TEXT] LAUNCHER ARGUMENT...

The job must print PASS (or what is expected), all of its ranks must have written statistics, and
these must count messages and collectives that went through Overdrive. Prints one line; the exit
status is 0 only if all holds. Needs Python 3.9 and nothing else, so that it runs in every
container.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SENDS = ("inline", "cell", "frame", "stream", "direct", "cooperative")
"""Ways of a message from one process to another through Overdrive (counters sends_...)."""

LEAST_MESSAGES = 40
LEAST_COLLECTIVES = 40
"""Far below what the jobs beside this file do, far above what an MPI library does for itself."""

LIMIT_SECONDS = 120

RUN_AS_ROOT = {
    f"{name}_ALLOW_RUN_AS_ROOT{suffix}": "1"
    for name in ("OMPI", "PRTE")
    for suffix in ("", "_CONFIRM")
}
"""Open MPI's launchers hesitate to work for the superuser, who is the only user of a container."""


def sums(folder: Path) -> tuple[int, dict[str, int]]:
    """Return how many ranks wrote statistics, and the sums of their counters."""
    totals: dict[str, int] = {}
    files = sorted(folder.glob("*.json"))
    for path in files:
        for name, value in json.loads(path.read_text())["counters"].items():
            totals[name] = totals.get(name, 0) + value
    return len(files), totals


def prove(options: argparse.Namespace) -> str:
    """Run the job; return what was counted, or raise AssertionError."""
    folder = Path(tempfile.mkdtemp(prefix="overdrive-proof-"))
    wanted = f"{folder}/%r.json"
    # Where the launcher is outside of the container, the command is inside with each rank.
    variables = {"OVERDRIVE_STATS": wanted} if options.inside else {}
    command = (
        options.job if options.inside else [options.overdrive, f"--stats={wanted}", *options.job]
    )
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **RUN_AS_ROOT, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        said = f"\nstdout:\n{done.stdout[-3000:]}\nstderr:\n{done.stderr[-3000:]}"
        assert done.returncode == 0, f"status {done.returncode}{said}"
        assert options.expect in done.stdout, f"it did not say {options.expect!r}{said}"
        found, totals = sums(folder)
        assert found == options.ranks, f"{found} of {options.ranks} ranks wrote statistics{said}"
        messages = sum(totals.get(f"sends_{way}", 0) for way in SENDS)
        collectives = totals.get("collectives_served", 0)
        assert messages >= LEAST_MESSAGES, f"{messages} messages by Overdrive: {totals}{said}"
        assert collectives >= options.collectives, f"{collectives} collectives: {totals}{said}"
        return f"{messages} messages, {collectives} collectives"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--overdrive", default="overdrive", help="the command")
    parser.add_argument("--inside", action="store_true", help="the job itself names the command")
    parser.add_argument("--ranks", type=int, default=2, help="that the job has")
    parser.add_argument("--expect", default="PASS ", help="what the job prints at its end")
    parser.add_argument("--collectives", type=int, default=LEAST_COLLECTIVES, help="at least")
    parser.add_argument("job", nargs=argparse.REMAINDER, help="launcher and its arguments")
    options = parser.parse_args()
    try:
        counted = prove(options)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as reason:
        print(f"proof: {' '.join(options.job)}: {reason}", file=sys.stderr)
        return 1
    print(f"proof: {' '.join(options.job)}: {counted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

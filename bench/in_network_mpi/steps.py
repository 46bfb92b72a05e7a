#!/usr/bin/env python3
"""Runs a solver of OpenFOAM as a rank and prints a line "8 microseconds": its median time step.

    steps.py SOLVER [OPTION ...]

Steps are told apart by the lines "Time = ..." of rank 0; other ranks print nothing. The first tenth
is left out, in which groups at switches are made and algorithms are measured.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def main() -> int:
    """Run the command line."""
    begins = []
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Time = "):
                begins.append(time.monotonic())
    if len(begins) > 10:
        steps = [after - before for before, after in zip(begins, begins[1:])]
        print(f"8 {statistics.median(steps[len(steps) // 10 :]) * 1e6:.2f}")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())

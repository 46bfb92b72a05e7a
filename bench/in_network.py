#!/usr/bin/env python3
"""Measures sums made by overdrive-switch in a virtual cluster, without an MPI.

    bench/in_network.py [--nodes 4,9] [--latencies 0,20us] [--bytes 256,4096] [--turns 3]

One leader on each node; turns over all points are interleaved. Prints a table with the median of
the turns' medians and their range. All nodes share this machine's processors, so the times are
those of the work of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "cli"))

from overdrive import installation  # noqa: E402

LAB = [str(ROOT / "overdrive"), "lab"]
LIMIT_SECONDS = 120


def measure(program: Path, name: str, nodes: int, size: int, operations: int) -> float:
    """Return the median time of an allreduce in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(program), "time", "--meeting", f"{folder}/meeting", "--leaders", str(nodes)]
        words += ["--bytes", str(size), "--operations", str(operations)]
        started = [
            subprocess.Popen(
                [*LAB, "exec", "--name", name, str(index), *words]
                + ["--index", str(index), "--ip", f"10.77.0.{index + 1}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for index in range(nodes)
        ]
        outputs = [process.communicate(timeout=LIMIT_SECONDS)[0] for process in started]
        if any(process.returncode != 0 for process in started):
            raise RuntimeError("a leader has failed")
        return json.loads(outputs[0])["median_us"]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="4,9")
    parser.add_argument("--latencies", default="0,20us")
    parser.add_argument("--bytes", default="256,4096")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--operations", type=int, default=2000)
    options = parser.parse_args()
    program = installation.find().need_switch().parent / "overdrive-switch-leaders"
    times: dict[tuple[int, str, int], list[float]] = {}
    for _ in range(options.turns):
        for nodes in map(int, options.nodes.split(",")):
            for latency in options.latencies.split(","):
                name = f"measure{os.getpid()}"
                up = [*LAB, "up", "--name", name, "--nodes", str(nodes), "--quiet"]
                subprocess.run([*up, "--fabric", "switch", "--latency", latency], check=True)
                try:
                    for size in map(int, options.bytes.split(",")):
                        found = measure(program, name, nodes, size, options.operations)
                        times.setdefault((nodes, latency, size), []).append(found)
                finally:
                    subprocess.run([*LAB, "down", "--name", name], check=True)
    print("| nodes | latency of the switch | bytes | us, median of turns | range |")
    print("|---|---|---|---|---|")
    for (nodes, latency, size), found in times.items():
        middle = statistics.median(found)
        print(
            f"| {nodes} | {latency} | {size} | {middle:.1f} | {min(found):.1f}-{max(found):.1f} |"
        )
    load = os.getloadavg()[0]
    print(f"\nload of the machine at the end: {load:.1f} on {os.cpu_count()} processors")
    return 0


if __name__ == "__main__":
    sys.exit(main())

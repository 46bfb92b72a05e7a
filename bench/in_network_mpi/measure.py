#!/usr/bin/env python3
"""Compares MPI_Allreduce by a switch with the MPI library's and with Overdrive's other algorithms.

    bench/in_network_mpi/measure.py [--nodes 4,9] [--latencies 0,20us] [--turns 3] [--ppn 1]
        [--program cg]

Open MPI over a virtual cluster whose nodes are joined by overdrive-switch. Turns over all ways are
interleaved; of the MPI library the best of its algorithms counts for each point. With `cg` an
iteration of conjugate gradients is timed, which has two sums of one number. Prints the median of
the turns' medians and how many times faster the switch is than the best other way. All nodes
share this machine's processors, so the times are those of the work of all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAB = [sys.executable, str(ROOT / "overdrive"), "lab"]
LIMIT_SECONDS = 120

RULE = ["-x", "OVERDRIVE_LEARN=off"]
TUNED = ["-x", "OMPI_MCA_coll_tuned_use_dynamic_rules=1"]
WAYS = {
    "host, its choice": ["--without-overdrive"],
    "host, recursive doubling": [
        "--without-overdrive",
        *TUNED,
        "-x",
        "OMPI_MCA_coll_tuned_allreduce_algorithm=3",
    ],
    "host, reduce and broadcast": [
        "--without-overdrive",
        *TUNED,
        "-x",
        "OMPI_MCA_coll_tuned_allreduce_algorithm=2",
    ],
    "Overdrive without": [*RULE, "-x", "OVERDRIVE_SWITCH=off"],
    "switch": [*RULE, "-x", "OVERDRIVE_ADJUST_ALLREDUCE=in_network_node"],
    "free choice": [],
}


def measure(
    name: str, program: str, ranks: int, ppn: int, words: list[str], sizes: list[int], calls: int
) -> dict[int, float]:
    """Return the median time in microseconds of each size."""
    command = [*LAB, "mpirun", "--name", name, "-n", str(ranks), "--ppn", str(ppn), *words]
    done = subprocess.run(
        [*command, program, str(calls), *map(str, sizes)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return {int(line.split()[0]): float(line.split()[1]) for line in done.stdout.splitlines()}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="4,9")
    parser.add_argument("--latencies", default="0,20us")
    parser.add_argument("--bytes", default="8,256,1024,4096,16384")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--ppn", type=int, default=1)
    parser.add_argument("--program", choices=("allreduce", "cg"), default="allreduce")
    options = parser.parse_args()
    sizes = [int(word) for word in options.bytes.split(",")]
    times: dict[tuple[int, str, int], dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/allreduce"
        source = Path(__file__).parent / f"{options.program}.c"
        subprocess.run(["mpicc", "-O2", "-o", program, str(source), "-lm"], check=True)
        for nodes in map(int, options.nodes.split(",")):
            for latency in options.latencies.split(","):
                name = f"measure{os.getpid()}"
                up = [*LAB, "up", "--name", name, "--nodes", str(nodes), "--quiet"]
                subprocess.run([*up, "--fabric", "switch", "--latency", latency], check=True)
                try:
                    for _ in range(options.turns):
                        for way, words in WAYS.items():
                            found = measure(
                                name,
                                program,
                                nodes * options.ppn,
                                options.ppn,
                                words,
                                sizes,
                                options.calls,
                            )
                            for size, time in found.items():
                                point = times.setdefault((nodes, latency, size), {})
                                point.setdefault(way, []).append(time)
                finally:
                    subprocess.run([*LAB, "down", "--name", name], check=True)
    print(
        "| nodes | latency | bytes | best of the host | Overdrive without | switch | times "
        "faster | Overdrive's choice |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (nodes, latency, size), found in times.items():
        middle = {way: statistics.median(values) for way, values in found.items()}
        host = min(value for way, value in middle.items() if way.startswith("host"))
        best = min(host, middle["Overdrive without"])
        print(
            f"| {nodes} | {latency} | {size} | {host:.1f} | {middle['Overdrive without']:.1f} | "
            f"{middle['switch']:.1f} | {best / middle['switch']:.2f} | "
            f"{middle['free choice']:.1f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

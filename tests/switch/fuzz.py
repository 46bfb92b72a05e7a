#!/usr/bin/env python3
"""Builds and runs the fuzzer of in-network packets, switches and leaders (switch/network_fuzz.cc).

    fuzz.py [--seconds 60] [--until 1e8]    goes on with the corpus of the last run

The corpus is in build/fuzz-network, and the number of executions since the sources last changed is
counted there; --until goes on to that number.

Needs clang with libFuzzer; without it nothing is done. Ends with an error when there is a finding,
whose input is then in build/fuzz-network.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz-network"
COUNT = FOLDER / "executions"
SANITIZERS = "address,undefined"
COMPILERS = ("clang++", "clang++-19", "clang++-16", "clang++-14")
LONGEST_INPUT_BYTES = 256

ROOMS = ["switch", "src/innetwork", "src/coll/ops"]
SOURCES = [
    *(f"switch/{name}.cc" for name in ("aggregation", "compute", "fabric", "frame", "link")),
    *(f"switch/{name}.cc" for name in ("mac_table", "timer_wheel", "network_fuzz")),
    *(f"src/innetwork/{name}.cc" for name in ("packet", "crc32", "leader")),
    *(f"src/coll/ops/{name}.cc" for name in ("kinds", "scalar_kernels", "complex_product")),
]
COMPARED = ["-fsanitize=fuzzer-no-link"]
COUNTED = ["-fsanitize-coverage=inline-8bit-counters,pc-table"]
WITH_COMPARISONS = {"src/innetwork/packet.cc"}
"""Where inputs are found by what they are compared with; elsewhere, where packets are made of
commands, to note all comparisons costs more than the runs themselves."""
SANITIZER_OPTIONS = {"ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=0"}
"""Where memory was taken is said only when an input is run again by itself."""


def build(compiler: str) -> Path:
    """Build the fuzzer; return its path."""
    headers = FOLDER / "generated" / "innetwork"
    headers.mkdir(parents=True, exist_ok=True)
    generator = ROOT / "src" / "innetwork" / "generate.py"
    fields = str(headers / "packet_fields.h")
    subprocess.run([sys.executable, str(generator), "header", fields], check=True)
    program = FOLDER / "fuzzer"
    # Compiled anew only when a source has changed.
    inputs = [path for folder in ROOMS for path in (ROOT / folder).glob("*.[ch]*")]
    inputs.append(Path(__file__))
    if program.exists() and program.stat().st_mtime >= max(p.stat().st_mtime for p in inputs):
        return program
    words = [compiler, "-std=c++20", "-O2", "-g1", "-D_GNU_SOURCE", "-ffp-contract=off"]
    words += [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all"]
    words += [f"-I{ROOT}", f"-I{ROOT / 'src'}", f"-I{headers.parent}"]
    objects = []
    for source in SOURCES:
        objects.append(str(FOLDER / (Path(source).stem + ".o")))
        traced = COMPARED if source in WITH_COMPARISONS else COUNTED
        subprocess.run([*words, *traced, "-c", str(ROOT / source), "-o", objects[-1]], check=True)
    subprocess.run(
        [compiler, f"-fsanitize=fuzzer,{SANITIZERS}", *objects, "-o", str(program)], check=True
    )
    return program


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--until", type=float, help="executions altogether, instead of a time")
    options = parser.parse_args()
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        print("fuzz-network: skipped, there is no clang (install clang and its libFuzzer)")
        return 0
    program = build(compiler)
    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    before = counted(program)
    words = [str(program), "-print_final_stats=1", "-entropic=0", "-reload=0"]
    words += [f"-max_len={LONGEST_INPUT_BYTES}", f"-artifact_prefix={FOLDER}/", str(corpus)]
    if options.until is None:
        words.append(f"-max_total_time={options.seconds}")
    elif options.until <= before:
        print(f"fuzz-network: {before} executions have been made")
        return 0
    else:
        words.append(f"-runs={int(options.until) - before}")
    executions = 0
    environment = {**SANITIZER_OPTIONS, **os.environ}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            print(line, end="", flush=True)
            found = re.match(r"#(\d+)\s", line)
            if found:
                executions = int(found[1])
                COUNT.write_text(f"{before + executions}\n")
    print(f"fuzz-network: {before + executions} executions since the sources last changed")
    return process.returncode


def counted(program: Path) -> int:
    """Return how many executions this program has made in earlier runs."""
    if not COUNT.exists() or COUNT.stat().st_mtime < program.stat().st_mtime:
        return 0
    return int(COUNT.read_text())


if __name__ == "__main__":
    sys.exit(main())

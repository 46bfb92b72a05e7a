#!/usr/bin/env python3
"""Builds and runs the fuzzer of in-network packets, switches and leaders (switch/network_fuzz.cc).

    fuzz.py [--seconds 60]    goes on with the corpus of the last run, in build/fuzz-network

Needs clang with libFuzzer; without it nothing is done. Ends with an error when there is a finding,
whose input is then in build/fuzz-network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz-network"
SANITIZERS = "address,undefined"
COMPILERS = ("clang++", "clang++-19", "clang++-16", "clang++-14")
LONGEST_INPUT_BYTES = 600

SOURCES = [
    *(f"switch/{name}.cc" for name in ("aggregation", "compute", "fabric", "frame", "link")),
    *(f"switch/{name}.cc" for name in ("mac_table", "timer_wheel", "network_fuzz")),
    *(f"src/innetwork/{name}.cc" for name in ("packet", "leader")),
    *(f"src/coll/ops/{name}.cc" for name in ("kinds", "scalar_kernels", "complex_product")),
]


def build(compiler: str) -> Path:
    """Build the fuzzer; return its path."""
    headers = FOLDER / "generated" / "innetwork"
    headers.mkdir(parents=True, exist_ok=True)
    generator = ROOT / "src" / "innetwork" / "generate.py"
    fields = str(headers / "packet_fields.h")
    subprocess.run([sys.executable, str(generator), "header", fields], check=True)
    program = FOLDER / "fuzzer"
    words = [compiler, "-std=c++20", "-O2", "-g1", "-D_GNU_SOURCE", "-ffp-contract=off"]
    words += [f"-fsanitize=fuzzer,{SANITIZERS}", "-fno-sanitize-recover=all"]
    words += [f"-I{ROOT}", f"-I{ROOT / 'src'}", f"-I{headers.parent}"]
    words += [str(ROOT / source) for source in SOURCES]
    subprocess.run([*words, "-o", str(program)], check=True)
    return program


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        print("fuzz-network: skipped, there is no clang (install clang and its libFuzzer)")
        return 0
    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    words = [str(build(compiler)), f"-max_total_time={options.seconds}", "-print_final_stats=1"]
    words += [f"-max_len={LONGEST_INPUT_BYTES}", f"-artifact_prefix={FOLDER}/", str(corpus)]
    return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

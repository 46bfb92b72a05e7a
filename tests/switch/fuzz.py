#!/usr/bin/env python3
"""Builds and runs the fuzzer of in-network packets, switches and leaders (switch/network_fuzz.cc).

    fuzz.py [--seconds 60] [--until 1e8] [--processes 1]    goes on with the corpus of the last run

The corpus is in build/fuzz-network, and the number of executions since the sources last changed is
counted there; --until goes on to that number.

Needs clang with libFuzzer; without it nothing is done. Ends with an error when there is a finding,
whose input is then in build/fuzz-network.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz-network"
PROGRAM = FOLDER / "network_fuzz"
COUNT = FOLDER / "executions"
"""A digest of the sources, and how often a program made of them has run."""
DICTIONARY = FOLDER / "dictionary"
SANITIZERS = "address,undefined"
COMPILERS = ("clang++", "clang++-19", "clang++-16", "clang++-14")
LONGEST_INPUT_BYTES = 256

SOURCES = [
    *(f"switch/{name}.cc" for name in ("aggregation", "compute", "fabric", "frame", "link")),
    *(f"switch/{name}.cc" for name in ("mac_table", "timer_wheel", "network_fuzz")),
    *(f"src/innetwork/{name}.cc" for name in ("packet", "crc32", "leader")),
    *(f"src/coll/ops/{name}.cc" for name in ("kinds", "scalar_kernels", "complex_product")),
]
COUNTED = ["-fsanitize-coverage=inline-8bit-counters,pc-table"]
"""Comparisons are not noted, which would cost a fifth of the time: what the parser compares with
is in the dictionary."""
WITHOUT_BRANCHES = {f"src/coll/ops/{name}.cc" for name in ("scalar_kernels", "complex_product")}
WITHOUT_BRANCHES.add("src/innetwork/crc32.cc")
"""Loops over values: half of all branches, none of which leads anywhere new."""
SANITIZER_OPTIONS = {"ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=0"}
"""Where memory was taken is said only when an input is run again by itself."""


def digest(words: list[str]) -> str:
    """Return what changes with what the compiler sees of the sources: not with comments."""
    seen = hashlib.sha256(" ".join([*words, *COUNTED]).replace(str(ROOT), "").encode())
    for source in SOURCES:
        command = [*words, "-E", "-P", str(ROOT / source)]
        text = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        seen.update(b" ".join(text.split()))
    return seen.hexdigest()


def build(compiler: str) -> tuple[str, int]:
    """Build the fuzzer unless it is there; return of what it is made, and how often it has run."""
    headers = FOLDER / "generated" / "innetwork"
    headers.mkdir(parents=True, exist_ok=True)
    generator = ROOT / "src" / "innetwork" / "generate.py"
    fields = headers / "packet_fields.h"
    subprocess.run([sys.executable, str(generator), "header", str(fields)], check=True)
    write_dictionary(fields.read_text())
    words = [compiler, "-std=c++20", "-O2", "-g1", "-D_GNU_SOURCE", "-ffp-contract=off"]
    words += [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all"]
    words += [f"-I{ROOT}", f"-I{ROOT / 'src'}", f"-I{headers.parent}"]
    wanted = digest(words)
    if PROGRAM.exists() and COUNT.exists():
        made_of, executions = COUNT.read_text().split()
        if made_of == wanted:
            return wanted, int(executions)
    objects = []
    for source in SOURCES:
        objects.append(str(FOLDER / (Path(source).stem + ".o")))
        traced = [] if source in WITHOUT_BRANCHES else COUNTED
        subprocess.run([*words, *traced, "-c", str(ROOT / source), "-o", objects[-1]], check=True)
    subprocess.run(
        [compiler, f"-fsanitize=fuzzer,{SANITIZERS}", *objects, "-o", str(PROGRAM)], check=True
    )
    COUNT.write_text(f"{wanted} 0\n")
    return wanted, 0


def write_dictionary(fields: str) -> None:
    """Write the bytes that the parser knows packets by, of which the fuzzer makes inputs."""

    def constant(name: str) -> int:
        found = re.search(rf"uint32_t k{name} = (\w+);", fields)
        assert found is not None, name
        return int(found[1], 0)

    magic = constant("Magic").to_bytes(2, "big")
    version = constant("Version").to_bytes(1, "big")
    rest = [bytes([kind]) for kind in range(1, 10)]
    datagram, reliable = b"\x64", b"\x04"
    words = [datagram, reliable, magic, *(magic + version + kind for kind in rest)]
    for opcode, transport in ((datagram, 20), (reliable, 12)):
        words += [opcode + bytes(transport - 1) + magic + version + kind for kind in rest]
    lines = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in words)
    DICTIONARY.write_text("\n".join(lines) + "\n")


class Runs:
    """Processes that share a corpus, and what they have done together."""

    def __init__(self, made_of: str, before: int) -> None:
        self.made_of = made_of
        self.before = before
        self.lock = threading.Lock()
        self.executions: dict[int, int] = {}
        self.processes: list[subprocess.Popen[str]] = []
        self.readers: list[threading.Thread] = []

    def total(self) -> int:
        """Return the executions of all runs since the sources last changed."""
        return self.before + sum(self.executions.values())

    def start(self, words: list[str]) -> None:
        """Start one more process."""
        environment = {**SANITIZER_OPTIONS, **os.environ}
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
        reader = threading.Thread(target=self.read, args=(len(self.processes), process))
        self.processes.append(process)
        self.readers.append(reader)
        reader.start()

    def read(self, number: int, process: subprocess.Popen[str]) -> None:
        """Show what a process says, and count."""
        assert process.stderr is not None
        for line in process.stderr:
            print(line, end="", flush=True)
            found = re.match(r"#(\d+)\s|stat::number_of_executed_units: (\d+)", line)
            if found:
                with self.lock:
                    self.executions[number] = int(found[1] or found[2])
                    COUNT.write_text(f"{self.made_of} {self.total()}\n")
        if process.wait() != 0:
            self.stop()

    def stop(self) -> None:
        """End all; each says then how far it has come."""
        for process in self.processes:
            process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Return 0 when all have ended without a finding."""
        for reader in self.readers:
            reader.join()
        return max((abs(process.returncode) for process in self.processes), default=0)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--until", type=float, help="executions altogether, instead of a time")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        print("fuzz-network: skipped, there is no clang (install clang and its libFuzzer)")
        return 0
    made_of, before = build(compiler)
    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    words = [str(PROGRAM), "-print_final_stats=1", "-entropic=0", f"-dict={DICTIONARY}"]
    words.append("-reload=0" if options.processes == 1 else "-reload=300")
    words += [f"-max_len={LONGEST_INPUT_BYTES}", f"-artifact_prefix={FOLDER}/", str(corpus)]
    if options.until is None:
        words.append(f"-max_total_time={options.seconds}")
    elif options.until <= before:
        print(f"fuzz-network: {before} executions have been made")
        return 0
    else:
        words.append(f"-runs={int((options.until - before) / options.processes) + 1}")
    runs = Runs(made_of, before)
    signal.signal(signal.SIGTERM, lambda *_: runs.stop())
    for _ in range(options.processes):
        runs.start(words)
    status = runs.wait()
    print(f"fuzz-network: {runs.total()} executions since the sources last changed")
    return status


if __name__ == "__main__":
    sys.exit(main())

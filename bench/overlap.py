#!/usr/bin/env python3
"""Measures how much of collectives is hidden behind computation (setting `overlap`).

    overlap.py                            measure everything over virtual nodes; write the page
    overlap.py --part micro --layout 2x1 --rate 1gbit --host mpich4      only this
    overlap.py --part kernels             only the programs FT and IS of bench/kernels
    overlap.py --part programs            only programs from packages
    overlap.py --evaluate                 write the page again from earlier figures

Figures are kept in docs/measurements/data/overlap*.csv; those of other points stay. What they mean
and how the page shows them: overlap_page.py.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import overlap_page as page
from jobs import BUILD, ROOT, Host, library, select_hosts
from lab_runs import COMMAND, LabRuns, NoLab, nodes_and_ranks, up
from overlap_page import DATA, KERNEL_DATA, PROGRAM_DATA, WIRE_DATA, Row
from turns import Variant

SOURCES = ROOT / "bench" / "overlap"
KERNEL_SOURCES = [ROOT / "bench" / "kernels" / f"{name}.c" for name in ("ft", "is", "team")]
KERNEL_SOURCES.append(ROOT / "bench" / "p2p" / "probe.c")
HOSTS = "openmpi4,mpich4"
WHAT = ("bcast", "allgather", "alltoall", "alltoallv")
KIB = 1024
MICRO = {
    ("2x1", "1gbit"): [64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB],
    ("2x1", "100mbit"): [64 * KIB, 256 * KIB, 1024 * KIB],
    ("2x2", "1gbit"): [64 * KIB, 256 * KIB, 1024 * KIB],
    ("4x2", "1gbit"): [64 * KIB, 256 * KIB],
}
"""Sub-messages by layout (nodes x ranks on each) and rate of links."""
KERNELS = [("2x1", "1gbit"), ("2x1", "4gbit"), ("2x2", "1gbit"), ("2x1", ""), ("1x2", "")]
PROGRAMS = [("2x1", "1gbit"), ("2x2", "1gbit"), ("2x1", ""), ("1x2", "")]
MODES = ("off", "on", "auto")
TURNS = 3
SECONDS = 170
POTENTIAL = Path("/usr/share/doc/quantum-espresso/examples/EPW/sic/pp/Si.pz-vbc.UPF.gz")
"""From Debian's package quantum-espresso-data."""
WIRE_BYTES = {"100mbit": 8 << 20, "1gbit": 64 << 20, "4gbit": 256 << 20}


def build(host: Host, name: str, flags: list[str]) -> Path:
    """Compile a program of bench/overlap for a host."""
    target = BUILD / "bench" / host.name / f"overlap_{name}"
    target.parent.mkdir(parents=True, exist_ok=True)
    source = SOURCES / f"{name}.c"
    command = [*host.mpicc, "-std=gnu11", "-O2", str(source), "-o", str(target), *flags]
    subprocess.run(command, env=host.environment(), check=True, capture_output=True)
    return target


def start(
    cluster: LabRuns, host: Host, words: list[str], ranks: int, settings: dict[str, str]
) -> str:
    """Run a job and return its output; empty when it failed, which is said."""
    chosen = {"OVERDRIVE_LEARN": "off", **settings}
    lib = None if settings.get("OVERDRIVE_OVERLAP") == "host" else library()
    if lib is None:
        chosen = {}
    variant = Variant(settings["OVERDRIVE_OVERLAP"], host, Path(words[0]), lib, chosen)
    job = cluster.start(variant, ranks, words, SECONDS, 0, None)
    if not job.ok:
        print(f"overlap: {' '.join(words)}: {job.problem('too slow')}", file=sys.stderr)
        return ""
    return job.stdout


def measure_micro(
    host: Host, layout: str, rate: str, sizes: list[int], whats: list[str], hosts_own: bool
) -> list[Row]:
    """Run the collectives in all modes over one cluster."""
    nodes, per_node = nodes_and_ranks(layout)
    program = build(host, "hidden", [])
    found: list[Row] = []
    words = [str(program), "--what=" + ",".join(whats)]
    words.append("--bytes=" + ",".join(str(size) for size in sizes))
    blocking: list[str] = []
    with up(nodes, per_node, rate) as cluster:
        for overlap in ("off", "on", *(["host"] if hosts_own else [])):
            timed = [*words, "--comm-ms=" + ",".join(blocking)] if blocking else words
            settings = {"OVERDRIVE_OVERLAP": overlap, "OVERDRIVE_OVERLAP_TRACE": "off"}
            output = start(cluster, host, timed, nodes * per_node, settings)
            for line in output.splitlines():
                fields = line.split(",")
                if len(fields) != 7 or fields[2] == "warm":
                    continue
                values = [host.name, layout, rate, *fields[:2], overlap, *fields[2:]]
                found.append(dict(zip(page.COLUMNS, values)))
                if fields[2] == "none" and overlap == "off":
                    blocking.append(fields[6])
    return found


def in_turns(
    host: Host, words: list[str], nodes: int, per_node: int, rate: str
) -> Iterator[tuple[str, str, str, str]]:
    """Run a program in all modes, in turns; yield the mode and the three words of each line."""
    with up(nodes, per_node, rate) as cluster:
        for _ in range(TURNS):
            for mode in MODES:
                settings = {"OVERDRIVE_OVERLAP": mode, "OVERDRIVE_OVERLAP_TRACE": "off"}
                output = start(cluster, host, words, nodes * per_node, settings)
                lines = espresso_line(output) if "pw.x" in words else output.splitlines()
                for line in lines:
                    name, milliseconds, third = line.split()
                    yield mode, name, milliseconds, third


def measure_kernels(host: Host, layout: str, rate: str) -> list[Row]:
    """Run FT and IS in all modes, in turns; medians of the jobs of each mode."""
    nodes, per_node = nodes_and_ranks(layout)
    program = build(host, "kernels", [*map(str, KERNEL_SOURCES), "-lm"])
    times: dict[tuple[str, str], list[float]] = {}
    shares: dict[tuple[str, str], list[float]] = {}
    for mode, name, milliseconds, share in in_turns(host, [str(program)], nodes, per_node, rate):
        times.setdefault((name, mode), []).append(float(milliseconds))
        shares.setdefault((name, mode), []).append(float(share))
    found = []
    for (name, mode), values in times.items():
        share = f"{median(shares[name, mode]):.3f}"
        row = [host.name, layout, rate or "unlimited", name, mode, f"{median(values):.3f}", share]
        found.append(dict(zip(page.KERNEL_COLUMNS, row)))
    return found


def programs(host: Host) -> Iterator[list[str]]:
    """Yield the commands of what is there."""
    if words := transforms(host):
        yield words
    path = f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
    python = ["env", path, host.python or "python3"]
    query = subprocess.run(
        [*python, "-c", "import mpi4py_fft"], capture_output=True, text=True, check=False
    )
    if query.returncode == 0:
        yield [*python, str(SOURCES / "transforms.py")]
    else:
        text = query.stderr.strip().splitlines() or [""]
        print(f"overlap: no mpi4py-fft over {host.name}: {text[-1]}", file=sys.stderr)
    if words := espresso(host):
        yield words


def transforms(host: Host) -> list[str]:
    """Return the command of transforms by the distribution's FFTW, which is made for Open MPI."""
    why = ""
    if host.name.startswith("openmpi"):
        try:
            return [str(build(host, "transforms", ["-lfftw3_mpi", "-lfftw3", "-lm"]))]
        except subprocess.CalledProcessError as error:
            why = (error.stderr.decode().strip().splitlines() or [""])[-1]
    print(f"overlap: no FFTW over {host.name}: {why or 'it is made for Open MPI'}", file=sys.stderr)
    return []


def espresso(host: Host) -> list[str]:
    """Return the command of Debian's Quantum ESPRESSO, which exists over Open MPI only."""
    if host.name != "openmpi4" or shutil.which("pw.x") is None or not POTENTIAL.exists():
        print(f"overlap: no Quantum ESPRESSO over {host.name}", file=sys.stderr)
        return []
    folder = BUILD / "bench" / host.name / "espresso"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Si.pz-vbc.UPF").write_bytes(gzip.decompress(POTENTIAL.read_bytes()))
    shutil.copy(ROOT / "bench" / "programs" / "silicon.pw", folder)
    variables = [f"ESPRESSO_{name}={folder}" for name in ("PSEUDO", "TMPDIR")]
    return ["env", *variables, "OMP_NUM_THREADS=1", "pw.x", "-in", str(folder / "silicon.pw")]


def espresso_line(output: str) -> list[str]:
    """Return a line like those of the other programs from what pw.x says: time and energy."""
    energy = re.search(r"^!\s+total energy\s+=\s+(\S+) Ry", output, re.MULTILINE)
    wall = re.search(r"PWSCF\s+:.*CPU\s+(?:(\d+)m\s*)?([\d.]+)s WALL", output)
    if energy is None or wall is None:
        return []
    seconds = 60 * int(wall[1] or 0) + float(wall[2])
    return [f"pw.x-silicon {1e3 * seconds:.0f} {energy[1]}"]


def measure_programs(host: Host, layout: str, rate: str) -> list[Row]:
    """Run programs from packages in all modes, in turns; results have to be equal."""
    nodes, per_node = nodes_and_ranks(layout)
    times: dict[tuple[str, str], list[float]] = {}
    results: dict[str, set[str]] = {}
    for words in programs(host):
        for mode, name, milliseconds, result in in_turns(host, words, nodes, per_node, rate):
            times.setdefault((name, mode), []).append(float(milliseconds))
            results.setdefault(name, set()).add(result)
    found = []
    for (name, mode), values in times.items():
        equal = "yes" if len(results[name]) == 1 else "no"
        row = [host.name, layout, rate or "unlimited", name, mode, f"{median(values):.3f}", equal]
        found.append(dict(zip(page.PROGRAM_COLUMNS, row)))
    return found


def measure_wire(rate: str) -> list[Row]:
    """See how idle the cores are while sockets that sleep keep a link busy."""
    if rate not in WIRE_BYTES:
        return []
    script = [sys.executable, str(SOURCES / "wire.py")]
    with up(2, 1, rate) as cluster:
        inside = [*COMMAND, "exec", "--name", cluster.name]
        words = [*inside, "0", "hostname", "-I"]
        address = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        server = subprocess.Popen([*inside, "0", *script, "serve"])
        words = [*inside, "1", *script, "send", address[0], str(WIRE_BYTES[rate])]
        sent = subprocess.run(words, capture_output=True, text=True, check=False)
        server.wait(20)
    if sent.returncode != 0:
        print(f"overlap: {sent.stderr.strip()}", file=sys.stderr)
        return []
    return [dict(zip(page.WIRE_COLUMNS, [rate, *sent.stdout.split()]))]


def read(path: Path) -> list[Row]:
    """Return the figures so far."""
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def keep(path: Path, columns: list[str], point: int, new: list[Row]) -> None:
    """Put new figures in the place of those of the same points."""
    keys = {tuple(one[name] for name in columns[:point]) for one in new}
    kept = [one for one in read(path) if tuple(one[name] for name in columns[:point]) not in keys]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *new])


def measure(chosen: argparse.Namespace, host: Host) -> None:
    """Measure what was asked for over a host."""

    def wanted(layout: str, rate: str) -> bool:
        return (chosen.layout in (None, layout)) and (chosen.rate in (None, rate))

    if chosen.part in ("all", "micro"):
        for (layout, rate), usual in MICRO.items():
            if not wanted(layout, rate):
                continue
            sizes = [int(size) for size in chosen.sizes.split(",")] if chosen.sizes else usual
            whats = chosen.what.split(",")
            rows = measure_micro(host, layout, rate, sizes, whats, chosen.plain)
            keep(DATA, page.COLUMNS, 5, rows)
    if chosen.part in ("all", "kernels"):
        for layout, rate in KERNELS:
            if wanted(layout, rate):
                rows = measure_kernels(host, layout, rate)
                keep(KERNEL_DATA, page.KERNEL_COLUMNS, 4, rows)
    if chosen.part in ("all", "programs"):
        for layout, rate in PROGRAMS:
            if wanted(layout, rate):
                keep(PROGRAM_DATA, page.PROGRAM_COLUMNS, 4, measure_programs(host, layout, rate))


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="all", choices=["all", "micro", "kernels", "programs",
                                                          "wire"])  # fmt: skip
    parser.add_argument("--host", default=HOSTS, help="comma-separated names")
    parser.add_argument("--layout", help="nodes x ranks on each; all")
    parser.add_argument("--rate", help="of the links; all")
    parser.add_argument("--sizes", help="bytes of sub-messages")
    parser.add_argument("--what", default=",".join(WHAT))
    parser.add_argument("--plain", action="store_true", help="without Overdrive as well")
    parser.add_argument("--evaluate", action="store_true")
    chosen = parser.parse_args()
    if not chosen.evaluate:
        hosts, missing = select_hosts(chosen.host)
        for name, why in missing.items():
            print(f"overlap: without {name}: {why}", file=sys.stderr)
        try:
            if chosen.part in ("all", "wire"):
                for rate in WIRE_BYTES:
                    keep(WIRE_DATA, page.WIRE_COLUMNS, 1, measure_wire(rate))
            for host in hosts if chosen.part != "wire" else []:
                measure(chosen, host)
        except NoLab as reason:
            print(f"overlap: no virtual cluster: {reason}", file=sys.stderr)
            return 1
    text = page.page(read(DATA), read(KERNEL_DATA), read(PROGRAM_DATA), read(WIRE_DATA))
    page.PAGE.write_text(text)
    page.DETAILS.write_text(page.details(read(DATA)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs real, unmodified MPI programs of the distribution with and without Overdrive.

`run(program, host, overdrive)` returns the program's own figures and a text that must be the same
in every run. Programs built for Open MPI 4.1 also run over 5.0, whose library has the same name.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jobs import ROOT, Host, host_table, library, run_mpi

INPUTS = ROOT / "bench" / "programs"
SECONDS = 180
NETPIPE_LARGEST = 1 << 20
NETPIPE_PARTS = {"short.out": (1, 3072, 500), "long.out": (4096, NETPIPE_LARGEST, 30)}
"""Output file -> sizes from, to, repetitions per size and trial; NetPIPE's own choice depends on a
first guess that noise spoils."""


AT_NICENESS = 'echo "$0" 2>/dev/null >/proc/self/autogroup; exec "$@"'
"""With the kernel's autogroups niceness counts within a session only, and a launcher may give each
rank a session of its own: this shell line makes it count between sessions."""


@dataclass
class Metric:
    """One figure that a program reports about itself."""

    value: float
    unit: str
    higher_is_better: bool


@dataclass
class Result:
    """One run. `comparable` is empty if it failed; `problem` says why. `foreign_cores` is how many
    cores other processes used meanwhile: above about 0.3 the figures mean little."""

    program: str
    host: str
    overdrive: bool
    ok: bool
    seconds: float
    comparable: str = ""
    problem: str = ""
    metrics: dict[str, Metric] = field(default_factory=dict)
    foreign_cores: float = 0.0
    waited: float = 0.0
    """The largest share of its time for which a process waited for a core."""


@dataclass(frozen=True)
class Program:
    """A program of the distribution and how its output is read."""

    title: str
    binaries: dict[str, str]
    """Name of a host -> executable."""
    package: str
    steps: Callable[[str, Path], list[list[str]]]
    """Commands (after the launcher) to be run one after the other in a folder of their own."""
    read: Callable[[list[str], Path], tuple[str, dict[str, Metric]]]
    """From the outputs of the steps and the folder: comparable text and figures."""

    def binary(self, host: Host) -> str | None:
        """Return the executable for a host, if there is one."""
        name = self.binaries.get(host.name)
        return shutil.which(name) if name else None


def _netpipe_steps(binary: str, folder: Path) -> list[list[str]]:
    common = [binary, "-p", "0"]
    check = ["-i", "-n", "3", "-u", str(NETPIPE_LARGEST), "-o", str(folder / "check.out")]
    steps = [[*common, *check]]
    for name, (low, high, repeats) in NETPIPE_PARTS.items():
        sizes = ["-l", str(low), "-u", str(high), "-n", str(repeats)]
        steps.append([*common, *sizes, "-o", str(folder / name)])
    return steps


def _read_netpipe(outputs: list[str], folder: Path) -> tuple[str, dict[str, Metric]]:
    # The first step checks each size; what it prints but the number of repetitions is the result.
    checks = re.findall(r"(\d+) bytes.*-->\s*(.*)", outputs[0])
    comparable = "\n".join(f"{size} bytes: {verdict.strip()}" for size, verdict in checks)
    metrics = {}
    lines = [line for name in NETPIPE_PARTS for line in (folder / name).read_text().splitlines()]
    for line in lines:
        size, _, seconds = line.split()
        metrics[f"{size} B one way"] = Metric(float(seconds) * 1e6, "us", False)
    return comparable, metrics


def _lammps_steps(binary: str, folder: Path) -> list[list[str]]:
    source = str(INPUTS / "lennard_jones.lammps")
    return [[binary, "-in", source, "-log", str(folder / "log.lammps")]]


def _read_lammps(outputs: list[str], _folder: Path) -> tuple[str, dict[str, Metric]]:
    text = outputs[0]
    table = re.search(r"^Step .*?\n(.*?)^Loop time", text, re.MULTILINE | re.DOTALL)
    comparable = table.group(1).strip() if table else ""
    metrics = {}
    for name, pattern, unit, higher in (
        ("speed", r"([\d.]+) timesteps/s", "steps/s", True),
        ("loop time", r"^Loop time of ([\d.]+)", "s", False),
        ("communication", r"^Comm\s*\|\s*[\d.e+-]+\s*\|\s*([\d.e+-]+)", "s", False),
    ):
        found = re.search(pattern, text, re.MULTILINE)
        if found:
            metrics[name] = Metric(float(found.group(1)), unit, higher)
    return comparable, metrics


HPCC_FIGURES: dict[str, tuple[str, float, str, bool]] = {
    "HPL_Tflops": ("Linpack", 1e3, "Gflop/s", True),
    "PTRANS_GBs": ("matrix transpose", 1.0, "GB/s", True),
    "MPIRandomAccess_GUPs": ("random access", 1e3, "Mupdates/s", True),
    "MPIFFT_Gflops": ("FFT", 1.0, "Gflop/s", True),
    "AvgPingPongLatency_usec": ("ping-pong 8 B", 1.0, "us", False),
    "AvgPingPongBandwidth_GBytes": ("ping-pong 2 MB", 1.0, "GB/s", True),
    "NaturallyOrderedRingLatency_usec": ("ring 8 B", 1.0, "us", False),
    "NaturallyOrderedRingBandwidth_GBytes": ("ring 2 MB", 1.0, "GB/s", True),
}


def _hpcc_steps(binary: str, folder: Path) -> list[list[str]]:
    shutil.copy(INPUTS / "hpccinf.txt", folder)
    return [[binary]]


def _read_hpcc(_outputs: list[str], folder: Path) -> tuple[str, dict[str, Metric]]:
    text = (folder / "hpccoutf.txt").read_text()
    # Timings are in the same lines as the verdicts: keep what was computed and the verdict.
    transposes = re.findall(r"^WALL\s+(\d+)\s+(\d+)\s.*?(PASSED|FAILED)", text, re.MULTILINE)
    verdicts = [
        f"transpose of {rows}x{columns}: {verdict}" for rows, columns, verdict in transposes
    ]
    verdicts += [f"Linpack: {v}" for v in re.findall(r"\|\|Ax-b\|\|.*(PASSED|FAILED)", text)]
    verdicts += re.findall(r"^Found \d+ errors in \d+ locations \(\w+\)", text, re.MULTILINE)
    verdicts += re.findall(r"^Success=\d+", text, re.MULTILINE)
    metrics = {}
    for key, (name, scale, unit, higher) in HPCC_FIGURES.items():
        found = re.search(rf"^{key}=(\S+)", text, re.MULTILINE)
        if found:
            metrics[name] = Metric(float(found.group(1)) * scale, unit, higher)
    return "\n".join(verdicts), metrics


PROGRAMS: dict[str, Program] = {
    "netpipe": Program(
        "NetPIPE",
        {"openmpi4": "NPopenmpi", "openmpi5": "NPopenmpi", "mpich4": "NPmpich2"},
        "netpipe-openmpi, netpipe-mpich2",
        _netpipe_steps,
        _read_netpipe,
    ),
    "lammps": Program(
        "LAMMPS, Lennard-Jones liquid",
        {"openmpi4": "lmp", "openmpi5": "lmp"},
        "lammps",
        _lammps_steps,
        _read_lammps,
    ),
    "hpcc": Program(
        "HPC Challenge",
        {"openmpi4": "hpcc", "openmpi5": "hpcc"},
        "hpcc",
        _hpcc_steps,
        _read_hpcc,
    ),
}


def _as_host(host: Host | str) -> Host | None:
    return host_table.get(host) if isinstance(host, str) else host


def why_unavailable(program: str, host: Host | str) -> str | None:
    """Return why a program cannot run over a host here, or None if it can."""
    found = _as_host(host)
    if found is None:
        return f"{host} is not installed"
    entry = PROGRAMS[program]
    if found.name not in entry.binaries:
        return f"the distribution has no {entry.title} for {found.name}"
    if entry.binary(found) is None:
        return f"{entry.binaries[found.name]} is missing (packages: {entry.package})"
    return None


def run(
    program: str,
    host: Host | str,
    overdrive: bool,
    *,
    ranks: int = 2,
    lib: Path | None = None,
    settings: dict[str, str] | None = None,
    niceness: int = 0,
    seconds: float = SECONDS,
) -> Result:
    """Run a program once; `lib` is Overdrive's library (that of the release build by default)."""
    found = _as_host(host)
    name = found.name if found else str(host)
    problem = why_unavailable(program, host)
    if problem or found is None:
        return Result(program, name, overdrive, False, 0.0, problem=problem or "not installed")
    entry = PROGRAMS[program]
    binary = entry.binary(found)
    assert binary is not None
    variables = dict(settings or {})
    if found.name == "openmpi5":
        variables["LD_LIBRARY_PATH"] = str(Path(found.lib_path).parent)
    outputs = []
    total = 0.0
    foreign = waited = 0.0
    with tempfile.TemporaryDirectory(prefix="overdrive-programs-") as name_of_folder:
        folder = Path(name_of_folder)
        for step in entry.steps(binary, folder):
            preload = (lib or library()) if overdrive else None
            if niceness != 0:
                step = ["/bin/sh", "-c", AT_NICENESS, str(niceness), *step]
            job = run_mpi(
                found, ranks, step, seconds, preload, variables, niceness, folder, watched=True
            )
            outputs.append(job.stdout + job.stderr)
            total += job.seconds
            foreign = max(foreign, job.foreign_cores)
            waited = max(waited, job.waited)
            if not job.ok:
                what = "time limit" if job.timed_out else f"status {job.status}"
                tail = "\n".join(outputs[-1].strip().splitlines()[-12:])
                return Result(program, name, overdrive, False, total, problem=f"{what}: {tail}")
        try:
            comparable, metrics = entry.read(outputs, folder)
        except (OSError, ValueError) as error:
            return Result(program, name, overdrive, False, total, problem=f"no results: {error}")
    ok = bool(comparable) and not re.search(r"fail", comparable, re.IGNORECASE)
    problem = "" if ok else "the program's own check failed or is missing"
    return Result(
        program, name, overdrive, ok, total, comparable, problem, metrics, foreign, waited
    )


def differences(first: Result, second: Result) -> list[str]:
    """Return how the results of two runs differ; empty if they are equal and both are good."""
    found = [
        f"{result.program} over {result.host}"
        f"{' with Overdrive' if result.overdrive else ''}: {result.problem}"
        for result in (first, second)
        if not result.ok
    ]
    if found:
        return found
    ours, theirs = first.comparable.splitlines(), second.comparable.splitlines()
    if len(ours) != len(theirs):
        found.append(f"{len(ours)} lines against {len(theirs)}")
    for number, (a, b) in enumerate(zip(ours, theirs), 1):
        if a != b:
            found.append(f"line {number}: {a!r} against {b!r}")
    return found

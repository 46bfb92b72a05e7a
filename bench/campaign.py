"""What is measured and in which order: the programs, the list of jobs, one round of A B runs.

A *variant* is a host with or without Overdrive, or with one of its settings for more ranks than
cores. Within a round the variants of one host follow each other directly, and each round turns
their order round.
"""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

from jobs import BUILD, P2P, ROOT, Failures, Host, compiling, is_current, run_mpi

SOURCES = P2P
SHARED_SOURCES = [SOURCES / name for name in ("harness.c", "probe.c", "turns.c")]
"""What the programs of other folders take from those of point-to-point."""
KERNELS = ROOT / "bench" / "kernels"
PROGRAMS = BUILD / "bench"
LATENCY_SIZES = "0,1,8,64,256,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M"
STREAM_SIZES = "1,8,64,256,1K,4K,8K,16K,64K,256K,1M,4M"
KIND_SIZES = "8,256,1K,8K,32K,128K,512K,2M"
RANKS_SIZES = "8,1K,8K,64K,256K,1M"
OPTIMISATION = ["-O3", "-g"]
WARNINGS = ["-Wall", "-Wextra"]

PLAIN = "plain"
OVERDRIVE = "overdrive"

MAIN_HOSTS = ["openmpi4", "openmpi5", "mpich4", "mpich5"]
INTEL = "impi"
FIVE = [*MAIN_HOSTS, INTEL]


@dataclass(frozen=True)
class Sample:
    """One line of a benchmark program together with the circumstances of the run."""

    host: str
    variant: str
    round: int
    test: str
    shape: str
    mode: str
    kind: str
    size_bytes: int
    ranks: int
    value: float
    unit: str
    probe_before_ns: float
    probe_after_ns: float
    waited: float
    foreign_cores: float


@dataclass(frozen=True)
class Topic:
    """One run of a benchmark program: its arguments, ranks and time limit."""

    name: str
    ranks: int
    arguments: tuple[str, ...]
    seconds: float
    program: str = "od_p2p"
    repeats: int = 1
    """How often all variants are run in a round, for what a run yields only one sample of."""


OVERSUBSCRIBED = ("--tests", "latency,ring,halo", "--sizes", RANKS_SIZES, "--sample-ms", "15")

TOPICS = [
    Topic(
        "latency",
        2,
        ("--tests", "raw,latency", "--shapes", "usual,alternating,app")
        + ("--modes", "blocking,nonblocking", "--sizes", LATENCY_SIZES, "--reps", "3"),
        120,
    ),
    Topic("stream", 2, ("--tests", "bw,bibw,rate", "--sizes", STREAM_SIZES, "--reps", "3"), 120),
    Topic(
        "kinds",
        2,
        ("--tests", "latency", "--shapes", "usual,app", "--sizes", KIND_SIZES, "--reps", "3")
        + ("--kinds", "heap,stack,static,common,allocatable,vector,vector_contig,column"),
        120,
    ),
    Topic("numpy", 2, ("--sizes", KIND_SIZES, "--reps", "3"), 60, "numpy_p2p"),
    Topic("cost", 2, ("--tests", "memory,cost", "--reps", "3"), 60),
    Topic("init", 2, ("--tests", "init", "--reps", "1"), 60, repeats=4),
    Topic("ranks4", 4, (*OVERSUBSCRIBED, "--reps", "2"), 90),
    Topic("ranks8", 8, (*OVERSUBSCRIBED, "--reps", "1"), 150),
]

YIELD_SETTINGS: dict[str, dict[str, dict[str, str]]] = {
    "openmpi4": {"yield": {"OMPI_MCA_mpi_yield_when_idle": "1"}},
    "openmpi5": {
        "yield": {"OMPI_MCA_mpi_yield_when_idle": "1"},
        "no yield": {"OMPI_MCA_mpi_yield_when_idle": "0"},
    },
    "impi": {
        "thread yield 2": {"I_MPI_THREAD_YIELD": "2"},
        "wait mode": {"I_MPI_WAIT_MODE": "1"},
    },
}
"""Settings for more ranks than cores that change anything; MPICH has none."""


def parse_sizes(text: str) -> list[int]:
    """Read a list of sizes as the benchmark programs do."""
    shifts = {"K": 10, "M": 20}
    return [
        int(item[:-1]) << shifts[item[-1]] if item[-1] in shifts else int(item)
        for item in text.split(",")
    ]


@dataclass
class Programs:
    """The compiled benchmarks of one host; `problem` says why there are none."""

    od_p2p: Path | None = None
    probe: Path | None = None
    od_kernels: Path | None = None
    problem: str = ""
    notes: list[str] = field(default_factory=list)


def compile_program(command: list[str], host: Host, cwd: Path) -> str:
    """Run a compiler of the host; return what went wrong, or nothing."""
    result = subprocess.run(
        command, env=host.environment(), cwd=cwd, capture_output=True, text=True, check=False
    )
    return "" if result.returncode == 0 else f"{' '.join(command)}\n{result.stdout}{result.stderr}"


def c_flags(host: Host) -> list[str]:
    """Return the options with which C is compiled for a host."""
    return [*OPTIMISATION, *WARNINGS, "-std=gnu11", *(f"-D{name}" for name in host.defines)]


def build_programs(host: Host) -> Programs:
    """Compile the benchmarks for a host unless what is there is newer than the sources."""
    folder = PROGRAMS / host.name
    with compiling(folder):
        return _build_programs(host, folder)


def _build_programs(host: Host, folder: Path) -> Programs:
    binary, probe, kernels = folder / "od_p2p", folder / "libod_probe.so", folder / "od_kernels"
    sources = sorted(SOURCES.glob("*.c"))
    everything = [*SOURCES.iterdir(), *KERNELS.iterdir()]
    files = [path for path in everything if path.is_file()]
    programs = Programs(binary, probe, kernels)
    if all(is_current(path, files) for path in (binary, probe, kernels)):
        return programs
    flags = c_flags(host)
    problem = compile_program(
        [*host.mpicc, *flags, "-shared", "-fPIC", str(SOURCES / "probe.c"), "-o", str(probe)],
        host,
        folder,
    )
    fortran_problem = ""
    if not problem and host.mpifort is not None:
        fortran_problem = _build_with_fortran(host, folder, flags, sources, binary)
        if fortran_problem:
            programs.notes.append(f"{host.name}: no Fortran buffers: {fortran_problem}")
    if not problem and (host.mpifort is None or fortran_problem):
        names = [str(path) for path in sources]
        problem = compile_program([*host.mpicc, *flags, *names, "-o", str(binary)], host, folder)
    if not problem:
        names = [str(path) for path in (*sorted(KERNELS.glob("*.c")), *SHARED_SOURCES)]
        problem = compile_program(
            [*host.mpicc, *flags, *names, "-lm", "-o", str(kernels)], host, folder
        )
    programs.problem = problem
    return programs


def _build_with_fortran(
    host: Host, folder: Path, flags: list[str], sources: list[Path], binary: Path
) -> str:
    assert host.mpifort is not None
    names = [str(path) for path in sources]
    objects = [f"{path.stem}.o" for path in sources]
    fortran = str(SOURCES / "fortran_buffers.f90")
    return (
        compile_program([*host.mpicc, *flags, "-DOD_BENCH_FORTRAN", "-c", *names], host, folder)
        or compile_program([*host.mpifort, *OPTIMISATION, "-c", fortran], host, folder)
        or compile_program(
            [*host.mpifort, *objects, "fortran_buffers.o", "-o", str(binary)], host, folder
        )
    )


def parse(stdout: str, host: str, variant: str, number: int) -> list[Sample]:
    """Read the lines of a benchmark program."""
    samples = []
    for line in stdout.splitlines():
        parts = line.split(",")
        if len(parts) != len(fields(Sample)) - 3:
            continue
        test, shape, mode, kind, size, ranks, value, unit, before, after, waited, foreign = parts
        samples.append(
            Sample(
                host=host,
                variant=variant,
                round=number,
                test=test,
                shape=shape,
                mode=mode,
                kind=kind,
                size_bytes=int(size),
                ranks=int(ranks),
                value=float(value),
                unit=unit,
                probe_before_ns=float(before),
                probe_after_ns=float(after),
                waited=float(waited),
                foreign_cores=float(foreign),
            )
        )
    return samples


@dataclass
class Campaign:
    """All that is to be measured; `run_round` yields the samples of one pass over it."""

    hosts: list[Host]
    programs: dict[str, Programs]
    topics: list[Topic]
    lib: Path | None
    niceness: int = 0
    failures: Failures = field(default_factory=Failures)

    def _variants(self, host: Host, topic: Topic) -> list[tuple[str, Path | None, dict[str, str]]]:
        variants: list[tuple[str, Path | None, dict[str, str]]] = [(PLAIN, None, {})]
        if topic.ranks > 2:
            for name, settings in YIELD_SETTINGS.get(host.name, {}).items():
                variants.append((name, None, settings))
        if self.lib is not None:
            variants.append((OVERDRIVE, self.lib, {}))
        return variants

    def _command(self, host: Host, topic: Topic) -> list[str] | None:
        programs = self.programs[host.name]
        if topic.program == "od_p2p":
            return [str(programs.od_p2p), *topic.arguments]
        if host.python is None:
            return None
        script = str(SOURCES / "numpy_p2p.py")
        return [host.python, script, "--library", str(programs.probe), *topic.arguments]

    def run_round(self, number: int) -> Iterator[list[Sample]]:
        """Run every topic over every host in every variant once."""
        for topic in self.topics:
            for host in self.hosts:
                command = self._command(host, topic)
                if command is None:
                    continue
                variants = self._variants(host, topic)
                ordered = variants if number % 2 == 0 else variants[::-1]
                for variant, lib, settings in ordered * topic.repeats:
                    result = run_mpi(
                        host, topic.ranks, command, topic.seconds, lib, settings, self.niceness
                    )
                    if not result.ok:
                        where = f"round {number}, {topic.name}, {host.name}, {variant}"
                        self.failures.add(f"{where}: {result.problem('time limit')}")
                    yield parse(result.stdout, host.name, variant, number)


def save(samples: list[Sample], path: Path, append: bool) -> None:
    """Write samples as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = not append or not path.exists()
    with path.open("a" if append else "w", newline="") as file:
        writer = csv.writer(file)
        if header:
            writer.writerow([f.name for f in fields(Sample)])
        for sample in samples:
            writer.writerow([getattr(sample, f.name) for f in fields(Sample)])


def load(path: Path) -> list[Sample]:
    """Read what `save` wrote."""
    converters = {"int": int, "float": float, "str": str}
    types = {f.name: converters[str(f.type)] for f in fields(Sample)}
    with path.open(newline="") as file:
        return [
            Sample(**{name: types[name](text) for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def next_round(samples: Iterable[Sample]) -> int:
    """Return the number of the round after those of the samples."""
    return 1 + max((sample.round for sample in samples), default=-1)


def samples_file(part: str, folder: Path) -> Path:
    """Return the file of the raw samples of a part of a page."""
    return folder / f"{part}.csv"


def load_part(part: str, folder: Path) -> list[Sample]:
    """Return the raw samples of a part, none if it has not been measured."""
    path = samples_file(part, folder)
    return load(path) if path.exists() else []


def repeat_for(seconds: float, name: str, step: Callable[[float], None]) -> None:
    """Repeat a step, at least once, until less than half of one more would fit into the time.

    The step is given the seconds that are left.
    """
    end = time.monotonic() + seconds
    while True:
        started = time.monotonic()
        step(end - started)
        now = time.monotonic()
        print(f"bench: {name}: {max(end - now, 0):.0f} s left", flush=True)
        if end - now < (now - started) / 2:
            return

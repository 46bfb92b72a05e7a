"""What the page on collectives measures: parts, their jobs, and one group of jobs after the other.

A group is a set of jobs that take turns (turns.py) and are compared with each other: one host with
and without Overdrive and, as a reference, Intel MPI alone. The group with the fewest rounds so far
comes next, so many short runs with `--add` add up to a balanced whole. Each part keeps its raw
samples in a file of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import lab_runs
from analysis import regime_of
from campaign import (
    FIVE,
    INTEL,
    OVERDRIVE,
    PLAIN,
    PROGRAMS,
    SHARED_SOURCES,
    SOURCES,
    YIELD_SETTINGS,
    Sample,
    c_flags,
    compile_program,
    load_part,
    next_round,
    repeat_for,
    samples_file,
    save,
)
from jobs import (
    BUILD,
    ROOT,
    Failures,
    Host,
    build_regime_probe,
    compiling,
    exchange_ns,
    is_current,
)
from turns import Variant, run_together, start_here

COLL = ROOT / "bench" / "coll"
CALLS = (COLL / "calls.c", COLL / "results.c")
"""What other programs need to make its calls."""
JUDGED = ["bcast", "reduce", "allreduce", "allgather", "alltoall", "reduce_scatter", "barrier"]
OTHERS = [
    "reduce_scatter_block", "gather", "scatter", "scan", "exscan", "allgatherv", "alltoallv",
    "alltoallw", "gatherv", "scatterv",
]  # fmt: skip
LAB_JUDGED = ["bcast", "allgather", "reduce", "allreduce"]
REDUCTIONS = ["reduce", "allreduce"]
SIZES = "8,64,512,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M"
FEW_SIZES = "8,1K,8K,64K,256K,1M"
DRIVER_SIZES = "64K,128K,256K,512K,1M,2M,4M,8M,16M,32M,64M"
DRIVERS = ["generic", "segmented"]
PIPELINE_ALGORITHM = "ring"
PIPELINES = {"uncut": "1G", "segments": "512K"}
PIPELINE_SIZES = "1M,4M,16M"
LAB_NODES, LAB_RANKS = 4, 8
GROUP_SECONDS = 30
LEAST_SECONDS = 5
PAUSE_SECONDS = 8
"""What a group of jobs takes beside its measuring time, roughly: starting and calibrating."""
APP, WORK, NET = "app", "work", "net"
NET_FLOOR = 0.02
"""A call that seems to cost less than this share of its cycle costs too little to be measured."""


@dataclass(frozen=True)
class Group:
    """Jobs that take turns over one host."""

    host: str
    name: str
    arguments: tuple[str, ...]
    drivers: bool = False


@dataclass(frozen=True)
class Part:
    """A chapter of the page; `share` is its share of the time."""

    name: str
    title: str
    share: float
    ranks: int
    tests: tuple[tuple[str, ...], ...]
    """The collectives, in groups that are measured together."""
    sizes: str
    shapes: str = "usual,app"
    sample_ms: float = 3
    hosts: tuple[str, ...] = tuple(FIVE)
    rate: str = ""
    """Where the ranks are in a lab: the rate of its links."""
    drivers: bool = False
    settings: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    """Settings of Overdrive that are compared with each other, by name, and nothing else."""

    def groups(self) -> list[Group]:
        """Return the groups in the order in which they are measured."""
        found = []
        for tests in self.tests:
            for host in self.hosts:
                arguments = ("--tests", ",".join(tests), "--shapes", self.shapes)
                arguments += ("--sizes", self.sizes, "--sample-ms", f"{self.sample_ms:g}")
                found.append(Group(host, tests[0], arguments, self.drivers))
        return found


PARTS = [
    Part("pair", "One node, 2 ranks on 2 cores", 0.34, 2, (tuple(JUDGED),), SIZES),
    Part(
        "others", "One node, 2 ranks, the other collectives", 0.06, 2, (tuple(OTHERS),), FEW_SIZES
    ),
    Part(
        "eight",
        "One node, 8 ranks on 2 cores",
        0.24,
        8,
        (("bcast", "reduce", "allreduce", "barrier"), ("allgather", "alltoall", "reduce_scatter")),
        FEW_SIZES,
        sample_ms=15,
    ),
    *(
        Part(
            name,
            f"Lab, {LAB_NODES} nodes of 2 ranks, {title}",
            0.13,
            LAB_RANKS,
            (tuple(LAB_JUDGED),),
            FEW_SIZES,
            sample_ms=15,
            rate=rate,
        )
        for name, rate, title in (
            ("lab", "off", "links without a limit"),
            ("lab-1gbit", "1gbit", "links of 1 Gbit/s"),
        )
    ),
    Part(
        "drivers",
        "The segmented driver against the generic one",
        0.05,
        2,
        (tuple(REDUCTIONS),),
        DRIVER_SIZES,
        sample_ms=10,
        hosts=("openmpi4",),
        drivers=True,
    ),
    Part(
        "pipeline",
        f"Lab, {LAB_NODES} nodes of 2 ranks, links of 1 Gbit/s, segments in flight",
        0.03,
        LAB_RANKS,
        (("allreduce",),),
        PIPELINE_SIZES,
        shapes="usual",
        sample_ms=100,
        hosts=("openmpi4",),
        rate="1gbit",
        settings=tuple(
            (
                name,
                (
                    ("OVERDRIVE_ADJUST_ALLREDUCE", PIPELINE_ALGORITHM),
                    ("OVERDRIVE_ADJUST_ALLREDUCE_PIPELINE", size),
                ),
            )
            for name, size in PIPELINES.items()
        ),
    ),
    Part(
        "cost",
        "What collectives cost beside moving data",
        0.05,
        2,
        (("first", "communicators"),),
        "8",
        shapes="usual",
    ),
]


def build(host: Host) -> tuple[Path, str]:
    """Compile od_coll for a host unless it is newer than the sources; return it and problems."""
    folder = PROGRAMS / host.name
    binary = folder / "od_coll"
    sources = [*sorted(COLL.glob("*.c")), *SHARED_SOURCES]
    with compiling(folder):
        if is_current(binary, [*sources, *COLL.glob("*.h"), *SOURCES.glob("*.h")]):
            return binary, ""
        names = [str(path) for path in sources]
        command = [*host.mpicc, *c_flags(host), *names, "-lm", "-o", str(binary)]
        return binary, compile_program(command, host, folder)


def build_selection(folder: Path = PROGRAMS) -> Path | None:
    """Compile what measures look-ups, from the release build; None where there is no such build."""
    names = ("liboverdrive_core.a", "liboverdrive_innetwork.a")
    archives = [BUILD / "release" / "archive" / name for name in names]
    source, binary = COLL / "od_select.cc", folder / "od_select"
    if not all(archive.exists() for archive in archives):
        return None
    if not is_current(binary, (source, *archives)):
        folder.mkdir(parents=True, exist_ok=True)
        # What the archives hold for link-time optimisation would be compiled again.
        command = ["c++", "-std=c++20", "-O2", "-fno-lto", f"-I{ROOT / 'src'}", str(source)]
        command += [str(archive) for archive in archives]
        done = subprocess.run(
            [*command, "-o", str(binary)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            print(f"bench: od_select not built: {done.stderr}", file=sys.stderr)
            return None
    return binary


def selection_samples(number: int) -> list[Sample]:
    """Measure look-ups once; no MPI takes part, so the host is a dash."""
    program, probe = build_selection(), build_regime_probe()
    if program is None or probe is None:
        return []
    before = exchange_ns(probe)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    after = exchange_ns(probe)
    lines = [line.split(",") for line in done.stdout.splitlines()]
    one = Sample(
        "-", OVERDRIVE, number, "select", "", "look-up", "-", 0, 1, 0.0, "ns", before, after, 0, 0
    )
    found = []
    for name, *times in lines:
        for mode, ns in zip(("look-up", "table", "schedule"), times, strict=True):
            found.append(replace(one, shape=name, mode=mode, value=float(ns)))
    return found


def with_net(samples: list[Sample]) -> list[Sample]:
    """Add, where rewritten buffers were measured, what is left without its work.

    The work is what the same job took in the same round for writing and reading without the call.
    """

    def key(sample: Sample) -> tuple[object, ...]:
        return sample.host, sample.variant, sample.round, sample.test, sample.size_bytes

    work = {key(s): s for s in samples if s.shape == WORK}
    found = list(samples)
    for sample in samples:
        other = work.get(key(sample))
        if sample.shape != APP or other is None or regime_of(sample) != regime_of(other):
            continue
        net = max(sample.value - other.value, NET_FLOOR * sample.value)
        found.append(replace(sample, shape=NET, value=net))
    return found


@dataclass
class CollCampaign:
    """Measures parts; `programs` maps hosts to executables."""

    hosts: dict[str, Host]
    programs: dict[str, Path]
    lib: Path | None
    folder: Path
    niceness: int = 0
    only_hosts: list[str] = field(default_factory=list)
    driver_variable: str = ""
    """What chooses the driver of reductions; empty where there is no choice."""
    failures: Failures = field(default_factory=Failures)

    def measure(self, part: Part, seconds: float) -> None:
        """Add samples to a part until the time is over; at least one group is run."""
        groups = [g for g in part.groups() if g.host in self.programs and self._is_wanted(g)]
        if self.lib is None and (part.drivers or part.settings):
            print(f"bench: {part.name}: is about Overdrive itself", file=sys.stderr)
            return
        if part.drivers and not self.driver_variable:
            print(f"bench: {part.name}: this build has no choice of drivers", file=sys.stderr)
            return
        if not groups:
            self.failures.add(f"{part.name}: no host")
            return
        each = min(GROUP_SECONDS, max(seconds / len(groups) - PAUSE_SECONDS, LEAST_SECONDS))
        with self._place(part) as lab:
            repeat_for(seconds, part.name, lambda _left: self._step(part, groups, each, lab))

    def _is_wanted(self, group: Group) -> bool:
        return not self.only_hosts or group.host in self.only_hosts

    @contextmanager
    def _place(self, part: Part) -> Iterator[lab_runs.LabRuns | None]:
        if not part.rate:
            yield None
            return
        with lab_runs.up(LAB_NODES, LAB_RANKS // LAB_NODES, part.rate) as lab:
            yield lab

    def _variants(self, part: Part, group: Group) -> list[Variant]:
        host, program = self.hosts[group.host], self.programs[group.host]
        if part.settings:
            return [
                Variant(name, host, program, self.lib, dict(settings))
                for name, settings in part.settings
            ]
        if group.drivers:
            return [
                Variant(driver, host, program, self.lib, {self.driver_variable: driver})
                for driver in DRIVERS
            ]
        found = [Variant(PLAIN, host, program)]
        if part.ranks > 2 and not part.rate:
            for name, settings in YIELD_SETTINGS.get(host.name, {}).items():
                found.append(Variant(name, host, program, None, settings))
        if self.lib is not None:
            found.append(Variant(OVERDRIVE, host, program, self.lib))
        reference = self.programs.get(INTEL)
        if part.name == "pair" and host.name != INTEL and reference is not None:
            found.append(Variant(PLAIN, self.hosts[INTEL], reference))
        return found

    def _step(
        self, part: Part, groups: list[Group], seconds: float, lab: lab_runs.LabRuns | None
    ) -> None:
        samples = load_part(part.name, self.folder)

        def rounds(group: Group) -> int:
            # Intel MPI alone is measured beside every host: only its own group counts for it.
            tests = group.arguments[1].split(",")
            return len(
                {
                    s.round
                    for s in samples
                    if s.host == group.host
                    and s.test in tests
                    and (s.host != INTEL or s.variant != PLAIN or self.lib is None)
                }
            )

        group = min(groups, key=rounds)
        first = next_round(samples)
        # Where the time is too short for all points, others are measured than the last time.
        arguments = [*group.arguments, "--order", str(first + 1)]
        if lab is not None:
            # Every node has a TMPDIR of its own; this folder is the same in all of them.
            arguments += ["--share", str(self.folder)]
        self.folder.mkdir(parents=True, exist_ok=True)
        found, problems = run_together(
            self._variants(part, group),
            arguments,
            part.ranks,
            seconds,
            first,
            self.niceness,
            start=lab.start if lab is not None else start_here,
            folder=self.folder,
        )
        if part.name == "cost" and self.lib is not None:
            found += selection_samples(first)
        save(found, samples_file(part.name, self.folder), append=True)
        for problem in problems:
            self.failures.add(f"{part.name}, {group.name}: {problem}")

"""What the page on copies measures: parts, their variants, and one group of jobs after the other.

Each part has groups: jobs that are compared with each other and take turns (turns.py), or programs
of the distribution that can only run one after the other. The group that has the fewest rounds so
far comes next, so that many short runs with `--add` add up to a balanced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign import (
    FIVE,
    MAIN_HOSTS,
    OVERDRIVE,
    PLAIN,
    Sample,
    load_part,
    next_round,
    repeat_for,
    samples_file,
    save,
)
from jobs import Failures, Host, build_regime_probe, exchange_ns
from real_programs import run as run_program
from real_programs import why_unavailable
from turns import Variant, run_together

PATHS = ["cells", "pull", "cooperative", "push", "kernel"]
"""What the setting `copy_path` can force."""
ENVELOPE_SIZES = "64,128,256,512,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M,8M"
HOST_SIZES = "8K,16K,32K,64K,128K,256K,512K,1M,2M"
SKEW_SIZES = "8K,16K,32K,64K,128K,256K,512K,1M"
COLLECTIVE_SIZES = {2: "8,1K,16K,128K,1M", 4: "8,16K,1M"}
"""By number of ranks. With more ranks than cores some hosts take milliseconds for a call."""
MAIN_HOST = "openmpi4"
PAUSE_SECONDS = 6
"""What a group of jobs takes beside its measuring time, roughly."""
GROUP_SECONDS = 30
PROGRAM_SECONDS = 60
MAX_PROGRAM_WAITED = 0.1
"""While a program starts and ends its ranks and the launcher share the cores: on an idle machine
they wait for 4 to 7 % of a run of a second."""
KERNEL_INPUTS = ["short", "long"]


@dataclass(frozen=True)
class Group:
    """Jobs that take turns."""

    name: str
    hosts: tuple[str, ...]
    arguments: tuple[str, ...]
    ranks: int = 2
    program: str = "od_p2p"
    paths: tuple[str, ...] = ()
    """Forced paths; without them the variants are each host with and without Overdrive."""
    with_plain: bool = True


@dataclass(frozen=True)
class Part:
    """A chapter of the page; `share` is its share of the time. No groups: whole programs."""

    name: str
    share: float
    groups: tuple[Group, ...] = ()
    programs: tuple[str, ...] = ()


PARTS = [
    Part(
        "envelope",
        0.25,
        (
            Group(
                "paths",
                (MAIN_HOST,),
                ("--tests", "latency,memcpy", "--shapes", "usual,app", "--sizes", ENVELOPE_SIZES),
                paths=tuple(PATHS),
                with_plain=False,
            ),
        ),
    ),
    Part(
        "hosts",
        0.2,
        (
            Group(
                "hosts",
                tuple(FIVE),
                ("--tests", "latency", "--shapes", "usual,app", "--modes", "blocking,nonblocking")
                + ("--sizes", HOST_SIZES, "--sample-ms", "2"),
            ),
        ),
    ),
    Part(
        "skew",
        0.15,
        (Group("skew", tuple(MAIN_HOSTS), ("--tests", "skew", "--sizes", SKEW_SIZES)),),
    ),
    Part(
        "kernels",
        0.2,
        tuple(
            Group(
                name,
                (MAIN_HOST,),
                ("--shapes", name, "--sample-ms", "15"),
                program="od_kernels",
                paths=tuple(PATHS),
            )
            for name in KERNEL_INPUTS
        ),
    ),
    Part("programs", 0.15, programs=("hpcc", "lammps")),
    Part(
        "collectives",
        0.05,
        tuple(
            Group(
                f"{ranks} ranks",
                tuple(FIVE),
                ("--tests", "collectives", "--sizes", sizes),
                ranks=ranks,
            )
            for ranks, sizes in COLLECTIVE_SIZES.items()
        ),
    ),
]


@dataclass
class CopyCampaign:
    """Measures parts; `programs` maps (host, program) to executables."""

    hosts: dict[str, Host]
    programs: dict[tuple[str, str], Path]
    lib: Path
    folder: Path
    niceness: int = 0
    only_group: str = ""
    failures: Failures = field(default_factory=Failures)

    def measure(self, part: Part, seconds: float) -> None:
        """Add samples to a part until the time is over; at least one group is run."""
        step = self._programs_step if part.programs else self._group_step
        repeat_for(seconds, part.name, lambda left: step(part, left))

    def _add(self, part: Part, samples: list[Sample], problems: Sequence[str]) -> None:
        save(samples, samples_file(part.name, self.folder), append=True)
        for problem in problems:
            self.failures.add(f"{part.name}: {problem}")

    def _variants(self, group: Group) -> list[Variant]:
        found = []
        for name in group.hosts:
            host, program = self.hosts.get(name), self.programs.get((name, group.program))
            if host is None or program is None:
                continue
            if group.with_plain:
                found.append(Variant(PLAIN, host, program))
            found.append(Variant(OVERDRIVE, host, program, self.lib))
            for path in group.paths:
                setting = {"OVERDRIVE_COPY_PATH": path}
                found.append(Variant(path, host, program, self.lib, setting))
        return found

    def _group_step(self, part: Part, seconds: float) -> None:
        samples = load_part(part.name, self.folder)

        def rounds(group: Group) -> int:
            return len({s.round for s in samples if belongs(s, group)})

        wanted = [g for g in part.groups if self.only_group in ("", g.name)] or list(part.groups)
        group = min(wanted, key=rounds)
        first = next_round(samples)
        measuring = min(GROUP_SECONDS, max(seconds - PAUSE_SECONDS, 1.0))
        variants = self._variants(group)
        if not variants:
            self._add(part, [], [f"{group.name}: no host"])
            return
        found, problems = run_together(
            variants, group.arguments, group.ranks, measuring, first, self.niceness
        )
        self._add(part, found, [f"{group.name}: {problem}" for problem in problems])

    def _programs_step(self, part: Part, seconds: float) -> None:
        """Run one program in every variant once."""
        samples = load_part(part.name, self.folder)
        host = self.hosts.get(MAIN_HOST)
        usable = [p for p in part.programs if host and not why_unavailable(p, host)]
        if host is None or not usable:
            self._add(part, [], [f"{p}: {why_unavailable(p, MAIN_HOST)}" for p in part.programs])
            return
        program = min(usable, key=lambda p: len({s.round for s in samples if s.test == p}))
        number = next_round(samples)
        variants = [PLAIN, OVERDRIVE, *PATHS]
        # Each round begins elsewhere, so that no variant always follows the same one.
        start = number % len(variants)
        reference = ""
        for variant in [*variants[start:], *variants[:start]]:
            found, text, problem = self._run_program(program, host, variant, number)
            reference = reference or text
            if not problem and text != reference:
                problem = "results differ from those of the variant before"
            self._add(part, found, [f"{program}, {variant}: {problem}"] if problem else [])

    def _run_program(
        self, program: str, host: Host, variant: str, number: int
    ) -> tuple[list[Sample], str, str]:
        probe = build_regime_probe()
        read: Callable[[], float] = lambda: exchange_ns(probe) if probe else -1.0  # noqa: E731
        settings = {"OVERDRIVE_COPY_PATH": variant} if variant in PATHS else {}
        before = read()
        result = run_program(
            program,
            host,
            variant != PLAIN,
            lib=self.lib,
            settings=settings,
            niceness=self.niceness,
            seconds=PROGRAM_SECONDS,
        )
        after = read()
        samples = [
            Sample(
                host=host.name,
                variant=variant,
                round=number,
                test=program,
                shape=name,
                mode="-",
                kind="-",
                size_bytes=0,
                ranks=2,
                value=metric.value,
                unit=metric.unit,
                probe_before_ns=before,
                probe_after_ns=after,
                waited=result.waited if result.waited > MAX_PROGRAM_WAITED else 0.0,
                foreign_cores=result.foreign_cores,
            )
            for name, metric in result.metrics.items()
            if result.ok
        ]
        return samples, result.comparable, result.problem


def belongs(sample: Sample, group: Group) -> bool:
    """Tell whether a sample is of this group and not of another one of the same part."""
    if group.program == "od_kernels":
        return sample.shape == group.name
    return sample.ranks == group.ranks

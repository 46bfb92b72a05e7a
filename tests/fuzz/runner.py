"""Runs random programs: many in one MPI job, by the interpreter that is compiled once per host."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from hosts import Host
from support import jobs, programs, sharing
from support.nodes import Nodes

from fuzz.analysis import text_of
from fuzz.program import Program

SOURCE = Path(__file__).parent / "interpreter" / "interpreter.c"

FAILURE = re.compile(r"^(?:FAIL|STUCK) program=(-?\d+) rank=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Setup:
    """How programs are run."""

    host: Host
    ranks: int
    layout: str = ""
    """Node of each rank, a digit each; ranks of different nodes are kept apart by test_remote."""
    settings: tuple[tuple[str, str], ...] = ()
    """Overdrive's settings, without prefix, in lower case."""
    overdrive: bool = True
    unequal: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Settings of each rank beside those of all."""
    threads: bool = False
    nodes: Nodes | None = None
    per_node: int = 0
    """With real (virtual) nodes: ranks on each."""
    limit: float = 20.0
    """Seconds for one program."""

    def describe(self) -> str:
        """Return it in a few words."""
        parts = [self.host.name, f"{self.ranks} ranks"]
        if self.layout:
            parts.append(f"nodes {self.layout}")
        if self.nodes is not None:
            parts.append(f"lab, {self.per_node} ranks a node")
        if self.threads:
            parts.append("threads")
        parts += [f"{name}={value}" for name, value in self.settings]
        for rank, own in enumerate(self.unequal):
            parts += [f"{rank}:{name}={value}" for name, value in own]
        if not self.overdrive:
            parts.append("without Overdrive")
        return ", ".join(parts)

    def alone(self) -> Setup:
        """Return the same without Overdrive."""
        return replace(self, overdrive=False)


@dataclass
class Outcome:
    """What a job with programs did."""

    done: list[int] = field(default_factory=list)
    failed: int | None = None
    """The program that failed or got stuck; -2: the end of the job."""
    text: str = ""
    result: jobs.Result | None = None

    @property
    def passed(self) -> bool:
        """Tell whether all programs were right."""
        return self.failed is None


def test_remote(layout: str) -> str:
    """Return the pairs of ranks that lie on different nodes."""
    apart = combinations(range(len(layout)), 2)
    return ",".join(f"{a}-{b}" for a, b in apart if layout[a] != layout[b])


def variable(name: str) -> str:
    """Return the variable of a setting; rules are variables already."""
    return name if name.isupper() else f"OVERDRIVE_{name.upper()}"


def own_commands(setup: Setup, command: list[str]) -> list[list[str]] | None:
    """Return the command of each rank, or nothing if all have the same."""
    if not setup.unequal or not setup.overdrive:
        return None
    own = [*setup.unequal, *[()] * setup.ranks][: setup.ranks]
    return [
        ["env", *[f"{variable(name)}={value}" for name, value in settings], *command]
        for settings in own
    ]


def run_text(setup: Setup, text: str, numbers: Sequence[int]) -> Outcome:
    """Run programs that are given as the interpreter reads them."""
    program = programs.program(setup.host, SOURCE)
    settings = dict(setup.settings)
    env = sharing.environment(setup.host)
    env |= {name: settings.pop(name) for name in list(settings) if name.isupper()}
    if setup.layout:
        settings["test_remote"] = test_remote(setup.layout)
    nodes = setup.nodes
    with tempfile.NamedTemporaryFile("w", prefix="odfuzz-", suffix=".txt") as file:
        file.write(text)
        file.flush()
        arguments = [f"--file={file.name}", f"--limit={setup.limit * jobs.TIME_SCALE}"]
        if setup.threads:
            arguments.append("--threads=1")
        between = nodes is not None
        command = [str(program), *arguments]
        result = jobs.run(
            setup.host,
            setup.ranks,
            command,
            per_rank=own_commands(setup, command),
            overdrive=setup.overdrive,
            settings=settings,
            env=env,
            preload=([], sharing.libraries(setup.host, between_nodes=between)),
            launcher_prefix=nodes.enter(nodes.head) if nodes else None,
            launcher_options=(
                nodes.launcher_options(setup.host.family, setup.per_node) if nodes else None
            ),
            limit=setup.limit * 2 + 10 + 2 * len(numbers),
        )
    return judge(result, numbers)


def judge(result: jobs.Result, numbers: Sequence[int]) -> Outcome:
    """Return what a finished job says about its programs."""
    done = [int(number) for number in re.findall(r"^DONE (\d+)", result.stdout, re.MULTILINE)]
    if "PASS " in result.stdout and result.returncode == 0 and not result.timed_out:
        return Outcome(done, None, "", result)
    if "SKIP " in result.stdout and result.returncode == 0:
        return Outcome([], None, "skipped", result)
    found = FAILURE.findall(result.stderr)
    left = [number for number in numbers if number not in done]
    failed = int(found[0][0]) if found else (left[0] if left else -2)
    if failed not in numbers:
        failed = -2
    return Outcome(done, failed, result.report(), result)


def run(setup: Setup, plans: Sequence[Program]) -> Outcome:
    """Run programs in one job, up to the first that fails."""
    text = "".join(text_of(program) for program in plans)
    return run_text(setup, text, [program.number for program in plans])


def symptom(outcome: Outcome) -> str:
    """Return in a line how a program failed, without what differs from run to run."""
    if outcome.passed:
        return "passed"
    for line in outcome.text.splitlines():
        if line.startswith("FAIL program"):
            text = line.split(": ", 1)[1]
            return re.sub(r"0x[0-9a-f]+|\d+", "N", text)
    if "STUCK program" in outcome.text:
        return "stuck"
    if outcome.result is not None and outcome.result.timed_out:
        return "time limit"
    return "crash"

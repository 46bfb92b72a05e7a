"""Runs MPICH's own test suite on one host MPI, without and with Overdrive.

Jobs run on this machine, or over the nodes of a lab (lab.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from conformance import selection
from conformance.compare import WITHOUT_FIRST, Baselines, Result, Run, compare_all
from conformance.jobs import (
    DEFAULT_LIBRARY,
    Launcher,
    Traffic,
    baseline_path,
    describe,
    layout_label,
    read_traffic,
    settings_label,
    tested_version,
)
from conformance.judges import verdict
from conformance.lab import Lab
from conformance.processes import Outcome
from conformance.processes import run as run_job
from conformance.suite import Build, source
from conformance.testlist import (
    DEFAULT_LIMIT_SECONDS,
    Lists,
    Test,
    read_lists,
    without_foreign_variables,
)

if TYPE_CHECKING:
    from hosts import Host

DIRECTORIES = (
    "attr basic coll comm datatype errhan errors f77 f90 f08 group info init io pt2pt rma spawn "
    "threads topo"
).split()

LIMIT_SECONDS = 120.0
"""The longest that a test may take whose list entry says nothing: all end within seconds."""
LONGEST_LIMIT_SECONDS = 180.0
"""The longest that any test may take."""
REPRESENTATIVE_LIMIT_SECONDS = 60.0
"""The longest in the representative part, which has no test that needs so long."""
LAB_LIMIT_SECONDS = 60.0
"""The longest in a lab: some hosts hang there in dozens of tests."""
SHORTEST_LIMIT_SECONDS = 30.0
SLOWDOWN_ALLOWED = 20.0
"""With Overdrive a test may take this many times as long as without before it counts as hanging;
the machine may have become busier meanwhile."""
LARGE_MEMORY_GIB = 2.0

NOT_RUN = "not run yet: run.py was interrupted, or was not asked to run this folder"


@dataclass
class HostResults:
    """All results of one host."""

    host: str
    version: str
    results: list[Result] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unbuildable: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    order: str = WITHOUT_FIRST
    settings: str = ""
    """Settings that all runs with Overdrive had, as `NAME=VALUE,...`."""
    layout: str = ""
    """The lab's nodes over which all runs went; empty: they ran on one machine."""
    overdrive: str = ""
    """The version of Overdrive that ran."""


@dataclass
class Options:
    """What the user asked for."""

    directories: list[str]
    only: str = ""
    jobs: int = 2
    build_jobs: int = 2
    niceness: int = 0
    lib: Path = DEFAULT_LIBRARY
    order: str = WITHOUT_FIRST
    build_only: bool = False
    representative: bool = False
    without_heavy: bool = False
    stacks: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    lab: Lab | None = None
    patience: float = 1.0
    known: frozenset[str] = frozenset()
    """Tests that need not run any more."""


def memory_gib() -> float:
    """Return the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def stacks_of(pids: list[int]) -> str:
    """Return where these processes are, if a debugger is installed."""
    if shutil.which("gdb") is None:
        return ""
    texts = []
    for pid in pids:
        try:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if name in ("sh", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "prted"):
            continue
        try:
            query = subprocess.run(
                ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            texts.append(f"process {pid} ({name}): the debugger takes too long")
            continue
        frames = [line for line in query.stdout.splitlines() if line.startswith(("#", "Thread"))]
        texts.append(f"process {pid} ({name}):\n" + "\n".join(frames))
        if len(texts) == 4:
            break
    return "\n".join(texts)


def absence(test: Test, outcome: Outcome, traffic: Traffic) -> str:
    """Return why a job that passed with Overdrive says nothing about it; empty if it does.

    Every rank writes its counters at its end, also one that never communicates. Not where there are
    only sessions, which are the host's.
    """
    sessions = test.directory == "init" and test.program.startswith("session")
    if outcome.status != 0 or traffic.ranks > 0 or sessions:
        return ""
    return "no rank wrote counters: Overdrive was not in this job"


class Runner:
    """Runs single tests of one host."""

    def __init__(self, build: Build, launcher: Launcher, options: Options) -> None:
        """Remember where the programs are and how to start them."""
        self.build = build
        self.launcher = launcher
        self.options = options
        self.memory = threading.Lock()

    def __call__(self, test: Test, overdrive: bool, expected_seconds: float) -> Run:
        """Run a test once."""
        if test.memory_gib >= LARGE_MEMORY_GIB:
            with self.memory:
                return self._run(test, overdrive, expected_seconds)
        return self._run(test, overdrive, expected_seconds)

    def _run(self, test: Test, overdrive: bool, expected_seconds: float) -> Run:
        stated = test.limit_seconds != DEFAULT_LIMIT_SECONDS
        limit = min(test.limit_seconds, LONGEST_LIMIT_SECONDS if stated else LIMIT_SECONDS)
        if self.options.representative:
            limit = min(limit, REPRESENTATIVE_LIMIT_SECONDS)
        if self.options.lab is not None:
            limit = min(limit, LAB_LIMIT_SECONDS)
        if overdrive and expected_seconds > 0:
            allowed = max(SHORTEST_LIMIT_SECONDS, SLOWDOWN_ALLOWED * expected_seconds)
            limit = min(limit, allowed)
        exact = stated and limit == test.limit_seconds
        limit *= self.options.patience
        statistics = self.launcher.temporary / uuid.uuid4().hex
        if overdrive:
            statistics.mkdir()
        variables = dict(test.environment)
        if stated:
            timeout = test.limit_seconds * max(1.0, self.options.patience)
            variables["MPIEXEC_TIMEOUT"] = str(int(timeout))
        environment = self.launcher.environment(overdrive, variables, str(statistics / "rank"))
        launcher_arguments = list(test.launcher_arguments)
        if self.launcher.host.family == "openmpi":
            launcher_arguments = []  # the lists name options of MPICH's launcher only
        command = self.launcher.command(
            test.ranks,
            overdrive,
            [f"./{test.program}", *test.arguments],
            options=launcher_arguments,
            variables=dict(test.environment),
        )
        seen: list[str] = []

        def look(pids: list[int]) -> None:
            if self.options.stacks and overdrive:
                seen.append(stacks_of(pids))

        outcome = run_job(
            command,
            environment,
            self.build.directory / test.directory,
            # The launcher ends the job itself at the list's limit: that is a test, too.
            limit + 5 if exact else limit,
            niceness=self.options.niceness,
            before_kill=look,
        )
        run = Run(
            verdict(test.judge, outcome),
            outcome.seconds,
            outcome.output,
            outcome.timed_out,
            stacks="\n".join(seen),
        )
        if overdrive:
            run.traffic = read_traffic(statistics)
            run.reason = run.reason or absence(test, outcome, run.traffic)
            shutil.rmtree(statistics, ignore_errors=True)
        return run


def _tests(host: Host, build: Path, suite: Path, directories: list[str]) -> Lists:
    """Return the tests of these folders that make sense on a host."""
    directories = [name for name in directories if host.mpifort or name[0] != "f"]
    lists = read_lists(build, suite, directories)
    if host.family != "mpich" or host.name == "impi":
        lists.tests = without_foreign_variables(lists.tests, ("MPIR_CVAR_", "MPIR_PARAM_"))
    return lists


def add_what_did_not_run(
    host: Host, work: Path, found: HostResults, directories: Sequence[str] = DIRECTORIES
) -> None:
    """Note the tests of the suite about which nothing is known, so that no table hides them."""
    known = {result.identity for result in found.results}
    known |= found.skipped.keys() | found.unbuildable.keys()
    suite = source(work / "source")
    for test in _tests(host, work / "suite" / host.name, suite, list(directories)).tests:
        if test.identity not in known:
            reason = selection.excluded(host, test, False, in_lab=bool(found.layout))
            found.skipped[test.identity] = reason or NOT_RUN


def run_host(
    host: Host, work: Path, options: Options, report: Callable[[HostResults, Result], None]
) -> HostResults:
    """Build and compare the chosen tests of one host; tell each result as it comes."""
    version = describe(host)
    found = HostResults(
        host.name,
        host.version,
        order=options.order,
        settings=settings_label(options.settings),
        layout=layout_label(options.lab),
        overdrive=tested_version(),
    )
    suite = source(work / "source")
    build = Build(host, suite, work / "suite" / host.name, options.build_jobs, options.niceness)
    build.configure()
    lists = _tests(host, build.directory, suite, options.directories)
    found.problems += lists.problems
    chosen = []
    for test in lists.tests:
        if options.only and options.only not in test.identity:
            continue
        if test.identity in options.known:
            continue
        short = options.representative or options.without_heavy
        forced, in_lab = "pull_wait" in options.settings, options.lab is not None
        reason = selection.excluded(host, test, short, forced, in_lab)
        if not reason and test.memory_gib > memory_gib() / 2:
            reason = f"needs {test.memory_gib:g} GiB of memory"
        if reason:
            found.skipped[test.identity] = reason
        else:
            chosen.append(test)
    missing = build.build(chosen, lists.prerequisites)
    runnable = []
    for test in chosen:
        reason = missing.get(f"{test.directory}/{test.program}")
        if reason:
            found.unbuildable[test.identity] = reason
        else:
            runnable.append(test)
    if options.build_only:
        return found
    if options.lab is not None:
        # Variants that choose one of MPICH's algorithms come last: who interrupts the run has then
        # seen every program.
        runnable.sort(key=lambda test: bool(test.environment))
    launcher = Launcher.create(host, work / "tmp", options.lib, options.settings, options.lab)
    try:
        stored = Baselines(baseline_path(work, host.name, found.layout), version)
        found.results = compare_all(
            runnable,
            Runner(build, launcher, options),
            stored,
            jobs=options.jobs,
            order=options.order,
            report=lambda result: report(replace(found, results=[result]), result),
        )
    finally:
        launcher.close()
    return found

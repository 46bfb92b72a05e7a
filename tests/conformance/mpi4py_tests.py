"""Runs mpi4py's own test suite on one host MPI, without and with Overdrive.

All tests of the suite run in one job per number of ranks, as its authors do. A test in which a rank
crashes or hangs ends the job; the job is then repeated without that test until it comes to its
end. Differences are confirmed by running only them again.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.compare import (
    DIFFERENCE,
    FLAKY_WITH,
    TRIES,
    WITH_FIRST,
    WITHOUT_FIRST,
    WITHOUT_ONLY,
    Baselines,
    Result,
)
from conformance.jobs import (
    HERE,
    Launcher,
    Traffic,
    baseline_path,
    describe,
    layout_label,
    read_traffic,
    settings_label,
    tested_version,
)
from conformance.processes import LONGEST_STEP_SECONDS, Outcome
from conformance.processes import run as run_job
from conformance.selection import ONE_RANK_MPI4PY, OVERLAP, OVERLAP_PYTHON
from conformance.suite import SuiteError, unpack

if TYPE_CHECKING:
    from hosts import Host

    from conformance.lab import Lab

EXCLUDED_MODULES = ["test_spawn", "test_dynproc"]
"""Dynamic processes: on several hosts in containers they crash already when they are imported."""
EXCLUDED_MODULES_ON = {"mpich5": ["test_mpiabi"]}
"""The MPICH wheel has no Fortran, which this module takes for granted."""
LOCKS = [f"*test_util_sync.Test{name}World.*" for name in ("Condition*", "Mutex*", "Semaphore*")]
HANGING_TESTS_ON = {"mpich4": LOCKS}
"""Locks whose owner polls its own part of a window until another rank changes it: with two or more
ranks 14 of these tests never end on MPICH 4.0 without Overdrive. Each would cost a time limit."""

HANGING_TESTS_WITH_OVERLAP = {"openmpi4": LOCKS}
"""The same over several nodes on Open MPI 4.1, which makes no windows for `MPI_THREAD_MULTIPLE`
there: only tests that ask for less (as all do for the sake of overlap) come to the waiting."""

ENDING_TESTS_OVER_NODES = {
    "mpich4": ["*test_comm_inter.TestIntercomm*.testSplitTypeShared"],
}
"""MPICH 4.0 itself ends the job when it splits an inter-communicator by nodes, if it has several;
after each such test the whole suite begins again."""

LIMIT_SECONDS = 1200.0
STALL_SECONDS = 90.0
"""No part of a test takes nearly as long; a job without any progress for this time hangs."""
RESTARTS = 10
DOWNLOAD_TRIES = 4
"""A package index answers with passing errors now and then."""

GOOD = {"ok", "skip", "expected failure"}


@dataclass
class SuiteRun:
    """Outcomes of one job: per test the outcome on each rank, and texts of failures."""

    outcomes: dict[str, dict[int, str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    traffic: Traffic = field(default_factory=Traffic)
    output: str = ""

    def summary(self, test: str, ranks: int) -> str:
        """Return one word for a test over all ranks: the worst."""
        seen = self.outcomes.get(test, {})
        values = [seen.get(rank, "not run") for rank in range(ranks)]
        for value in values:
            if value not in GOOD:
                return value
        return "ok" if "ok" in values else values[0]


@dataclass
class PythonResults:
    """All results of one host with one number of ranks."""

    host: str
    version: str
    ranks: int
    tests: int = 0
    passed_without: int = 0
    passed_with: int = 0
    skipped: int = 0
    seconds_without: float = 0.0
    seconds_with: float = 0.0
    results: list[Result] = field(default_factory=list)
    """Only differences and flaky tests."""
    traffic: Traffic = field(default_factory=Traffic)
    order: str = WITHOUT_FIRST
    settings: str = ""
    """Settings that all runs with Overdrive had, as `NAME=VALUE,...`."""
    layout: str = ""
    """The lab's nodes over which all runs went; empty: they ran on one machine."""
    overdrive: str = ""
    """The version of Overdrive that ran."""
    left_out: list[str] = field(default_factory=list)
    """Modules that were left out."""


def _download(python: str, name: str, archive: Path) -> str:
    """Get an archive from the package index that pip uses; return what went wrong.

    `pip download` would build the whole package only to learn what it depends on.
    """
    query = subprocess.run(
        [python, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    index = os.environ.get("PIP_INDEX_URL") or query.stdout.strip() or "https://pypi.org/simple"
    page_address = f"{index.rstrip('/')}/mpi4py/"
    try:
        request = urllib.request.Request(page_address, headers={"Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=60) as page:
            links = re.findall(r'href="([^"]+)"', page.read().decode())
            base = page.geturl()
        link = next((link for link in links if link.split("#")[0].endswith("/" + name)), "")
        if not link:
            return f"{page_address} does not name {name}"
        address = urllib.parse.urljoin(base, html.unescape(link)).split("#")[0]
        with urllib.request.urlopen(address, timeout=60) as source:
            archive.write_bytes(source.read())
    except (OSError, ValueError) as problem:
        return str(problem)
    return ""


def fetch(python: str, work: Path) -> Path:
    """Return the folder of the tests of the mpi4py that this interpreter has."""
    query = subprocess.run(
        [python, "-c", "import mpi4py; print(mpi4py.__version__)"],
        capture_output=True,
        text=True,
        check=False,
    )
    version = query.stdout.strip()
    if query.returncode != 0 or not version:
        raise SuiteError("the interpreter has no mpi4py")
    tests = work / f"mpi4py-{version}" / "test"
    if (tests / "main.py").is_file():
        return tests
    work.mkdir(parents=True, exist_ok=True)
    archive = work / f"mpi4py-{version}.tar.gz"
    problem = "?"
    for attempt in range(DOWNLOAD_TRIES):
        problem = _download(python, f"mpi4py-{version}.tar.gz", archive)
        if not problem:
            break
        time.sleep(attempt)
    if problem:
        raise SuiteError(f"the source of mpi4py {version} is not there: {problem}")
    with tarfile.open(archive) as tar:
        unpack(tar, work, tar.getmembers())
    return tests


Records = tuple[dict[str, dict[int, str]], dict[str, str], dict[int, str]]
"""Outcomes per test and rank, texts of failures per test, the test in which each rank stopped."""


def read_records(folder: Path) -> Records:
    """Return outcomes per test and rank, texts of failures, and where each rank stopped."""
    outcomes: dict[str, dict[int, str]] = {}
    texts: dict[str, str] = {}
    unfinished: dict[int, str] = {}
    for path in sorted(folder.glob("*.jsonl")):
        rank = int(path.stem)
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if "start" in record:
                unfinished[rank] = record["start"]
                continue
            if "alive" in record:
                continue
            test = record["end"]
            unfinished.pop(rank, None)
            outcomes.setdefault(test, {})[rank] = record["outcome"]
            if record["text"]:
                texts[test] = texts.get(test, "") + f"rank {rank}: {record['text']}\n"
    return outcomes, texts, unfinished


class StallWatch:
    """Tells when the ranks have written nothing for too long."""

    def __init__(self, records: Path, limit_seconds: float) -> None:
        """Start watching the files of a folder."""
        self.records = records
        self.limit_seconds = limit_seconds
        self.size = 0
        self.idle = 0.0
        self.last = time.monotonic()

    def stalled(self) -> bool:
        """Tell whether the job hangs; to be called often."""
        now = time.monotonic()
        self.idle += min(now - self.last, LONGEST_STEP_SECONDS)
        self.last = now
        size = sum(path.stat().st_size for path in self.records.glob("*.jsonl"))
        if size != self.size:
            self.idle, self.size = 0.0, size
        return self.idle > self.limit_seconds


class PythonSuite:
    """Runs the suite of one host."""

    def __init__(
        self,
        host: Host,
        tests: Path,
        launcher: Launcher,
        niceness: int,
        patience: float,
        left_out: list[str],
    ) -> None:
        """Remember where the tests are and how to start them."""
        self.host = host
        self.tests = tests
        self.launcher = launcher
        self.niceness = niceness
        self.patience = patience
        self.left_out = left_out

    def _job(
        self, ranks: int, overdrive: bool, arguments: list[str], folder: Path
    ) -> tuple[Outcome, Records, Traffic]:
        records, statistics = folder / "records", folder / "statistics"
        records.mkdir(parents=True)
        statistics.mkdir()
        variables = {
            "PYTHONUNBUFFERED": "1",
            # Workers that the pools start import the test modules by name.
            "PYTHONPATH": str(self.tests),
        }
        if self.launcher.settings == OVERLAP:
            variables |= OVERLAP_PYTHON
        environment = self.launcher.environment(overdrive, variables, str(statistics / "rank"))
        assert self.host.python is not None
        program = [self.host.python, str(HERE / "mpi4py_rank.py"), str(self.tests), str(records)]
        command = self.launcher.command(
            ranks, overdrive, [*program, *arguments], variables=variables
        )
        watch = StallWatch(records, STALL_SECONDS * self.patience)

        outcome = run_job(
            command,
            environment,
            folder,
            LIMIT_SECONDS * self.patience,
            niceness=self.niceness,
            stalled=watch.stalled,
        )
        return outcome, read_records(records), read_traffic(statistics)

    def run(self, ranks: int, overdrive: bool, chosen: list[str], only: str = "") -> SuiteRun:
        """Run the suite, or only the chosen tests of it, to its end."""
        result = SuiteRun()
        modules = [*EXCLUDED_MODULES, *EXCLUDED_MODULES_ON.get(self.host.name, [])]
        modules += self.left_out
        excluded: list[str] = []
        for _ in range(RESTARTS):
            arguments = ["-v"] + [word for name in modules for word in ("-e", name)]
            hanging = HANGING_TESTS_ON.get(self.host.name, []) if ranks > 1 else []
            if self.launcher.lab is not None:
                hanging = [*hanging, *ENDING_TESTS_OVER_NODES.get(self.host.name, [])]
                if self.launcher.settings == OVERLAP:
                    hanging += HANGING_TESTS_WITH_OVERLAP.get(self.host.name, [])
            arguments += [word for name in [*hanging, *excluded] for word in ("-x", name)]
            for name in chosen:
                arguments += ["-k", f"*{name}"]  # with an asterisk it stands for the whole name
            if only:
                arguments += ["-k", only]
            folder = self.launcher.temporary / uuid.uuid4().hex
            outcome, (outcomes, texts, unfinished), traffic = self._job(
                ranks, overdrive, arguments, folder
            )
            shutil.rmtree(folder, ignore_errors=True)
            result.seconds += outcome.seconds
            result.traffic.add(traffic)
            for test, seen in outcomes.items():
                result.outcomes.setdefault(test, {}).update(seen)
            result.texts.update(texts)
            if not outcomes and not unfinished and not excluded:
                raise SuiteError(f"the suite does not start: {outcome.output[-600:]}")
            if not unfinished:
                break
            # The rank that is furthest behind names the test; the others may have gone on.
            order = {rank: sum(rank in seen for seen in outcomes.values()) for rank in unfinished}
            culprit = unfinished[min(unfinished, key=lambda rank: order[rank])]
            how = "hangs" if outcome.timed_out else f"ends the job (status {outcome.status})"
            result.outcomes[culprit] = {rank: how for rank in range(ranks)}
            result.texts[culprit] = outcome.output[-3000:]
            excluded.append(f"*{culprit}")
        return result


def _compare(
    suite: PythonSuite, ranks: int, base: dict[str, str], only: str, found: PythonResults
) -> None:
    """Run with Overdrive, confirm what differs, and note it."""
    first = suite.run(ranks, True, [], only)
    found.seconds_with = first.seconds
    found.traffic = first.traffic
    suspects = {}
    for test, outcome in base.items():
        now = first.summary(test, ranks)
        if outcome in GOOD and now != outcome:
            suspects[test] = now
        elif outcome in GOOD:
            found.passed_with += outcome != "skip"
    _confirm(suite, ranks, base, suspects, first, found)


def _confirm(
    suite: PythonSuite,
    ranks: int,
    base: dict[str, str],
    suspects: dict[str, str],
    first: SuiteRun,
    found: PythonResults,
) -> None:
    """Run suspects again, with and without, and note what they turn out to be."""
    failures = dict.fromkeys(suspects, 1)
    for _ in range(TRIES - 1):
        again = [test for test in suspects if failures[test]]
        if not again:
            break
        run = suite.run(ranks, True, again)
        for test in again:
            if run.summary(test, ranks) == base[test]:
                failures[test] = 0
            else:
                failures[test] += 1
                first.texts.setdefault(test, run.texts.get(test, ""))
    confirmed = [test for test in suspects if failures[test]]
    flaky_without = set()
    if confirmed:
        control = suite.run(ranks, False, confirmed)
        flaky_without = {test for test in confirmed if control.summary(test, ranks) != base[test]}
    for test, outcome in suspects.items():
        if test in flaky_without:
            continue
        status = DIFFERENCE if failures[test] else FLAKY_WITH
        result = Result(f"mpi4py {ranks} {test}", status, f"{base[test]} became {outcome}")
        result.output = first.texts.get(test, "")
        found.results.append(result)


def _with_first(suite: PythonSuite, ranks: int, only: str, found: PythonResults) -> None:
    """Run with Overdrive, and without it only what failed."""
    first = suite.run(ranks, True, [], only)
    words = {test: first.summary(test, ranks) for test in first.outcomes}
    found.tests = len(words)
    found.skipped = sum(word == "skip" for word in words.values())
    found.seconds_with = first.seconds
    found.traffic = first.traffic
    suspects = [test for test, word in words.items() if word not in GOOD]
    found.passed_with = len(words) - found.skipped - len(suspects)
    if not suspects:
        return
    control = suite.run(ranks, False, suspects)
    base = {test: control.summary(test, ranks) for test in suspects}
    _confirm(suite, ranks, base, {t: words[t] for t in suspects if base[t] in GOOD}, first, found)


def run_host(
    host: Host,
    work: Path,
    numbers: list[int],
    *,
    only: str,
    niceness: int,
    patience: float,
    lib: Path,
    order: str,
    left_out: list[str],
    settings: dict[str, str],
    lab: Lab | None,
    report: Callable[[str, Result], None],
) -> list[PythonResults]:
    """Compare the suite on one host for each number of ranks."""
    if host.python is None:
        raise SuiteError("no Python interpreter with mpi4py for this host")
    tests = fetch(host.python, work / "source")
    launcher = Launcher.create(host, work / "tmp", lib, settings, lab)
    path = baseline_path(work, f"mpi4py-{host.name}", layout_label(lab))
    stored = Baselines(path, f"{describe(host)} {tests}")
    everything = []
    try:
        for ranks in numbers:
            found = PythonResults(
                host.name,
                host.version,
                ranks,
                order=order,
                settings=settings_label(settings),
                layout=layout_label(lab),
                overdrive=tested_version(),
                left_out=sorted({*left_out, *(ONE_RANK_MPI4PY if ranks > 1 else [])}),
            )
            suite = PythonSuite(host, tests, launcher, niceness, patience, found.left_out)
            key = f"{ranks} {only} {' '.join(found.left_out)}"
            known = stored.get(key)
            if known is None and order == WITH_FIRST:
                _with_first(suite, ranks, only, found)
                for result in found.results:
                    report(host.name, result)
                everything.append(found)
                continue
            if known is None:
                run = suite.run(ranks, False, [], only)
                words = {test: run.summary(test, ranks) for test in run.outcomes}
                stored.put(key, True, run.seconds, json.dumps(words), False)
                stored.save()
                known = stored.get(key)
            assert known is not None
            base: dict[str, str] = json.loads(known["reason"])
            found.tests = len(base)
            found.skipped = sum(word == "skip" for word in base.values())
            found.passed_without = sum(word in GOOD and word != "skip" for word in base.values())
            found.seconds_without = known["seconds"]
            if order != WITHOUT_ONLY:
                _compare(suite, ranks, base, only, found)
            for result in found.results:
                report(host.name, result)
            everything.append(found)
    finally:
        launcher.close()
    return everything

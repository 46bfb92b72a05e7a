"""Runs commands under a time limit, in process groups of their own, and reads their numbers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")
FAILURE_LETTERS = 400
"""How much of a failing test's message is repeated at the end."""


@dataclass
class Count:
    """How many tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Count) -> None:
        """Add another count to this one."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass
class Step:
    """One command. `junit` names the file that holds its numbers, if it writes one."""

    command: list[str]
    junit: Path | None = None
    counts: bool = False
    env: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    """What runs beside the tests is suspended meanwhile, because this measures time."""


@dataclass
class Result:
    """What a series of steps came to; `problem` says why it failed."""

    count: Count = field(default_factory=Count)
    problem: str = ""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """A line for each test that failed, as far as the steps name their tests."""

    def add(self, other: Result) -> None:
        """Add what later steps of the same part came to; the first problem is the part's."""
        self.count.add(other.count)
        self.problem = self.problem or other.problem
        self.failures += other.failures


def read_junit(path: Path) -> Count | None:
    """Return the numbers in a JUnit file."""
    if not path.exists():
        return None
    count = Count()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.find("skipped") is not None:
            count.skipped += 1
        else:
            count.passed += 1
    return count


def read_failures(path: Path) -> list[str]:
    """Return a line for each test that a JUnit file says failed: its name, and what was wrong."""
    lines = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        fault = case.find("failure")
        if fault is None:
            fault = case.find("error")
        if fault is None:
            continue
        name = "::".join(word for word in (case.get("classname"), case.get("name")) if word)
        message = (fault.get("message") or "").strip().splitlines()
        lines.append(f"{name}: {message[0][:FAILURE_LETTERS]}" if message else name)
    return lines


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


class Lane:
    """Runs one command after the other; what it runs can be suspended and ended from outside."""

    def __init__(self, niceness: int = 0) -> None:
        """Remember the priority of everything that the lane runs."""
        self.niceness = niceness
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.suspended = False
        self.suspended_seconds = 0.0
        self.ended = False

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass

    def suspend(self) -> None:
        """Let nothing of this lane run until `resume`."""
        with self.lock:
            self.suspended = True
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `suspend`."""
        with self.lock:
            self.suspended = False
            self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End what is running; nothing more will be started."""
        with self.lock:
            self.ended = True
            if self.process is not None:
                stop(self.process)

    def _start(self, step: Step, output: object) -> subprocess.Popen[bytes] | None:
        command = step.command
        if self.niceness:
            command = ["nice", "-n", str(self.niceness), *command]
        with self.lock:
            if self.ended:
                return None
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **step.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            if self.suspended:
                self._signal(signal.SIGSTOP)
            return self.process

    def run_step(self, step: Step, log: Path, limit: float) -> tuple[int | None, str]:
        """Run a step, appending to the log; return exit code (None: out of time) and its output.

        The time during which the lane is suspended does not count.
        """
        with log.open("ab") as output:
            output.write(f"$ {' '.join(step.command)}\n".encode())
            output.flush()
            start = output.tell()
            process = self._start(step, output)
            code: int | None = None
            left = limit
            try:
                while process is not None and code is None and left > 0:
                    before = time.monotonic()
                    try:
                        code = process.wait(min(left, 1.0))
                    except subprocess.TimeoutExpired:
                        pass
                    if not self.suspended:
                        left -= time.monotonic() - before
            finally:
                if process is not None:
                    stop(process)
        with log.open("rb") as written:
            written.seek(start)
            return code, written.read().decode(errors="replace")

    def run(self, steps: list[Step], log: Path, limit_seconds: float) -> Result:
        """Run steps one after the other until one fails; return what they came to."""
        begin = time.monotonic()
        result = Result()
        for step in steps:
            if step.junit is not None:
                step.junit.unlink(missing_ok=True)
            left = max(1.0, limit_seconds - (time.monotonic() - begin))
            code, output = self.run_step(step, log, left)
            result.problem = judge(step, code, output, limit_seconds, result.count)
            if result.problem and step.junit is not None and step.junit.exists():
                result.failures += read_failures(step.junit)
            if result.problem:
                break
        result.seconds = time.monotonic() - begin
        return result


def judge(step: Step, code: int | None, output: str, limit_seconds: float, total: Count) -> str:
    """Add the numbers of a step that has ended to the total; return what was wrong with it."""
    count = None
    if step.counts:
        count = read_junit(step.junit) if step.junit is not None else None
        found = SUMMARY.findall(output)
        if count is None and found:
            count = Count(*(int(number) for number in found[-1]))
        total.add(count or Count())
    if code is None:
        total.failed += 1
        return f"did not end within {limit_seconds:.0f} s"
    if code != 0:
        if count is None or count.failed == 0:
            total.failed += 1
        return f"`{' '.join(step.command[:4])} …` ended with code {code}"
    if step.counts and count is None:
        total.passed += 1
    if count is not None and count.failed > 0:
        return f"{count.failed} tests failed"
    return ""

#!/usr/bin/env python3
"""Runs everything that tells whether Overdrive works: what `make check` does.

Each part runs in its own process group under a time limit and writes its output to
build/check/<part>.log; only what fails is printed in full. The last line of the output is the sum
of all parts, `N passed, N failed, N skipped`, and the exit code is zero only if nothing failed.
A part that does not report numbers counts as one test.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "check"
SUMMARY = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")
JOBS = str(max(1, min(len(os.sched_getaffinity(0)), 8)))
LOG_TAIL_LINES = 60
"""How much of a failing part's log is shown; the whole log stays in build/check."""

SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1",
    # Tests fork processes that share memory; the child of a threaded parent is part of what is
    # tested.
    "TSAN_OPTIONS": "die_after_fork=0:halt_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


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
    """One command of a part. `junit` names the file that holds its numbers, if it writes one."""

    command: list[str]
    junit: Path | None = None
    counts: bool = False
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Part:
    """A part of the check: its steps run one after the other until one fails."""

    name: str
    limit_seconds: int
    steps: Callable[[], list[Step]]


def python() -> str:
    """Return the development environment's interpreter."""
    directory = Path(os.environ.get("OVERDRIVE_VENV_DIR", ROOT / "build" / "venv"))
    inside = directory / "bin" / "python"
    return str(inside) if inside.exists() else sys.executable


def build_steps(preset: str, target: str | None) -> list[Step]:
    """Return the commands that configure and build a preset."""
    configure = ["cmake", "--preset", preset]
    if os.environ.get("OVERDRIVE_WERROR") == "1":
        configure.append("-DOVERDRIVE_WERROR=ON")
    build = ["cmake", "--build", f"build/{preset}", "-j", JOBS]
    if target is not None:
        build += ["--target", target]
    return [Step(configure), Step(build)]


def unit_steps(preset: str) -> list[Step]:
    """Return the commands that build a preset's unit tests and run them."""
    junit = LOGS / f"unit-{preset}.xml"
    command = ["ctest", "--test-dir", f"build/{preset}", "-j", JOBS, "--output-on-failure"]
    command += ["--no-tests=error", "--output-junit", str(junit)]
    if preset == "tsan" and fixed_addresses_work():
        # The thread sanitizer's shadow memory collides with widely randomised addresses.
        command = ["setarch", platform.machine(), "-R", *command]
    target = None if preset == "release" else "unit_tests"
    env = {} if preset == "release" else SANITIZER_OPTIONS
    return [*build_steps(preset, target), Step(command, junit, True, env)]


def fixed_addresses_work() -> bool:
    """Tell whether address randomisation can be switched off here (containers may forbid it)."""
    if shutil.which("setarch") is None:
        return False
    probe = ["setarch", platform.machine(), "-R", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def pytest_steps() -> list[Step]:
    """Return the commands that run the Python tests.

    The folder `packaging` has a run of its own: once it has been collected, its name hides the
    library `packaging`, which matplotlib needs.
    """
    steps = []
    for name, wanted in (
        ("pytest", ("tests", "src", "cli", "bench", "tools")),
        ("pytest-packaging", ("packaging",)),
    ):
        junit = LOGS / f"{name}.xml"
        folders = [folder for folder in wanted if (ROOT / folder).is_dir()]
        command = [python(), "-m", "pytest", "-q", "-ra", "--durations=10", f"--junitxml={junit}"]
        steps.append(Step([*command, *folders], junit, True))
    return steps


def xpmem_steps() -> list[Step]:
    """Return the commands that build the library with XPMEM and run its tests over a stand-in."""
    configure, build = build_steps("xpmem", None)
    junit = LOGS / "xpmem.xml"
    command = [python(), "-m", "pytest", "-q", f"--junit-xml={junit}", "tests/memory/test_xpmem.py"]
    library = ROOT / "build" / "xpmem" / "lib" / "liboverdrive.so"
    return [configure, build, Step(command, junit, True, {"OVERDRIVE_TEST_LIBRARY": str(library)})]


def conformance_steps() -> list[Step]:
    """Return the command that runs the representative part of the conformance suites."""
    return [Step([python(), "tests/conformance/run.py", "--representative"], counts=True)]


def lint_steps() -> list[Step]:
    """Return the command that checks style."""
    return [Step([python(), "tools/lint/lint.py"], counts=True)]


# The limits are about three times what a machine with two processors of its own needs.
PARTS = [
    Part("unit-release", 1800, lambda: unit_steps("release")),
    Part("lint", 180, lint_steps),
    Part("pytest", 1800, pytest_steps),
    Part("xpmem", 1500, xpmem_steps),
    Part("conformance", 1800, conformance_steps),
    # This preset holds the undefined-behaviour sanitizer as well.
    Part("unit-asan", 1500, lambda: unit_steps("asan")),
    Part("unit-tsan", 1500, lambda: unit_steps("tsan")),
]


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


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def run_step(step: Step, log: Path, deadline: float) -> tuple[int | None, str]:
    """Run a step, appending to the log; return exit code (None: out of time) and its output."""
    with log.open("ab") as output:
        output.write(f"$ {' '.join(step.command)}\n".encode())
        output.flush()
        start = output.tell()
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env={**os.environ, **step.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            stop(process)
    with log.open("rb") as written:
        written.seek(start)
        return code, written.read().decode(errors="replace")


def run_part(part: Part) -> tuple[Count, str]:
    """Run a part; return its numbers and, if it failed, why."""
    log = LOGS / f"{part.name}.log"
    log.write_bytes(b"")
    deadline = time.monotonic() + part.limit_seconds
    total = Count()
    for step in part.steps():
        if step.junit is not None:
            step.junit.unlink(missing_ok=True)
        code, output = run_step(step, log, deadline)
        count = None
        if step.counts:
            count = read_junit(step.junit) if step.junit is not None else None
            found = SUMMARY.findall(output)
            if count is None and found:
                count = Count(*(int(number) for number in found[-1]))
            total.add(count or Count())
        if code is None:
            total.failed += 1
            return total, f"did not end within {part.limit_seconds} s"
        if code != 0:
            if count is None or count.failed == 0:
                total.failed += 1
            return total, f"`{' '.join(step.command[:4])} …` ended with code {code}"
        if step.counts and count is None:
            total.passed += 1
        if count is not None and count.failed > 0:
            return total, f"{count.failed} tests failed"
    return total, ""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in names]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; known: {', '.join(names)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    # A check that is told to end leaves through the code that ends what it has started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))

    total = Count()
    rows = []
    begin = time.monotonic()
    for part in PARTS:
        if options.parts and part.name not in options.parts:
            continue
        print(f"== {part.name} (limit {part.limit_seconds} s)", flush=True)
        start = time.monotonic()
        count, problem = run_part(part)
        seconds = time.monotonic() - start
        total.add(count)
        rows.append((part.name, str(count), f"{seconds:.0f} s", problem))
        if problem:
            log = LOGS / f"{part.name}.log"
            print(f"-- {part.name} FAILED: {problem}; the end of {log.relative_to(ROOT)}:")
            lines = log.read_text(errors="replace").splitlines()
            print("\n".join(lines[-LOG_TAIL_LINES:]))
        print(f"   {count}, {seconds:.0f} s", flush=True)

    print("\nSummary")
    for name, count_text, seconds_text, problem in rows:
        print(f"  {name:14} {count_text:42} {seconds_text:>7}  {problem}")
    print(f"  in all {time.monotonic() - begin:.0f} s")
    print(total)
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs tests without and with Overdrive and tells differences from chance.

A test takes part when it passes without Overdrive. It is a difference only when it fails in each of
TRIES runs with Overdrive and passes in each of TRIES runs without; anything between is flaky and
named as such. Results without Overdrive are kept in a file per version of the host, so that later
runs start from them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from conformance.jobs import Traffic
from conformance.processes import STOP
from conformance.testlist import Test

TRIES = 3

PROGRESS_SECONDS = 30.0

WITHOUT_FIRST = "without first"
"""Run without Overdrive, then with it what passed."""
WITH_FIRST = "with first"
"""Run with Overdrive, then without it what failed: half the time, but "pass without" is unknown."""
WITHOUT_ONLY = "without only"

WRITE_AFTER = 10
"""Results between two writes of the file: an interrupted run loses no more than that."""

PASS = "pass"
FAIL = "fail"
"""Fails without Overdrive: not compared."""
DIFFERENCE = "difference"
FLAKY_WITHOUT = "flaky without"
FLAKY_WITH = "flaky with"
BASELINE_ONLY = "passes without"


@dataclass
class Run:
    """One run of one test."""

    reason: str
    """Why it failed; empty when it passed."""
    seconds: float
    output: str = ""
    timed_out: bool = False
    traffic: Traffic = field(default_factory=Traffic)
    stacks: str = ""

    @property
    def passed(self) -> bool:
        """Tell whether the run passed."""
        return not self.reason


@dataclass
class Result:
    """What all runs of one test together say."""

    identity: str
    status: str
    reason: str = ""
    seconds_without: float = 0.0
    seconds_with: float = 0.0
    output: str = ""
    output_without: str = ""
    stacks: str = ""
    traffic: Traffic = field(default_factory=Traffic)


class Baselines:
    """Results without Overdrive, kept between invocations."""

    def __init__(self, path: Path, version: str) -> None:
        """Load what is known for this version of the host."""
        self.path = path
        self.version = version
        self.lock = threading.Lock()
        self.known = self._read()
        self.new: dict[str, dict] = {}

    def _read(self) -> dict[str, dict]:
        if not self.path.is_file():
            return {}
        stored = json.loads(self.path.read_text(encoding="utf-8"))
        return stored["tests"] if stored.get("version") == self.version else {}

    def get(self, identity: str) -> dict | None:
        """Return the stored result of a test."""
        with self.lock:
            return self.known.get(identity)

    def put(self, identity: str, passed: bool, seconds: float, reason: str, flaky: bool) -> None:
        """Store the result of a test."""
        with self.lock:
            entry = {
                "passed": passed,
                "seconds": round(seconds, 3),
                "reason": reason,
                "flaky": flaky,
            }
            self.known[identity] = self.new[identity] = entry
            if len(self.new) >= WRITE_AFTER:
                self._write()

    def save(self) -> None:
        """Write everything to the file."""
        with self.lock:
            self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as guard:
            # Another invocation may have stored results meanwhile.
            fcntl.flock(guard, fcntl.LOCK_EX)
            self.known = {**self._read(), **self.known, **self.new}
            partial = self.path.with_suffix(".partial")
            content = {"version": self.version, "tests": self.known}
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
            partial.replace(self.path)
        self.new = {}


RunTest = Callable[[Test, bool, float], Run]
"""Runs a test: the test, with Overdrive or without, what it took without (0: unknown)."""


def baseline(test: Test, run: RunTest, stored: Baselines) -> dict:
    """Return the result of a test without Overdrive, running it when it is not known."""
    known = stored.get(test.identity)
    if known is not None:
        return known
    first = run(test, False, 0.0)
    flaky = False
    if not first.passed and not first.timed_out:
        flaky = run(test, False, 0.0).passed
    stored.put(test.identity, first.passed, first.seconds, first.reason, flaky)
    known = stored.get(test.identity)
    assert known is not None
    return known


def compare(test: Test, run: RunTest, stored: Baselines, order: str) -> Result:
    """Return the result of a test, with as many runs as it takes."""
    failed: Run | None = None
    if order == WITH_FIRST and stored.get(test.identity) is None:
        failed = run(test, True, 0.0)
        if failed.passed:
            # How it fares without does not matter any more.
            return Result(test.identity, PASS, seconds_with=failed.seconds, traffic=failed.traffic)
    base = baseline(test, run, stored)
    result = Result(test.identity, PASS, seconds_without=base["seconds"])
    if base["flaky"]:
        result.status, result.reason = FLAKY_WITHOUT, base["reason"]
        return result
    if not base["passed"]:
        result.status, result.reason = FAIL, base["reason"]
        return result
    if order == WITHOUT_ONLY:
        result.status = BASELINE_ONLY
        return result
    earlier = 0 if failed is None else 1
    tries = earlier
    while tries < TRIES:
        last = run(test, True, base["seconds"])
        tries += 1
        result.seconds_with = last.seconds
        result.traffic = last.traffic
        if last.passed:
            break
        failed = failed or last
    if failed is None:
        return result
    result.status, result.reason = DIFFERENCE, failed.reason
    result.output, result.stacks = failed.output, failed.stacks
    if last.passed:
        result.status = FLAKY_WITH
        result.reason = f"failed {tries - 1} of {tries} times: {failed.reason}"
    for _ in range(TRIES - 1):
        again = run(test, False, 0.0)
        result.output_without = again.output
        if not again.passed:
            stored.put(test.identity, True, again.seconds, again.reason, True)
            result.status = FLAKY_WITHOUT
            result.reason = f"also fails without at times: {again.reason}"
            break
    return result


def compare_all(
    tests: list[Test],
    run: RunTest,
    stored: Baselines,
    *,
    jobs: int,
    order: str,
    report: Callable[[Result], None],
) -> list[Result]:
    """Compare tests, several at once; tests that write files run one at a time."""
    files = threading.Lock()
    lock = threading.Lock()
    done = 0
    said = time.monotonic()

    def progress() -> None:
        nonlocal done, said
        with lock:
            done += 1
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                print(f"  {done} of {len(tests)} tests", flush=True)

    def one(test: Test) -> Result:
        with files if "io" in test.directory.split("/") else contextlib.nullcontext():
            result = compare(test, run, stored, order)
        report(result)
        progress()
        return result

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        try:
            return list(pool.map(one, tests))
        except BaseException:
            STOP.set()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            stored.save()


def as_json(results: list[Result]) -> list[dict]:
    """Return results as plain values; outputs only of those that are not as they should be."""
    plain = []
    for result in results:
        values = asdict(result)
        if result.status not in (DIFFERENCE, FLAKY_WITH):
            for name in ("output", "output_without", "stacks"):
                values.pop(name)
        plain.append(values)
    return plain

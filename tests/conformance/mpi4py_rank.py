"""Runs mpi4py's own test suite inside one rank and records each test's outcome.

mpi4py_rank.py TESTS RECORDS [options of the suite's main.py]

Every rank writes its own file into RECORDS, one JSON object per line, at the start and the end of
each test: when a rank crashes or hangs, its file tells in which test.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import unittest
from pathlib import Path
from types import TracebackType
from typing import Any

ErrorInfo = tuple[type[BaseException], BaseException, TracebackType]

ALIVE_SECONDS = 5.0
"""Tests with thousands of parts show in between that they go on."""


class RecordingResult(unittest.TextTestResult):
    """Writes what happens to the rank's file."""

    records: Path

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Open the file at the first test, when the rank is known."""
        super().__init__(*arguments, **options)
        self._file = None
        self._outcome = ""
        self._text = ""
        self._written = 0.0

    def _write(self, **values: str) -> None:
        if self._file is None:
            rank = importlib.import_module("mpi4py.MPI").COMM_WORLD.Get_rank()
            self._file = (self.records / f"{rank}.jsonl").open("a", encoding="utf-8")
        self._written = time.monotonic()
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        """Record that a test begins."""
        self._outcome, self._text = "ok", ""
        self._write(start=test.id())
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        """Record how it ended."""
        super().stopTest(test)
        self._write(end=test.id(), outcome=self._outcome, text=self._text[-1500:])

    def _bad(self, test: unittest.TestCase, error: ErrorInfo, outcome: str) -> None:
        self._outcome = outcome
        self._text += self._exc_info_to_string(error, test)
        if not isinstance(test, unittest.TestCase):
            # setUpClass and the like: neither started nor stopped as tests are.
            self._write(end=test.id(), outcome=outcome, text=self._text[-1500:])

    def addError(self, test: unittest.TestCase, err: ErrorInfo) -> None:
        """Record an unexpected exception; also those of setUpClass and of imports."""
        super().addError(test, err)
        self._bad(test, err, "error")

    def addFailure(self, test: unittest.TestCase, err: ErrorInfo) -> None:
        """Record a failed assertion."""
        super().addFailure(test, err)
        self._bad(test, err, "failure")

    def addSubTest(
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: ErrorInfo | None
    ) -> None:
        """Record a failed part of a test."""
        super().addSubTest(test, subtest, err)
        if time.monotonic() - self._written > ALIVE_SECONDS:
            self._write(alive=test.id())
        if err is not None:
            self._bad(test, err, "failure")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Record that the test does not apply."""
        super().addSkip(test, reason)
        self._outcome = "skip"

    def addExpectedFailure(self, test: unittest.TestCase, err: ErrorInfo) -> None:
        """Record a failure that the suite expects."""
        super().addExpectedFailure(test, err)
        self._outcome = "expected failure"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """Record a success that the suite does not expect."""
        super().addUnexpectedSuccess(test)
        self._outcome = "unexpected success"


def main() -> None:
    """Hand over to the suite's own main program."""
    tests, records = sys.argv[1], sys.argv[2]
    RecordingResult.records = Path(records)
    sys.path.insert(0, tests)
    sys.dont_write_bytecode = True
    suite = importlib.import_module("main")
    sys.argv = [str(Path(tests) / "main.py"), *sys.argv[3:]]

    class Runner(unittest.TextTestRunner):
        resultclass = RecordingResult

    suite.main(module=None, testRunner=Runner)


if __name__ == "__main__":
    main()

"""Decides from exit status and output whether a program of MPICH's test suite passed.

The rules are those of the suite's own driver: a program prints exactly one line "No Errors" and
ends with status 0, unless its list entry names another rule.
"""

from __future__ import annotations

import re

from conformance.processes import Outcome

NO_ERRORS = re.compile(r"\s*No [Ee]rrors\s*")
PASSED = re.compile(r"\s*Test Passed\s*")
NOISE = re.compile(
    r".*FORTRAN STOP.*"
    # Open MPI 4.1 when it starts its daemons: a child was quicker than its parent. No program of
    # the job runs yet.
    r"|\[\S+\] plm:rsh: Warning: setpgid\(\d+,\d+\) failed in parent with errno=.*"
)
"""Lines that say nothing about the program."""


def _lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if not NOISE.fullmatch(line)]


def _plain(outcome: Outcome) -> str:
    confirmed = False
    for line in _lines(outcome.output):
        if NO_ERRORS.fullmatch(line) and not confirmed:
            confirmed = True
        elif line.strip() and not PASSED.fullmatch(line):
            return f"unexpected output: {line.strip()[:160]}"
    if not confirmed:
        return 'ended without "No Errors"'
    return "" if outcome.status == 0 else f"exit status {outcome.status}"


def _must_fail(outcome: Outcome) -> str:
    return "" if outcome.status != 0 else "exit status 0 where a failure is expected"


def _must_fail_without_errors(outcome: Outcome) -> str:
    for line in _lines(outcome.output):
        if line.strip() and not NO_ERRORS.fullmatch(line) and not PASSED.fullmatch(line):
            return f"unexpected output: {line.strip()[:160]}"
    if not any(NO_ERRORS.fullmatch(line) for line in _lines(outcome.output)):
        return 'ended without "No Errors"'
    return _must_fail(outcome)


def _exit_status(outcome: Outcome) -> str:
    return "" if outcome.status == 0 else f"exit status {outcome.status}"


RULES = {
    "": _plain,
    "TestStatus": _must_fail,
    "TestErrFatal": _must_fail,
    "TestStatusNoErrors": _must_fail_without_errors,
    "ExitStatus": _exit_status,
}


def verdict(rule: str, outcome: Outcome) -> str:
    """Return why the program failed, or an empty text when it passed."""
    if outcome.timed_out:
        return f"no end after {outcome.seconds:.0f} s"
    return RULES[rule](outcome)

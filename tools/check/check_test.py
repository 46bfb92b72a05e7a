"""Tests of the driver behind `make check`: nothing that fails may look as if it had passed."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("check", Path(__file__).with_name("check.py"))
check = importlib.util.module_from_spec(_SPEC)
sys.modules["check"] = check
_SPEC.loader.exec_module(check)

JUNIT = """<testsuite><testcase name="a"/><testcase name="b"><failure/></testcase>
<testcase name="c"><skipped/></testcase><testcase name="d"><error/></testcase></testsuite>"""


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "LOGS", tmp_path)


def run(limit: float, *steps: check.Step) -> tuple[check.Count, str]:
    return check.run_part(check.Part("part", limit, lambda: list(steps)))


def shell(text: str, **options: object) -> check.Step:
    return check.Step(["sh", "-c", text], **options)


def test_numbers_come_from_the_last_summary_line() -> None:
    step = shell("echo 9 passed, 9 failed, 9 skipped; echo 3 passed, 0 failed, 1 skipped")
    step.counts = True
    assert run(10, step) == (check.Count(3, 0, 1), "")


def test_numbers_come_from_junit(tmp_path: Path) -> None:
    junit = tmp_path / "result.xml"
    step = shell(f"cat > {junit} <<'END'\n{JUNIT}\nEND\n", junit=junit, counts=True)
    count, problem = run(10, step)
    assert count == check.Count(1, 2, 1)
    assert problem == "2 tests failed"


def test_a_failing_command_without_numbers_is_one_failure() -> None:
    count, problem = run(10, shell("exit 3"), shell("echo never"))
    assert count == check.Count(0, 1, 0)
    assert "code 3" in problem


def test_a_crash_after_good_numbers_is_a_failure() -> None:
    count, problem = run(10, shell("echo 5 passed, 0 failed, 0 skipped; exit 1", counts=True))
    assert count == check.Count(5, 1, 0)
    assert problem


def test_stale_numbers_do_not_count(tmp_path: Path) -> None:
    junit = tmp_path / "result.xml"
    junit.write_text("<testsuite><testcase name='a'/></testsuite>")
    count, _ = run(10, shell("exit 1", junit=junit, counts=True))
    assert count == check.Count(0, 1, 0)


def test_a_part_that_hangs_is_ended_with_its_children() -> None:
    start = time.monotonic()
    count, problem = run(1, shell("sleep 60 & sleep 60"))
    assert time.monotonic() - start < 20
    assert count == check.Count(0, 1, 0)
    assert "did not end" in problem

"""Tests of the driver behind `make check`: nothing that fails may look as if it had passed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import check
import parts
import pytest
from parts import Part
from steps import Count, Result, Step

JUNIT = """<testsuite><testcase name="a"/><testcase name="b" classname="k"><failure message="bad
more"/></testcase>
<testcase name="c"><skipped/></testcase><testcase name="d"><error/></testcase></testsuite>"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path


def shell(text: str, **options: object) -> Step:
    return Step(["sh", "-c", text], **options)


def run(logs: Path, limit: float, *steps: Step) -> Result:
    return check.run_part(Part("part", limit, lambda folder: list(steps)), logs)


def test_numbers_come_from_the_last_summary_line(logs: Path) -> None:
    step = shell("echo 9 passed, 9 failed, 9 skipped; echo 3 passed, 0 failed, 1 skipped")
    step.counts = True
    result = run(logs, 10, step)
    assert (result.count, result.problem) == (Count(3, 0, 1), "")


def test_numbers_come_from_junit(logs: Path) -> None:
    junit = logs / "result.xml"
    step = shell(f"cat > {junit} <<'END'\n{JUNIT}\nEND\n", junit=junit, counts=True)
    result = run(logs, 10, step)
    assert result.count == Count(1, 2, 1)
    assert result.problem == "2 tests failed"
    assert result.failures == ["k::b: bad more", "d"]


def test_the_end_names_what_failed_also_before_the_tests_that_run_alone(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = logs / "result.xml"
    first = shell(f"cat > {junit} <<'END'\n{JUNIT}\nEND\nexit 1", junit=junit, counts=True)
    later = shell("seq 100; echo 1 passed, 0 failed, 0 skipped", counts=True, alone=True)
    other = Part("other", 10, lambda folder: [shell("exit 3")])
    assert check.run_parts([Part("tests", 10, lambda folder: [first, later]), other], logs, None)
    last = capsys.readouterr().out.splitlines()[-4:]
    assert last[:2] == ["FAILED tests: k::b: bad more", "FAILED tests: d"]
    assert last[2].startswith("FAILED other: ") and last[2].endswith("code 3")
    assert last[3] == "2 passed, 3 failed, 1 skipped"


def test_a_failing_command_without_numbers_is_one_failure(logs: Path) -> None:
    result = run(logs, 10, shell("exit 3"), shell("echo never"))
    assert result.count == Count(0, 1, 0)
    assert "code 3" in result.problem


def test_a_crash_after_good_numbers_is_a_failure(logs: Path) -> None:
    step = shell("echo 5 passed, 0 failed, 0 skipped; exit 1", counts=True)
    result = run(logs, 10, step)
    assert result.count == Count(5, 1, 0)
    assert result.problem


def test_stale_numbers_do_not_count(logs: Path) -> None:
    junit = logs / "result.xml"
    junit.write_text("<testsuite><testcase name='a'/></testsuite>")
    assert run(logs, 10, shell("exit 1", junit=junit, counts=True)).count == Count(0, 1, 0)


def test_a_part_that_hangs_is_ended_with_its_children(logs: Path) -> None:
    start = time.monotonic()
    result = run(logs, 1, shell("sleep 60 & sleep 60"))
    assert time.monotonic() - start < 20
    assert result.count == Count(0, 1, 0)
    assert "did not end" in result.problem


def test_tests_alone_run_also_after_failures_and_hold_what_is_built_beside(logs: Path) -> None:
    built = Part(
        "built",
        60,
        lambda folder: [shell("exit 0", counts=True)],
        # Ends only when it was not suspended for good.
        prepare=lambda: [shell(f"until [ -e {logs}/go ]; do date +%s%N > {logs}/alive; done")],
    )
    held = (
        f"sleep 0.5; a=$(cat {logs}/alive); sleep 0.5; touch {logs}/go; "
        f'[ "$a" = "$(cat {logs}/alive)" ] && echo 1 passed, 0 failed, 0 skipped'
    )
    before = f"until [ -e {logs}/alive ]; do sleep 0.01; done; exit 1"
    tests = Part("tests", 60, lambda folder: [shell(before), shell(held, counts=True, alone=True)])
    beside = check.Preparation([built], logs)
    try:
        result = check.run_part(tests, logs, None, beside)
        assert result.count == Count(1, 1, 0), (logs / "tests.log").read_text()
        assert check.run_part(built, logs, None, beside).count == Count(1, 0, 0)
    finally:
        beside.lane.end()


def test_a_build_that_fails_is_a_failure_of_its_part(logs: Path) -> None:
    part = Part("part", 60, lambda folder: [], prepare=lambda: [shell("exit 7")])
    result = check.run_part(part, logs, None, check.Preparation([part], logs))
    assert result.count == Count(0, 1, 0)
    assert "code 7" in result.problem


def test_results_are_kept_for_the_same_sources_unless_they_failed(logs: Path) -> None:
    part = Part("part", 10, lambda folder: [])
    kept = check.Kept(logs, "here")
    assert kept.get(part) is None
    kept.put(part, Result(Count(2, 1, 0), "1 tests failed", 1.5))
    assert kept.get(part) is None
    kept.put(part, Result(Count(3, 0, 1), "", 2.5))
    assert kept.get(part) == Result(Count(3, 0, 1), "", 2.5)
    assert check.Kept(logs, "elsewhere").get(part) is None


def test_an_interrupted_run_goes_on_where_it_was(logs: Path) -> None:
    kept = check.Kept(logs, "here")
    once = f"echo run >> {logs}/ran; echo 1 passed, 0 failed, 0 skipped"
    first = Part("first", 10, lambda folder: [shell(once, counts=True)])
    assert check.run_parts([first], logs, kept) == 0
    bad = Part("bad", 10, lambda folder: [shell("exit 1")])
    assert check.run_parts([first, bad], logs, kept) == 1
    assert check.run_parts([first], logs, kept) == 0
    assert (logs / "ran").read_text() == "run\n"


def test_a_script_in_the_place_of_python_is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, wrappers = tmp_path / "real", tmp_path / "wrappers"
    real.mkdir()
    wrappers.mkdir()
    (real / "python3").symlink_to(sys.executable)
    wrapper = wrappers / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec {real}/python3 "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrappers}{os.pathsep}/usr/bin{os.pathsep}/bin")
    check.pass_wrapper_of_python()
    assert shutil.which("python3") == str(real / "python3")
    path = os.environ["PATH"]
    check.pass_wrapper_of_python()
    assert os.environ["PATH"] == path, "nothing is to be done where it is no script"
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", str(wrappers))
    check.pass_wrapper_of_python()
    assert os.environ["PATH"] == str(wrappers)


def stand_in(folder: Path, name: str, script: str) -> None:
    """Put a program of this name into a folder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_clang_makes_the_sanitizers_where_it_has_their_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first version that is complete and new enough; none is no fault."""
    programs = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(programs))
    assert parts.clang_for("thread") is None
    for number, script in ((14, "exit 0"), (16, "exit 1"), (17, "exit 0"), (19, "exit 0")):
        stand_in(programs, f"clang++-{number}", script)
        if number != 17:
            stand_in(programs, f"clang-{number}", "exit 0")
    assert parts.clang_for("thread") == 19


def test_a_build_by_another_compiler_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where clang has come nor where it has gone; the same one goes on, and GCC's own."""
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    cache = tmp_path / "build" / "asan" / "CMakeCache.txt"
    cache.parent.mkdir(parents=True)

    def fresh(number: int | None) -> bool:
        monkeypatch.setattr(parts, "clang_for", lambda _: number)
        steps = parts.build_steps("asan")
        assert (f"-DCMAKE_CXX_COMPILER=clang++-{number}" in steps[-2].command) == bool(number)
        return steps[0].command[:3] == ["cmake", "-E", "rm"]

    assert not fresh(None)
    assert not fresh(16)
    for before, wanted in (
        ("/usr/bin/c++", [False, True, True]),
        ("clang++-16", [True, False, True]),
    ):
        cache.write_text(f"A:STRING=b\nCMAKE_CXX_COMPILER:FILEPATH={before}\n", encoding="utf-8")
        assert [fresh(number) for number in (None, 16, 19)] == wanted
    for preset in ("ubsan", "release"):
        first = parts.build_steps(preset)[0].command
        assert first[:3] == ["cmake", "--preset", preset]
        assert not [word for word in first if "COMPILER" in word]

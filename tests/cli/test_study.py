"""`overdrive study copy`: the report that samples give, with and without matplotlib."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from overdrive import measure
from overdrive.study import copy_paths, patterns, report
from overdrive.study.data import SHAPES, Study

from . import pages

COMMAND = Path(__file__).resolve().parents[2] / "overdrive"

PATHS = ("auto", *measure.PATHS)
SIZES = [1 << power for power in range(10, 20)]


def made_up():
    """Samples of all four parts, near and far."""
    found = []
    for line_ns in (50.0, 260.0):

        def add(test, path, shape, size, parameter, ns, second, line_ns=line_ns):
            found.extend(
                measure.Sample(test, (0, 1), path, shape, size, parameter, line_ns, line_ns, ns + i,
                               second)
                for i in range(5)
            )  # fmt: skip

        for path in PATHS:
            for size in SIZES:
                for shape in SHAPES:
                    add("pingpong", path, shape, size, 0, size / 10.0 + len(path), 8.0)
            for delay in (-1_000_000, 0, 1_000_000):
                add("skew", path, "skew", 16384, delay, 900.0, 4000.0)
            add("cache", path, "cache", 65536, 524288, 40_000.0, 20_000.0)
        add("cache", "none", "cache", 65536, 524288, 20_000.0, 20_000.0)
        add("cache", "flushed", "cache", 65536, 524288, 100_000.0, 20_000.0)
    return found


@pytest.fixture
def samples_file(tmp_path):
    path = tmp_path / "samples.csv"
    measure.write_samples(path, made_up())
    return path


@pytest.mark.quick
def test_survival_lies_between_all_and_nothing():
    found = Study(made_up(), 100.0, "machine", "today").survival("near")
    assert found["pull", 524288, 65536] == pytest.approx(0.75, abs=0.01)
    assert not any(path in ("none", "flushed") for path, _, _ in found)


@pytest.mark.quick
def test_conclusions_name_both_distances():
    text = "\n".join(report.conclusions(Study(made_up(), 100.0, "machine", "today")))
    for part in ("near: a cache line takes 50 ns", "far: a cache line takes 260 ns",
                 "near_pull_min:", "Receiver 1 ms late", "75 %"):  # fmt: skip
        assert part in text
    nothing = report.conclusions(Study([], 100.0, "machine", "today"))
    assert all("not seen" in line for line in nothing)


@pytest.mark.quick
def test_page_holds_tables_and_figures_without_any_package(overdrive, real, samples_file, tmp_path):
    # A folder in front of the path whose matplotlib cannot be imported.
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "matplotlib.py").write_text("raise ImportError('none here')\n")
    out = tmp_path / "out"
    run = overdrive(
        "study", "copy", "--samples", str(samples_file), "--output", str(out),
        env={**real, "PYTHONPATH": str(tmp_path / "nothing")},
    )  # fmt: skip
    assert run.code == 0, run.err
    text = (out / "index.html").read_text()
    page = pages.check(text)
    for part in ("Topology", "Buffers", "Skew", "Working set", "receiver 1 ms late", "75 %"):
        assert part in text
    # One chart for the processors, one for each use of buffers near and far, two of skew and one
    # of the working set each.
    assert page.figures == 1 + 2 * (len(SHAPES) + 2 + 1)
    assert "near_pull_min" in (out / "conclusions.txt").read_text()


@pytest.mark.quick
def test_plan_covers_the_four_benchmarks_and_bounds_large_machines():
    cpus = [{"id": i, "core": i, "package": i // 64} for i in range(128)]
    machine = {
        "affinity": "0-127",
        "cpus": cpus,
        "caches": [{"level": 3, "size_bytes": 32 << 20, "shared_by": "0-7"}],
    }
    parts = copy_paths.plan(machine, quick=False)
    assert {part.arguments[0] for part in parts} == {"pingpong", "skew", "cache"}
    assert sum(part.title.startswith("topology") for part in parts) == copy_paths.MOST_PAIRS
    assert sum(part.seconds for part in parts) < 310
    assert sum(part.seconds for part in copy_paths.plan(machine, quick=True)) < 95


@pytest.mark.quick
def test_usage(overdrive, real):
    run = overdrive("study", "dance", env=real)
    assert run.code == 2
    assert "Traceback" not in run.err


@pytest.mark.slow
def test_quick_study_of_this_machine(real, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processors are needed")
    done = subprocess.run(
        [sys.executable, str(COMMAND), "study", "copy", "--quick", "--output", str(tmp_path / "o")],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], **real},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {s.test for s in measure.read_samples(tmp_path / "o" / "samples.csv")} == {
        "pingpong", "skew", "cache",
    }  # fmt: skip


@pytest.mark.quick
def test_patterns_compare_the_choice_with_the_best_path(overdrive, real, tmp_path):
    found = []
    for line_ns in (50.0, 260.0):
        for number, pattern in enumerate(patterns.PATTERNS):
            for path in ("auto", *patterns.PATHS):
                ns = (
                    1000.0
                    if path == "push"
                    else 1250.0
                    if path == "auto" and number == 2
                    else 1100.0
                )
                found += [
                    measure.Sample("pingpong", (0, 1), path, pattern, 65536, 0, line_ns, line_ns,
                                   ns + i, 8.0)
                    for i in range(5)
                ]  # fmt: skip
    path = tmp_path / "samples.csv"
    measure.write_samples(path, found)
    out = tmp_path / "out"
    run = overdrive(
        "study", "copy", "--patterns", "--samples", str(path), "--output", str(out), env=real
    )
    assert run.code == 0, run.err
    assert "near: the choice reaches 0.900 of the best" in run.out
    assert "at worst 0.80 (rotate, 64K: push is best); 0 below 0.8" in run.out
    text = (out / "index.html").read_text()
    pages.check(text)
    assert "0.91 push" in text
    assert "0.80 push" in text

"""`overdrive calibrate`: from samples to a file that is loaded; stopping and resuming."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from overdrive import calibrate, measure, thresholds

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "overdrive"

FAR_NS = 100.0
SIZES = [1 << power for power in range(10, 24)]


def sample(path, shape, size, ns, line_ns=50.0, after_ns=None):
    after = line_ns if after_ns is None else after_ns
    return measure.Sample("pingpong", (0, 1), path, shape, size, 0, line_ns, after, ns, 8.0)


def exchanges(cost, line_ns=50.0, count=5):
    """Samples of all points; `cost(path, shape, size)` in ns."""
    return [
        sample(path, shape, size, cost(path, shape, size) * (1 + 0.001 * i), line_ns)
        for size in SIZES
        for shape in ("usual", "app")
        for path in measure.PATHS
        for i in range(count)
    ]


def crossing(path, shape, size):
    """Pull from 4K unchanged and 256K rewritten, cooperative from 1M; push and kernel are bad."""
    if path in ("push", "kernel"):
        return 10.0 * size
    if path == "cells":
        return 1.0 * size
    start = 4 << 10 if shape == "usual" else 256 << 10
    if path == "pull":
        return (0.5 if size >= start else 2.0) * size
    return (0.3 if size >= 1 << 20 else 3.0) * size


@pytest.mark.quick
def test_crossovers_are_found():
    derived = thresholds.derive(exchanges(crossing), FAR_NS)
    assert set(derived) == {"near"}
    assert derived["near"].settings() == {
        "near_pull_min": 4 << 10,
        "near_pull_rewritten_min": 256 << 10,
        "near_cooperative_min": 1 << 20,
        "near_push_min": thresholds.NEVER,
        "near_kernel_min": thresholds.NEVER,
    }
    assert derived["near"].slowdown == pytest.approx(1.0)
    assert derived["near"].chosen("usual", 4096) == "pull"
    assert derived["near"].chosen("app", 4096) == "cells"
    assert derived["near"].chosen("app", 1 << 20) == "cooperative"


@pytest.mark.quick
def test_distances_have_thresholds_of_their_own():
    def far(path, shape, size):
        if path == "push":
            return (0.5 if size >= 512 << 10 else 2.0) * size
        if path == "kernel":
            return (0.8 if size >= 64 << 10 else 2.0) * size
        return (1.0 if path == "cells" else 3.0) * size

    derived = thresholds.derive(exchanges(crossing) + exchanges(far, line_ns=260.0), FAR_NS)
    assert derived["near"].values["pull_min"] == 4 << 10
    assert derived["far"].settings() == {
        "far_pull_min": thresholds.NEVER,
        "far_pull_rewritten_min": thresholds.NEVER,
        "far_cooperative_min": thresholds.NEVER,
        "far_push_min": 512 << 10,
        "far_kernel_min": 64 << 10,
    }


@pytest.mark.quick
def test_what_is_within_noise_changes_nothing():
    derived = thresholds.derive(
        exchanges(lambda path, shape, size: size * (1.0 if path != "cells" else 1.02)), FAR_NS
    )
    assert set(derived["near"].values.values()) == {thresholds.NEVER}


@pytest.mark.quick
def test_one_lucky_size_is_no_crossover():
    def cost(path, shape, size):
        lucky = path == "pull" and size == 8 << 10
        return size * (0.9 if lucky else 1.0 if path == "cells" else 1.5)

    assert thresholds.derive(exchanges(cost), FAR_NS)["near"].values["pull_min"] > 8 << 10


@pytest.mark.quick
def test_samples_of_a_changing_machine_do_not_count():
    changed = [
        sample(s.path, s.shape, s.bytes, s.ns, 50.0, 260.0) for s in exchanges(crossing, count=9)
    ]
    assert thresholds.derive(changed, FAR_NS) == {}
    assert thresholds.derive(exchanges(crossing, count=4), FAR_NS) == {}
    assert thresholds.derive([], FAR_NS) == {}
    busy = sample("pull", "app", 1024, 1.0, 900.0, 300.0)
    assert busy.distance(FAR_NS) is None
    assert sample("pull", "app", 1024, 1.0, 0.0).distance(FAR_NS) is None


@pytest.mark.quick
def test_lines_that_are_no_samples_are_left_out():
    good = "pingpong,0,1,pull,app,1024,0,50.0,51.0,812.5,64.0\n"
    assert measure.parse(good) == measure.Sample(
        "pingpong", (0, 1), "pull", "app", 1024, 0, 50.0, 51.0, 812.5, 64.0
    )
    for bad in (
        good.rstrip("\n"),
        good[:30] + "\n",
        ",".join(measure.COLUMNS) + "\n",
        "\n",
        "# x\n",
    ):
        assert measure.parse(bad) is None


@pytest.mark.quick
def test_pairs_stand_for_each_distance_of_a_machine():
    machine = {
        "affinity": "0-5",
        "cpus": [
            {"id": 0, "core": 0, "package": 0},
            {"id": 1, "core": 0, "package": 0},
            {"id": 2, "core": 1, "package": 0},
            {"id": 3, "core": 2, "package": 0},
            {"id": 4, "core": 0, "package": 1},
            {"id": 9, "core": 9, "package": 1},
        ],
        "caches": [{"shared_by": "0-1"}, {"shared_by": "0-2"}],
    }
    pairs = measure.pairs_of_each_kind(machine)
    assert [(pair.kind, pair.cpus) for pair in pairs] == [
        ("shared cache", (0, 2)),
        ("same package", (0, 3)),
        ("apart", (0, 4)),
    ]
    threads = {**machine, "affinity": "0-1"}
    assert [pair.kind for pair in measure.pairs_of_each_kind(threads)] == ["same core"]
    assert measure.pairs_of_each_kind({**machine, "affinity": "3"}) == []


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def samples_file(tmp_path):
    path = tmp_path / "samples.csv"
    measure.write_samples(path, exchanges(crossing))
    return path


def loaded(overdrive, real, **env):
    run = overdrive("info", "--json", env={**real, **env})
    assert run.code == 0, run.err
    report = json.loads(run.out)
    return report, {setting["name"]: setting for setting in report["settings"]}


@pytest.mark.quick
def test_what_is_written_is_loaded(overdrive, real, samples_file, tmp_path):
    run = overdrive("calibrate", "--samples", str(samples_file), env=real)
    assert run.code == 0, run.err
    file = tmp_path / ".config" / "overdrive" / "calibration.toml"
    assert str(file) in run.out
    assert "near_pull_min = 4K" in run.out
    assert "far: not seen" in run.out

    report, settings = loaded(overdrive, real)
    assert report["calibration"]["state"] == "used"
    assert report["issues"] == []
    assert settings["near_pull_rewritten_min"]["value"] == "256K"
    assert settings["near_pull_rewritten_min"]["source"] == "calibration"
    assert settings["far_pull_min"]["source"] == "built-in"
    assert "used, measured" in overdrive("info", "--settings", env=real).out

    # Everything the user sets himself is above it.
    _, settings = loaded(overdrive, real, OVERDRIVE_NEAR_PULL_MIN="8K")
    assert settings["near_pull_min"]["source"] == "environment"
    report, settings = loaded(overdrive, real, OVERDRIVE_CALIBRATION="off")
    assert report["calibration"]["state"] == "off"
    assert settings["near_pull_min"]["source"] == "built-in"


@pytest.mark.quick
def test_stale_and_broken_files_are_explained(overdrive, real, samples_file, tmp_path):
    assert overdrive("calibrate", "--samples", str(samples_file), env=real).code == 0
    file = tmp_path / ".config" / "overdrive" / "calibration.toml"
    whole = file.read_text()
    for text, reason in (
        (whole.replace("; Linux ", "; Linux 0."), "was measured on"),
        (whole[: whole.index("near_kernel_min")], "incomplete"),
        (whole.replace('"256K"', '"loads"'), "loads"),
        (whole.replace("[copy]", "[copy"), "line"),
        ("", "which machine"),
    ):
        assert text != whole
        file.write_text(text)
        report, settings = loaded(overdrive, real)
        assert report["calibration"]["state"] == "ignored"
        assert reason in report["calibration"]["why"]
        assert len(report["issues"]) == 1
        assert "`overdrive calibrate`" in report["issues"][0]["message"]
        assert settings["near_pull_min"]["source"] == "built-in"
        assert "not used:" in overdrive("info", env=real).out


@pytest.mark.quick
def test_a_distance_that_is_not_seen_again_stays(overdrive, real, samples_file, tmp_path):
    file = tmp_path / "c.toml"
    both = tmp_path / "both.csv"
    measure.write_samples(both, exchanges(crossing) + exchanges(crossing, line_ns=260.0))
    assert overdrive("calibrate", "--samples", str(both), "--output", str(file), env=real).code == 0
    run = overdrive("calibrate", "--samples", str(samples_file), "--output", str(file), env=real)
    assert "earlier calibration stay" in run.out
    report, settings = loaded(overdrive, real, OVERDRIVE_CALIBRATION=str(file))
    assert report["calibration"]["state"] == "used", report["calibration"]
    assert settings["far_pull_min"]["source"] == "calibration"
    # But not from another machine.
    file.write_text(file.read_text().replace("; Linux ", "; Linux 0."))
    run = overdrive("calibrate", "--samples", str(samples_file), "--output", str(file), env=real)
    assert "built-in values stay" in run.out


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


FAKE = """\
#!{python}
import signal, sys, time
sys.path.insert(0, {cli!r})
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
sys.stdout.write(open({samples!r}).read())
sys.stdout.flush()
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
seconds = float(sys.argv[sys.argv.index("--seconds") + 1])
end = time.time() + (600 if {hang} else 0.1)
while time.time() < end and not stopped:
    time.sleep(0.05)
if {fail}:
    sys.exit("overdrive-measure: the two processes cannot share memory: no memfd")
print("pingpong,0,1,pull,app,1024,0,50.0,51.0,812.5,64.0")
"""


@pytest.fixture
def fake(tool, samples_file, tmp_path):
    """Return a function that makes an installation whose measuring program only prints samples."""
    log = tmp_path / "calls"

    def make(hang=False, fail=False):
        prefix = tmp_path / "fake" / "lib"
        prefix.mkdir(parents=True, exist_ok=True)
        # Only its head and its name are looked at.
        head = Path(sys.executable).read_bytes()[:16] + (3).to_bytes(2, "little")
        head += Path(sys.executable).read_bytes()[18:20]
        (prefix / "liboverdrive.so").write_bytes(head + b"liboverdrive.so\0")
        (prefix / "overdrive").mkdir(exist_ok=True)
        shutil.copy(tool, prefix / "overdrive" / "overdrive-settings")
        text = FAKE.format(
            python=sys.executable, cli=str(COMMAND.parent / "cli"), log=str(log),
            samples=str(samples_file), hang=hang, fail=fail,
        )  # fmt: skip
        write_program(prefix / "overdrive" / "overdrive-measure", text)
        return {"OVERDRIVE_LIBRARY": str(prefix / "liboverdrive.so")}

    make.calls = lambda: [line.split() for line in log.read_text().splitlines()]
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processors are needed")
    return make


def interrupt(environment, tmp_path, *arguments):
    """Start `overdrive calibrate`, press Ctrl-C when it measures; return status and messages."""
    log = tmp_path / "calls"
    log.write_text("")
    partial = tmp_path / ".config" / "overdrive" / "calibration.toml.partial"
    process = subprocess.Popen(
        [sys.executable, str(COMMAND), "calibrate", *arguments],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    # The measuring program has printed its samples, and some have been read and kept.
    while not log.read_text() or not partial.exists() or partial.read_text().count("\n") < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.3)  # the time that the next call need not measure again
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    return process.returncode, messages


@pytest.mark.quick
def test_ctrl_c_keeps_what_was_measured_and_the_next_call_goes_on(overdrive, fake, tmp_path):
    file = tmp_path / ".config" / "overdrive" / "calibration.toml"
    partial = file.with_name(file.name + ".partial")
    code, messages = interrupt(fake(hang=True), tmp_path)
    assert code == 130, messages
    assert "Traceback" not in messages
    assert "goes on from there" in messages
    assert not file.exists()
    kept = measure.read_samples(partial)
    assert len(kept) == len(SIZES) * 2 * 5 * 5 + 1  # the last line came after Ctrl-C

    run = overdrive("calibrate", env=fake())
    assert run.code == 0, run.err
    first, second = (float(call[call.index("--seconds") + 1]) for call in fake.calls())
    assert second < first
    assert file.exists()
    assert not partial.exists()
    assert f"{2 * len(kept)} samples" in file.read_text()


@pytest.mark.quick
def test_samples_of_another_machine_are_not_taken_up(overdrive, fake, tmp_path):
    partial = tmp_path / "c.toml.partial"
    partial.write_text(
        "# Another machine\npingpong,0,1,pull,app,1024,0,50.0,51.0,812.5,64.0\n# seconds 0,1 9.0\n"
    )
    run = overdrive("calibrate", "--quick", "--output", str(tmp_path / "c.toml"), env=fake())
    assert run.code == 0, run.err
    (call,) = fake.calls()
    assert float(call[call.index("--seconds") + 1]) == calibrate.QUICK_SECONDS


@pytest.mark.quick
def test_failures_are_told_and_change_nothing(overdrive, fake, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("old")
    run = overdrive("calibrate", "--output", str(file), env=fake(fail=True))
    assert run.code == 2
    assert "no memfd" in run.err
    assert "Traceback" not in run.err
    assert file.read_text() == "old"
    few = tmp_path / "few.csv"
    measure.write_samples(few, exchanges(crossing, count=1))
    run = overdrive("calibrate", "--samples", str(few), "--output", str(file), env=fake())
    assert run.code == 2
    assert "try again on a quiet machine" in run.err
    run = overdrive("calibrate", "--output", "/proc/none/c.toml", env=fake())
    assert run.code == 2
    assert "/proc/none" in run.err


@pytest.mark.quick
def test_another_node_is_reached_through_a_launcher(overdrive, fake, tmp_path):
    launcher = write_program(tmp_path / "on node7", '#!/bin/sh\necho "$1" >> "$0.log"\nexec "$@"\n')
    run = overdrive(
        "calibrate", "--quick", "--output", str(tmp_path / "c.toml"),
        "--hosts-launcher", f"'{launcher}'", env=fake(),
    )  # fmt: skip
    assert run.code == 0, run.err
    started = [Path(line).name for line in Path(f"{launcher}.log").read_text().splitlines()]
    assert started == ["overdrive-settings", "overdrive-measure"]


# --- the measuring program -----------------------------------------------------------------------


@pytest.fixture
def measuring(tool):
    program = tool.parent / "overdrive-measure"
    if not program.exists():
        pytest.skip(f"{program} is not built: run `make`")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processors are needed")
    return program


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "points"),
    [
        (("pingpong", "--sizes", "1K,64K", "--shapes", "usual,rewrite,app,rotate"), 2 * 4 * 5),
        (("skew", "--sizes", "64K", "--delays", "-100us,0,100us"), 3 * 5),
        (("cache", "--sizes", "64K", "--working-sets", "256K"), 5 + 2),
    ],
)
def test_every_point_is_measured(measuring, arguments, points):
    for seconds in ("2", "40"):  # the longer time for a busy machine
        done = subprocess.run(
            [str(measuring), *arguments, "--seconds", seconds, "--sample", "20us"],
            capture_output=True, text=True, timeout=160, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines(keepends=True)
        found = [s for line in lines if (s := measure.parse(line)) is not None]
        assert len(found) == len(lines) - 1  # the header
        if len(found) >= points:
            break
    assert len({(s.path, s.shape, s.bytes, s.parameter) for s in found}) == points
    assert all(s.ns > 0 and s.probe_before_ns > 0 and s.probe_after_ns > 0 for s in found)


@pytest.mark.quick
def test_wrong_arguments_are_refused(measuring):
    for arguments in ((), ("dance",), ("pingpong", "--cpus", "0,0"), ("pingpong", "--sizes", "1"),
                      ("pingpong", "--paths", "tunnel"), ("skew", "--seconds")):  # fmt: skip
        done = subprocess.run([str(measuring), *arguments], capture_output=True, text=True,
                              timeout=60, check=False)  # fmt: skip
        assert done.returncode == 2, arguments
        assert "usage:" in done.stderr


@pytest.mark.quick
def test_the_measurement_ends_when_nobody_reads(measuring):
    process = subprocess.Popen(
        [str(measuring), "pingpong", "--sizes", "1K", "--seconds", "300", "--sample", "20us"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=100) == 0


@pytest.mark.slow
def test_quick_calibration_of_this_machine(overdrive, real, measuring, tmp_path):
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(COMMAND), "calibrate", "--quick"],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], **real},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 30
    report, settings = loaded(overdrive, real)
    assert report["calibration"]["state"] == "used"
    assert {s["source"] for s in settings.values()} == {"built-in", "calibration"}

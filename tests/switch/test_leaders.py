"""Leaders in processes of their own against a running switch: by UDP alone, and in clusters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import jobs
from support.nodes import IMPOSSIBLE

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 120.0 * jobs.TIME_SCALE

pytestmark = pytest.mark.quick


def results(processes: list[subprocess.Popen]) -> list[dict]:
    """Wait for leaders, which must end well; return what they print."""
    found = []
    for process in processes:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 0, (out, err)
        found.append(json.loads(out))
    return found


def test_sums_are_right_and_nothing_is_left(running):
    own = running()
    for one in results(own.leaders(4, "verify", "--operations", "200")):
        assert one["by_switch"] == 200
    state = own.compute()
    assert state["groups"] == 0 and state["memory_bytes"] == 0
    assert state["combined"] >= 200
    assert own.stop() == 0
    assert not own.control.exists()


def test_faults_of_all_kinds_at_once(running):
    faults = ["--loss", "2%", "--duplication", "5%", "--reordering", "5%", "--corruption", "2%"]
    own = running(*faults)
    for one in results(own.leaders(3, "verify", "--operations", "200")):
        assert one["by_switch"] == 200
    assert own.compute()["repeated"] > 0


def test_reliable_packets_are_acknowledged_and_summed(running):
    for one in results(running().leaders(2, "verify", "--operations", "50", "--reliable")):
        assert one["by_switch"] == 50


def test_jobs_at_once_do_not_see_each_other(running):
    own = running()
    jobs_at_once = [own.leaders(2, "verify", "--operations", "150", group=g) for g in (1, 2, 3)]
    for processes in jobs_at_once:
        for one in results(processes):
            assert one["by_switch"] == 150
    assert own.compute()["groups"] == 0


@pytest.mark.parametrize("again", [True, False])
def test_a_killed_switch_ends_in_the_host_for_all(running, again):
    own = running()
    processes = own.leaders(3, "verify", "--operations", "3000", "--may-fall-back")
    deadline = time.monotonic() + LIMIT_SECONDS
    while own.compute()["combined"] < 100 and time.monotonic() < deadline:
        time.sleep(0.005)
    own.stop(signal.SIGKILL)
    if again:  # it has forgotten everything
        own.start()
    ends = results(processes)
    assert len({one["by_host"] for one in ends}) == 1
    assert 0 < ends[0]["by_host"] < 2990
    assert ends[0]["by_host"] + ends[0]["by_switch"] == 3000


def test_without_a_switch_joining_ends_soon(folder, running):
    own = running()
    own.stop()
    for process in own.leaders(2, "verify"):
        _, err = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 3
        assert "not all have joined" in err


@pytest.mark.netns
@pytest.mark.parametrize(("fabric", "tors"), [("switch", 1), ("tor-spine", 2)])
def test_switches_on_the_way_are_found_in_a_cluster(folder, tmp_path, fabric, tors):
    name = f"inc{os.getpid()}"
    lab = [str(ROOT / "overdrive"), "lab"]
    up = subprocess.run(
        [*lab, "up", "--name", name, "--nodes", "4", "--fabric", fabric, "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    if any(text in up.stderr for text in IMPOSSIBLE):
        pytest.skip(up.stderr.strip())
    assert up.returncode == 0, up.stderr
    try:
        words = [folder / "overdrive-switch-leaders", "verify", "--operations", "100"]
        words += ["--meeting", tmp_path / "meeting", "--leaders", "4", "--tors", str(tors)]
        processes = [
            subprocess.Popen(
                [*lab, "exec", "--name", name, str(index), *words]
                + ["--index", str(index), "--ip", f"10.77.0.{index + 1}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(4)
        ]
        for one in results(processes):
            assert one["by_switch"] == 100
    finally:
        subprocess.run([*lab, "down", "--name", name], check=True)


@pytest.mark.netns
def test_spines_in_programs_of_their_own(folder, tmp_path):
    if subprocess.run(["unshare", "-Urn", "true"], capture_output=True, check=False).returncode:
        pytest.skip(IMPOSSIBLE[0])
    groups, operations = 2, 100
    done = subprocess.run(
        ["unshare", "-Urn", sys.executable, Path(__file__).with_name("spines_apart.py"), folder]
        + [tmp_path, str(groups), str(operations), str(LIMIT_SECONDS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["by_switch"] for one in found["leaders"]] == [operations] * 4 * groups
    # Each spine has served some of the groups, and of all of them nothing is left.
    combined = {name: state["combined"] for name, state in found["switches"].items()}
    assert combined["spine0"] >= operations and combined["spine1"] >= operations, found
    assert combined["spine0"] + combined["spine1"] >= groups * operations, found
    assert all(state["groups"] == 0 for state in found["switches"].values()), found

"""A campaign that is ended leaves no virtual cluster behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OVERDRIVE = [sys.executable, str(HERE.parent / "overdrive")]
SCRIPT = f"""
import signal, sys, time
# A shell may have started the tests in the background, where this signal is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(HERE)!r})
import lab_runs
try:
    with lab_runs.up(2, 1, "") as cluster:
        print(cluster.name, flush=True)
        time.sleep(120)
except lab_runs.NoLab as reason:
    print("no lab:", reason)
"""


@pytest.mark.netns
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_campaign_that_is_ended_takes_its_cluster_down(number):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    if name.startswith("no lab"):
        process.wait()
        pytest.skip(name)
    try:
        process.send_signal(number)
        assert process.wait(60) != 0
        status = subprocess.run(
            [*OVERDRIVE, "lab", "status"], capture_output=True, text=True, check=False
        )
        assert f"'{name}'" not in status.stdout
    finally:  # a test that fails leaves nothing either
        process.kill()
        subprocess.run(
            [*OVERDRIVE, "lab", "down", "--name", name], capture_output=True, check=False
        )

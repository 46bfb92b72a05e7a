"""The nodes of a virtual cluster: what is their own, how they reach each other, rates and loss."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.quick]

TRAFFIC = str(Path(__file__).with_name("traffic.py"))
SOON = "0.5"
"""Seconds after which a datagram counts as lost."""


def traffic(command, node: str, *arguments: str) -> str:
    return command.good("exec", node, sys.executable, TRAFFIC, *arguments).strip()


@pytest.fixture(scope="module")
def server(cluster) -> Iterator[str]:
    """Serve on node 1 and return its name."""
    process = cluster.start("exec", "1", sys.executable, TRAFFIC, "serve")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield "lab-1"
    process.terminate()
    process.wait()


def test_each_node_has_its_own_of_everything(cluster):
    script = (
        "hostname; for n in net uts ipc mnt pid; do readlink /proc/self/ns/$n; done;"
        "stat -c %d /dev/shm; stat -c %d $TMPDIR"
    )
    seen = [cluster.good("exec", node, "sh", "-c", script).split() for node in "0123"]
    outside = subprocess.run(
        ["sh", "-c", f"TMPDIR=/tmp; {script}"], capture_output=True, text=True, check=True
    ).stdout.split()
    seen.append(outside)
    assert [own[0] for own in seen[:4]] == ["lab-0", "lab-1", "lab-2", "lab-3"]
    for kind in zip(*seen):
        assert len(set(kind)) == 5, f"shared by two nodes: {kind}"


def test_a_node_sees_its_own_processes_and_interfaces_only(cluster):
    listing = "ls -d /proc/[0-9]* | wc -l; ls /sys/class/net; ls /dev/shm | wc -l"
    seen = cluster.good("exec", "2", "sh", "-c", listing).split()
    assert int(seen[0]) <= 5
    assert seen[1:] == ["eth0", "lo", "0"]


def test_memory_files_of_a_node_stay_there(cluster):
    cluster.good("exec", "0", "sh", "-c", "echo secret > /dev/shm/mine; echo x > $TMPDIR/mine")
    look = "ls /dev/shm/mine; ls $TMPDIR"
    assert "mine" in cluster.good("exec", "0", "sh", "-c", look)
    assert cluster("exec", "3", "sh", "-c", look).out == ""
    assert not Path("/dev/shm/mine").exists()
    cluster.good("exec", "0", "sh", "-c", "rm /dev/shm/mine $TMPDIR/mine")


def test_sockets_are_shown_to_hwloc(cluster):
    assert cluster.good("exec", "0", "printenv", "HWLOC_SYNTHETIC") == "pack:2 core:3 pu:1\n"
    assert cluster("exec", "head", "printenv", "HWLOC_SYNTHETIC").out == ""


def test_nodes_reach_each_other_by_name(cluster, server):
    for node in ("0", "2", "lab-3", "head"):
        assert traffic(cluster, node, "echo", server, "20") == "20"


def test_programs_run_as_if_logged_in(cluster, tmp_path):
    again = cluster("exec", "1", "sh", "-c", "cat; pwd; echo $GREETING >&2; exit 7", give="in\n",
                    env={"GREETING": "hello"})  # fmt: skip
    assert again.code == 7
    assert again.out == f"in\n{Path.cwd()}\n"
    assert again.err == "hello\n"
    assert cluster("exec", "1", "sh", "-c", "kill -TERM $$").code == 128 + 15
    missing = cluster("exec", "1", "no-such-program")
    assert missing.code == 127
    assert "lab-1: no-such-program: no such program" in missing.err


def test_background_processes_stay_until_down(lab):
    lab.good("up", "--nodes", "1", "--quiet")
    lab.good("exec", "0", "sh", "-c", "sleep 1000 > /dev/null 2>&1 &")
    assert "sleep 1000" in lab.good("exec", "0", "ps", "ax")
    lab.good("down")
    assert lab.left() == []


def test_a_rate_limits_and_can_be_changed(cluster, server):
    # Only upper bounds are sharp: a busy machine can make anything slower, nothing faster.
    size = str(3 << 20)
    try:
        cluster.good("shape", "40mbit")
        limited = float(traffic(cluster, "0", "stream", server, size))
        cluster.good("shape", "off", "1")
        one_end = float(traffic(cluster, "0", "stream", server, size))
        cluster.good("shape", "off")
        # A busy machine can make it slow once, the limit that is gone would make it slow always.
        for _ in range(20):
            free = float(traffic(cluster, "0", "stream", server, size))
            if free > 2 * limited:
                break
    finally:
        cluster.good("shape", "off")
    assert 5 < limited < 44, f"{limited} Mbit/s at 40"
    assert 5 < one_end < 44, f"{one_end} Mbit/s while one of two links has 40"
    assert free > 2 * limited, f"{free} Mbit/s without limit, {limited} with 40"


def test_loss_is_seen_and_can_be_ended(cluster, server):
    assert traffic(cluster, "0", "echo", server, "100") == "100"
    try:
        cluster.good("loss", "30%", "0")
        back = int(traffic(cluster, "0", "echo", server, "200", SOON))
        unharmed = traffic(cluster, "2", "echo", server, "100")
        state = json.loads(cluster.good("status", "--json"))[0]["nodes"]
        cluster.good("loss", "100")
        nothing = traffic(cluster, "0", "echo", server, "20", SOON)
    finally:
        cluster.good("loss", "off")
    # 140 of 200 are expected with a standard deviation of 6.5; a busy machine may be late as well.
    assert 90 <= back <= 175, f"{back} of 200 datagrams came back at 30 % loss"
    assert unharmed == "100"
    assert [node["loss"] for node in state] == ["30%", "off", "off", "off"]
    assert nothing == "0"
    assert traffic(cluster, "0", "echo", server, "100") == "100"


def test_rate_and_loss_go_together(cluster, server):
    try:
        cluster.good("shape", "50mbit", "0")
        cluster.good("loss", "20%", "0")
        cluster.good("shape", "100mbit", "0")
        state = cluster.good("status")
        back = int(traffic(cluster, "0", "echo", server, "200", SOON))
    finally:
        cluster.good("shape", "off")
        cluster.good("loss", "off")
    assert "100mbit, loses 20%" in state
    assert 110 <= back <= 195, f"{back} of 200 datagrams came back at 20 % loss"


def test_status_shows_what_is_up(cluster):
    text = cluster.good("status")
    assert "lab 'lab': 4 nodes, 2 sockets of 3 cores" in text
    assert "lab-3" in text
    assert "DEAD" not in text
    assert "10.77.0.4" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs a command"),
        (["frobnicate"], "has no command 'frobnicate'"),
        (["up"], "is up already, with 4 nodes"),
        (["up", "--nodes", "0"], "a number from 1 to"),
        (["up", "--nodes", "many"], "a number from 1 to"),
        (["up", "--nodes"], "needs a value"),
        (["up", "--rate", "fast"], "not a rate"),
        (["up", "--rate", "1bit"], "out of range"),
        (["up", "--name", "A b"], "cannot name a lab"),
        (["up", "--name", "../x"], "cannot name a lab"),
        (["up", "--cores", "2"], "give --sockets"),
        (["up", "4"], "does not know '4'"),
        (["up", "--frobnicate"], "does not know --frobnicate"),
        (["exec", "0"], "needs a node and a program"),
        (["exec", "4", "true"], "has no node '4': its nodes are 0 to 3"),
        (["exec", "--name", "other", "0", "true"], "no lab 'other'; there is: lab"),
        (["shape"], "needs a rate"),
        (["shape", "1gbit", "head"], "no rate"),
        (["loss", "101%"], "more than all"),
        (["loss", "often"], "not a share"),
        (["down", "--name", "other"], "no lab 'other'"),
        (["down", "--all", "--name", "lab"], "exclude each other"),
        (["mpirun"], "needs a program"),
        (["mpirun", "-n", "0", "true"], "a number from 1"),
        (["mpirun", "--layout", "1+x", "true"], "not a layout"),
        (["mpirun", "--layout", "1+1+1+1+1", "true"], "the layout is for 5 nodes"),
        (["mpirun", "--layout", "1+1", "-n", "3", "true"], "contradicts the layout"),
        (["mpirun", "--layout", "1+1", "--ppn", "3", "true"], "leave --ppn out"),
        (["mpirun", "-n", "9", "--ppn", "2", "true"], "9 ranks do not fit on 4 nodes"),
        (["mpirun", "--order", "odd", "true"], "block or round-robin"),
        (["mpirun", "-x", "NOT_THERE", "true"], "no such variable"),
        (["mpirun", "--mca", "true"], "write --options '--mca ...'"),
        (["mpirun", "--options", "'", "true"], "--options: No closing"),
        (["orterun-of-nobody", "true"], "has no command"),
        (["/no/such/mpirun", "true"], "was not found"),
    ],
)
def test_bad_input_is_explained(cluster, arguments, message):
    done = cluster(*arguments)
    assert done.code == 2, done.text()
    assert done.err.startswith("overdrive: error: ")
    assert message in done.err
    assert "Traceback" not in done.err

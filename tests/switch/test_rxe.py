"""Packets of ours and an RDMA stack that is not: Linux's rdma_rxe, in a virtual machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import jobs, rxe_machine

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

COUNT = 200
BYTES = 1000
LIMIT_SECONDS = 240 * jobs.TIME_SCALE
TRANSPORTS = ("rc", "ud")

# The adapter's second address is that of RoCEv2 over IPv4.
SERVE = "echo serving {0}; /bin/ibv_{0}_pingpong -d rxe0 -g 1 -s {1} -n {2}; echo ended {0} $?"
NETWORK = """
ip link set lo up
ip tuntap add tap0 mode tap
ip addr add {own}/24 dev tap0
ip link set tap0 up
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> str:
    """Compile the program that talks with the adapter by packets of ours."""
    where = tmp_path_factory.mktemp("client")
    (where / "innetwork").mkdir()
    generator = ROOT / "src" / "innetwork" / "generate.py"
    header = str(where / "innetwork" / "packet_fields.h")
    subprocess.run([sys.executable, str(generator), "header", header], check=True)
    words = ["c++", "-std=c++20", "-O1", "-Wall", "-Wextra", f"-I{ROOT / 'src'}", f"-I{where}"]
    words += [str(ROOT / "tests" / "switch" / "verbs_peer.cc")]
    words += [str(ROOT / "src" / "innetwork" / f"{name}.cc") for name in ("packet", "crc32")]
    subprocess.run([*words, "-o", str(where / "verbs_peer")], check=True)
    return str(where / "verbs_peer")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory, client) -> tuple[dict[str, dict], str]:
    """Run both transports against one machine: what the client has counted, and its console."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a network for a virtual machine needs root")
    where = tmp_path_factory.mktemp("rxe")
    commands = "\n".join(SERVE.format(name, BYTES, COUNT) for name in TRANSPORTS)
    try:
        machine = rxe_machine.prepare(where, commands)
    except rxe_machine.NoMachine as reason:
        pytest.skip(str(reason))
    wait_ms = int(LIMIT_SECONDS * 250)
    talk = "{0} tap0 {1} {2} {3} {4} {5} {6} > {7}/{3}"
    lines = ["set -e", NETWORK.format(own=rxe_machine.OWN)]
    lines += [f"{words(machine)} > {where}/console 2>&1 < /dev/null &", "set +e"]
    lines += [
        talk.format(client, rxe_machine.OWN, rxe_machine.GUEST, name, COUNT, BYTES, wait_ms, where)
        for name in TRANSPORTS
    ]
    lines += ["wait"]
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(lines)]
    subprocess.run(command, timeout=LIMIT_SECONDS, check=True)
    console = (where / "console").read_text(errors="replace")
    if "rxe0" in console and "Operation not supported" in console:
        pytest.skip("this kernel has no rxe adapter")
    counts = {}
    for name in TRANSPORTS:
        text = (where / name).read_text()
        assert text, f"the client has failed; the machine said:\n{console}"
        counts[name] = json.loads(text)
    return counts, console


def words(command: list[str]) -> str:
    return " ".join(f"'{word}'" for word in command)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_adapter_takes_our_packets_and_we_take_its_packets(outcome, transport):
    counts, console = outcome
    found = counts[transport]
    # All kinds of packets went there and came back as they were; each check of the adapter's is
    # right, and it has taken each of ours.
    assert found["sent"] == found["returned"] == COUNT, (found, console)
    assert found["wrong_contents"] == found["wrong_checks"] == 0, found
    assert found["acknowledged"] == (COUNT if transport == "rc" else 0), found
    assert found["right_checks"] == COUNT * (2 if transport == "rc" else 1), found
    assert f"ended {transport} 0" in console
    assert f"{COUNT} iters" in console

"""The life of a virtual cluster: it leaves nothing, however it ends; several at once; rights."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from overdrive.errors import CommandError
from overdrive.lab import network, privilege
from overdrive.lab import state as lab_state
from support import processes

from .conftest import COMMAND, Command, Done, interrupt

pytestmark = [pytest.mark.netns, pytest.mark.quick]

NOBODY = 65534
KINDS = ("net", "uts", "ipc", "mnt", "pid")
"""Of namespaces that a virtual cluster makes."""


def outside() -> dict[str, object]:
    """Return what a lab must not change outside of itself."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "mounts": sorted(mounts),
        "host name": os.uname().nodename,
        "host table": Path("/etc/hosts").read_text(),
    }


def namespace_links() -> Iterator[Path]:
    """Yield the links to the namespaces of all processes, which may be gone by then."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield from (entry / "ns" / kind for kind in KINDS)


def namespaces_in_use() -> set[str]:
    """Return the namespaces of all living processes."""
    found = set()
    for link in namespace_links():
        try:
            found.add(os.readlink(link))
        except OSError:
            continue
    return found


@contextlib.contextmanager
def held(namespaces: set[str]) -> Iterator[None]:
    """Keep the kernel from giving the numbers of these namespaces, which have processes, to others.

    It takes the lowest number that is free, and tests beside this one make namespaces as well.
    """
    found: dict[str, int] = {}
    try:
        for link in namespace_links():
            try:
                file = os.open(link, os.O_RDONLY)
            except OSError:
                continue
            name = os.readlink(f"/proc/self/fd/{file}")
            if name in namespaces and name not in found:
                found[name] = file
            else:
                os.close(file)
        assert set(found) == namespaces
        yield
    finally:
        for file in found.values():
            os.close(file)


def state_of(lab, name: str = "lab") -> dict:
    return json.loads((lab.labs() / name / "state.json").read_text())


def test_down_leaves_nothing(lab):
    before = outside()
    lab.good("up", "--nodes", "3", "--rate", "1gbit", "--quiet")
    assert outside() == before
    mine = set()
    for machine in ("0", "1", "2", "head", "switch"):
        listing = "for n in net uts ipc mnt pid; do readlink /proc/self/ns/$n; done"
        mine.update(lab.good("exec", machine, "sh", "-c", listing).split())
    mine -= {os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}
    # Five networks, host names, mounts and memory, and pid namespaces of the lab and three nodes.
    assert len(mine) == 24
    with held(mine):
        lab.good("down")
        assert lab.left(0) == []
        assert outside() == before
        assert not mine & namespaces_in_use()


def test_folders_are_closed_to_others(lab):
    lab.good("up", "--nodes", "1", "--quiet")
    for path in (lab.labs(), lab.labs() / "lab", lab.labs() / "lab" / "node"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (lab.labs() / "lab" / "state.json").stat().st_mode & 0o777 == 0o600
    lab.good("down")


def test_an_open_folder_is_refused(lab):
    lab.labs().mkdir()
    lab.labs().chmod(0o777)
    done = lab("up")
    assert done.code == 2
    assert "is open to others" in done.err
    lab.labs().rmdir()


@pytest.mark.parametrize("how", ["ctrl-c", "kill", "terminate"])
@pytest.mark.parametrize("moment", [0, 4])
def test_a_stopped_up_leaves_nothing(lab, how, moment):
    """`moment` is how many processes of the lab there are when `up` is stopped."""
    keeper = None
    while keeper is None:
        process = lab.start("up", "--nodes", "6")
        while not lab.labs().exists() or len(processes.members(lab.job)) < 1 + moment:
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        keeper = stopped_keeper(lab, process)
    if how == "ctrl-c":
        interrupt(process)
    elif how == "kill":
        process.kill()
    else:
        process.terminate()
    os.kill(keeper, signal.SIGCONT)
    process.communicate()
    assert process.returncode != 0
    assert lab.left() == []


def stopped_keeper(lab, process):
    """Return the keeper, stopped before it has said that the lab is up; None if it was quicker."""
    task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for keeper in map(int, task.read_text().split()):
        os.kill(keeper, signal.SIGSTOP)
        while not processes.suspended(keeper):
            time.sleep(0.001)
        if not (lab.labs() / "lab" / "state.json").exists():
            return keeper
        os.kill(keeper, signal.SIGCONT)
    process.communicate()
    lab.good("down")
    return None


def test_an_up_that_has_made_a_lab_does_not_fail(lab):
    """Ctrl-C comes too late once the lab stays."""
    for _ in range(20):
        process = lab.start("up", "--nodes", "1")
        while not (lab.labs() / "lab" / "state.json").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        interrupt(process)
        process.communicate()
        if process.returncode == 0:
            lab.good("down")
        assert lab.left() == []


@pytest.mark.parametrize("victim", ["keeper", "init"])
def test_a_killed_lab_leaves_nothing(lab, victim):
    lab.good("up", "--nodes", "2", "--quiet")
    state = state_of(lab)
    os.kill(state["keeper"] if victim == "keeper" else state["switch"]["pid"], signal.SIGKILL)
    assert lab.left() == []


def test_remains_of_a_lab_are_removed_by_the_next_command(lab):
    lab.good("up", "--nodes", "2", "--quiet")
    state = state_of(lab)
    os.kill(state["keeper"], signal.SIGSTOP)  # so that it cannot clean up
    os.kill(state["switch"]["pid"], signal.SIGKILL)
    os.kill(state["keeper"], signal.SIGKILL)
    while processes.members(lab.job):
        time.sleep(0.01)
    assert (lab.labs() / "lab" / "state.json").exists()
    assert "no lab is up" in lab.good("status")
    assert lab.left(0) == []


def test_a_lab_without_its_folder_ends(lab):
    lab.good("up", "--nodes", "1", "--quiet")
    (lab.labs() / "lab" / "state.json").unlink()
    (lab.labs() / "lab" / "node").rmdir()
    (lab.labs() / "lab").rmdir()
    assert lab.left(20) == []


def test_a_dead_node_is_shown(lab):
    lab.good("up", "--nodes", "2", "--quiet")
    os.kill(state_of(lab)["nodes"][1]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while "DEAD" not in lab.good("status"):
        assert time.monotonic() < deadline, lab.good("status")
    done = lab("exec", "1", "true")
    assert done.code == 2
    assert "lab-1 has died" in done.err
    assert lab.good("exec", "0", "echo", "alive") == "alive\n"
    lab.good("down")
    assert lab.left(0) == []


def test_a_second_up_says_what_is_there(lab):
    lab.good("up", "--nodes", "3", "--quiet")
    done = lab("up", "--nodes", "3")
    assert done.code == 2
    assert "lab 'lab' is up already, with 3 nodes" in done.err
    lab.good("down")
    assert "there is no lab" in lab("down").err


def test_two_labs_do_not_meet(lab):
    lab.good("up", "--name", "red", "--nodes", "2", "--quiet")
    only = lab.good("exec", "0", "hostname")  # needs no name while there is one
    lab.good("up", "--name", "blue", "--nodes", "3", "--quiet", "--rate", "10mbit")
    assert only == "red-0\n"
    assert lab.good("exec", "--name", "blue", "2", "hostname") == "blue-2\n"
    done = lab("exec", "0", "hostname")
    assert done.code == 2
    assert "several labs are up (blue, red)" in done.err
    traffic = str(Path(__file__).with_name("traffic.py"))
    server = lab.start("exec", "--name", "blue", "1", sys.executable, traffic, "serve")
    assert server.stdout is not None
    server.stdout.readline()
    asks = [sys.executable, traffic, "echo", "10.77.0.2", "1", "5"]
    assert lab.good("exec", "--name", "blue", "0", *asks) == "1\n"
    # The same address in the other lab: nobody listens there.
    assert lab("exec", "--name", "red", "0", *asks).out != "1\n"
    lab.good("down", "--name", "blue")
    server.wait()
    assert "red" in lab.good("status")
    lab.good("down")
    assert lab.left(0) == []


def as_nobody(command: list[str]) -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]


@pytest.fixture
def unprivileged(lab):
    """Return the command for a user without rights; needs the superuser to become one."""
    if os.geteuid() != 0:
        pytest.skip("this user has no rights anyway: the other tests are about it")
    lab.interpreter = "/usr/bin/python3"
    os.chown(lab.folder, NOBODY, NOBODY)
    words = lab.words
    try:
        probe = subprocess.run(
            as_nobody([lab.interpreter, str(COMMAND), "lab", "--help"]),
            env=lab.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        reason = probe.stderr.strip() if probe.returncode != 0 else ""
    except FileNotFoundError:
        reason = "setpriv is missing"
    if reason:
        pytest.skip(f"user nobody cannot run the command: {reason}")
    lab.words = lambda *arguments: as_nobody(words(*arguments))
    return lab


def test_a_user_without_rights_has_labs_as_well(unprivileged):
    lab = unprivileged
    done = lab("up", "--nodes", "2", "--rate", "1gbit")
    if done.code != 0 and "user namespace cannot be used" in done.err:
        pytest.skip(f"no user namespaces here: {done.err.strip()}")
    assert done.code == 0, done.text()
    assert "in a user namespace" in done.out
    # Programs in nodes are the user's own and have no capabilities; the head can enter nodes.
    look = "hostname; id -u; grep CapEff /proc/self/status"
    assert lab.good("exec", "1", "sh", "-c", look).split() == [
        "lab-1", str(NOBODY), "CapEff:", "0" * 16,
    ]  # fmt: skip
    agent = str(lab.labs() / "lab" / "node" / "agent")
    assert lab.good("exec", "head", agent, "lab-1", look).split()[::2] == ["lab-1", "CapEff:"]
    lab.good("shape", "10mbit")
    lab.good("loss", "1%")
    assert "10mbit, loses 1%" in lab.good("status")
    lab.good("down")
    assert lab.left(0) == []


def refused_in_another_root(lab: Command, root: Path, script: str) -> Done:
    """Demand that `lab up` is refused in a root folder that the script makes, and leaves nothing.

    What the script mounts is gone afterwards.
    """
    elsewhere = ["unshare", "--mount", "sh", "-ec", f'{script}\nexec chroot {root} "$@"', "sh"]
    words = lab.words
    lab.words = lambda *arguments: [*elsewhere, *words(*arguments)]
    done = lab("up")
    lab.words = words
    assert done.code == 2, done.text()
    assert lab.left(0) == []
    return done


def test_without_rights_it_says_what_is_missing(unprivileged, tmp_path):
    lab = unprivileged
    # The kernel refuses user namespaces to processes in another root folder.
    done = refused_in_another_root(lab, tmp_path, f"mount --rbind / {tmp_path}")
    assert "no right to make namespaces" in done.err
    assert "lacks CAP_SYS_ADMIN" in done.err
    assert "a user namespace cannot be used" in done.err
    assert "with sudo" in done.err


def test_in_a_plain_chroot_it_says_what_is_missing(lab, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only the superuser can change the root folder")
    root = tmp_path / "root"
    script = [f"mkdir {root}"]
    for entry in sorted(Path("/").iterdir()):
        inside = root / entry.name
        if entry.is_symlink():
            script.append(f"ln -s {entry.readlink()} {inside}")
        elif entry.is_dir():
            script.append(f"mkdir {inside} && mount --rbind {entry} {inside}")
    done = refused_in_another_root(lab, root, "\n".join(script))
    assert "is no mount" in done.err
    assert "pivot_root" in done.err


def test_known_switches_are_named(tmp_path, monkeypatch):
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns").write_text("1\n")
    (tmp_path / "kernel" / "unprivileged_userns_clone").write_text("1\n")
    monkeypatch.setattr(privilege, "SYSTEM_SETTINGS", str(tmp_path))
    found = [text for text in privilege.hindrances() if "seccomp" not in text]
    assert found == [
        "kernel.apparmor_restrict_unprivileged_userns is 1 "
        "(`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` would permit them)"
    ]


def test_a_missing_program_is_named(monkeypatch):
    monkeypatch.setattr(network, "SYSTEM_FOLDERS", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CommandError, match="`ip` is missing: install iproute2"):
        network.tool("ip")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1gbit", "1000000000bit"),
        ("2.5Gbit", "2500000000bit"),
        ("100m", "100000000bit"),
        ("500kbit", "500000bit"),
        ("1000000", "1000000bit"),
        ("off", "off"),
    ],
)
def test_rates(text, rate):
    assert network.parse_rate(text) == rate


def test_names():
    assert lab_state.check_name("a-1") == "a-1"
    for name in ("", "A", "1a", "a/b", "a" * 25, "-a"):
        with pytest.raises(CommandError):
            lab_state.check_name(name)

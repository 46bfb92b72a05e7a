"""Makes the nodes of a lab and keeps them until the lab goes down.

    overdrive lab up
      keeper            outside; ends the lab when told to, removes its folder
        init            process 1 of the lab's pid namespace; its network is the switch
          head          network, host name, IPC and mounts of its own; launchers start here
          node 0, 1 ..  the same and a pid namespace of its own

Everything of a lab hangs on processes of the lab's pid namespace. When its first process ends, for
whatever reason, the kernel kills all others, and with them namespaces, interfaces, mounts and files
in them disappear. The keeper kills init and is killed by nobody; if it is all the same, init sees
its channel closed, removes the folder and ends. Until `up` says that it has seen everything stand,
the keeper ends the lab as soon as `up` is gone.

Launchers enter nodes from the head: a process may enter only pid namespaces below its own, so the
head is in that of the lab and not in one beside the nodes'.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from overdrive.errors import CommandError
from overdrive.lab import fabric as lab_fabric
from overdrive.lab import network, state, system
from overdrive.lab import privilege as lab_privilege
from overdrive.lab.plan import Plan
from overdrive.lab.state import Lab, Node

SECONDS_TO_BUILD = 60.0
SECONDS_TO_END = 20.0
SECONDS_BETWEEN_LOOKS = 2.0
"""How often the keeper looks whether somebody has removed the lab's folder."""

LONGEST_REASON = 1000
"""Of a message about a failure; it has to fit into one packet."""

AGENT, TABLE, HOSTS, TEMPORARY = "agent", "nodes.json", "hosts", "tmp"
"""Files in the folder that every node has for itself; the table only in the head."""

_NODE_SPACES = system.CLONE_NEWNET | system.CLONE_NEWNS | system.CLONE_NEWUTS | system.CLONE_NEWIPC
_QUIET_MOUNT = system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC


@dataclass
class Channels:
    """The sockets between a lab's processes."""

    to_keeper: socket.socket
    to_init: socket.socket


def _close_all_but(kept: list[int]) -> None:
    """Close every descriptor except the standard ones and those given."""
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, *kept}:
        with contextlib.suppress(OSError):  # the one that listed them
            os.close(descriptor)


def _silence() -> None:
    """Let the standard streams lead nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _text(reason: Exception) -> str:
    """Return what went wrong; these processes have no terminal to show more."""
    expected = isinstance(reason, (OSError, CommandError))
    text = str(reason) if expected else f"{type(reason).__name__}: {reason}"
    return text[:LONGEST_REASON]


def in_child(body: Callable[[], None]) -> int:
    """Fork a child that does one thing and ends; return its process id."""
    child = os.fork()
    if child != 0:
        return child
    with contextlib.suppress(BaseException):
        body()
    os._exit(1)


def _mount_system() -> None:
    """Show the namespaces of this process in /proc and /sys; nothing here is seen outside."""
    system.mount("none", "/", None, system.MS_REC | system.MS_SLAVE)
    system.mount("proc", "/proc", "proc", _QUIET_MOUNT)
    network.without_ipv6()


def _mount_network_devices(staging: str) -> None:
    """Show this network's interfaces in /sys/class/net, where some MPI libraries look for them.

    Control groups stay visible. Where /sys cannot be mounted again (some containers) the old one
    stays, which is good enough for libraries that do not look there.
    """
    try:
        system.mount("sysfs", staging, "sysfs", _QUIET_MOUNT)
    except OSError:
        return
    flags = system.MS_BIND | system.MS_REC
    with contextlib.suppress(OSError):
        system.mount("/sys/fs/cgroup", f"{staging}/fs/cgroup", None, flags)
    system.mount(staging, "/sys", None, system.MS_MOVE)


def _hosts_table(plan: Plan) -> str:
    lines = ["127.0.0.1 localhost"]
    lines += [f"{own} {name}" for own, name in zip(plan.addresses(), plan.names())]
    return "\n".join(lines) + "\n"


def _furnish(plan: Plan, folder: Path, index: int) -> None:
    """Give this process's namespaces what makes them a node: name, memory files, host table."""
    socket.sethostname(plan.names()[index])
    _mount_system()
    inside = folder / state.NODE
    _mount_network_devices(str(inside))
    flags = system.MS_NOSUID | system.MS_NODEV
    system.mount("tmpfs", "/dev/shm", "tmpfs", flags, "mode=1777")
    system.mount("tmpfs", str(inside), "tmpfs", flags, "mode=755")
    (inside / TEMPORARY).mkdir()
    (inside / TEMPORARY).chmod(0o1777)
    (inside / HOSTS).write_text(_hosts_table(plan))
    (inside / HOSTS).chmod(0o644)
    # In every node, because Open MPI's daemons look for it; only the head has the table.
    program = Path(__file__).with_name("agent.py")
    words = [sys.executable or "python3", "-I", "-S", str(program), str(inside / TABLE)]
    # What is preloaded is meant for the command, not for the agent.
    keep = f"export {system.PRELOAD_KEPT}=$LD_PRELOAD; unset LD_PRELOAD"
    (inside / AGENT).write_text(f'#!/bin/sh\n{keep}\nexec {shlex.join(words)} "$@"\n')
    (inside / AGENT).chmod(0o755)
    system.mount(str(inside / HOSTS), "/etc/hosts", None, system.MS_BIND)


def _hold(plan: Plan, folder: Path, index: int, channels: Channels) -> None:
    """Become the process whose namespaces are a node."""
    is_head = index == plan.nodes
    try:
        system.unshare(_NODE_SPACES | (0 if is_head else system.CLONE_NEWPID))
        if not is_head and os.fork() != 0:
            os._exit(0)
        system.set_name(f"lab:{plan.names()[index]}")
        _furnish(plan, folder, index)
        text = str(index)
    except Exception as reason:
        text = f"{plan.names()[index]}: {_text(reason)}"
    system.send_with_identity(channels.to_init, text)
    system.send_with_identity(channels.to_keeper, text)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the node end here, unnoticed
    _close_all_but([])
    while True:
        signal.pause()


def _write_table(plan: Plan, folder: Path, pids: list[int]) -> None:
    """Write what launch agents need to know; called inside the head."""
    nodes: dict[str, int] = {}
    for name, own, pid in zip(plan.names(), plan.addresses(), pids):
        nodes[name] = nodes[own] = pid
    environment = node_environment(str(folder), plan.sockets, plan.cores)
    table = {"nodes": nodes, "environment": environment}
    (folder / state.NODE / TABLE).write_text(json.dumps(table))


def node_environment(folder: str, sockets: int, cores: int) -> dict[str, str]:
    """Return the variables that processes of a node get."""
    found = {"TMPDIR": os.path.join(folder, state.NODE, TEMPORARY)}
    if sockets > 0:
        found["HWLOC_SYNTHETIC"] = f"pack:{sockets} core:{cores} pu:1"
    return found


def _run_inside(pid: int, body: Callable[[], None]) -> None:
    """Do something in the mounts of a process; raises when it fails."""

    def work() -> None:
        opened = [item for item in system.open_namespaces(pid) if item[0] == "mnt"]
        system.enter_namespaces(opened)
        body()
        os._exit(0)

    _, status = os.waitpid(in_child(work), 0)
    if status != 0:
        raise CommandError("the files of the lab's head cannot be written")


def _collect(channel: socket.socket, count: int) -> list[int]:
    """Receive one message from each node; return their process ids in order."""
    found: dict[int, int] = {}
    while len(found) < count:
        pid, text = system.receive_with_identity(channel)
        if not text.isdigit():
            raise CommandError(text or "a node has ended while it was being made")
        found[int(text)] = pid
    return [found[index] for index in range(count)]


def _init(plan: Plan, folder: Path, life: socket.socket, to_keeper: socket.socket) -> None:
    """Become process 1 of the lab: make everything, then wait until the keeper is gone."""
    try:
        system.set_name(f"lab:{plan.name}")
        system.unshare(_NODE_SPACES)
        socket.sethostname(f"{plan.name}-switch")
        _mount_system()
        _mount_network_devices(str(folder / state.NODE))
        receiver, sender = system.channel_pair()
        channels = Channels(to_keeper, sender)
        count = plan.nodes + 1
        for index in range(count):

            def hold(index: int = index) -> None:
                life.close()
                receiver.close()
                _hold(plan, folder, index, channels)

            in_child(hold)
        sender.close()
        pids = _collect(receiver, count)
        _run_inside(pids[-1], lambda: _write_table(plan, folder, pids))
        bridge = plan.fabric == lab_fabric.BRIDGE
        network.build(pids, plan.addresses(), plan.mtu, bridge)
        if not bridge:
            lab_fabric.start(plan.program, folder, lab_fabric.layout_of(plan))
        answer = {"pids": pids}
    except Exception as reason:
        answer = {"error": _text(reason)}
    to_keeper.send(json.dumps(answer).encode())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    while life.recv(1):
        pass
    state.discard(folder)
    os._exit(0)


class _Keeper:
    """The process that owns a lab."""

    def __init__(self, plan: Plan, control: socket.socket) -> None:
        self.plan = plan
        self.control = control
        self.folder: Path | None = None
        self.init = 0

    def run(self) -> NoReturn:
        """Make the lab, say so, and keep it; never returns."""
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.chdir("/")
        _silence()
        _close_all_but([self.control.fileno()])
        system.set_name(f"lab:{self.plan.name} keeper")
        awake, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            self.folder, self._lock = self._claim()
            self._build(self.folder)
            self._watch(self.folder, awake)
        except Exception as reason:
            prefix = "" if self.folder is None else "the lab cannot be made: "
            self._answer({"error": prefix + _text(reason)})
        finally:
            self._end()
        os._exit(0)

    def _claim(self) -> tuple[Path, int]:
        """Make and lock the lab's folder; the lock ends with this process and init."""
        with state.changing(create=True) as bases:
            folder = state.existing(bases, self.plan.name)
            if folder is not None:
                raise CommandError(_already(folder, self.plan.name))
            return state.make_folder(bases[0], self.plan.name)

    def _answer(self, content: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self.control.send(json.dumps(content).encode())

    def _build(self, folder: Path) -> None:
        privilege = lab_privilege.separate()
        life, far_life = socket.socketpair()
        receiver, sender = system.channel_pair()
        system.unshare(system.CLONE_NEWPID)

        def init() -> None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            life.close()
            receiver.close()
            self.control.close()
            _init(self.plan, folder, far_life, sender)

        self.init = in_child(init)
        self._life = life  # closed by the kernel when this process ends
        far_life.close()
        sender.close()
        pids, inner = self._wait_for_nodes(receiver)
        lab = self._lab(folder, privilege, pids, inner)
        pairs = list(enumerate(lab.nodes))
        bridge = self.plan.fabric == lab_fabric.BRIDGE
        network.shape(self.init, pairs, self.plan.rate, self.plan.mtu, bridge)
        for node in lab.nodes:
            node.rate = self.plan.rate
        lab.write()
        self._answer({"ready": str(folder)})

    def _wait_for_nodes(self, receiver: socket.socket) -> tuple[list[int], list[int]]:
        """Return the process ids of nodes and head, as seen from here and inside the lab."""
        outer: dict[int, int] = {}
        while True:
            ready = select.select([receiver, self.control], [], [], SECONDS_TO_BUILD)[0]
            if not ready:
                raise CommandError(f"the nodes do not come up within {SECONDS_TO_BUILD:g} s")
            if receiver not in ready:  # `up` says nothing yet: it has ended
                raise CommandError("`up` was stopped")
            pid, text = system.receive_with_identity(receiver)
            if text.isdigit():
                outer[int(text)] = pid
            elif text.startswith("{"):
                answer = json.loads(text)
                if "error" in answer:
                    raise CommandError(answer["error"])
                inner = answer["pids"]
                return [outer[index] for index in range(len(inner))], inner
            elif not text:
                raise CommandError("the first process of the lab has ended")
            # Else a node tells what failed, which init reports as well.

    def _lab(self, folder: Path, privilege: str, pids: list[int], inner: list[int]) -> Lab:
        plan = self.plan
        machines = [
            Node(name, own, pid, inside, system.start_time(pid))
            for name, own, pid, inside in zip(plan.names(), plan.addresses(), pids, inner)
        ]
        started = system.start_time(self.init)
        switch = Node(f"{plan.name}-switch", "", self.init, 1, started)
        return Lab(
            name=plan.name,
            folder=str(folder),
            keeper=os.getpid(),
            privilege=privilege,
            sockets=plan.sockets,
            cores=plan.cores,
            mtu=plan.mtu,
            fabric=plan.fabric,
            tors=plan.tors,
            spines=plan.spines,
            latency_ns=plan.latency_ns,
            nodes=machines[:-1],
            head=machines[-1],
            switch=switch,
        )

    def _watch(self, folder: Path, awake: socket.socket) -> None:
        """Return when the lab is to end: told so, left alone by `up`, without init or folder."""
        selector = selectors.DefaultSelector()
        selector.register(awake, selectors.EVENT_READ)
        selector.register(self.control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(SECONDS_BETWEEN_LOOKS):
                if key.fileobj is self.control:
                    try:
                        word = self.control.recv(16)
                    except OSError:
                        word = b""
                    if word != b"keep":
                        return
                    selector.unregister(self.control)
                    self.control.close()
                    continue
                signals = awake.recv(64)
                if signal.SIGTERM in signals:
                    return
                if os.waitpid(self.init, os.WNOHANG) != (0, 0):
                    self.init = 0
                    return
            if not folder.exists():
                return  # no command would find the lab any more

    def _end(self) -> None:
        """End every process of the lab and remove its folder."""
        if self.init > 0:
            os.kill(self.init, signal.SIGKILL)
            os.waitpid(self.init, 0)  # returns when all of its pid namespace are gone
        if self.folder is not None:
            state.discard(self.folder)


def up(plan: Plan) -> Lab:
    """Make a lab; return when it stands, or raise and leave nothing.

    Afterwards this process cannot be interrupted: it has only to say that the lab is up.
    """
    for program in ("ip", "tc"):
        network.tool(program)
    # Everything is made by the keeper, which cleans up if this process is killed at any moment.
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keeper = in_child(lambda: _Keeper(plan, far).run())
    far.close()
    try:
        answer = near.recv(system.MESSAGE_BYTES)
        content = json.loads(answer) if answer else {"error": "the lab's keeper has ended"}
        if "error" in content:
            raise CommandError(content["error"])
        lab = Lab.read(Path(content["ready"]))
        # From here on the lab stays, so that the command must not end as if it had been stopped.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        near.send(b"keep")
        return lab
    except BaseException:
        near.close()
        os.waitpid(keeper, 0)
        raise


def _already(folder: Path, name: str) -> str:
    try:
        lab = Lab.read(folder)
    except FileNotFoundError:
        return f"lab '{name}' is being made or taken down by another command"
    return (
        f"lab '{name}' is up already, with {len(lab.nodes)} nodes; "
        f"`overdrive lab down --name {name}` ends it, --name makes another one beside it"
    )


def down(lab: Lab) -> None:
    """End a lab; return when nothing of it is left."""
    if system.start_time(lab.keeper) != 0:
        with contextlib.suppress(ProcessLookupError):
            os.kill(lab.keeper, signal.SIGTERM)
    if not state.wait_until_removed(lab.folder, SECONDS_TO_END):
        raise CommandError(
            f"lab '{lab.name}' does not end within {SECONDS_TO_END:g} s; "
            f"its keeper is process {lab.keeper}"
        )
    deadline = time.monotonic() + SECONDS_TO_END
    while system.start_time(lab.keeper) != 0 and time.monotonic() < deadline:
        time.sleep(0.005)

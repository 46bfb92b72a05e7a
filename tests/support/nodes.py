"""Makes "nodes" on one machine: namespaces with their own network, host name, IPC and /dev/shm,
joined by a bridge; and runs MPI jobs over them. Needs the right to create namespaces.

Every node has a holder process; names carry this process's id, so that several tests do not meet.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

ISOLATION = ["--net", "--uts", "--ipc", "--mount", "--propagation", "private"]

READY_SECONDS = 10.0


class CannotMakeNodes(Exception):
    """Why there are no nodes here."""


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise CannotMakeNodes(f"{' '.join(command)}: {result.stderr.strip()}")


class Nodes:
    """A context with `count` nodes and a head from which launchers start."""

    def __init__(self, count: int) -> None:
        """Remember how many; nothing is made before `with`."""
        self.names = [f"odn{os.getpid() % 10000}-{i}" for i in range(count)]
        self.head = f"odn{os.getpid() % 10000}-h"
        self._holders: dict[str, subprocess.Popen] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="odtest-nodes-")

    def __enter__(self) -> Nodes:
        """Make the nodes, or raise CannotMakeNodes and leave nothing."""
        try:
            self._make()
        except Exception:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all holders; the kernel removes what hangs on them."""
        self._remove()

    def _remove(self) -> None:
        for holder in self._holders.values():
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        self._holders.clear()
        self._folder.cleanup()

    def _hold(self, name: str) -> None:
        """Start the process whose namespaces are the node."""
        holder = subprocess.Popen(
            ["unshare", *ISOLATION, "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._holders[name] = holder
        mine = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if holder.poll() is not None:
                assert holder.stderr is not None
                raise CannotMakeNodes(f"unshare: {holder.stderr.read().decode().strip()}")
            if os.readlink(f"/proc/{holder.pid}/ns/net") != mine:
                return
            time.sleep(0.01)
        raise CannotMakeNodes("unshare does not come up")

    def enter(self, name: str) -> list[str]:
        """Return the command prefix that runs something on a node."""
        return [
            "nsenter", "-t", str(self._holders[name].pid), "-n", "-u", "-i", "-m",
            f"--wdns={os.getcwd()}",
        ]  # fmt: skip

    def _make(self) -> None:
        switch = "switch"
        self._hold(switch)
        in_switch = ["nsenter", "-t", str(self._holders[switch].pid), "-n"]
        _run(*in_switch, "ip", "link", "add", "br0", "type", "bridge")
        _run(*in_switch, "ip", "link", "set", "br0", "up")
        everyone = [self.head, *self.names]
        table = Path(self._folder.name) / "hosts"
        lines = [f"10.77.0.{i + 1} {name}" for i, name in enumerate(everyone)]
        table.write_text("127.0.0.1 localhost\n" + "\n".join(lines) + "\n")
        for i, name in enumerate(everyone):
            self._hold(name)
            node, port = str(self._holders[name].pid), f"p{i}"
            inside = ["nsenter", "-t", node, "-n", "-u", "-m"]
            _run(*in_switch, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0",
                 "netns", node)  # fmt: skip
            _run(*in_switch, "ip", "link", "set", port, "master", "br0")
            _run(*in_switch, "ip", "link", "set", port, "up")
            _run(*inside, "ip", "link", "set", "lo", "up")
            _run(*inside, "ip", "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            _run(*inside, "ip", "link", "set", "eth0", "up")
            _run(*inside, "hostname", name)
            _run(*inside, "mount", "--bind", str(table), "/etc/hosts")
            _run(*inside, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        agent = Path(self._folder.name) / "agent"
        pids = "\n".join(f"{name}) pid={self._holders[name].pid};;" for name in everyone)
        # Called as ssh would be: options, host, command.
        agent.write_text(
            "#!/bin/sh\n"
            'while [ "${1#-}" != "$1" ]; do shift; done\n'
            f'case "$1" in\n{pids}\n*) exit 1;;\nesac\nshift\n'
            f"exec nsenter -t $pid -n -u -i -m --wdns={shlex.quote(os.getcwd())} "
            'sh -c "$*"\n'
        )
        agent.chmod(0o755)
        self.agent = str(agent)

    def launcher_options(self, family: str, per_node: int) -> list[str]:
        """Return the options that place ranks on the nodes, `per_node` consecutive ones on each."""
        if family == "openmpi":
            where = ",".join(f"{name}:{per_node}" for name in self.names)
            mca = {
                "plm_rsh_agent": self.agent,
                "plm_rsh_no_tree_spawn": "1",
                "oob_tcp_if_include": "eth0",
                "btl_tcp_if_include": "eth0",
                "btl": "self,vader,tcp",
                "pml": "ob1",
                "mpi_yield_when_idle": "1",
            }
            options = ["-H", where, "--bind-to", "none"]
            return options + [word for item in mca.items() for word in ("--mca", *item)]
        return [
            "-launcher", "ssh", "-launcher-exec", self.agent, "-iface", "eth0",
            "-hosts", ",".join(f"{name}:{per_node}" for name in self.names),
        ]  # fmt: skip

"""What launchers call instead of ssh: runs a command in another node of the lab.

    lab_agent.py TABLE [SSH-OPTION...] NODE COMMAND...

It runs in the lab's head, below a launcher. The command gets a pid namespace of its own inside the
node's, so everything that it starts there, in whatever session, ends with it. It ends when the
command ends, when this process ends, or when the launcher does.

    this process    enters the node, waits for the launcher's or the next one's end
      second        in the node's pid namespace; makes the job's
        first of the job's pid namespace, collects orphans
          command

Started often and by programs that wait: imports little.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from overdrive import lab_system  # noqa: E402

_WITH_VALUE = "bcDEeFIiJLlmOopQRSWw"
"""Options of ssh that have a value, as launchers may give them."""

FAILED = 255
"""Exit status of ssh when the connection fails."""


def parse(arguments: list[str]) -> tuple[str, str]:
    """Return the host and the command line for its shell."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and rest:
            rest.pop(0)
    if len(rest) < 2:
        raise ValueError("a host and a command are needed")
    return rest[0].rpartition("@")[2], " ".join(rest[1:])


def _child(body: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            code = body()
        except OSError as reason:
            print(f"overdrive: error: {reason}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return child


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _run_command(command: str) -> int:
    lab_system.drop_kept_capabilities()
    os.execv("/bin/sh", ["sh", "-c", command])
    return FAILED


def _first_of_job(command: str) -> int:
    """Be process 1 of the job in this node: wait for the command, then end with all the rest."""
    lab_system.die_with_parent(signal.SIGKILL)
    lab_system.mount("none", "/", None, lab_system.MS_REC | lab_system.MS_SLAVE)
    quiet = lab_system.MS_NOSUID | lab_system.MS_NODEV | lab_system.MS_NOEXEC
    lab_system.mount("proc", "/proc", "proc", quiet)
    lab_system.set_name("lab:job")
    child = _child(lambda: _run_command(command))
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return _code(status)


def _in_node(command: str) -> int:
    lab_system.die_with_parent(signal.SIGKILL)
    lab_system.unshare(lab_system.CLONE_NEWPID | lab_system.CLONE_NEWNS)
    first = _child(lambda: _first_of_job(command))
    return _code(os.waitpid(first, 0)[1])


def run(table: dict, host: str, command: str) -> int:
    """Run a command line in the node of that name; return its exit status."""
    if host not in table["nodes"]:
        print(f"overdrive: error: the lab has no node '{host}'", file=sys.stderr)
        return FAILED
    parent = os.getppid()  # 0 when started from outside the lab, which kills this process itself
    watched = [os.pidfd_open(parent)] if parent > 0 else []
    folder = os.getcwd()
    lab_system.enter_namespaces(lab_system.open_namespaces(table["nodes"][host]))
    os.chdir(folder)
    os.environ.update(table["environment"])
    child = _child(lambda: _in_node(command))
    ended = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in [*watched, ended]:
        poll.register(descriptor, select.POLLIN)
    if ended not in [descriptor for descriptor, _ in poll.poll()]:
        os.kill(child, signal.SIGKILL)
    return _code(os.waitpid(child, 0)[1])


def main() -> int:
    """Do what the command line says."""
    try:
        host, command = parse(sys.argv[2:])
        with open(sys.argv[1], encoding="ascii") as file:
            table = json.load(file)
        return run(table, host, command)
    except (OSError, ValueError) as reason:
        print(f"overdrive: error: launch agent: {reason}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())

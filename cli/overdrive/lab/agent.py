"""What launchers call instead of ssh: runs a command in another node of the lab.

    agent.py TABLE [SSH-OPTION...] NODE COMMAND...

It runs in the lab's head, below a launcher, and ends when the command ends, when it is killed, or
when the launcher does. Everything that the command has started in the node, in whatever session,
ends with it:

    this process    enters the node, waits for the launcher's or the next one's end
      second        in the node; adopts orphans, kills what is left
        command     what the launcher wants

The job's processes have numbers of the node, as on a real one: launchers make names from them which
have to differ between jobs.

Started often and by programs that wait: imports little.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable

sys.path.insert(0, os.path.abspath(__file__).rpartition("/overdrive/")[0])

from overdrive.lab import system  # noqa: E402

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
    system.drop_kept_capabilities()
    preload = os.environ.pop(system.PRELOAD_KEPT, "")
    if preload:
        os.environ["LD_PRELOAD"] = preload
    os.execv("/bin/sh", ["sh", "-c", command])
    return FAILED


def _in_node(command: str) -> int:
    """Run the command in this node; end with it, or when told to, and leave nothing."""
    awaited = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    system.die_with_parent(signal.SIGTERM, 0)  # the parent is outside of the node
    system.adopt_orphans()
    system.set_name("lab:job")
    me = os.getpid()

    def body() -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
        system.die_with_parent(signal.SIGKILL, me)
        return _run_command(command)

    child = _child(body)
    code = None
    while code is None:
        if signal.sigwait(awaited) == signal.SIGTERM:
            code = FAILED
        while code is None:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = _code(status)
    system.end_children()
    return code


def run(table: dict, host: str, command: str) -> int:
    """Run a command line in the node of that name; return its exit status."""
    if host not in table["nodes"]:
        print(f"overdrive: error: the lab has no node '{host}'", file=sys.stderr)
        return FAILED
    parent = os.getppid()  # 0 when started from outside the lab, which kills this process itself
    watched = [os.pidfd_open(parent)] if parent > 0 else []
    folder = os.getcwd()
    system.enter_namespaces(system.open_namespaces(table["nodes"][host]))
    os.chdir(folder)
    os.environ.update(table["environment"])
    child = _child(lambda: _in_node(command))
    ended = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in [*watched, ended]:
        poll.register(descriptor, select.POLLIN)
    if ended not in [descriptor for descriptor, _ in poll.poll()]:
        os.kill(child, signal.SIGTERM)
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

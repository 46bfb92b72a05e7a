"""Runs a command in a node of a lab, as if one had logged in there.

The command keeps the working folder, the terminal and the environment. It may enter other nodes
only when it runs in the head, which launchers do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from overdrive.errors import CommandError
from overdrive.lab import nodes, system
from overdrive.lab.state import Lab, Node

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)

CANNOT_START = 127

OUTSIDE = 0
"""The number of a parent that is not in the pid namespace which its child has entered."""


def _become(command: list[str], environment: dict[str, str], where: str) -> NoReturn:
    """Replace this process by the command."""
    try:
        program = shutil.which(command[0], path=environment.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(2, "no such program")
        os.execve(program, command, environment)
    except OSError as reason:
        print(f"overdrive: error: {where}: {command[0]}: {reason.strerror}", file=sys.stderr)
        sys.stderr.flush()
    os._exit(CANNOT_START)


def _status(status: int) -> int:
    """Return the exit status that a shell would show."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _wait_for(child: int) -> tuple[int, int]:
    """Wait for a child; what would end this process goes to the child, which then ends both.

    Returns its exit status, and the last signal that was to end it, or 0.
    """
    seen = [0]

    def pass_on(number: int, _: object) -> None:
        seen.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    for number in _FROM_TERMINAL:  # the terminal sends them to the child, too
        signal.signal(number, lambda number, _: seen.append(number))
    return _status(os.waitpid(child, 0)[1]), seen[-1]


def _restore_signals() -> None:
    for number in (*_PASSED_ON, *_FROM_TERMINAL, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def run(
    lab: Lab,
    node: Node,
    command: list[str],
    environment: Mapping[str, str],
    *,
    job: bool = False,
) -> int:
    """Run a command in a node; return its exit status.

    A job (a launcher in the head) takes everything that it has started with it when it ends, or
    when this process is killed. Otherwise what the command leaves in the background goes on until
    the lab goes down.
    """
    if not node.alive():
        raise CommandError(
            f"{node.name} has died; `overdrive lab down --name {lab.name}` and `up` make a new lab"
        )
    try:
        folder = os.getcwd()
    except OSError as reason:
        raise CommandError(f"the working folder is gone: {reason.strerror}") from reason
    variables = dict(environment)
    if node is not lab.switch:
        variables.update(nodes.node_environment(lab.folder, lab.sockets, lab.cores))
    if node in (lab.head, lab.switch):
        variables.pop("HWLOC_SYNTHETIC", None)
    may_enter = node in (lab.head, lab.switch)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        system.enter_namespaces(system.open_namespaces(node.pid))
    except OSError as reason:
        raise CommandError(f"{node.name} cannot be entered: {reason}") from reason
    try:
        os.chdir(folder)
    except OSError as reason:
        raise CommandError(f"{node.name} has no folder {folder}: {reason.strerror}") from reason

    def start() -> NoReturn:
        _restore_signals()
        if may_enter:
            system.keep_capabilities_over_exec()
        _become(command, variables, node.name)

    def supervise() -> None:
        system.die_with_parent(signal.SIGKILL, OUTSIDE)
        system.adopt_orphans()
        me = os.getpid()

        def body() -> None:
            system.die_with_parent(signal.SIGKILL, me)
            start()

        code, stopped_by = _wait_for(nodes.in_child(body))
        system.end_children()
        # Hydra may report success for a job that it has ended because it was told to.
        os._exit(128 + stopped_by if code == 0 and stopped_by else code)

    def alone() -> None:
        system.die_with_parent(signal.SIGKILL, OUTSIDE)
        start()

    return _wait_for(nodes.in_child(supervise if job else alone))[0]

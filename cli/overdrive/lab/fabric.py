"""The switch of a lab where it is a program: overdrive-switch, its configuration, and its changes.

    switch       one switch, all nodes at it
    tor-spine    nodes in equal shares at several switches ("top of rack"), each linked to one or
                 several above; the links to all but the first of those carry sums alone

The program's control socket is in the lab's folder, and so is its configuration, which is written
anew and read again whenever rates or losses change. A rate holds in both directions: towards a node
it is the switch's, from a node the token bucket's in the node, which holds the sender back as a
wire would. The head is at the first switch, with no limits, and links between switches have none.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from overdrive.errors import CommandError
from overdrive.lab import state, system

if TYPE_CHECKING:
    from overdrive.lab.plan import Plan
    from overdrive.lab.state import Lab

BRIDGE, SWITCH, TOR_SPINE = "bridge", "switch", "tor-spine"
FABRICS = (BRIDGE, SWITCH, TOR_SPINE)

SECONDS_TO_START = 20.0
SECONDS_TO_ANSWER = 10.0
LOG = "switch.log"

_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_LONGEST_LATENCY_NS = 10**9


@dataclass
class Layout:
    """What the configuration of the switch is made from."""

    fabric: str
    tors: int
    spines: int
    latency_ns: int
    rates: Sequence[str]
    losses: Sequence[str]


def parse_latency(text: str) -> int:
    """Return the nanoseconds of a text such as 20us, or 0 of `off`."""
    if text.lower() in ("off", "none", "0"):
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s)", text.lower())
    if match is None:
        raise CommandError(f"'{text}' is not a latency: write 20us, 1.5ms, or off")
    found = round(float(match[1]) * _UNITS_NS[match[2]])
    if found > _LONGEST_LATENCY_NS:
        raise CommandError(f"a latency of {text} is out of range: up to 1s is possible")
    return found


def latency_text(latency_ns: int) -> str:
    """Return a latency for people."""
    for unit in ("s", "ms", "us"):
        if latency_ns >= _UNITS_NS[unit]:
            return f"{latency_ns / _UNITS_NS[unit]:g}{unit}"
    return f"{latency_ns}ns"


def describe(fabric: str, tors: int, spines: int, latency_ns: int) -> str:
    """Return what to say about the switch; nothing for the usual one."""
    if fabric == BRIDGE:
        return ""
    latency = f" of {latency_text(latency_ns)}" if latency_ns else ""
    if fabric == SWITCH:
        return f", switch{latency}"
    shared = "1 switch" if tors == 1 else f"{tors} switches"
    above = "a spine" if spines <= 1 else f"{spines} spines"
    return f", {shared} and {above}{f', each{latency}' if latency else ''}"


def layout_of(plan: Plan) -> Layout:
    """Return the layout of a lab that is being made."""
    rates, losses = [plan.rate] * plan.nodes, ["off"] * plan.nodes
    return Layout(plan.fabric, plan.tors, plan.spines, plan.latency_ns, rates, losses)


def configuration(layout: Layout, socket_path: str) -> str:
    """Return the text of the switch's configuration file."""
    nodes = len(layout.rates)
    count = layout.tors if layout.fabric == TOR_SPINE else 1
    names = [f"tor{index}" for index in range(count)] if layout.fabric == TOR_SPINE else ["switch"]
    lines = [f'control = "{socket_path}"', 'priority = "realtime"']
    for own, name in enumerate(names):
        lines += ["[[switch]]", f'name = "{name}"', f'latency = "{layout.latency_ns}ns"']
        lines.append('compute = "tor"')
        for node in range(nodes):
            if node * count // nodes != own:
                continue
            lines += ["[[switch.port]]", f'interface = "p{node}"', f'rate = "{layout.rates[node]}"']
            lines += ['queue = "4MiB"', f'receive-loss = "{layout.losses[node]}"']
        if own == 0:
            lines += ["[[switch.port]]", f'interface = "p{nodes}"']
    if layout.fabric == TOR_SPINE:
        for index in range(max(1, layout.spines)):
            above = "spine" if index == 0 else f"spine{index}"
            lines += ["[[switch]]", f'name = "{above}"', f'latency = "{layout.latency_ns}ns"']
            lines.append('compute = "spine"')
            for name in names:
                lines += ["[[link]]", f'between = ["{name}", "{above}"]']
                if index > 0:
                    lines.append('traffic = "in-network"')
    return "\n".join(lines) + "\n"


def socket_path(folder: str | os.PathLike[str]) -> str:
    """Return where the switch of a lab is asked."""
    return os.path.join(folder, state.SWITCH_SOCKET)


def _write(folder: str | os.PathLike[str], layout: Layout) -> str:
    """Replace the configuration file; return its path."""
    handle, path = tempfile.mkstemp(dir=folder, prefix=state.SWITCH_FILE)
    with os.fdopen(handle, "w") as file:
        file.write(configuration(layout, socket_path(folder)))
    final = os.path.join(folder, state.SWITCH_FILE)
    os.replace(path, final)
    return final


def start(program: str, folder: Path, layout: Layout) -> None:
    """Start the switch in this process's network; return when it forwards."""
    path = _write(folder, layout)
    log = folder / LOG
    with log.open("w") as errors:
        process = subprocess.Popen(
            [program, "--config", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            preexec_fn=system.keep_capabilities_over_exec,
        )
    assert process.stdout is not None
    ready = select.select([process.stdout], [], [], SECONDS_TO_START)[0]
    word = process.stdout.readline() if ready else b""
    process.stdout.close()
    if word.strip() != b"ready":
        reason = log.read_text(errors="replace").strip() or "it does not say why"
        raise CommandError(f"the lab's switch does not start: {reason}")


def ask(lab: Lab, request: str) -> str | None:
    """Return the switch's answer, or None when it is dead."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
            own.settimeout(SECONDS_TO_ANSWER)
            own.connect(socket_path(lab.folder))
            own.sendall(request.encode() + b"\n")
            parts = []
            while part := own.recv(1 << 16):
                parts.append(part)
    except OSError:
        return None
    return b"".join(parts).decode(errors="replace")


def change(lab: Lab) -> None:
    """Let the switch do what the nodes of the lab say now."""
    rates = [node.rate for node in lab.nodes]
    losses = [node.loss for node in lab.nodes]
    _write(lab.folder, Layout(lab.fabric, lab.tors, lab.spines, lab.latency_ns, rates, losses))
    answer = ask(lab, "reload")
    if answer is None:
        raise CommandError(
            f"the switch of lab '{lab.name}' has died; `overdrive lab down --name {lab.name}` and "
            f"`up` make a new lab"
        )
    if answer != "ok\n":
        raise CommandError(f"the lab's switch refuses the change: {answer.strip()}")

"""`overdrive info --pinning`: the node as a picture, and where ranks run on it.

The placement is the library's own (overdrive-pinning, src/topology/pin_plan.cc); here it is drawn.
HWLOC_SYNTHETIC and HWLOC_XMLFILE replace this machine by another, as for every program of hwloc.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from overdrive.errors import CommandError
from overdrive.installation import Installation

TOOL = "overdrive-pinning"

MOST_RANKS_LISTED = 64

LEVELS = (("socket", "socket"), ("numa", "NUMA node"), ("cache", "cache"))


def query(
    installation: Installation, environment: Mapping[str, str], pin: str, ranks: int | None
) -> dict[str, Any]:
    """Ask the library's own program where ranks go."""
    path = installation.tool.parent / TOOL if installation.tool is not None else None
    if path is None or not path.exists():
        raise CommandError(
            f"{TOOL} was not found near {installation.home}: run `make` in the checkout, "
            f"or install Overdrive completely"
        )
    words = [str(path), "--pin", pin]
    if ranks is not None:
        words += ["--ranks", str(ranks)]
    done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()
        raise CommandError(f"pin: {reason[0] if reason else f'{TOOL} failed'}")
    return json.loads(done.stdout)


def members(text: str) -> list[int]:
    """Return the numbers of a list such as 0-3,8."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def ranges(numbers: Sequence[int]) -> str:
    """Return a list such as 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def summary(found: Mapping[str, Any]) -> str:
    """Return what the machine consists of."""
    cpus = found["cpus"]
    nouns = {"socket": "socket", "numa": "NUMA node", "cache": "last-level cache", "core": "core"}
    parts = [_counted(len({cpu[kind] for cpu in cpus}), noun) for kind, noun in nouns.items()]
    threads = len(cpus)
    if threads != len({cpu["core"] for cpu in cpus}):
        parts.append(_counted(threads, "hardware thread"))
    return ", ".join(parts)


def _cell(
    core: Sequence[Mapping[str, Any]], ranks: Mapping[int, list[int]], allowed: set[int]
) -> str:
    """Return who runs on a core: hardware threads with different ranks are parted by a bar."""
    if not any(cpu["cpu"] in allowed for cpu in core):
        return "-"
    each = [ranges(ranks.get(cpu["cpu"], [])) for cpu in core]
    if len(set(each)) == 1:
        return each[0] or "."
    return "|".join(text or "." for text in each)


def picture(found: Mapping[str, Any], width: int = 100) -> list[str]:
    """Draw the machine: a line for each last-level cache, a cell for each core with its ranks."""
    allowed = set(members(found["allowed"]))
    ranks: dict[int, list[int]] = {}
    if found["pin"].partition(":")[0] != "none":
        for rank in found["ranks"]:
            for cpu in [] if rank["problem"] else members(rank["cpus"]):
                ranks.setdefault(cpu, []).append(rank["rank"])
    cores: dict[int, list[Mapping[str, Any]]] = {}
    for cpu in found["cpus"]:
        cores.setdefault(cpu["core"], []).append(cpu)
    order = sorted(
        cores.values(),
        key=lambda core: (core[0]["socket"], core[0]["numa"], core[0]["cache"], core[0]["core"]),
    )
    cells = {core[0]["core"]: _cell(core, ranks, allowed) for core in order}
    size = max(len(cell) for cell in cells.values()) + 1
    # A level with one group, or with the groups of the level above, needs no line of its own.
    shown: list[tuple[str, str]] = []
    groups = 1
    for kind, noun in LEVELS[:-1]:
        count = len({cpu[kind] for cpu in found["cpus"]})
        if count > groups:
            shown.append((kind, noun))
        groups = max(groups, count)
    lines: list[str] = []
    numbers = {kind: sorted({cpu[kind] for cpu in found["cpus"]}) for kind, _ in LEVELS}
    rows: dict[int, list[list[Mapping[str, Any]]]] = {}
    for core in order:
        rows.setdefault(core[0]["cache"], []).append(core)
    labels = {
        cache: f"cpu {ranges([cpu['cpu'] for core in row for cpu in core])}"
        for cache, row in rows.items()
    }
    column = max(len(label) for label in labels.values()) + 1
    last: dict[str, int] = {}
    for cache, row in rows.items():
        head = row[0][0]
        for depth, (kind, noun) in enumerate(shown):
            if last.get(kind) != head[kind]:
                lines.append(f"{'  ' * (depth + 1)}{noun} {numbers[kind].index(head[kind])}")
                above = [name for name, _ in shown[:depth]]
                last = {name: group for name, group in last.items() if name in above}
                last[kind] = head[kind]
        indent = "  " * (len(shown) + 1)
        per_line = max(1, (width - len(indent) - column) // size)
        for at in range(0, len(row), per_line):
            text = "".join(f"{cells[core[0]['core']]:>{size}}" for core in row[at : at + per_line])
            label = labels[cache] if at == 0 else ""
            lines.append(f"{indent}{label:{column}}{text}".rstrip())
    return lines


def lines(found: Mapping[str, Any], source: str) -> list[str]:
    """Return what is printed."""
    pinned = found["pin"].partition(":")[0] != "none"
    machine = "" if found["real"] else "; not this one, but what hwloc was told"
    text = [
        f"Machine   {summary(found)} ({found['source']}{machine})",
        f"Allowed   processors {found['allowed']}",
    ]
    count = len(found["ranks"])
    if pinned:
        threads = found["threads"]
        each = f", {threads} threads each" if threads > 1 else ""
        text.append(f"Pinning   {found['pin']} ({source}), {_counted(count, 'rank')}{each}")
    else:
        text.append("Pinning   none: ranks run where the launcher binds them; try --pin=core")
    key = "cells are cores with their ranks; . idle, - not for this job" if pinned else (
        "cells are cores; - not for this job"
    )  # fmt: skip
    text += ["", f"The node ({key})", *picture(found)]
    if pinned:
        text += ["", "Ranks of the node and their processors"]
        for rank in found["ranks"][:MOST_RANKS_LISTED]:
            text.append(f"  {rank['rank']:>5}   {rank['problem'] or rank['cpus']}")
        if count > MOST_RANKS_LISTED:
            text.append(f"  and {count - MOST_RANKS_LISTED} more; --json tells all")
    if pinned and found["warnings"]:
        text += ["", "Take care", *(f"  {warning}" for warning in found["warnings"])]
    return text

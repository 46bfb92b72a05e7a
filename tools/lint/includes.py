"""Checks that includes point down only: the rooms of src/ and what each may know.

A room may include its own files and those of the levels below; rooms of one level do not know each
other. Unit tests may use the test support of rooms beside theirs.
"""

from __future__ import annotations

import re
from pathlib import Path

LEVELS = (
    ("programs",),
    ("face", "measure"),
    ("engine",),
    ("overlap", "smpi"),
    ("coll/run",),
    ("coll/plan", "coll/shm", "p2p"),
    ("coll/ops", "node", "memory", "host", "innetwork"),
    ("topology", "observe"),
    ("config",),
    ("base",),
)
"""Rooms from the top to the bottom."""

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""What points elsewhere today, with the reason. The list may only become shorter: an entry that is
not needed any more is an error."""

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def room_of(name: str) -> tuple[str, int] | None:
    """Return a file's room and the number of its level from the top; None: in no room."""
    for number, rooms in enumerate(LEVELS):
        for room in rooms:
            if name.startswith(f"{room}/"):
                return room, number
    return None


def wrong_includes(source: Path, exceptions: dict[tuple[str, str], str] | None = None) -> list[str]:
    """Name the includes below `source` that do not point down, and exceptions without need."""
    allowed = EXCEPTIONS if exceptions is None else exceptions
    wrong = []
    needed = set()
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cc", ".c", ".inc"):
            continue
        name = path.relative_to(source).as_posix()
        own = room_of(name)
        if own is None:
            wrong.append(f"src/{name}: has no level; give it one in tools/lint/includes.py")
            continue
        for included in INCLUDE.findall(path.read_text(errors="replace")):
            other = room_of(included)
            if other is None or other[0] == own[0] or other[1] > own[1]:
                continue
            if other[1] == own[1] and path.stem.endswith("_test"):
                continue
            if (name, included) in allowed:
                needed.add((name, included))
                continue
            how = "up" if other[1] < own[1] else "sideways"
            wrong.append(f"src/{name}: includes {included}, which points {how}")
    for name, included in sorted(set(allowed) - needed):
        wrong.append(f"tools/lint/includes.py: src/{name} does not include {included} any more")
    return wrong

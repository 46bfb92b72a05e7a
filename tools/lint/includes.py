"""Checks that includes point down only: the rooms of src/ and what each may know.

face and measure, then engine, then coll and p2p, then node, memory, topology, host and observe,
then config, then base. A room may include its own files and those of the levels below; rooms of one
level do not know each other. Main files (`*_tool.cc`, `*_bench.cc`) stand above all rooms.
"""

from __future__ import annotations

import re
from pathlib import Path

LEVELS = (
    ("face", "measure"),
    ("engine",),
    ("coll", "p2p"),
    ("node", "memory", "topology", "host", "observe"),
    ("config",),
    ("base",),
)
"""Rooms from the top to the bottom."""

REQUESTS = "requests and communicators are the engine's; matching reads and completes them"
LOG = "says once why memory cannot be attached, and counts what was"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("coll/node/team.h", "p2p/send_history.h"): "asks like a send whether a buffer was rewritten",
    ("memory/space.cc", "observe/log.h"): LOG,
    ("memory/space_windows.cc", "observe/log.h"): LOG,
    ("memory/space_windows.h", "observe/counters.h"): LOG,
    ("memory/xpmem_test.cc", "node/forked_job.h"): "forks a job of processes for the test",
    ("node/identity.cc", "topology/cpu_share.h"): "the share of processors is agreed at the start",
    ("p2p/matching.cc", "engine/comm.h"): REQUESTS,
    ("p2p/matching.h", "engine/request.h"): REQUESTS,
    ("p2p/matching_test.cc", "engine/comm.h"): REQUESTS,
    ("p2p/transport.h", "engine/request.h"): REQUESTS,
}
"""What points elsewhere today, with the reason. The list may only become shorter: an entry that is
not needed any more is an error."""

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
MAIN = re.compile(r"_(tool|bench)\.cc$")


def level(room: str) -> int | None:
    """Return the number of a room's level from the top; None: no room."""
    for number, rooms in enumerate(LEVELS):
        if room in rooms:
            return number
    return None


def wrong_includes(source: Path, exceptions: dict[tuple[str, str], str] | None = None) -> list[str]:
    """Name the includes below `source` that do not point down, and exceptions without need."""
    allowed = EXCEPTIONS if exceptions is None else exceptions
    wrong = []
    needed = set()
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cc", ".c", ".inc") or MAIN.search(path.name):
            continue
        name = path.relative_to(source).as_posix()
        room = name.partition("/")[0]
        own = level(room)
        if own is None:
            wrong.append(f"src/{name}: {room} has no level; give it one in tools/lint/includes.py")
            continue
        for included in INCLUDE.findall(path.read_text(errors="replace")):
            other, slash, _ = included.partition("/")
            found = level(other)
            if not slash or other == room or found is None or found > own:
                continue
            if (name, included) in allowed:
                needed.add((name, included))
                continue
            how = "up" if found < own else "sideways"
            wrong.append(f"src/{name}: includes {included}, which points {how}")
    for name, included in sorted(set(allowed) - needed):
        wrong.append(f"tools/lint/includes.py: src/{name} does not include {included} any more")
    return wrong

"""Switches the kernel's autogroups off for the time of a check, where it may.

With autogroups each job of the tests has a share of a processor of its own, by which Linux 6.18
goes wrong: a process that yields in a loop, as waiting ranks do, beside one of its group that
sleeps and wakes, keeps all other groups and the kernel's own workers from that processor; for more
than a minute in a check. Only an administrator can switch them; without that the check says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")


@contextmanager
def off(switch: Path = SWITCH) -> Iterator[str]:
    """Give what was done, in words ("" for nothing); afterwards it is as it was."""
    try:
        before = switch.read_text(encoding="utf-8").strip()
    except OSError:
        before = "0"  # a kernel without them
    if before == "0":
        yield ""
        return
    name = "kernel.sched_autogroup_enabled"
    try:
        switch.write_text("0\n", encoding="utf-8")
    except OSError:
        yield f"{name} is {before}: if tests reach their time limits, run `sysctl -w {name}=0`"
        return
    try:
        yield f"{name} is 0 until the end of this check"
    finally:
        switch.write_text(f"{before}\n", encoding="utf-8")

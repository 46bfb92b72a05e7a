"""Finds and ends every process of a test's job, wherever its launcher put it.

Launchers put ranks into process groups and sessions of their own, so a group is not enough: each
job
carries a unique variable in its environment and every process that has it belongs to the job.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

MARKER = "OVERDRIVE_TEST_JOB_ID"
"""Not a setting of Overdrive: the harness tells Overdrive nothing with it."""

STACK_PROCESSES = 4
"""A hang is usually explained by a few ranks; gdb takes a second or two for each."""


def members(job: str) -> list[int]:
    """Return the process ids of the job's living processes (zombies do not count)."""
    wanted = f"{MARKER}={job}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(int(entry.name))
    return sorted(found)


def suspended(pid: int) -> bool:
    """Tell whether a process has been stopped by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def describe(pid: int) -> str:
    """Return the command line of a process for messages."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        text = "(gone)"
    return f"{pid}: {text.strip()}"


def end(job: str, seconds: float = 10.0) -> list[str]:
    """Kill every process of the job; return descriptions of those that were alive."""
    alive = {pid: describe(pid) for pid in members(job)}
    deadline = time.monotonic() + seconds
    pids = list(alive)
    while pids and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        pids = members(job)
    return list(alive.values())


def wait_until_gone(job: str, seconds: float) -> list[str]:
    """Wait for the job's processes to end by themselves; return descriptions of those left."""
    deadline = time.monotonic() + seconds
    pids = members(job)
    while pids and time.monotonic() < deadline:
        time.sleep(0.02)
        pids = members(job)
    return [describe(pid) for pid in pids]


def stacks(job: str, program: str) -> str:
    """Return the stacks of some of the job's processes that run the program, for hang reports."""
    if shutil.which("gdb") is None:
        return "(no gdb here: no stacks)"
    texts = []
    for pid in members(job):
        if program not in describe(pid).split(": ", 1)[1].split(" ")[0]:
            continue
        if len(texts) == STACK_PROCESSES:
            break
        command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt 14"]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=60, check=False, errors="replace"
            )
        except subprocess.TimeoutExpired:
            continue
        lines = [line for line in result.stdout.splitlines() if line.startswith(("#", "Thread"))]
        texts.append(f"--- {describe(pid)}\n" + "\n".join(lines))
    return "\n".join(texts)

"""Finds and ends every process of a test's job, wherever its launcher put it.

Launchers put ranks into process groups and sessions of their own, so a group is not enough: each
job
carries a unique variable in its environment and every process that has it belongs to the job.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

MARKER = "OVERDRIVE_TEST_JOB_ID"
"""Not a setting of Overdrive: the harness tells Overdrive nothing with it."""

PLACES, PLACES_FRAMES = 6, 4
"""Of a report of one line: different places, and functions of each."""

STACK_PROCESSES = 4
"""A hang is usually explained by a few ranks; gdb takes a second or two for each."""


def _state(place: int | str) -> list[str]:
    """Return what /proc says about a process or "PID/task/TID", from its state on.

    OSError where it is gone.
    """
    return Path(f"/proc/{place}/stat").read_text().rpartition(")")[2].split()


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
            state = _state(int(entry.name))[0]
        except OSError:
            continue
        if state != "Z":
            found.append(int(entry.name))
    return sorted(found)


def suspended(pid: int) -> bool:
    """Tell whether a process has been stopped by a signal."""
    try:
        return _state(pid)[0] in "Tt"
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


def places(stacks: str) -> str:
    """Return the innermost functions of each thread in `stacks`, for a report of one line."""
    found: list[list[str]] = []
    for line in stacks.splitlines():
        if line.startswith("Thread"):
            found.append([])
        frame = re.match(r"#\d+ +(?:0x[0-9a-f]+ in )?([^ (]+)", line)
        if frame and found and len(found[-1]) < PLACES_FRAMES:
            found[-1].append(frame[1])
    counts = Counter("<".join(frames) for frames in found if frames)
    return ", ".join(f"{number} x {place}" for place, number in counts.most_common(PLACES))


def processor_seconds(job: str) -> float:
    """Return the processor time that the job's living processes have used."""
    ticks = 0
    for pid in members(job):
        try:
            fields = _state(pid)
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def held(job: str) -> str:
    """Return where the kernel holds threads of the job that no signal reaches, or ""."""
    found: Counter[str] = Counter()
    for pid in members(job):
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                if _state(f"{pid}/task/{task.name}")[0] == "D":
                    found[task.joinpath("wchan").read_text() or "?"] += 1
            except OSError:
                continue
    return ", ".join(f"{number} held in {place}" for place, number in found.most_common(PLACES))


class MachineTimes:
    """How much of its processors a virtual machine really had, since it was made."""

    def __init__(self) -> None:
        self.start = self.last = self._read()

    @staticmethod
    def _read() -> tuple[int, int]:
        """Return the ticks that others had of the processors, and all ticks."""
        try:
            words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        except OSError:
            return 0, 0
        ticks = [int(word) for word in words]
        return (ticks[7] if len(ticks) > 7 else 0), sum(ticks)

    @staticmethod
    def _stolen(before: tuple[int, int], now: tuple[int, int]) -> float:
        return (now[0] - before[0]) / (now[1] - before[1]) if now[1] > before[1] else 0.0

    def step(self) -> float:
        """Return the share that was ours since the last step, 0 to 1."""
        now = self._read()
        stolen = self._stolen(self.last, now)
        self.last = now
        return min(max(1.0 - stolen, 0.0), 1.0)

    def __str__(self) -> str:
        stolen = self._stolen(self.start, self.last)
        return f"{stolen:.0%} of the machine stolen, load {os.getloadavg()[0]:.1f}"

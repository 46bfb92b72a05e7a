"""Starts one MPI job under a time limit and leaves none of its processes behind.

Launchers put ranks into process groups and sessions of their own, so killing the launcher's group
is not enough. Every job carries a unique variable in its environment; what still carries it after
the end of the launcher is ended by process id.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MARK = "MPI_CONFORMANCE_JOB"
KEPT_OUTPUT_BYTES = 8000
GRACE_SECONDS = 3.0
POLL_SECONDS = 0.02
LONGEST_STEP_SECONDS = 1.0

STOP = threading.Event()
"""Set when the user interrupts: running jobs end, no further ones start."""


class Interrupted(Exception):
    """The user does not want to wait for the end."""


@dataclass
class Outcome:
    """How a job ended."""

    status: int
    output: str
    seconds: float
    timed_out: bool


def _processes_with(mark: str) -> list[int]:
    """Return the ids of all processes whose environment carries this job's mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            if wanted in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return found


def _is_stopped(mark: str) -> bool:
    """Tell whether somebody has stopped processes of the job: then it is not late."""
    for pid in _processes_with(mark):
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:
            continue
        if text.rpartition(")")[2].split()[0] == "T":
            return True
    return False


def _be_nice(niceness: int) -> None:
    """Lower the priority of the calling process, also where the kernel schedules by session."""
    os.nice(niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness), encoding="utf-8")


def _signal_all(mark: str, number: signal.Signals) -> int:
    """Send a signal to what is left of a job; return how many processes that were."""
    left = _processes_with(mark)
    for pid in left:
        try:
            os.kill(pid, number)
        except OSError:
            continue
    return len(left)


def _stop(
    process: subprocess.Popen[bytes], mark: str, before_kill: Callable[[list[int]], None] | None
) -> None:
    """End a job: the launcher gets the chance to clean up, then everything is killed."""
    if before_kill is not None:
        before_kill(_processes_with(mark))
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    deadline = time.monotonic() + GRACE_SECONDS
    while _signal_all(mark, signal.SIGKILL) > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()


def _await(
    process: subprocess.Popen[bytes],
    mark: str,
    limit_seconds: float,
    stalled: Callable[[], bool] | None,
) -> bool:
    """Wait for the end of a job; return whether it has to be ended by force."""
    active = 0.0
    last = time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        # Time in which everything stood still, as after a suspension, does not count.
        active += min(now - last, LONGEST_STEP_SECONDS)
        last = now
        if STOP.is_set() or (stalled is not None and stalled()):
            return True
        if active > limit_seconds:
            if not _is_stopped(mark):
                return True
            active = limit_seconds - GRACE_SECONDS
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return False


def run(
    command: list[str],
    environment: dict[str, str],
    directory: Path,
    limit_seconds: float,
    *,
    niceness: int = 0,
    stalled: Callable[[], bool] | None = None,
    before_kill: Callable[[list[int]], None] | None = None,
) -> Outcome:
    """Run a command and return its exit status and its joined output.

    `stalled` may end the job early. `before_kill` is called with the job's process ids when the
    job is about to be ended by force, e.g. to look where it hangs.
    """
    if STOP.is_set():
        raise Interrupted
    mark = uuid.uuid4().hex
    log = directory / f".output-{mark}"
    started = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**environment, MARK: mark},
            cwd=directory,
            start_new_session=True,
            preexec_fn=(lambda: _be_nice(niceness)) if niceness else None,
        )
        try:
            timed_out = _await(process, mark, limit_seconds, stalled)
        except BaseException:
            _stop(process, mark, None)
            raise
        if timed_out:
            _stop(process, mark, before_kill)
    seconds = time.monotonic() - started
    if STOP.is_set():
        log.unlink()
        raise Interrupted
    if process.returncode != 0:
        _signal_all(mark, signal.SIGKILL)
    data = log.read_bytes()
    log.unlink()
    if len(data) > KEPT_OUTPUT_BYTES:
        half = KEPT_OUTPUT_BYTES // 2
        data = data[:half] + b"\n[...]\n" + data[-half:]
    text = data.decode("utf-8", errors="replace")
    return Outcome(process.returncode, text, seconds, timed_out)

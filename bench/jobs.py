"""Starting MPI jobs for measurements: hosts, Overdrive's library, time limits, foreign load.

A job that runs into its time limit is ended together with all its processes, which launchers do not
always do.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
P2P = ROOT / "bench" / "p2p"
# Appended, so that another description of the hosts can be put before them with PYTHONPATH.
sys.path += [str(ROOT / "tools" / "hosts"), str(ROOT / "cli")]

import hosts as host_table  # noqa: E402
from overdrive import together  # noqa: E402

Host = host_table.Host
all_at_once = together.all_at_once
HOST_NAMES: list[str] = host_table.NAMES
TERMINATION_SECONDS = 5
ABANDON_SECONDS = 0.3
LOOK_SECONDS = 0.05
BUSY_SECONDS = 0.2


def library(preset: str = "release") -> Path:
    """Return the path of the library that is preloaded; says so where it is not for measuring."""
    warn_of_plain_links(preset)
    return BUILD / preset / "lib" / "liboverdrive.so"


@functools.cache
def warn_of_plain_links(preset: str) -> None:
    """Say when the check linked this build last: all but one face as their objects are."""
    cache = BUILD / preset / "CMakeCache.txt"
    settings = cache.read_text(encoding="utf-8") if cache.exists() else ""
    if re.search(r"^OVERDRIVE_LTO_TARGETS:\w+=(?!all$).+$", settings, re.MULTILINE):
        text = "`make check` linked this build without optimisation for most hosts: run make first"
        print(f"bench: {text}", file=sys.stderr)


def overdrive_variables(lib: Path) -> dict[str, str]:
    """Return what has to be in the ranks' environment to run with Overdrive."""
    return {"LD_PRELOAD": str(lib)}


class Failures(list[str]):
    """What went wrong: said at once, and kept for the page."""

    def add(self, text: str) -> None:
        """Say and keep it."""
        self.append(text)
        print(f"bench: {text}", file=sys.stderr, flush=True)


@dataclass
class JobResult:
    """What became of a job; `foreign_cores` is how many cores other processes used meanwhile."""

    stdout: str
    stderr: str
    status: int
    timed_out: bool
    seconds: float
    foreign_cores: float
    waited: float = 0.0
    """The largest share of its running time for which a process wanted a core and had none; known
    only of jobs that are watched."""

    @property
    def ok(self) -> bool:
        """Tell whether the job ended by itself and well."""
        return self.status == 0 and not self.timed_out

    def problem(self, time_out: str) -> str:
        """Say in a line how the job ended; `time_out` is what to call its end by force."""
        what = time_out if self.timed_out else f"status {self.status}"
        tail = " | ".join(self.stderr.strip().splitlines()[-4:])
        return f"{what}: {tail}"


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_descendants(int(child))]
    except OSError:
        pass
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the launcher to end its job, then end what is left of it."""
    started = _descendants(process.pid)
    process.terminate()
    try:
        process.wait(TERMINATION_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def end_jobs_on_termination() -> None:
    """Make SIGTERM end the program in the ordinary way, so that what it has started is ended too.

    For the main thread; it may be called again.
    """

    def stop(_number: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)


def _busy_seconds() -> float:
    """Return the time that all cores together have been busy since boot."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = [int(field) for field in fields[:8]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Watch:
    """Sees how long the processes of a job wait for a core, by looking now and then."""

    def __init__(self, root: int) -> None:
        """Begin with the processes that `root` has started."""
        self.root = root
        self._times: dict[int, tuple[int, int]] = {}

    def look(self) -> None:
        """Read what the kernel has counted so far."""
        for pid in _descendants(self.root):
            try:
                ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
            except (OSError, ValueError):
                continue
            self._times[pid] = (int(ran), int(waited))

    def waited(self) -> float:
        """Return the largest share, of processes that were busy for a while."""
        return max(
            (
                waited / (ran + waited)
                for ran, waited in self._times.values()
                if ran + waited > BUSY_SECONDS * 1e9
            ),
            default=0.0,
        )


def _output(
    process: subprocess.Popen[str],
    seconds: float,
    abandon: threading.Event | None,
    watch: Watch | None,
) -> tuple[str, str]:
    """Wait for the end; raise TimeoutExpired at the time limit or when nobody wants it any more."""
    if abandon is None and watch is None:
        return process.communicate(timeout=seconds)
    end = time.monotonic() + seconds
    while True:
        try:
            return process.communicate(timeout=LOOK_SECONDS if watch else ABANDON_SECONDS)
        except subprocess.TimeoutExpired:
            if (abandon is not None and abandon.is_set()) or time.monotonic() > end:
                raise
            if watch is not None:
                watch.look()


def run_job(
    command: list[str],
    env: dict[str, str],
    seconds: float,
    niceness: int = 0,
    cwd: Path | None = None,
    abandon: threading.Event | None = None,
    watched: bool = False,
) -> JobResult:
    """Run a command to its end, to the time limit or until `abandon` is set; return its output."""
    if niceness != 0:
        command = ["nice", "-n", str(niceness), *command]
    busy, own = _busy_seconds(), _children_seconds()
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timed_out = False
    watch = Watch(process.pid) if watched else None
    try:
        stdout, stderr = _output(process, seconds, abandon, watch)
    except subprocess.TimeoutExpired:
        timed_out = True
        _end(process)
        stdout, stderr = process.communicate()
    except BaseException:
        # Interrupted: the job is in a session of its own and would go on without us.
        _end(process)
        raise
    elapsed = max(time.monotonic() - start, 1e-3)
    foreign = (_busy_seconds() - busy) - (_children_seconds() - own)
    return JobResult(
        stdout,
        stderr,
        process.returncode,
        timed_out,
        elapsed,
        max(0.0, foreign / elapsed),
        watch.waited() if watch else 0.0,
    )


def run_mpi(
    host: Host,
    ranks: int,
    command: list[str],
    seconds: float,
    lib: Path | None = None,
    settings: dict[str, str] | None = None,
    niceness: int = 0,
    cwd: Path | None = None,
    abandon: threading.Event | None = None,
    watched: bool = False,
) -> JobResult:
    """Run an MPI program over a host, with Overdrive if its library is given."""
    variables = dict(settings or {})
    if lib is not None:
        variables |= overdrive_variables(lib)
    words = [*host.mpiexec(ranks, variables), *command]
    with together.own_session(host.environment()) as environment:
        return run_job(words, environment, seconds, niceness, cwd, abandon, watched)


@contextmanager
def compiling(folder: Path) -> Iterator[None]:
    """Make the folder and let one process at a time compile there.

    Another one must not start what is half written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_current(binary: Path, sources: Iterable[Path]) -> bool:
    """Tell whether a program is there and newer than all it is made from."""
    newest = max(source.stat().st_mtime for source in sources)
    return binary.exists() and binary.stat().st_mtime > newest


def build_regime_probe() -> Path | None:
    """Compile the program that tells the distance regime of two cores; None if that fails."""
    source, probe = P2P / "tools" / "regime.c", P2P / "probe.c"
    binary = BUILD / "bench" / "regime"
    with compiling(binary.parent):
        if not is_current(binary, (source, probe)):
            command = ["cc", "-O2", str(source), str(probe), "-o", str(binary)]
            try:
                if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                    return None
            except OSError:
                return None
    return binary


def exchange_ns(binary: Path) -> float:
    """Return the one-way time of a cache-line exchange between two cores now, or -1."""
    try:
        result = subprocess.run([binary], capture_output=True, text=True, timeout=10, check=False)
        return float(result.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return -1.0


def select_hosts(names: str | None) -> tuple[list[Host], dict[str, str]]:
    """Return the usable hosts among the comma-separated names, and why the others are not."""
    wanted = names.split(",") if names else HOST_NAMES
    unknown = [name for name in wanted if name not in HOST_NAMES]
    if unknown:
        raise SystemExit(f"unknown host {', '.join(unknown)}; known: {', '.join(HOST_NAMES)}")
    found: list[Host] = []
    missing: dict[str, str] = {}
    for name in wanted:
        host = host_table.probe(name)
        if isinstance(host, Host):
            found.append(host)
        else:
            missing[name] = host
    return found, missing

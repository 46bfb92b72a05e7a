"""Fixtures of the virtual cluster's tests: the command in a state folder of its own, and clusters.

Every process of a test, the clusters' included, carries the test's job id in its environment, so
that whatever is left behind is found, in whatever namespace.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import jobs, processes
from support.nodes import IMPOSSIBLE

ROOT = Path(__file__).resolve().parents[2]

COMMAND = ROOT / "overdrive"

LIMIT_SECONDS = 90.0 * jobs.TIME_SCALE


@dataclass
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    def text(self) -> str:
        """Return everything, for messages."""
        return f"exit status {self.code}\n{self.out}\n{self.err}"


@dataclass
class Command:
    """Runs `overdrive lab` with a state folder and a job id of its own."""

    folder: str
    job: str = field(default_factory=lambda: uuid.uuid4().hex)
    interpreter: str = sys.executable

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a command."""
        base = {name: value for name, value in os.environ.items() if name[:10] != "OVERDRIVE_"}
        library = {"OVERDRIVE_LIBRARY": str(jobs.overdrive_library())}
        if not jobs.overdrive_library().exists():
            library = {}
        own = {"XDG_RUNTIME_DIR": self.folder, processes.MARKER: self.job}
        return {**base, **library, **own, **(more or {})}

    def words(self, *arguments: str) -> list[str]:
        """Return a command line."""
        return [self.interpreter, str(COMMAND), "lab", *arguments]

    def __call__(
        self, *arguments: str, env: dict[str, str] | None = None, give: str | None = None
    ) -> Done:
        """Run a command to its end."""
        done = subprocess.run(
            self.words(*arguments),
            env=self.environment(env),
            input=give,
            stdin=subprocess.DEVNULL if give is None else None,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def good(
        self, *arguments: str, env: dict[str, str] | None = None, give: str | None = None
    ) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self(*arguments, env=env, give=give)
        assert done.code == 0, f"{arguments}: {done.text()}"
        return done.out

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen:
        """Start a command in a process group of its own, as a shell does."""
        return subprocess.Popen(
            self.words(*arguments),
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Whoever runs the tests in the background may have Ctrl-C ignored, which is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def labs(self) -> Path:
        """Return the folder that exists while there are labs."""
        return Path(self.folder) / "overdrive-lab"

    def left(self, seconds: float = 60.0) -> list[str]:
        """Return what is left of processes and files, after a time to disappear."""
        deadline = time.monotonic() + seconds * jobs.TIME_SCALE
        while True:
            found = [processes.describe(pid) for pid in processes.members(self.job)]
            # os.walk passes over what disappears meanwhile.
            for folder, folders, files in os.walk(self.folder):
                found += [os.path.join(folder, name) for name in (*folders, *files)]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    def clean(self) -> None:
        """End whatever is left, for the sake of other tests."""
        processes.end(self.job)
        shutil.rmtree(self.folder, ignore_errors=True)


def make_command() -> Command:
    """Return a command whose state is in a folder that nobody else uses."""
    return Command(tempfile.mkdtemp(prefix="odlab-"))


_reason: list[str] = []


def why_not() -> str:
    """Return why there can be no lab here, or nothing."""
    if not _reason:
        command = make_command()
        try:
            done = command("up", "--nodes", "1", "--quiet")
            impossible = done.code != 0 and any(text in done.err for text in IMPOSSIBLE)
            assert impossible or done.code == 0, done.text()
            _reason.append(done.err.strip() if impossible else "")
            if done.code == 0:
                command.good("down")
        finally:
            command.clean()
    return _reason[0]


@pytest.fixture
def possible() -> None:
    """Skip, saying why, where there can be no lab."""
    if why_not():
        pytest.skip(f"no lab here: {why_not()}")


@pytest.fixture
def lab(possible: None) -> Iterator[Command]:
    """Return the command; what is left at the end fails the test."""
    command = make_command()
    try:
        yield command
        command("down", "--all")
        left = command.left()
        assert not left, f"left behind: {left}"
    finally:
        command.clean()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Command]:
    """Return the command with a lab of four nodes that the tests of a file share."""
    if why_not():
        pytest.skip(f"no lab here: {why_not()}")
    command = make_command()
    try:
        command.good("up", "--nodes", "4", "--sockets", "2", "--cores", "3")
        yield command
        command.good("down")
        left = command.left()
        assert not left, f"left behind: {left}"
    finally:
        command.clean()


def interrupt(process: subprocess.Popen) -> None:
    """Send what the terminal sends at Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)

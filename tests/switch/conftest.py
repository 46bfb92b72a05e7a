"""Fixtures of the switch's tests: the programs, and switches that compute for leaders by UDP."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from overdrive import installation
from overdrive.errors import CommandError
from support import jobs

LIMIT_SECONDS = 120.0 * jobs.TIME_SCALE
PORTS_TRIED = 10
"""A port that is free may be taken by a test beside this one before the switch has it."""


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the programs are."""
    try:
        path = installation.find().need_switch().parent
    except CommandError as reason:
        pytest.skip(str(reason))
    if not (path / "overdrive-switch-leaders").exists():
        pytest.skip("overdrive-switch-leaders is not built")
    return path


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


class Running:
    """A switch that computes for leaders by UDP."""

    def __init__(self, folder: Path, where: Path, *options: str, config: str = "") -> None:
        self.folder = folder
        self.where = where
        self.options = options
        self.control = where / "control.sock"
        self.config = where / "switch.toml" if config else None
        for _ in range(PORTS_TRIED):
            self.address = f"127.0.0.1:{free_port()}"
            if self.config is not None:
                lines = ["[[switch]]", 'name = "only"', f'udp = "{self.address}"', config]
                self.config.write_text("\n".join(lines) + "\n")
            if self.is_started():
                return
        raise AssertionError("the switch does not start")

    def start(self) -> None:
        """Start it once more, at the same place."""
        assert self.is_started()

    def is_started(self) -> bool:
        """Start it; tell whether it is ready."""
        words = ["--udp", self.address]
        if self.config is not None:
            words = ["--config", str(self.config)]
        words += ["--control", str(self.control), *self.options]
        self.process = subprocess.Popen(
            [self.folder / "overdrive-switch", *words], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        return self.process.stdout.readline() == "ready\n"

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=LIMIT_SECONDS)

    def compute(self) -> dict:
        done = subprocess.run(
            [self.folder / "overdrive-switch", "--status", "json", "--control", self.control],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)["switches"][0]["compute"]

    def leaders(self, count: int, *words: str, group: int = 1) -> list[subprocess.Popen]:
        program = self.folder / "overdrive-switch-leaders"
        common = ["--meeting", str(self.where / f"meeting{group}"), "--switch", self.address]
        common += ["--leaders", str(count), "--group", str(group)]
        return [
            subprocess.Popen(
                [program, *words, *common, "--index", str(index)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(count)
        ]


@pytest.fixture
def running(folder, tmp_path) -> Iterator:
    """Make switches; those that are left are ended."""
    made = []

    def make(*options: str, config: str = "") -> Running:
        made.append(Running(folder, tmp_path, *options, config=config))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()

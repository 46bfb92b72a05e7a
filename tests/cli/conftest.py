"""Fixtures of the command's tests: a fake installation, fake launchers, and the real program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

COMMAND = ROOT / "overdrive"

REPORTER = """\
#!/bin/sh
case "$1" in --version) echo "{title}"; exit 0;; esac
echo "program: $0"
for word in "$@"; do echo "argument: $word"; done
env | grep -E '^(LD_PRELOAD|OVERDRIVE_)' | sort
"""
"""A launcher that tells what it was started with."""


def write_program(path: Path, text: str) -> Path:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def newer_folder(tmp_path: Path) -> Path:
    """Return a folder for a library that needs what does not exist yet; skip without a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no compiler")
    folder = tmp_path / "newer"
    folder.mkdir()
    return folder


def built_library() -> Path:
    """Return the library of the build under test, where the settings program lies as well."""
    default = ROOT / "build" / "release" / "lib" / "liboverdrive.so"
    return Path(os.environ.get("OVERDRIVE_TEST_LIBRARY", default))


@pytest.fixture
def tool() -> Path:
    """Return the settings program of the build; skips when there is none."""
    library = built_library()
    for path in (
        library.parent / "overdrive" / "overdrive-settings",
        library.parent.parent / "bin" / "overdrive-settings",
    ):
        if path.exists():
            return path
    pytest.skip(f"overdrive-settings is not built beside {library}: run `make`")


@pytest.fixture
def real(tool: Path) -> dict[str, str]:
    """Return the environment in which the command uses the build under test."""
    if not built_library().exists():
        pytest.skip(f"{built_library()} is not built: run `make`")
    return {"OVERDRIVE_LIBRARY": str(built_library())}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return an installed library without code: the head of one, and its name."""
    path = tmp_path / "prefix" / "lib" / "liboverdrive.so"
    path.parent.mkdir(parents=True)
    own = Path(sys.executable).resolve().read_bytes()[:20]
    shared_object = (3).to_bytes(2, "little")
    path.write_bytes(own[:16] + shared_object + own[18:20] + b"\0liboverdrive.so\0")
    return path


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Return a folder with a fake launcher of each family."""
    folder = tmp_path / "bin"
    write_program(folder / "mpirun", REPORTER.format(title="mpirun (Open MPI) 4.1.4"))
    write_program(folder / "mpiexec.hydra", REPORTER.format(title="HYDRA build details:"))
    write_program(folder / "srun", REPORTER.format(title="slurm 23.02.1"))
    return folder


class Run:
    """Runs the command and keeps what it said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def arguments(self) -> list[str]:
        """Return the arguments that the fake launcher has got."""
        return [
            line.removeprefix("argument: ")
            for line in self.out.splitlines()
            if line.startswith("argument: ")
        ]

    def variables(self) -> dict[str, str]:
        """Return the variables that the fake launcher has seen."""
        pairs = [line.partition("=") for line in self.out.splitlines() if "=" in line]
        return {name: value for name, _, value in pairs if name.isupper()}


@pytest.fixture
def overdrive(library: Path, bin_folder: Path, tmp_path: Path) -> Callable[..., Run]:
    """Return a function that runs `overdrive` in an empty environment with fake launchers."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> Run:
        environment = {
            "PATH": f"{bin_folder}:{os.path.dirname(sys.executable)}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "OVERDRIVE_LIBRARY": str(library),
            **(env or {}),
        }
        environment = {name: value for name, value in environment.items() if value}
        done = subprocess.run(
            [sys.executable, str(COMMAND), *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Run(done)

    return run

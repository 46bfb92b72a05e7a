#!/usr/bin/env python3
"""Creates Python virtual environments with given packages; safe to repeat and to interrupt.

An environment counts as complete only when its stamp file lists exactly the requirements asked
for; the stamp is written last, so that an interrupted installation is continued the next time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

from packages import SetupError, ensure, log, run_with_retries

ROOT = Path(__file__).resolve().parents[2]

DEVELOPMENT = ["pytest", "pytest-xdist", "ruff", "matplotlib", "numpy"]
"""What tests, lint and plots need; the library and the `overdrive` command need none of it."""

PIP_ATTEMPTS = 4
"""A package index answers with passing errors now and then."""


_one_at_a_time: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
"""Hosts are set up side by side, and several share an environment."""


def python_of(directory: Path) -> Path:
    """Return the interpreter of the environment in the directory."""
    return directory / "bin" / "python"


def _stamp_of(directory: Path) -> Path:
    return directory / "overdrive-requirements.txt"


def is_complete(directory: Path, requirements: list[str]) -> bool:
    """Tell whether the environment exists with exactly these requirements."""
    stamp = _stamp_of(directory)
    return (
        python_of(directory).exists()
        and stamp.exists()
        and stamp.read_text().split("\n") == requirements
    )


def _create(directory: Path) -> None:
    """Make an empty environment, installing the distribution's venv package when it is needed."""
    command = [sys.executable, "-m", "venv", str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        # Debian splits ensurepip into its own package.
        ensure(["python3-venv"])
        result = subprocess.run(
            [*command[:3], "--clear", *command[3:]], capture_output=True, text=True, check=False
        )
    if result.returncode != 0:
        raise SetupError(f"cannot create {directory}:\n{result.stdout}{result.stderr}")


def pip_install(directory: Path, arguments: list[str], env: dict[str, str] | None = None) -> None:
    """Run pip install in the environment, with retries."""
    command = [str(python_of(directory)), "-m", "pip", "install", "-q", "--retries", "5"]
    command += ["--disable-pip-version-check", *arguments]
    environment = {**os.environ, **(env or {})}
    run_with_retries(
        command, environment, "pip install", PIP_ATTEMPTS, hopeless="No matching distribution"
    )


def ensure_environment(
    directory: Path,
    requirements: list[str],
    pip_arguments: list[str] | None = None,
    env: dict[str, str] | None = None,
) -> Path:
    """Bring the environment to exactly these requirements; return its interpreter."""
    with _one_at_a_time[directory]:
        if is_complete(directory, requirements):
            return python_of(directory)
        log(f"installing {' '.join(requirements)} into {directory}")
        if not python_of(directory).exists():
            directory.parent.mkdir(parents=True, exist_ok=True)
            _create(directory)
        pip_install(directory, [*(pip_arguments or []), *requirements], env)
        _stamp_of(directory).write_text("\n".join(requirements))
    return python_of(directory)


def development_directory() -> Path:
    """Return where the tools for tests, lint and plots live."""
    return Path(os.environ.get("OVERDRIVE_VENV_DIR", ROOT / "build" / "venv"))


def main() -> int:
    """Create the development environment and print its interpreter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    try:
        print(ensure_environment(development_directory(), DEVELOPMENT))
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

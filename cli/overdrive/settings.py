"""Asks the library's own settings program what is set, from where, and what is wrong."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from overdrive.errors import CommandError
from overdrive.installation import TOOL, Installation

STOPPED = 3
"""Exit status of the program when `strict` would end a job."""


def query(
    installation: Installation,
    environment: Mapping[str, str],
    *options: str,
    launcher: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the program's report for an environment, of the node that `launcher` reaches."""
    if installation.tool is None:
        raise CommandError(
            f"{TOOL} was not found near {installation.home}: run `make` in the checkout, "
            f"or install Overdrive completely"
        )
    done = subprocess.run(
        [*launcher, str(installation.tool), *options],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, STOPPED):
        raise CommandError(
            f"{installation.tool} failed with status {done.returncode}: {done.stderr.strip()}"
        )
    return json.loads(done.stdout)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return "OVERDRIVE_" + name.upper()

"""Asks the library's own settings program what is set, from where, and what is wrong."""

from __future__ import annotations

import os

from overdrive.errors import CommandError
from overdrive.installation import TOOL, Installation
from overdrive.options import variable_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["issues", "query", "variable_of"]

STOPPED = 3
"""Exit status of the program when `strict` would end a job."""


def need_tool(installation: Installation) -> str:
    """Return the program's path, or raise an error that says how to get it."""
    if installation.tool_path is None:
        raise CommandError(
            f"{TOOL} was not found near {installation.home_path}: run `make` in the checkout, "
            f"or install Overdrive completely"
        )
    return installation.tool_path


def _without_preload(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that is not the user's."""
    return {name: value for name, value in environment.items() if name != "LD_PRELOAD"}


def query(
    installation: Installation,
    environment: Mapping[str, str],
    *options: str,
    launcher: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the program's report for an environment, of the node that `launcher` reaches."""
    import json
    import subprocess

    tool = need_tool(installation)
    try:
        done = subprocess.run(
            [*launcher, tool, *options],
            env=_without_preload(environment),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except OSError as reason:
        raise CommandError(f"{tool} cannot be started: {reason.strerror}") from reason
    if done.returncode not in (0, STOPPED):
        raise CommandError(f"{tool} failed with status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def issues(installation: Installation, environment: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the settings, without importing what starts programs usually."""
    tool = need_tool(installation)
    read_end, write_end = os.pipe()
    child = os.posix_spawn(
        tool,
        [tool, "--issues"],
        _without_preload(environment),
        file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1), (os.POSIX_SPAWN_CLOSE, write_end)],
    )
    os.close(write_end)
    with open(read_end, encoding="utf-8", errors="replace") as output:
        lines = output.read().splitlines()
    os.waitpid(child, 0)
    return lines

"""`overdrive study`."""

from __future__ import annotations

from collections.abc import Mapping

from overdrive.errors import CommandError
from overdrive.installation import Installation


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Study; return the exit status."""
    raise CommandError("not yet")

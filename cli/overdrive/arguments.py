"""What the commands that read their options with argparse share: one style of help and errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from overdrive.errors import CommandError


class Parser(argparse.ArgumentParser):
    """Reports a mistake like every other part of the command, and points to the help."""

    def __init__(self, **keywords: object) -> None:
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **keywords)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise what the command prints."""
        _, unknown, words = message.partition("unrecognized arguments: ")
        if unknown:
            message = f"`{self.prog}` does not know {words}"
        raise CommandError(f"{message}; see `{self.prog} --help`")


def number(
    least: float, most: float, whole: bool = True
) -> Callable[[str], int] | Callable[[str], float]:
    """Return the type of an option that takes a number within bounds."""

    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            kind = "whole number" if whole else "number"
            raise argparse.ArgumentTypeError(
                f"it takes a {kind} from {least:g} to {most:g}, and not '{text}'"
            )
        return value

    return read

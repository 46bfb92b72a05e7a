"""The error that ends the command with a message instead of a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """Something the user can put right; the text says what is wrong and what to do."""

"""Prints a program as a C file of its own."""

from __future__ import annotations

from fuzz.program import Program


def standalone(program: Program, how: str) -> str:
    """Return the source."""
    return f"// {how}\n"

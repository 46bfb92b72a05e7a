"""What `overdrive info` says about collectives that return before their data has arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def describe(known: Mapping[str, str]) -> dict[str, Any]:
    """Return what `overlap` does with these settings: mode, whether calls return early, why.

    Whether the installed MPI library lets a thread call it is known in a job only: Overdrive asks
    for that level in MPI_Init.
    """
    mode = known["overlap"]
    early = mode in ("on", "auto")
    why = ""
    if mode == "off":
        why = "`overlap` is off"
    elif known["collectives"] != "true":
        early, why = False, "`collectives` is off"
    elif known["reach"] == "off":
        early, why = False, "`reach` is off: memory can be guarded only where it is mapped twice"
    elif known["progress"] != "off":
        early, why = False, "`progress` lets another thread in"
    elif mode == "trace":
        why = "`overlap=trace` only looks when data is used"
    return {"mode": mode, "returns_early": early, "why": why}


def line(known: Mapping[str, str]) -> str:
    """Return the same in words."""
    found = describe(known)
    if found["mode"] == "off":
        return "collectives are complete when they return; see `overdrive info overlap`"
    if not found["returns_early"]:
        return f"`{found['mode']}`: no call returns early: {found['why']}"
    calls = "calls that gain by it" if found["mode"] == "auto" else "calls"
    return (
        f"`{found['mode']}`: {calls} of {known['overlap_min']} or more between nodes return early. "
        "A thread moves the data while the program computes, if the installed MPI library grants "
        "MPI_THREAD_SERIALIZED, as a rule it does; a job in which it does not says so"
    )

"""`overdrive info --pair A B`: which way messages between two ranks of this node take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overdrive import info_text
from overdrive.errors import CommandError

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_BUFFERS = {
    "unchanged": "a reachable buffer that is sent again unchanged",
    "rewritten": "a reachable buffer that was written since it was last sent",
    "elsewhere": "any other buffer (stack, foreign allocators)",
}


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)


def _processors(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _shared_cache(machine: Mapping[str, Any], one: int, other: int) -> int:
    """Return the innermost level of cache that two processors share, or 0."""
    levels = [
        cache["level"]
        for cache in machine["caches"]
        if {one, other} <= set(_processors(cache["shared_by"]))
    ]
    return min(levels, default=0)


def describe(report: Mapping[str, Any], one: int, other: int) -> dict[str, Any]:
    """Return what is known about the pair, in the form of the JSON output."""
    if report["settings"] is None:
        raise CommandError(report["issues"][0]["message"])
    known = info_text.values(report)
    usable = _processors(report["machine"]["affinity"])
    processors = [usable[rank % len(usable)] for rank in (one, other)]
    why = info_text.shares_memory(report)
    if known["disable"] == "true":
        why = "Overdrive is switched off (`disable`)"
    remote = known["test_remote"]
    pair = f"{min(one, other)}-{max(one, other)}"
    if remote == "all" or pair in remote.split(","):
        why = "`test_remote` treats them as if they were on different nodes"
    level = _shared_cache(report["machine"], *processors)
    distance = "near" if level else "far"
    # Boxes hold the smallest; a message of one cell goes before its receiver has come.
    inline = min(_bytes(known["inline_max"]), _bytes(known["fastbox_bytes"]) // 5)
    if one // len(usable) != other // len(usable) and processors[0] == processors[1]:
        level = -1
    return {
        "ranks": [one, other],
        "processors": processors,
        "shared_cache_level": level,
        "host_mpi_because": why,
        "distance": distance,
        "inline_max_bytes": inline,
        "eager_max_bytes": min(_bytes(known["eager_max"]), _bytes(known["cell_bytes"])),
        "far_threshold": known["far_threshold"],
        "copy_path": known["copy_path"],
        "routes": [
            {"buffer": route["buffer"], "from": route["from"]}
            for route in report["routes"]
            if route["distance"] == distance
            and (known["reach"] != "off" or route["buffer"] == "elsewhere")
        ],
        "paths": {path["name"]: path["doc"] for path in report["paths"]},
    }


def lines(pair: Mapping[str, Any]) -> list[str]:
    """Return the description as text for people."""
    one, other = pair["ranks"]
    first, second = pair["processors"]
    found = [f"Ranks {one} and {other}, both on this node"]
    if pair["host_mpi_because"]:
        return [*found, f"  all messages go to the installed MPI library: "
                f"{pair['host_mpi_because']}"]  # fmt: skip
    where = f"processors {first} and {second}, if the launcher places ranks one after the other"
    if pair["shared_cache_level"] < 0:
        where = f"the same processor {first}: there are more ranks than processors"
    found.append(f"  on {where}")
    if pair["shared_cache_level"] > 0:
        cache = f"they share a cache (L{pair['shared_cache_level']})"
    else:
        cache = "they share no cache" if pair["shared_cache_level"] == 0 else "one after the other"
    found.append(
        info_text.wrapped(
            f"{pair['distance']}, since {cache}; the job measures it anew: far from "
            f"{pair['far_threshold']} per cache line on (--verbose 2 tells)",
            2,
        )
    )
    size = info_text.size
    found += ["", f"  up to {size(pair['inline_max_bytes']):9} in the fast box of the pair"]
    found.append(f"  up to {size(pair['eager_max_bytes']):9} in one cell, before the receiver has "
                 f"come, unless a way below begins earlier")  # fmt: skip
    for route in pair["routes"]:
        found += ["", f"  longer ones from {_BUFFERS[route['buffer']]}"]
        for start in route["from"]:
            begin = f"from {size(start['bytes'])} on" if start["bytes"] else "at first"
            found.append(f"    {begin:18} {pair['paths'][start['way']]} ({start['way']})")
    return found

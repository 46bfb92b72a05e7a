"""Reads what ranks have recorded and adds it up: the numbers of `overdrive report`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overdrive.errors import CommandError
from overdrive.report import arrivals

ACTIVITIES = ("send", "receive", "wait", "collective", "one-sided", "other")

MOST_SITES = 40
MOST_MATRIX = 256
"""Rows of the communication matrix; more ranks are put together in blocks."""

WAYS = (
    ("fast box", "sends_inline", "bytes_inline", "small, in one cache line or a few"),
    ("cell", "sends_cell", "bytes_cell", "copied in and out of shared memory at once"),
    ("exchange frame", "sends_frame", "bytes_frame", "shared memory that goes to and fro"),
    ("stream of cells", "sends_stream", "bytes_stream", "copied through cells piece by piece"),
    ("direct", "sends_direct", "bytes_direct", "read from the sender's buffer, one copy"),
    ("cooperative", "sends_cooperative", "", "both sides copy; bytes are with direct"),
    ("to itself", "sends_self", "bytes_self", "a rank to itself"),
    ("installed MPI", "sends_host", "", "other nodes, and what Overdrive does not serve"),
)
"""Ways of messages: name, counter of messages, counter of bytes, what it is."""


def _rank_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CommandError(
            f"{path} does not exist; record a run with `overdrive --record mpirun …`"
        )
    found = [p for p in path.iterdir() if re.fullmatch(r"rank-\d+\.json", p.name)]
    if not found:
        raise CommandError(
            f"{path} holds no rank-0.json and so on; record a run with "
            f"`overdrive --record={path} mpirun …`"
        )
    return found


def _said(reason: Exception) -> str:
    return f"it has no {reason}" if isinstance(reason, KeyError) else str(reason)


def _demand_whole(rank: Mapping[str, Any]) -> None:
    for name in ("rank", "size", "elapsed_ns"):
        if not isinstance(rank[name], int):
            raise TypeError(f"{name} is {rank[name]!r}, not a whole number")
    if not 0 <= rank["rank"] < rank["size"]:
        raise ValueError(f"rank {rank['rank']} of {rank['size']}")
    if not isinstance(rank["counters"], dict):
        raise TypeError("counters are not named")


def load(path: Path) -> list[dict[str, Any]]:
    """Return the files of all ranks, in the order of ranks."""
    ranks = []
    for file in _rank_files(path):
        try:
            rank = json.loads(file.read_text(encoding="utf-8"))
            _demand_whole(rank)
        except (OSError, UnicodeDecodeError) as reason:
            raise CommandError(f"{file} cannot be read: {reason}") from reason
        except (ValueError, KeyError, TypeError) as reason:
            raise CommandError(f"{file} is no record of a rank: {_said(reason)}") from reason
        ranks.append(rank)
    ranks.sort(key=lambda rank: rank["rank"])
    numbers = [rank["rank"] for rank in ranks]
    if len(set(numbers)) != len(numbers) or len({rank["size"] for rank in ranks}) > 1:
        raise CommandError(f"{path} holds files of different runs; record into an empty folder")
    return ranks


def _sum(ranks: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(rank["counters"].get(name, 0) for rank in ranks)


def _sites(ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    joined: dict[tuple[str, str, int], dict[str, Any]] = {}
    for rank in ranks:
        for site in rank.get("call_sites", []):
            key = (site["function"], site["module"], site["offset"])
            into = joined.setdefault(
                key,
                {"function": site["function"], "place": "", "calls": 0, "ns": 0, "longest_ns": 0,
                 "ranks": 0, "most_ns": 0, "most_rank": 0},
            )  # fmt: skip
            into["calls"] += site["calls"]
            into["ns"] += site["ns"]
            into["ranks"] += 1
            into["longest_ns"] = max(into["longest_ns"], site["longest_ns"])
            if site["ns"] > into["most_ns"]:
                into["most_ns"], into["most_rank"] = site["ns"], rank["rank"]
            address = f"{site['module']}+{site['offset']:#x}" if site["module"] else "elsewhere"
            into["place"] = site.get("place") or into["place"] or address
    return sorted(joined.values(), key=lambda site: -site["ns"])


def _sizes(ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    joined: dict[tuple[str, int], dict[str, Any]] = {}
    for rank in ranks:
        for row in rank.get("recording", {}).get("sizes", []):
            key = (row["function"], row["below_bytes"])
            into = joined.setdefault(key, {"function": key[0], "below_bytes": key[1], "calls": 0,
                                           "bytes": 0, "ns": 0})  # fmt: skip
            for name in ("calls", "bytes", "ns"):
                into[name] += row[name]
    return sorted(joined.values(), key=lambda row: (row["function"], row["below_bytes"]))


def _collectives(ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    joined: dict[tuple[str, str, str], dict[str, Any]] = {}
    for rank in ranks:
        for row in rank.get("collectives", []):
            key = (row["collective"], row["way"], row["algorithm"])
            into = joined.setdefault(
                key,
                {"collective": key[0], "way": key[1], "algorithm": key[2], "calls": 0, "bytes": 0,
                 "ns": 0, "longest_ns": 0, "arrivals": 0, "apart_ns": 0, "longest_apart_ns": 0},
            )  # fmt: skip
            for name in ("calls", "bytes", "ns", "arrivals", "apart_ns"):
                into[name] += row[name]
            for name in ("longest_ns", "longest_apart_ns"):
                into[name] = max(into[name], row[name])
    return sorted(joined.values(), key=lambda row: -row["ns"])


def _matrix(ranks: Sequence[Mapping[str, Any]], size: int) -> dict[str, Any]:
    block = -(-size // MOST_MATRIX)
    count = -(-size // block)
    bytes_ = [[0] * count for _ in range(count)]
    messages = [[0] * count for _ in range(count)]
    for rank in ranks:
        for peer in rank.get("recording", {}).get("peers", []):
            if 0 <= peer["rank"] < size:
                bytes_[rank["rank"] // block][peer["rank"] // block] += peer["bytes"]
                messages[rank["rank"] // block][peer["rank"] // block] += peer["messages"]
    return {"ranks_per_row": block, "bytes": bytes_, "messages": messages}


def _fold(values: Sequence[int], ratio: int, slots: int) -> list[int]:
    found = [0] * slots
    for i, value in enumerate(values):
        found[min(slots - 1, i // ratio)] += value
    return found


def _timeline(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the time in MPI by slot: of all ranks by activity, and of each rank."""
    lines = [rank.get("recording", {}).get("timeline") for rank in ranks]
    if not any(lines):
        return {}
    slot_ns = max(line["slot_ns"] for line in lines if line)
    elapsed = max(rank["elapsed_ns"] for rank in ranks)
    slots = max(1, -(-elapsed // slot_ns))
    activities = {name: [0] * slots for name in ACTIVITIES}
    each = []
    for line in lines:
        own = [0] * slots
        for name in ACTIVITIES if line else ():
            folded = _fold(line.get(name, []), slot_ns // line["slot_ns"], slots)
            for i, value in enumerate(folded):
                if value:
                    activities[name][i] += value
                    own[i] += value
        each.append(own)
    return {"slot_ns": slot_ns, "slots": slots, "activities": activities, "ranks": each}


def _rank_row(rank: Mapping[str, Any]) -> dict[str, Any]:
    line = rank.get("recording", {}).get("timeline", {})
    counters = rank["counters"]
    return {
        "rank": rank["rank"],
        "node": rank.get("node", ""),
        "cpus": rank.get("cpus", ""),
        "elapsed_ns": rank["elapsed_ns"],
        "mpi_ns": sum(site["ns"] for site in rank.get("call_sites", [])),
        "activities": {name: sum(line.get(name, [])) for name in ACTIVITIES},
        "peak_memory_bytes": rank.get("peak_memory_bytes", 0),
        "region_bytes": counters.get("region_bytes_peak", 0),
        "buffered_bytes": counters.get("buffer_peak_bytes", 0),
        "reach_bytes": counters.get("reach_heap_peak", 0),
        "why_not_shared": rank.get("why_not_shared", ""),
        "crowding": rank.get("crowding", []),
    }


def summarise(ranks: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return everything that the page and --json show, but for the advice."""
    first = ranks[0]
    rows = [_rank_row(rank) for rank in ranks]
    counters = {key: _sum(ranks, key) for key in first["counters"]}
    for key in counters:
        if "peak" in key:
            counters[key] = max(rank["counters"].get(key, 0) for rank in ranks)
    ways = [
        {"way": way, "messages": counters.get(messages, 0),
         "bytes": counters.get(bytes_, 0) if bytes_ else None, "what": what}
        for way, messages, bytes_, what in WAYS
        if counters.get(messages, 0)
    ]  # fmt: skip
    mpi_ns = sum(row["mpi_ns"] for row in rows)
    elapsed_ns = sum(row["elapsed_ns"] for row in rows)
    return {
        "name": name,
        "version": first.get("overdrive", ""),
        "host_library": first.get("host_library", ""),
        "ranks_of_job": first["size"],
        "ranks_recorded": len(ranks),
        "nodes": sorted({row["node"] for row in rows}),
        "elapsed_ns": max(row["elapsed_ns"] for row in rows),
        "mpi_ns": mpi_ns,
        "mpi_share": mpi_ns / elapsed_ns if elapsed_ns else 0.0,
        "calls": sum(site["calls"] for rank in ranks for site in rank.get("call_sites", [])),
        "ranks": rows,
        "sites": _sites(ranks),
        "sizes": _sizes(ranks),
        "collectives": _collectives(ranks),
        "arrivals": arrivals.summarise(ranks),
        "ways": ways,
        "matrix": _matrix(ranks, first["size"]),
        "timeline": _timeline(ranks),
        "counters": counters,
    }

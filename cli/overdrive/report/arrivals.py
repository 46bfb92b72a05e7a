"""How far apart the ranks came to collective calls: joins what their files tell, call by call."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIMITS_NS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
CLASS_NAMES = ("< 10 us", "< 100 us", "< 1 ms", "< 10 ms", "< 100 ms", "more")
"""Classes of the time between the first and the last rank."""


@dataclass(frozen=True)
class Call:
    """A collective call to which all ranks of a communicator have come."""

    function: str
    place: str
    times_ns: Mapping[int, int]
    """By the rank's number in the job, on a clock that all share."""

    @property
    def apart_ns(self) -> int:
        """Return the time between the first and the last rank."""
        return max(self.times_ns.values()) - min(self.times_ns.values())


def calls(ranks: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    """Yield the calls that all ranks of their communicators have kept, in order; `ranks` are files.

    The lowest rank's place names the call.
    """
    places = {
        (site["function"], site["module"], site["offset"]): site["place"]
        for rank in ranks
        for site in rank.get("call_sites", [])
        if site.get("place")
    }
    joined: dict[tuple[str, int], dict[int, int]] = {}
    about: dict[tuple[str, int], tuple[int, tuple[str, str, int]]] = {}
    for rank in sorted(ranks, key=lambda each: each["rank"]):
        own = rank.get("arrivals", {})
        sites = [(s["function"], s["module"], s["offset"]) for s in own.get("sites", [])]
        for comm in own.get("communicators", []):
            for number, site, time_ns in comm["calls"]:
                key = (comm["id"], number)
                joined.setdefault(key, {})[rank["rank"]] = time_ns
                about.setdefault(key, (comm["ranks"], sites[site]))
    complete = [key for key, times in joined.items() if len(times) == about[key][0]]
    for key in sorted(complete, key=lambda key: min(joined[key].values())):
        function, module, offset = about[key][1]
        address = f"{module}+{offset:#x}" if module else "elsewhere"
        yield Call(function, places.get((function, module, offset), address), joined[key])


def _row(found: Sequence[Call], node_of: Mapping[int, int]) -> dict[str, Any]:
    on_node, nodes = [], []
    last: Counter[int] = Counter()
    classes = [0] * len(CLASS_NAMES)
    for call in found:
        first: dict[int, int] = {}
        latest: dict[int, int] = {}
        for rank, time_ns in call.times_ns.items():
            node = node_of[rank]
            first[node] = min(first.get(node, time_ns), time_ns)
            latest[node] = max(latest.get(node, time_ns), time_ns)
        on_node.append(max(latest[node] - first[node] for node in first))
        nodes.append(max(first.values()) - min(first.values()))
        times = call.times_ns
        last[max(times, key=lambda rank, times=times: (times[rank], -rank))] += 1
        classes[sum(call.apart_ns >= limit for limit in LIMITS_NS)] += 1
    apart = [call.apart_ns for call in found]
    return {
        "function": found[0].function,
        "place": found[0].place,
        "ranks": len(found[0].times_ns),
        "calls": len(found),
        "median_ns": statistics.median(apart),
        "longest_ns": max(apart),
        "on_node_ns": statistics.median(on_node),
        "nodes_ns": statistics.median(nodes),
        "sum_ns": sum(apart),
        "classes": classes,
        "last": [[rank, count] for rank, count in last.most_common()],
    }


def summarise(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a row for each place of calls, where most time was lost first."""
    node_of = {rank["rank"]: rank.get("arrivals", {}).get("node", 0) for rank in ranks}
    by_place: dict[tuple[str, str, int], list[Call]] = {}
    for call in calls(ranks):
        by_place.setdefault((call.function, call.place, len(call.times_ns)), []).append(call)
    rows = [_row(found, node_of) for found in by_place.values()]
    return {
        "clock_error_ns": max(
            (rank.get("arrivals", {}).get("clock_error_ns", 0) for rank in ranks), default=0
        ),
        "places": sorted(rows, key=lambda row: -row["sum_ns"]),
    }


def delays_us(
    ranks: Sequence[Mapping[str, Any]], size: int, where: str, most: int
) -> list[list[float]]:
    """Return how long after the first rank each of `size` ranks came, for at most `most` calls.

    Of calls by functions or places that `where` names; evenly chosen from the whole run.
    """
    found = [
        [
            (time_ns - min(call.times_ns.values())) / 1e3
            for _, time_ns in sorted(call.times_ns.items())
        ]
        for call in calls(ranks)
        if len(call.times_ns) == size and (where in call.function or where in call.place)
    ]
    every = -(-len(found) // most) if found else 1
    return found[::every]

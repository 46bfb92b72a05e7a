"""What to change after a run: the findings of `overdrive report`, with numbers and commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overdrive.info_pinning import members
from overdrive.report.text import bytes_text, count_text, percent, time_text

LITTLE = 0.02
"""Below this share of the time in MPI nothing here is worth a change."""

UNEVEN = 0.15
"""Share of the run by which ranks' times in MPI differ before it is called uneven."""

NOTABLE = 0.01
"""Share of messages from which an event counts as frequent."""


def _finding(title: str, why: str, *commands: str) -> dict[str, Any]:
    return {"title": title, "why": why, "commands": list(commands)}


def _placement(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    advice = []
    said: set[str] = set()
    for row in found["ranks"]:
        for sentence in row["crowding"]:
            if sentence not in said:
                said.add(sentence)
                advice.append(
                    _finding(
                        "Ranks or threads share cores",
                        f"Node {row['node']}: {sentence}.",
                        "overdrive info --pinning",
                        "overdrive --pin=core mpirun …",
                    )  # fmt: skip
                )
    for node in found["nodes"]:
        ranks = [row for row in found["ranks"] if row["node"] == node and row["cpus"]]
        usable = {cpu for row in ranks for cpu in members(row["cpus"])}
        if len(ranks) > len(usable):
            advice.append(
                _finding(
                    "More ranks than processors",
                    f"{len(ranks)} ranks of node {node} have {len(usable)} processors in all, so "
                    f"ranks wait for others that have no core. Start fewer on a node.",
                    "overdrive info --pinning",
                )
            )
            break
    wide = [row for row in found["ranks"] if "-" in row["cpus"] or "," in row["cpus"]]
    same = len({(row["node"], row["cpus"]) for row in wide}) < len(wide)
    if not advice and len(wide) == len(found["ranks"]) > 1 and same:
        advice.append(
            _finding(
                "Ranks may wander",
                f"All ranks may run on several processors (rank 0: {wide[0]['cpus']}) and share "
                f"them; a rank that moves leaves its caches and its NUMA node's memory behind.",
                "overdrive info --pinning",
                "overdrive --pin=core mpirun …",
            )  # fmt: skip
        )
    return advice


def _balance(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = found["ranks"]
    if len(rows) < 2:
        return []
    shares = [row["mpi_ns"] / max(1, row["elapsed_ns"]) for row in rows]
    least, most = min(shares), max(shares)
    if most - least < UNEVEN:
        return []
    slow = rows[shares.index(least)]["rank"]
    return [
        _finding(
            f"Others wait for rank {slow}",
            f"Rank {slow} spends {percent(least)} of the run in MPI, the others up to "
            f"{percent(most)}: it has more to compute, or computes more slowly. No setting "
            f"shortens that; divide the work otherwise, or look whether something "
            f"disturbs its core or node.",
            "overdrive doctor",
        )
    ]


def _fall_backs(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    advice = []
    counters = found["counters"]
    reasons = sorted({row["why_not_shared"] for row in found["ranks"] if row["why_not_shared"]})
    if reasons:
        advice.append(
            _finding("Ranks of a node do not share memory", "; ".join(reasons), "overdrive doctor")
        )
    host = [row for row in found["collectives"] if row["way"] == "host"]
    served = sum(row["calls"] for row in found["collectives"] if row["way"] != "host")
    calls = sum(row["calls"] for row in host)
    if calls > NOTABLE * (calls + served) and calls > 0:
        most = max(host, key=lambda row: row["calls"])
        size = most["bytes"] // max(1, most["calls"])
        advice.append(
            _finding(
                "Collectives that the installed MPI library makes",
                f"{calls} calls, most of them {most['collective']} with about {bytes_text(size)}.",
                f"overdrive explain {most['collective']} {size}",
            )
        )
    if counters.get("fallback_comm", 0) or counters.get("fallback_datatype", 0):
        advice.append(
            _finding(
                "Messages that Overdrive could not serve",
                f"{counters.get('fallback_comm', 0)} on communicators that are not served, "
                f"{counters.get('fallback_datatype', 0)} with datatypes that are unknown.",
                "overdrive --verbose 1 mpirun …",
            )
        )
    return advice


def _copies(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    advice = []
    counters = found["counters"]
    sends = sum(way["messages"] for way in found["ways"])
    local = sum(way["bytes"] or 0 for way in found["ways"])
    streamed = counters.get("bytes_stream", 0)
    if streamed > 0.3 * local and counters.get("offers_declined", 0) > 0:
        advice.append(
            _finding(
                "Large messages are copied twice",
                f"{bytes_text(streamed)} went through cells because the receiver could not read "
                f"the sender's buffer: it lies on a stack, in a library, or beyond the limit.",
                "overdrive info --machine",
                "overdrive --set reach_libraries=libmine mpirun …",
            )
        )
    if counters.get("pool_full_waits", 0) > NOTABLE * max(1, sends):
        advice.append(
            _finding(
                "Senders wait for free cells",
                f"{count_text(counters['pool_full_waits'])} times in {count_text(sends)} messages.",
                "overdrive --set pool_bytes=8M mpirun …",
            )
        )
    if counters.get("box_refused", 0) > 0:
        advice.append(
            _finding(
                "More peers than fast boxes",
                f"{counters['box_refused']} pairs of ranks use the shared queue instead.",
                f"overdrive --set fastbox_peers={max(64, found['ranks_of_job'])} mpirun …",
            )
        )
    if counters.get("buffer_limit_waits", 0) > 0:
        advice.append(
            _finding(
                "Senders wait because copies of messages fill the memory they may take",
                f"{counters['buffer_limit_waits']} times: messages come long before receives.",
                "overdrive --set buffer_limit=4G mpirun …",
            )
        )
    return advice


def _unexpected(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    counters = found["counters"]
    late = counters.get("matched_unexpected", 0)
    total = late + counters.get("matched_posted", 0)
    large = counters.get("self_buffered_bytes", 0)
    if total == 0 or late < 0.5 * total or large < 1 << 20:
        return []
    return [
        _finding(
            "Receives are posted late",
            f"{percent(late / total)} of the messages came before their receive, and "
            f"{bytes_text(large)} were copied aside meanwhile. Receives posted earlier (MPI_Irecv "
            f"before the sends) save that.",
        )
    ]


def advise(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return findings, the most important first."""
    if found["calls"] == 0:
        return [
            _finding(
                "Nothing about calls is recorded",
                "These are statistics without times.",
                "overdrive --record mpirun …",
            )  # fmt: skip
        ]
    advice = _fall_backs(found)
    if found["mpi_share"] < LITTLE:
        why = (
            f"Ranks spend {percent(found['mpi_share'])} of the run in MPI "
            f"({time_text(found['mpi_ns'] / max(1, len(found['ranks'])))} each): faster "
            f"communication cannot shorten the run by more than that."
        )
        return [*advice, _finding("The run is not bound by communication", why)]
    return [*_placement(found), *advice, *_copies(found), *_balance(found), *_unexpected(found)]

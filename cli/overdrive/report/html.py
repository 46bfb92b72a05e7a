"""The page of `overdrive report`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from overdrive import page, svg
from overdrive.page import Cell, bar, escape, table, wide
from overdrive.report import arrivals, timeline
from overdrive.report.record import ACTIVITIES, MOST_SITES
from overdrive.report.text import bytes_text, count_text, percent, time_text
from overdrive.thresholds import size_text

COLOURS = timeline.COLOURS

MOST_ARRIVALS = 12
"""Places of collective calls."""

MOST_BARS = 256
"""Bars of ranks; more ranks are put together."""


class Section:
    """A part of the page with a heading, which the list at the top names."""

    def __init__(self, title: str, *parts: str) -> None:
        self.title = title
        self.anchor = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
        self.parts = [part for part in parts if part]

    def markup(self) -> str:
        """Return the part."""
        return (
            f'<section id="{self.anchor}"><h2>{escape(self.title)}</h2>'
            f"{''.join(self.parts)}</section>"
        )


def _text(words: str) -> str:
    return f"<p>{escape(words)}</p>"


def _head(found: Mapping[str, Any]) -> str:
    nodes = len(found["nodes"])
    facts = [
        f"{found['ranks_of_job']} ranks on {nodes} node{'' if nodes == 1 else 's'}",
        time_text(found["elapsed_ns"]),
        f"Overdrive {found['version']} over {found['host_library']}",
    ]
    if found["ranks_recorded"] != found["ranks_of_job"]:
        facts.append(f"only {found['ranks_recorded']} ranks are recorded")
    messages = sum(way["messages"] for way in found["ways"])
    moved = sum(sum(row) for row in found["matrix"]["bytes"])
    memory = max(row["peak_memory_bytes"] for row in found["ranks"])
    tiles = [
        (percent(found["mpi_share"]), "of the time in MPI"),
        (count_text(found["calls"]), "MPI calls"),
        (count_text(messages), "messages"),
        (bytes_text(moved), "sent to peers"),
        (bytes_text(memory) if memory else "–", "memory of the largest rank"),
    ]
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what in tiles
    )
    return (
        f"<h1>{escape(found['name'])}</h1>"
        f'<p class="sub">{escape(" · ".join(facts))}</p>'
        f'<div class="tiles">{cells}</div>'
    )


def _advice(found: Mapping[str, Any]) -> Section:
    if not found["advice"]:
        return Section("What to change", _text("Nothing stands out in what was recorded."))
    parts = []
    for one in found["advice"]:
        commands = "\n".join(one["commands"])
        shown = f"<pre>{escape(commands)}</pre>" if commands else ""
        parts.append(
            f'<div class="advice"><b>{escape(one["title"])}</b>{_text(one["why"])}{shown}</div>'
        )
    return Section("What to change", *parts)


def _ranks(found: Mapping[str, Any]) -> Section:
    rows = found["ranks"]
    block = -(-len(rows) // MOST_BARS)
    groups = [rows[i : i + block] for i in range(0, len(rows), block)]
    series = {
        name: [sum(row["activities"][name] for row in group) / len(group) / 1e9 for group in groups]
        for name in ACTIVITIES
    }
    if not any(any(values) for values in series.values()):
        series = {"other": [sum(row["mpi_ns"] for row in g) / len(g) / 1e9 for g in groups]}
    used = {name: values for name, values in series.items() if any(values)}
    tips = [
        f"rank {group[0]['rank']} on {group[0]['node']}, cpu {group[0]['cpus'] or '?'}: "
        + ", ".join(f"{name} {time_text(series[name][i] * 1e9)}" for name in used)
        for i, group in enumerate(groups)
    ]
    chart = svg.stacks(
        [str(group[0]["rank"]) for group in groups], used, title="Seconds in MPI, by rank",
        y_text=lambda s: f"{s:g} s", colours=COLOURS, tips=tips, x_label="rank",
    )  # fmt: skip
    shares = sorted((row["mpi_ns"] / max(1, row["elapsed_ns"]), row["rank"]) for row in rows)
    middle = shares[len(shares) // 2][0]
    words = (
        f"Half of the ranks spend at most {percent(middle)} of the run in MPI; least has rank "
        f"{shares[0][1]} with {percent(shares[0][0])}, most rank {shares[-1][1]} with "
        f"{percent(shares[-1][0])}. A rank with little time in MPI is one that others wait for."
    )
    key = page.legend([(name, COLOURS[name]) for name in used])
    return Section("Time in MPI by rank", _text(words), page.figure(key + chart))


def _timeline(found: Mapping[str, Any]) -> Section | None:
    if not found["timeline"]:
        return None
    numbers = [row["rank"] for row in found["ranks"]]
    return Section("Time line", timeline.draw(found["timeline"], numbers))


def _sites(found: Mapping[str, Any]) -> Section | None:
    sites = found["sites"]
    if not sites:
        return None
    total = max(1, sum(site["ns"] for site in sites))
    most = sites[0]["ns"] or 1
    rows = [
        (site["function"], bar(site["ns"] / most), percent(site["ns"] / total),
         time_text(site["ns"]), count_text(site["calls"]), time_text(site["ns"] / site["calls"]),
         time_text(site["longest_ns"]), str(site["most_rank"]), wide(site["place"]))
        for site in sites[:MOST_SITES]
    ]  # fmt: skip
    head = ["function", "", "of MPI", "all ranks", "calls", "mean", "longest", "most on", "place"]
    more = len(sites) - MOST_SITES
    note = f'<p class="note">and {more} places with less time</p>' if more > 0 else ""
    return Section(
        "Places in the program",
        _text("Where the program calls MPI, those that take the longest first."),
        table(head, rows, left=(0, 1, 8)),
        note,
    )


def _class_text(below: float) -> str:
    return "0 B" if below <= 1 else size_text(int(below) // 2)


def _sizes(found: Mapping[str, Any]) -> Section | None:
    rows = found["sizes"]
    if not rows:
        return None
    by_time: dict[str, int] = {}
    for row in rows:
        by_time[row["function"]] = by_time.get(row["function"], 0) + row["ns"]
    shown = sorted(by_time, key=lambda name: -by_time[name])[:6]
    classes = sorted({row["below_bytes"] for row in rows})
    first, last = classes[0], classes[-1]
    every = [2**i for i in range(first.bit_length() - 1, last.bit_length())]

    def series(value: str, factor: float) -> dict[str, list[float]]:
        found_: dict[str, list[float]] = {name: [0.0] * len(every) for name in shown}
        for row in rows:
            if row["function"] in found_:
                found_[row["function"]][every.index(row["below_bytes"])] += row[value] * factor
        return found_

    colours = {name: svg.COLOURS[i] for i, name in enumerate(shown)}
    labels = [_class_text(below) for below in every]
    charts = [
        svg.stacks(labels, series("calls", 1), title="Calls, by size", y_text=count_text,
                   colours=colours, size=(1040, 200)),
        svg.stacks(labels, series("ns", 1e-9), title="Seconds of all ranks, by size",
                   y_text=lambda s: f"{s:g} s", colours=colours, size=(1040, 200),
                   x_label="from this size to the double"),
    ]  # fmt: skip
    per_function: dict[str, list[int]] = {}
    for row in rows:
        total = per_function.setdefault(row["function"], [0, 0, 0])
        for i, name in enumerate(("calls", "bytes", "ns")):
            total[i] += row[name]
    lines = [
        (name, count_text(calls), bytes_text(moved), bytes_text(moved / max(1, calls)),
         time_text(ns / max(1, calls)))
        for name, (calls, moved, ns) in sorted(per_function.items(), key=lambda x: -x[1][2])
    ]  # fmt: skip
    words = (
        "Sizes by the arguments of the call; calls whose counts are arrays are left out. The time "
        "of a call holds waiting for the other side."
    )
    key = page.legend(list(colours.items()))
    return Section(
        "Sizes",
        _text(words),
        page.figure(key + "".join(charts)),
        table(["function", "calls", "bytes", "mean size", "mean time"], lines),
    )


def _ways(found: Mapping[str, Any]) -> Section | None:
    parts = []
    if found["ways"]:
        most = max(way["messages"] for way in found["ways"])
        rows = [
            (way["way"], bar(way["messages"] / most), count_text(way["messages"]),
             "" if way["bytes"] is None else bytes_text(way["bytes"]), wide(way["what"]))
            for way in found["ways"]
        ]  # fmt: skip
        parts.append("<h3>Messages</h3>")
        parts.append(table(["way", "", "messages", "bytes", ""], rows, left=(0, 1, 4)))
    if found["collectives"]:
        rows = [
            (row["collective"], row["way"], row["algorithm"] or "–", count_text(row["calls"]),
             bytes_text(row["bytes"] / max(1, row["calls"])),
             time_text(row["ns"] / max(1, row["calls"])) if row["ns"] else "–",
             time_text(row["longest_ns"]) if row["ns"] else "–",
             time_text(row["apart_ns"] / row["arrivals"]) if row["arrivals"] else "–",
             time_text(row["longest_apart_ns"]) if row["arrivals"] else "–")
            for row in found["collectives"]
        ]  # fmt: skip
        head = ["collective", "way", "algorithm", "calls", "mean size", "mean", "longest",
                "apart, mean", "longest"]  # fmt: skip
        parts.append("<h3>Collectives</h3>")
        parts.append(table(head, rows, left=(0, 1, 2)))
        parts.append(
            '<p class="note">Calls count once for each rank. Apart: between the first and the last '
            "rank of a node to come, where that was seen; as long as that, somebody waited. What "
            "another algorithm would have cost is not recorded: <code>overdrive explain</code> "
            "estimates it, <code>overdrive bench coll</code> measures it.</p>"
        )
    return Section("Ways and algorithms", *parts) if parts else None


def _arrivals(found: Mapping[str, Any]) -> Section | None:
    places = found["arrivals"]["places"]
    if not places:
        return None
    shown = places[:MOST_ARRIVALS]
    shades = [
        f"color-mix(in srgb, var(--c0) {share} %, var(--c3))" for share in range(100, -1, -20)
    ]
    colours = dict(zip(arrivals.CLASS_NAMES, shades, strict=True))
    labels = [f"{i + 1}: {row['function'].removeprefix('MPI_')}" for i, row in enumerate(shown)]
    spread = svg.stacks(
        labels,
        {
            name: [100 * row["classes"][i] / row["calls"] for row in shown]
            for i, name in enumerate(arrivals.CLASS_NAMES)
        },
        title="Calls by the time between the first and the last rank, by place",
        y_text=lambda share: f"{share:g} %", colours=colours, size=(1040, 220),
    )  # fmt: skip
    ranks = found["ranks_of_job"]
    block = -(-ranks // MOST_BARS)
    last = [0.0] * -(-ranks // block)
    for row in places:
        for rank, count in row["last"]:
            last[rank // block] += count
    calls = sum(row["calls"] for row in places)
    whom = svg.stacks(
        [str(i * block) for i in range(len(last))],
        {"last": [100 * count / calls for count in last]},
        title="Who came last, by rank", y_text=lambda share: f"{share:g} %",
        colours={"last": COLOURS["wait"]}, size=(1040, 200), x_label="rank",
    )  # fmt: skip
    rows = [
        (f"{i + 1}: {row['function']}", bar(row["sum_ns"] / max(1, places[0]["sum_ns"])),
         str(row["ranks"]), count_text(row["calls"]), time_text(row["median_ns"]),
         time_text(row["longest_ns"]), time_text(row["on_node_ns"]), time_text(row["nodes_ns"]),
         f"{row['last'][0][0]} ({percent(row['last'][0][1] / row['calls'])})", wide(row["place"]))
        for i, row in enumerate(shown)
    ]  # fmt: skip
    head = ["function", "", "ranks", "calls", "apart, median", "longest", "on a node",
            "between nodes", "mostly last", "place"]  # fmt: skip
    error = found["arrivals"]["clock_error_ns"]
    note = (
        "Apart: between the first and the last rank to come. On a node: the most of a node; "
        "between nodes: from the first rank of the first node to that of the last. Of many calls "
        "of a communicator some are kept, chosen by chance. "
    )
    if error:
        note += f"The clocks of nodes are known to {time_text(error)}."
    return Section(
        "Arrival at collectives",
        _text("Who comes first waits for the last, unless the collective lets it go."),
        page.figure(page.legend(list(colours.items())) + spread + whom),
        table(head, rows, left=(0, 1, 9)),
        f'<p class="note">{escape(note)} Played again: <code>overdrive bench arrival --pattern '
        f"file --file RECORD</code>.</p>",
    )


def _matrix(found: Mapping[str, Any]) -> Section | None:
    matrix = found["matrix"]
    if not any(any(row) for row in matrix["messages"]):
        return None
    block = matrix["ranks_per_row"]
    labels = [str(i * block) for i in range(len(matrix["bytes"]))]
    side = 420 if len(labels) <= 64 else 560
    chart = svg.heat_map(
        matrix["bytes"],
        title="Bytes from rank to rank",
        x_label="receiver",
        y_label="sender",
        value_text=bytes_text,
        labels=labels,
        side=side,
    )
    pairs = sorted(
        ((value, matrix["messages"][a][b], a, b)
         for a, row in enumerate(matrix["bytes"]) for b, value in enumerate(row)),
        reverse=True,
    )[:5]  # fmt: skip
    rows = [
        (f"{labels[a]} to {labels[b]}", bytes_text(value), count_text(count),
         bytes_text(value / max(1, count)))
        for value, count, a, b in pairs if count
    ]  # fmt: skip
    caption = "Messages between two ranks, by the sender; collectives are not in it."
    if block > 1:
        caption += f" {block} ranks in each row and column."
    return Section(
        "Who talks to whom",
        page.figure(chart, caption),
        table(["the most", "bytes", "messages", "mean size"], rows),
    )


def _waiting(found: Mapping[str, Any]) -> Section:
    counters = found["counters"]
    names = {
        "matched_posted": "messages that found their receive posted",
        "matched_unexpected": "messages that came before their receive",
        "self_buffered": "of these, copied aside by the sender",
        "pool_full_waits": "times a sender waited for a free cell",
        "buffer_limit_waits": "times a sender waited for memory of such copies",
        "idle_rounds": "looks of waiting ranks that found nothing",
        "yields": "times a waiting rank gave its core away",
        "yields_peer_away": "of these, because the other rank had no core",
        "host_polls": "times the installed MPI library was asked to progress",
    }
    rows = [(what, count_text(counters[name])) for name, what in names.items()
            if counters.get(name)]  # fmt: skip
    return Section("Waiting", table(["", "all ranks"], rows) if rows else _text("Nobody waited."))


def _memory(found: Mapping[str, Any]) -> Section:
    rows = []
    columns = {
        "peak_memory_bytes": "the process, at most",
        "region_bytes": "shared with the node, without copies of messages",
        "reach_bytes": "heap that peers can reach, at most",
        "buffered_bytes": "copies of messages, at most at once",
    }
    for name, what in columns.items():
        values = sorted(row[name] for row in found["ranks"])
        if values[-1]:
            rows.append((what, bytes_text(values[0]), bytes_text(values[len(values) // 2]),
                         bytes_text(values[-1])))  # fmt: skip
    return Section("Memory of a rank", table(["", "smallest", "median", "largest"], rows))


def _fall_backs(found: Mapping[str, Any]) -> Section:
    counters = found["counters"]
    names = {
        "fallback_no_region": "ranks that share memory with no other",
        "fallback_remote": "messages to or from other nodes",
        "fallback_comm": "messages on communicators that are not served",
        "fallback_datatype": "messages with datatypes that could not be examined",
        "comms_passed": "communicators left to the installed MPI library",
        "collectives_host": "collective calls left to the installed MPI library",
        "offers_declined": "messages through cells because the receiver could not read the buffer",
        "teams_refused": "communicators without shared memory for collectives",
        "reach_private_blocks": "large blocks of memory that peers cannot reach",
        "xpmem_refused": "buffers that XPMEM did not attach",
    }
    rows = [(count_text(counters[name]), wide(what)) for name, what in names.items()
            if counters.get(name)]  # fmt: skip
    reasons = sorted({row["why_not_shared"] for row in found["ranks"] if row["why_not_shared"]})
    parts = [table(["times", "what"], rows, left=(1,))] if rows else []
    parts += [_text(reason) for reason in reasons]
    return Section("What fell back, and why", *(parts or [_text("Nothing did.")]))


def _places(found: Mapping[str, Any]) -> Section | None:
    rows: Sequence[Mapping[str, Any]] = found["ranks"]
    if not any(row["cpus"] for row in rows):
        return None
    by_node: dict[str, list[str]] = {}
    for row in rows:
        by_node.setdefault(row["node"], []).append(f"{row['rank']}: {row['cpus'] or '?'}")
    lines = [(node, Cell(escape(", ".join(ranks[:128])), "l w")) for node, ranks in by_node.items()]
    return Section("Ranks and processors", table(["node", "rank: processors"], lines, left=(0, 1)))


def render(found: Mapping[str, Any]) -> str:
    """Return the page."""
    sections = [
        _advice(found), _ranks(found), _timeline(found), _sites(found), _sizes(found),
        _ways(found), _arrivals(found), _matrix(found), _waiting(found), _memory(found),
        _fall_backs(found), _places(found),
    ]  # fmt: skip
    present = [section for section in sections if section is not None]
    links = "".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in present)
    body = _head(found) + f"<nav>{links}</nav>" + "".join(s.markup() for s in present)
    return page.document(f"{found['name']} – Overdrive report", body, timeline.SCRIPT)

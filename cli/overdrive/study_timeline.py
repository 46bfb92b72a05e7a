"""`overdrive study timeline`: what happens when in a collective in two levels, as a picture.

The library's own schedules run on its simulator (docs/design/hierarchy.md). Each rank has two
lanes: what it does inside its node, and its messages between nodes; colours are segments. The
figures say how much of the time on the network has something going on inside the node beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overdrive import collectives
from overdrive.errors import CommandError
from overdrive.installation import Installation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

MOST_RANKS = 32
"""More lanes than that cannot be told apart."""

Interval = tuple[float, float]


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the same stretches of time, in order and without overlap."""
    result: list[Interval] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        elif end > begin:
            result.append((begin, end))
    return result


def common(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """Return how long both are going on; each without overlap."""
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in one for b in other)


def length(intervals: Sequence[Interval]) -> float:
    """Return the length of all of them, which do not overlap."""
    return sum(end - begin for begin, end in intervals)


def overlaps(report: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return for each node how long it is busy inside, between nodes, and in both ways."""
    rows = []
    for node in range(report["nodes"]):
        mine = [step for step in report["steps"] if report["node_of_rank"][step["rank"]] == node]
        spans = [
            union([(s["begin_ns"], s["end_ns"]) for s in mine if s["between_nodes"] == between])
            for between in (False, True)
        ]
        rows.append(
            {"inside": length(spans[0]), "between": length(spans[1]), "both": common(*spans)}
        )
    return rows


def summary(report: Mapping[str, Any]) -> str:
    """Return in words how far the levels overlap."""
    decision = report["decision"]
    rows = overlaps(report)
    lines = [
        f"{report['collective']}, {report['bytes']} bytes, {report['ranks']} ranks on "
        f"{report['nodes']} nodes: {decision['algorithm']}/{decision['mode']}",
        f"  done after {report['last_ns'] / 1000:.1f} us",
    ]
    between = sum(row["between"] for row in rows)
    inside = sum(row["inside"] for row in rows)
    both = sum(row["both"] for row in rows)
    if between and inside:
        lines.append(
            f"  per node {inside / len(rows) / 1000:.1f} us inside and "
            f"{between / len(rows) / 1000:.1f} us between nodes, of these "
            f"{both / len(rows) / 1000:.1f} us at the same time"
        )
    return "\n".join(lines)


def draw_lanes(pane: Axes, report: Mapping[str, Any]) -> list[Patch]:
    """Draw the lanes of all ranks into axes; return what explains the colours."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    ranks = report["ranks"]
    order = sorted(range(ranks), key=lambda rank: (report["node_of_rank"][rank], rank))
    row_of = {rank: row for row, rank in enumerate(order)}
    segments = 1 + max((step["segment"] for step in report["steps"]), default=0)
    colours = plt.get_cmap("viridis", max(segments, 2))
    for step in report["steps"]:
        between = step["between_nodes"]
        pane.barh(
            row_of[step["rank"]] + (0.22 if between else -0.22),
            (step["end_ns"] - step["begin_ns"]) / 1000,
            left=step["begin_ns"] / 1000,
            height=0.38,
            color=colours(step["segment"]),
            alpha=0.75 if between else 1.0,
            hatch="///" if between else None,
            edgecolor="white" if between else "black",
            linewidth=0.3,
        )
    for row, rank in enumerate(order[1:], start=1):
        if report["node_of_rank"][rank] != report["node_of_rank"][order[row - 1]]:
            pane.axhline(row - 0.5, color="black", linewidth=0.8)
    pane.set_yticks(
        range(ranks), [f"node {report['node_of_rank'][r]}, rank {r}" for r in order], fontsize=8
    )
    pane.invert_yaxis()
    pane.set_ylim(ranks - 0.5, -0.5)
    pane.set_xlim(0, report["last_ns"] / 1000)
    pane.set_xlabel("us (simulated)")
    pane.set_title(summary(report), fontsize=9, loc="left")
    handles = [Patch(color=colours(i), label=f"segment {i}") for i in range(min(segments, 12))]
    handles.append(Patch(facecolor="grey", edgecolor="black", label="inside the node"))
    handles.append(Patch(facecolor="grey", edgecolor="white", hatch="///", label="between nodes"))
    return handles


def draw(report: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Write the picture in the format of each path's ending."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, pane = plt.subplots(figsize=(13, 0.5 * report["ranks"] + 2))
    pane.legend(
        handles=draw_lanes(pane, report),
        fontsize=7,
        ncol=7,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
    )
    figure.tight_layout()
    for path in paths:
        figure.savefig(path, dpi=120)
    plt.close(figure)


def _arguments(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="overdrive study timeline",
        description="A picture of what happens when in a collective, by simulation.",
        epilog="Also taken: --algorithm NAME, --pipeline BYTES, --segment BYTES, --leaders N, "
        "--radix N, --window N, --inside shared|messages, --round-robin, --flat, --tuning FILE.",
    )
    parser.add_argument("collective")
    parser.add_argument("bytes", help="message size as the collective counts it, such as 4M")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("study"), help="folder for the results")
    parser.add_argument("--no-plots", action="store_true", help="print the figures only")
    return parser.parse_known_args(arguments)


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Simulate, print and draw; return the exit status."""
    chosen, others = _arguments(arguments)
    if chosen.ranks > MOST_RANKS:
        raise CommandError(f"a picture has room for {MOST_RANKS} ranks")
    report, _ = collectives.query(
        installation, environment, "timeline", chosen.collective, chosen.bytes,
        "--ranks", str(chosen.ranks), "--nodes", str(chosen.nodes), *others,
    )  # fmt: skip
    print(summary(report))
    if chosen.no_plots:
        return 0
    chosen.output.mkdir(parents=True, exist_ok=True)
    stem = f"timeline_{chosen.collective}_{chosen.bytes}_{chosen.ranks}x{chosen.nodes}"
    paths = [chosen.output / f"{stem}.{ending}" for ending in ("png", "svg")]
    try:
        draw(report, paths)
    except ImportError as reason:
        raise CommandError(
            f"the picture needs matplotlib ({reason}); --no-plots leaves it out"
        ) from reason
    for path in paths:
        print(path)
    return 0

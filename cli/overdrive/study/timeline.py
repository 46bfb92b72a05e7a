"""`overdrive study timeline`: what happens when in a collective in two levels, as a picture.

The library's own schedules run on its simulator (docs/design/hierarchy.md), or the steps of a call
of a real job are read from the files that the setting `timeline` makes its ranks write. Each rank
has two lanes: what it does inside its node, and its messages between nodes; colours are segments.
The figures say how much of the time on the network has something going on inside the node beside
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overdrive import bench_tables, collectives, trusted
from overdrive.arguments import Parser, number
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
    pane.set_xlabel("us (measured)" if report.get("measured") else "us (simulated)")
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


def _read(setting: str) -> list[dict[str, Any]]:
    """Return the content of the files of all ranks, by the value that the setting had."""
    pattern = Path(setting.replace("%r", "*") if "%r" in setting else f"{setting}.*")
    files = sorted(pattern.parent.glob(pattern.name))
    found = []
    for path in files:
        try:
            found.append(json.loads(trusted.read_text(path)))
        except (OSError, ValueError, RecursionError) as reason:
            raise CommandError(f"{path} cannot be read: {reason}") from reason
        if not isinstance(found[-1], dict) or "calls" not in found[-1]:
            raise CommandError(f"{path} was not written by the setting `timeline`")
    if not found:
        raise CommandError(
            f"there is no file {pattern}: run the program with OVERDRIVE_TIMELINE={setting}"
        )
    if len(found) != found[0]["size"] or len({each["rank"] for each in found}) != len(found):
        raise CommandError(
            f"{len(found)} files {pattern} of a job of {found[0]['size']} ranks: "
            "remove those of other jobs and start anew"
        )
    return found


def _without_waiting(steps: list[dict[str, Any]], node_of_rank: Sequence[int]) -> None:
    """Let steps that a node does together begin when they can.

    A member that waits for its leader's broadcast has begun the step long before there is anything
    to do, and so has the leader of a reduction that waits for its members.
    """
    together: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for step in steps:
        if "ordinal" in step:
            together.setdefault((node_of_rank[step["rank"]], step["ordinal"]), []).append(step)
    members = {
        node: sorted(rank for rank, its in enumerate(node_of_rank) if its == node)
        for node in set(node_of_rank)
    }
    for (node, _), group in together.items():
        leader = members[node][group[0]["leader"]]
        begins = {step["rank"]: step["begin_ns"] for step in group}
        from_leader = group[0]["what"] in ("node bcast", "node scatter")
        possible = begins.get(leader, 0) if from_leader else max(begins.values())
        for step in group:
            step["begin_ns"] = min(max(step["begin_ns"], possible), step["end_ns"])


def measured(setting: str, collective: str, size: int | None, call: int) -> dict[str, Any]:
    """Return what a call of a job did, in the form of the simulator's report.

    `call` counts calls of the whole job from the last one, 1, backwards; only those of the
    collective and size count, if these are given.
    """
    ranks = _read(setting)
    if len({rank["clock"] for rank in ranks}) > 1:
        raise CommandError(
            "the ranks were on several machines, whose clocks cannot be compared; "
            "`overdrive lab` makes nodes on one machine"
        )
    chosen = []
    for rank in ranks:
        calls = [
            each
            for each in rank["calls"]
            if each["ranks"] == rank["size"]
            and collective in ("", each["collective"])
            and size in (None, each["bytes"])
        ]
        if len(calls) < call:
            raise CommandError(
                f"rank {rank['rank']} has noted {len(calls)} such calls of all ranks"
                + (
                    f" (it has forgotten {rank['forgotten']} earlier ones)"
                    * (rank["forgotten"] > 0)
                )
            )
        chosen.append(calls[-call])
    first = chosen[0]
    if any((c["collective"], c["bytes"]) != (first["collective"], first["bytes"]) for c in chosen):
        raise CommandError(
            "the ranks' calls differ: name the collective and the size, or another --call"
        )
    if not any(each["steps"] for each in chosen):
        raise CommandError(
            f"this {first['collective']} was one operation in shared memory: it has no steps"
        )
    start = min(each["begin_ns"] for each in chosen)
    steps = [step for each in chosen for step in each["steps"]]
    for step in steps:
        step["begin_ns"] -= start
        step["end_ns"] -= start
    _without_waiting(steps, first["node_of_rank"])
    return {
        "collective": first["collective"],
        "bytes": first["bytes"],
        "ranks": len(chosen),
        "nodes": 1 + max(first["node_of_rank"]),
        "decision": {"algorithm": first["algorithm"], "mode": first["mode"]},
        "node_of_rank": first["node_of_rank"],
        "last_ns": max(each["end_ns"] for each in chosen) - start,
        "steps": steps,
        "measured": True,
    }


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive study timeline",
        description="A picture of what happens when in a collective, by simulation or measured.",
        epilog="Also taken: --algorithm NAME, --pipeline BYTES, --segment BYTES, --leaders N, "
        "--radix N, --window N, --inside shared|messages, --round-robin, --flat, --tuning FILE.",
    )
    made.add_argument("collective", nargs="?", default="")
    made.add_argument(
        "bytes", nargs="?", default="", help="message size as the collective counts it, such as 4M"
    )
    made.add_argument(
        "--measured",
        metavar="PATH",
        default="",
        help="a call of a real job: the value of OVERDRIVE_TIMELINE with which the job ran",
    )
    made.add_argument(
        "--call",
        type=number(1, 1 << 30),
        default=1,
        help="which one, counted from the last one (1) backwards",
    )
    made.add_argument("--ranks", type=number(1, 1 << 20), default=8)
    made.add_argument("--nodes", type=number(1, 1 << 20), default=4)
    made.add_argument("--output", type=Path, default=Path("study"), help="folder for the results")
    made.add_argument("--no-plots", action="store_true", help="print the figures only")
    return made


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Simulate, print and draw; return the exit status."""
    chosen, others = parser().parse_known_args(arguments)
    if chosen.measured:
        if others or chosen.call < 1:
            raise CommandError(f"--measured does not go with {' '.join(others) or '--call < 1'}")
        size = bench_tables.parse_size(chosen.bytes) if chosen.bytes else None
        report = measured(chosen.measured, chosen.collective, size, chosen.call)
    elif not chosen.bytes:
        raise CommandError("name a collective and a size, or --measured PATH")
    else:
        report, _ = collectives.query(
            installation, environment, "timeline", chosen.collective, chosen.bytes,
            "--ranks", str(chosen.ranks), "--nodes", str(chosen.nodes), *others,
        )  # fmt: skip
    if report["ranks"] > MOST_RANKS:
        raise CommandError(f"a picture has room for {MOST_RANKS} ranks")
    print(summary(report))
    if chosen.no_plots:
        return 0
    chosen.output.mkdir(parents=True, exist_ok=True)
    stem = f"timeline_{report['collective']}_{chosen.bytes or report['bytes']}"
    stem += f"_{report['ranks']}x{report['nodes']}{'_measured' * bool(chosen.measured)}"
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

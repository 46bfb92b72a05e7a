"""Writes the page about collectives to which ranks come at different times.

From medians (`arrival.py`), what programs did (`arrival_programs.py`), and a simulation of larger
clusters, which is made here.
"""

from __future__ import annotations

import csv
import os
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import arrival_programs
from goals import HOST_TITLES
from lab_runs import nodes_and_ranks
from overdrive import collectives, installation

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "measurements" / "arrival.md"
PLOT = ROOT / "docs" / "measurements" / "plots" / "arrival-simulated.png"
DATA = ROOT / "docs" / "measurements" / "data"
TREE = DATA / "arrival-tree.csv"
JOBS = ("host", "plain", "first_arrival")
PATTERNS = ("together", "one-late", "linear", "random", "late-leader", "late-root")
COLLECTIVES = ("bcast", "reduce", "gather", "scatter")
POINT = ("collective", "host", "layout", "network")
VALUES = ("wait", "others", "whole")
FIELDS = (*POINT, "bytes", "pattern", "delay", "job", "calls", *VALUES, "off", "commit")
ONE_SIZE = str(1 << 20)
SIMULATED_NODES = (16, 64, 256, 1024)
SIMULATED_RANKS = 4
SIMULATED_DELAY_US = 1000
LATE_MS = 40.0

INTRO = """\
# Collectives to which ranks come at different times

Written by `python3 bench/arrival.py` (and `bench/arrival_programs.py` for the programs):
`overdrive bench arrival` over virtual clusters (`overdrive lab`) of two nodes with four ranks
(2x4) and of four nodes with two (4x2), whose links are limited to 1 Gbit/s, or not limited, or
pass a switch with a latency of 50 us. All nodes share the {processors} processors of one
machine. *host*: the MPI library alone; *plain*: the usual algorithm of Overdrive; *first*:
[first_arrival](../design/first-arrival.md). The three take turns call by call; medians, which
are [here](data/arrival.csv). In the median ranks came within {off:.0f} us of where they should.
Library: as of commit {commits} (ebfa013: each file optimised by itself); no autogroups
([why](../manual.md#known-open-points)).
What *first* gains where the choice is learnt has [a page of its own](arrival-learnt.md).
120,000 random calls with random delays (`pytest -m slow -k ten_thousand`) over each of Open MPI 4.1
(3fbea81) and MPICH 4.0 (3757956): all right.

*wait* is the time inside the call, mean over ranks, the late ones included; *whole* is from the
moment when the first ranks come until the last has left, so it contains the delay. The delay is
*own*: as long as a call of the plain algorithm takes when all come together; or 40 ms (where
*together* takes turns with the others, and so has as long pauses between its calls). Cells: how
many times as long the plain algorithm takes as *first*, for wait / whole.
"""

BOUND = """\
- **Whole.** Whoever comes late by a delay D leaves after D, with any algorithm. If a call takes
  T when all are there, the plain algorithm takes at most D + T and no algorithm less than the
  greater of D and T: at most 2, where D = T (*own* delay), and at most 1 + T/D otherwise: 1.2
  with T = 8 ms (1 MiB at 1 Gbit/s) and D = 40 ms.
- **Linear arrival.** Ranks come in the order of their numbers, so the first rank of each node is
  its leader: plain and *first* start each node at the same moment, and are whole at the same
  moment. Until the last node's first rank comes, after a share f of D (2x4: 4/7, 4x2: 6/7),
  somebody who has the data must be inside the call, because nobody can be sent to who is not
  there. So no algorithm that works in the ranks' own calls alone has a sum of waits over P ranks
  below f D + n T for n nodes, and the mean is at least (f D + n T) / P: 5.0 ms with 2x4, 1 MiB,
  1 Gbit/s and D = 40 ms. Only messages that the host takes without a handshake (up to 64 KiB,
  and what fits into the buffers of a socket) can be sent before anybody is there, to the leader:
  with these the plain root leaves at once, and *first*, whose root cannot know whom to send to,
  has to wait. So with linear arrival *first* cannot be 1.5 times as fast as plain; where it is
  slower, it is for the learnt choice to take plain.
- **Gather and Reduce, linear arrival.** The root is there first and waits for the last rank, D with
  any algorithm, so the mean wait is at least D / P. Where plain waits less than 1.2 times that
  (blocks that hosts send without a handshake, 40 ms), nothing is 1.2 times as fast.
"""


def wide(text: str) -> str:
    """Return paragraphs and points in long lines, as pages have them."""
    parts = []
    for part in text.strip().replace("\n- ", "\n\n- ").split("\n\n"):
        indent = "  " if part.startswith("- ") else ""
        words = " ".join(part.split())
        parts.append(
            textwrap.fill(
                words, 150, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
            )
        )
    return "\n\n".join(parts).replace("\n\n- ", "\n- ").replace(":\n- ", ":\n\n- ")


def ms(row: dict[str, str], value: str) -> float:
    """Return a value of a row."""
    return float(row[value])


def size_text(size: str) -> str:
    """Return a size as people write it."""
    number = int(size)
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"


def is_late(row: dict[str, str]) -> bool:
    """Return whether ranks were as late as they never are by a call's own time."""
    return float(row["delay"]) == LATE_MS


class Rows:
    """Medians by point."""

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        """Sort them."""
        self.found: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
        for row in rows:
            own = "late" if is_late(row) else ""
            key = (*(row[name] for name in POINT), row["bytes"], row["pattern"], own)
            self.found.setdefault(key, {})[row["job"]] = row

    def points(self, collective: str, pattern: str) -> Iterator[tuple[str, ...]]:
        """Yield the points of a pattern that have been measured."""
        for key, jobs in self.found.items():
            if (key[0], key[5]) == (collective, pattern) and len(jobs) == len(JOBS):
                yield key

    def ratio(self, key: tuple[str, ...], value: str, job: str = "plain") -> float | None:
        """Return how many times as long another job takes."""
        jobs = self.found.get(key, {})
        if job not in jobs or "first_arrival" not in jobs:
            return None
        return ms(jobs[job], value) / ms(jobs["first_arrival"], value)

    def plain_wait(self, key: tuple[str, ...]) -> float:
        """Return how long ranks wait with the plain algorithm."""
        return ms(self.found[key]["plain"], "wait")

    def least_wait(self, key: tuple[str, ...]) -> float:
        """Return what the root alone waits for the last rank, as a mean over ranks."""
        nodes, per_node = nodes_and_ranks(key[2])
        return ms(self.found[key]["plain"], "delay") / (nodes * per_node)


def goal_lines(rows: Rows) -> Iterator[str]:
    """Yield a table of what was to be reached, and where it is."""
    yield "## What was to be reached\n"
    yield "| goal | points where it is reached | least | median | greatest |"
    yield "|---|---|---|---|---|"

    def line(text: str, values: Sequence[float], good: Sequence[bool]) -> str:
        if not values:
            return f"| {text} | not measured | | | |"
        ordered = sorted(values)
        shown = (ordered[0], ordered[len(ordered) // 2], ordered[-1])
        return (
            f"| {text} | {sum(good)} of {len(good)} | "
            + " | ".join(f"{v:.2f}" for v in shown)
            + " |"
        )

    def at_least(text: str, values: Sequence[float | None], least: float) -> str:
        known = [value for value in values if value is not None]
        return line(text, known, [round(value, 2) >= least for value in known])

    late = list(rows.points("bcast", "late-leader"))
    together = {
        (*key[:5], key[6]): ms(rows.found[key]["first_arrival"], "wait")
        for key in rows.points("bcast", "together")
    }
    times = [
        ms(rows.found[key]["first_arrival"], "wait") / together[(*key[:5], key[6])]
        for key in late
        if (*key[:5], key[6]) in together
    ]
    yield line("Bcast, late leader: wait at most 1.25 times that of together", times,
               [value <= 1.25 for value in times])  # fmt: skip
    for pattern in ("late-leader", "linear"):
        name = pattern.replace("-", " ")
        points = list(rows.points("bcast", pattern))
        for job in ("plain", "host"):
            for value in ("wait", "whole"):
                yield at_least(f"Bcast, {name}: {value} against {job}, 1.5",
                               [rows.ratio(key, value, job) for key in points], 1.5)  # fmt: skip
    points = list(rows.points("bcast", "late-root"))
    best = [
        min(ms(rows.found[key][job], "others") for job in ("host", "plain"))
        / ms(rows.found[key]["first_arrival"], "others")
        for key in points
    ]
    yield at_least("Bcast, late root: the others against the best of both, 0.97", best, 0.97)
    for collective in COLLECTIVES:
        points = list(rows.points(collective, "together"))
        yield at_least(f"{collective.title()}, together: wait against plain, 0.97",
                       [rows.ratio(key, "wait") for key in points], 0.97)  # fmt: skip
    for collective in ("reduce", "gather"):
        points = list(rows.points(collective, "linear"))
        yield at_least(f"{collective.title()}, linear: wait against plain, 1.2",
                       [rows.ratio(key, "wait") for key in points], 1.2)  # fmt: skip
        possible = [key for key in points if 1.2 * rows.least_wait(key) <= rows.plain_wait(key)]
        if len(possible) < len(points):
            yield at_least("the same where it is possible (below)",
                           [rows.ratio(key, "wait") for key in possible], 1.2)  # fmt: skip


def lines_of(
    rows: Rows, collective: str, host: str, late: str, sizes: Sequence[str]
) -> Iterator[str]:
    """Yield lines of ratios, without the first cell's beginning."""
    places = dict.fromkeys(
        key[2:5] for key in rows.found if key[:2] == (collective, host) and key[4] in sizes
    )
    for place in places:
        cells = []
        for pattern in PATTERNS:
            key = (collective, host, *place, pattern, late)
            values = [rows.ratio(key, value) for value in ("wait", "whole")]
            cells.append("–" if None in values else " / ".join(f"{value:.2f}" for value in values))
        if any(cell != "–" for cell in cells):
            named = f"{size_text(place[2])}{', 40 ms' if late else ''}"
            yield f"{place[0]}, {place[1]}, {named} | {' | '.join(cells)} |"


def table(title: str, patterns: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    """Yield one table, if there is anything in it."""
    if not lines:
        return
    yield f"\n**{title}**\n"
    yield f"| cluster, size | {' | '.join(patterns)} |"
    yield "|---" * (len(patterns) + 1) + "|"
    for line in lines:
        yield f"| {line}"


def tables(rows: Rows) -> Iterator[str]:
    """Yield all tables of measurements."""
    known = list(dict.fromkeys((key[0], key[1]) for key in rows.found))
    yield "\n## How much longer the plain algorithm takes"
    sizes = sorted({key[4] for key in rows.found}, key=int)
    for host in [host for name, host in known if name == "bcast"]:
        title = f"Bcast, {HOST_TITLES.get(host, host)}"
        found = list(lines_of(rows, "bcast", host, "", sizes))
        found += lines_of(rows, "bcast", host, "late", [ONE_SIZE])
        yield from table(f"{title}, own delay where none is named", PATTERNS, found)
    others = [
        f"{name.title()}, {HOST_TITLES.get(host, host)}, {line}"
        for wanted in COLLECTIVES[1:]
        for name, host in known
        if name == wanted
        for line in lines_of(rows, name, host, "", [ONE_SIZE])
    ]
    yield from table("Other collectives, own delay", PATTERNS, others)


def commits_of(rows: Sequence[dict[str, str]]) -> str:
    """Return the commits whose libraries were measured."""
    return ", ".join(sorted({row["commit"] for row in rows})) or "none"


def tree_lines() -> Iterator[str]:
    """Yield what was found by libraries that took turns over one cluster."""
    with TREE.open() as lines:
        rows = list(csv.DictReader(lines))

    def ratio(place: str, size: str, library: str) -> str:
        for row in rows:
            where = f"{row['host']} {row['layout']} {row['network']}"
            if (where, size_text(row["bytes"]), row["library"]) == (place, size, library):
                return f"{float(row['plain_wait']) / float(row['first_wait']):.2f}"
        raise ValueError(f"{TREE.name}: {place}, {size}, {library}")

    def change(place: str, sizes: Sequence[str], before: str, after: str) -> str:
        return ", ".join(
            f"{size} {ratio(place, size, before)} -> {ratio(place, size, after)}" for size in sizes
        )

    short, long_ones = "segments of 63 KiB", "segments of 512 KiB"
    tree = ("chain", "tree")
    yield "\n## A tree instead of a chain, few segments instead of many\n"
    yield wide(f"""
Bcast, all together: libraries, named by `OVERDRIVE_LIBRARY`, took turns over one cluster with
`overdrive bench arrival`, 14 to 48 calls each ([medians](data/{TREE.name})). Mean wait, how many
times as long plain takes as *first*; what is chance is 0.1 or 0.15:
- **A chain of nodes -> a tree** in the order of arrival: MPICH, 4x2, unlimited,
  {change("mpich4 4x2 unlimited", ["64 KiB", "1 MiB"], *tree)}.
- **Segments of 63 KiB -> 512 KiB:** MPICH, 4x2, unlimited,
  {change("mpich4 4x2 unlimited", ["1 MiB", "4 MiB"], short, long_ones)}; 1 Gbit/s,
  {change("mpich4 4x2 1 Gbit/s", ["1 MiB", "4 MiB"], short, long_ones)}: in a chain each node waits
  for a whole one, so with more than two nodes they are for what is no longer than two of them. Open
  MPI, 2x4, unlimited,
  {change("openmpi4 2x4 unlimited", ["64 KiB", "1 MiB", "4 MiB"], short, long_ones)}: good
  from 4 MiB on.
- **The root's own node last -> first:** Open MPI, 2x4, unlimited,
  {change("openmpi4 2x4 unlimited", ["1 MiB", "4 MiB"], "own node last", short)}; MPICH,
  {change("mpich4 2x4 unlimited", ["4 MiB"], "own node last", long_ones)}.
- **64 KiB**, Open MPI, 2x4, unlimited, medians: the root comes at 38 us, a winner says at 71 us
  that it is ready, the root hears it at 263 us, the winner has all at 609 us: both share processors
  with three others, and the host gives them away when it is asked in vain.
""")


def simulate(size: str) -> list[tuple[str, int, str, str, float, float]]:
    """Return collective, nodes, plain algorithm, pattern and mean waits (ms), plain and first."""
    found = []
    here = installation.find(os.environ, ROOT)
    for collective in COLLECTIVES:
        for nodes in SIMULATED_NODES:
            report, _ = collectives.query(
                here, os.environ, "arrivals", collective, size,
                "--ranks", str(nodes * SIMULATED_RANKS), "--nodes", str(nodes),
                "--delay-us", str(SIMULATED_DELAY_US), "--most-steps", "2000000",
            )  # fmt: skip
            found += [
                (collective, nodes, report["plain"]["algorithm"], row["pattern"],
                 row["plain"]["inside_ns"] / 1e6, row["first_arrival"]["inside_ns"] / 1e6)
                for row in report["patterns"] if "plain" in row
            ]  # fmt: skip
    return found


def simulated_text(size: str) -> Iterator[str]:
    """Yield the part of the page about larger clusters."""
    found = simulate(size)
    words = size.replace("K", " KiB").replace("M", " MiB")
    yield "\n## Larger clusters, simulated\n"
    late = SIMULATED_DELAY_US / 1000
    yield wide(f"""
By `overdrive-collectives arrivals`: the library's schedules and the protocol of *first* on a LogGP
machine (1.5 us, 100 Gbit/s for a node), {SIMULATED_RANKS} ranks on each node, {words}, up to
{late:g} ms late. How many times as long ranks wait with the plain algorithm; all collectives in
the picture.
""")
    yield ""
    here = [row for row in found if row[0] == "bcast"]
    nodes = list(dict.fromkeys(row[1] for row in here))
    names = [next(row[2] for row in here if row[1] == count) for count in nodes]
    heads = [f"{count} nodes ({name})" for count, name in zip(nodes, names, strict=True)]
    yield f"| Bcast | {' | '.join(heads)} |"
    yield "|---" * (len(nodes) + 1) + "|"
    for pattern in PATTERNS:
        ratios = {row[1]: row[4] / row[5] for row in here if row[3] == pattern}
        cells = [f"{ratios[count]:.2f}" if count in ratios else "–" for count in nodes]
        yield f"| {pattern} | {' | '.join(cells)} |"
    yield ""
    yield wide("""
Since the plain trees run in segments of 16 KiB *first*, in 64 KiB, falls behind where nobody is
late by more than the message takes (before: 1.05, 0.90 and 1.08 from 64 nodes on, together). The
root that takes from every node itself, in reductions and gathers, is for few nodes.
""")
    yield f"\n![Gain by nodes](plots/{PLOT.name})"
    draw(found)


def draw(found: Sequence[tuple[str, int, str, str, float, float]]) -> None:
    """Draw the gains over the number of nodes."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, panes = plt.subplots(1, len(COLLECTIVES), figsize=(11, 3.4), sharey=True)
    for pane, collective in zip(panes, COLLECTIVES, strict=True):
        for pattern in PATTERNS:
            points = [(r[1], r[4] / r[5]) for r in found if (r[0], r[3]) == (collective, pattern)]
            if points:
                pane.plot(*zip(*points, strict=True), marker="o", markersize=3, label=pattern)
        pane.set_xscale("log", base=2)
        pane.set_yscale("log", base=2)
        pane.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        pane.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        pane.axhline(1, color="black", linewidth=0.8)
        pane.set_title(collective, fontsize=10)
        pane.set_xlabel("nodes", fontsize=9)
        pane.grid(alpha=0.3)
    panes[0].set_ylabel("mean wait, plain / first_arrival", fontsize=9)
    panes[-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(PLOT, dpi=110)


def write(found: Sequence[dict[str, str]], simulated_size: str) -> None:
    """Write the page."""
    rows = Rows(found)
    off = sorted(float(row["off"]) * 1e3 for row in found) or [0.0]
    values = {"processors": os.cpu_count(), "off": off[len(off) // 2], "commits": commits_of(found)}
    lines = [wide(INTRO.format(**values)), ""]
    lines += goal_lines(rows)
    lines += ["", "## What cannot be gained\n", wide(BOUND)]
    lines += tables(rows)
    lines += tree_lines()
    lines += arrival_programs.text()
    lines += simulated_text(simulated_size)
    PAGE.write_text("\n".join(lines) + "\n")

"""The page and the pictures of bench/smpi.py."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from goals import HOST_TITLES
from jobs import ROOT
from page import machine, table

PAGE = ROOT / "docs" / "measurements" / "smpi.md"
PLOTS = ROOT / "docs" / "measurements" / "plots"
COLUMNS = ["part", "host", "side", "regime", "layout", "x", "what", "value"]
REGIMES = ("near", "far")
READS = {"nothing": "nothing read", "tenth": "a tenth", "all": "all"}
CANNON_PARTS = {"cannon": ("1x4", "1x16"), "lab": ("2x2", "4x4")}
"""What was measured on one node and over nodes of a virtual cluster, as nodes x ranks on each."""
TABLE_HOSTS = ("openmpi4", "mpich4")
"""Hosts whose round trips the page shows in full; of others it says how they compare."""
MOST_US = 1.2
"""Of a view of which nothing is read, near."""
COMMUNICATION, PROGRAM = 2.0, 1.3
"""How many times as fast Cannon's communication has to be, and where its program counts as fast."""
Row = dict[str, str]


class Figures:
    """The medians of all rows."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.values: dict[tuple[str, ...], list[float]] = {}
        for one in rows:
            key = tuple(one[name] for name in COLUMNS[:-1])
            self.values.setdefault(key, []).append(float(one["value"]))

    def commits(self, part: str, host: str, regime: str, layout: str) -> str:
        """Return which sources the figures are of."""
        chosen = {
            one["commit"]
            for one in self.rows
            if [one[name] for name in ("part", "host", "regime", "layout")]
            == [part, host, regime, layout]
        }
        return ", ".join(sorted(chosen))

    def get(self, *key: object) -> float | None:
        """Return a median, or None; the key is that of a row."""
        found = self.values.get(tuple(map(str, key)))
        return statistics.median(found) if found else None

    def of(self, part: str, column: str) -> list[str]:
        """Return what stands in a column of a part's rows."""
        return sorted({one[column] for one in self.rows if one["part"] == part})

    def xs(self, part: str, layout: str) -> list[int]:
        """Return the sizes or orders of a part."""
        chosen = [one for one in self.rows if (one["part"], one["layout"]) == (part, layout)]
        return sorted({int(one["x"]) for one in chosen if one["x"] != "0"})

    def trip(self, part: str, host: str, side: str, regime: str, size: int, what: str) -> float:
        """Return a time of a round trip, NaN where there is none."""
        found = self.get(part, host, side, regime, "1x2", size, what)
        return math.nan if found is None else found

    def cannon(self, part: str, host: str, layout: str, order: int, what: str) -> list[float]:
        """Return plain MPI's seconds, Overdrive's and SMPI's; NaN where there are none."""
        found = [
            self.get(part, host, side, "", layout, order, f"{version}-{what}")
            for side, version in (("plain", "mpi"), ("overdrive", "mpi"), ("overdrive", "smpi"))
        ]
        return [math.nan if value is None else value for value in found]


def shown(value: float, digits: int = 3) -> str:
    """Return a figure with few digits, or a dash."""
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}g}" if value < 1000 else f"{value:.0f}"


def ratio(a: float, b: float) -> str:
    """Return how many times b goes into a."""
    return "–" if math.isnan(a) or math.isnan(b) else f"{a / b:.2f}"


def size_name(size: int) -> str:
    """Return a size in bytes for people."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def view_ratios(
    figures: Figures, part: str, host: str, regime: str
) -> dict[tuple[int, str], float]:
    """Return by size and share read how many times as fast as Overdrive's message a view is."""
    found = {}
    for size in figures.xs(part, "1x2"):
        for read in READS:
            message = figures.trip(part, host, "overdrive", regime, size, f"message-{read}")
            view = figures.trip(part, host, "overdrive", regime, size, f"view-{read}")
            if not math.isnan(message + view):
                found[size, read] = message / view
    return found


def compared(figures: Figures, part: str, host: str, regime: str) -> str:
    """Say how views compare with Overdrive's messages, nothing where they were not measured."""
    ratios = view_ratios(figures, part, host, regime)
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    worst = min(ratios, key=lambda key: ratios[key])
    slower = sum(value < 0.97 for value in ratios.values())
    return (
        f"{mean:.2f} times as fast as Overdrive's messages in geometric mean, at worst "
        f"{ratios[worst]:.2f} ({size_name(worst[0])}, {READS[worst[1]]}); {slower} of "
        f"{len(ratios)} points below 0.97"
    )


def view_goals(figures: Figures) -> list[str]:
    """Say whether views reach their goals."""
    lines = []
    for host in sorted(figures.of("views", "host"), key=lambda name: name not in TABLE_HOSTS):
        for regime in REGIMES:
            sizes = figures.xs("views", "1x2")
            times = {
                size: figures.trip("views", host, "overdrive", regime, size, "view-nothing")
                for size in sizes
            }
            times = {size: us for size, us in times.items() if not math.isnan(us)}
            if not times:
                continue
            slowest = max(times, key=lambda size: times[size])
            text = (
                f"- {HOST_TITLES[host]}, {regime}: a view of which nothing is read takes at most "
                f"{times[slowest]:.2f} us ({size_name(slowest)})"
            )
            if regime == "near":
                text += f"; goal {MOST_US}: {'reached' if times[slowest] <= MOST_US else 'missed'}"
            found = [
                (title, compared(figures, part, host, regime))
                for part, title in (("views", "sent again"), ("rewritten", "written anew"))
            ]
            parts = [f"data {title}: {text_of}" for title, text_of in found if text_of]
            if host in TABLE_HOSTS:
                lines += [text + ".", *(f"  - {one}." for one in parts)]
            else:
                lines.append("; ".join([text, *parts]) + ".")
    return [*lines, ""]


def conformance(figures: Figures) -> list[str]:
    """Say how many cases which hosts answer alike in every situation."""
    found: dict[tuple[float, ...], list[str]] = {}
    for host in figures.of("cases", "host"):
        counts = [
            figures.get("cases", host, side, "", "", 0, what) or 0
            for side in ("none", "node", "nodes")
            for what in ("cases", "same")
        ]
        found.setdefault(tuple(counts), []).append(HOST_TITLES[host])
    lines = []
    for (alone, right, *others), hosts in found.items():
        there = "cases" if alone == right else f"cases, {right:.0f} of them right,"
        node, nodes = (
            "all" if same == right == count else f"{same:.0f}"
            for count, same in (others[:2], others[2:])
        )
        lines.append(
            f"- `tests/smpi/conformance.c`, {', '.join(hosts)}, 4 ranks: {alone:.0f} {there} "
            f"without Overdrive; with it the same answers on one node: {node}, over two: {nodes}."
        )
    return lines


def views_section(figures: Figures, part: str) -> list[str]:
    """Return the tables of round trips."""
    lines = []
    for host in (name for name in figures.of(part, "host") if name in TABLE_HOSTS):
        for regime in REGIMES:
            lines_ns = [
                value
                for side in ("overdrive", "plain")
                for value in figures.values.get(
                    (part, host, side, regime, "1x2", "0", "line_ns"), []
                )
            ]
            if not lines_ns:
                continue
            seen = f"{min(lines_ns):.0f} to {max(lines_ns):.0f}"
            sources = figures.commits(part, host, regime, "1x2")
            title = f"**{HOST_TITLES[host]}, {regime}** (a cache line took {seen} ns; {sources}):"
            lines += [title, ""]
            rows = []
            for size in figures.xs(part, "1x2"):
                cells = [size_name(size)]
                for read in READS:
                    for side, way in (
                        ("plain", "message"),
                        ("overdrive", "message"),
                        ("overdrive", "view"),
                    ):
                        what = f"{way}-{read}"
                        cells.append(shown(figures.trip(part, host, side, regime, size, what)))
                rows.append(cells)
            header = ["size"]
            for title in READS.values():
                header += [f"{title}: host", "Overdrive", "view"]
            lines += table(header, rows)
    return lines


def cannon_jobs(figures: Figures) -> list[tuple[str, str, str]]:
    """Return part, layout and host of all jobs of Cannon's algorithm."""
    return [
        (part, layout, host)
        for part, layouts in CANNON_PARTS.items()
        for host in figures.of(part, "host")
        for layout in layouts
    ]


def cannon_section(figures: Figures) -> list[str]:
    """Return the table of Cannon's algorithm."""
    rows = []
    for part, layout, host in cannon_jobs(figures):
        for order in figures.xs(part, layout):
            program, communication, exchange = (
                figures.cannon(part, host, layout, order, what)
                for what in ("program", "communication", "exchange")
            )
            if all(math.isnan(seconds) for seconds in program):
                continue
            cells = [HOST_TITLES[host], layout, str(order)]
            for times in (program, communication, exchange):
                cells += [*map(shown, times), ratio(times[0], times[2])]
            rows.append(cells)
    header = ["host", "nodes x ranks", "order", "program: host", "Overdrive", "SMPI", "times"]
    for title in ("communication", "without waiting"):
        header += [f"{title}: host", "Overdrive", "SMPI", "times"]
    return table(header, rows)


def gains(figures: Figures) -> list[str]:
    """Say at which orders the program is fast, and where it, or its communication, is slow."""
    fast: dict[str, list[str]] = {}
    slower, low = [], []
    for part, layout, host in cannon_jobs(figures):
        name = HOST_TITLES[host]
        quick = []
        for order in figures.xs(part, layout):
            plain, _, view = figures.cannon(part, host, layout, order, "program")
            if plain / view >= PROGRAM:
                quick.append(str(order))
            if plain / view < 1:
                slower.append(f"{name} {layout} {order} ({plain / view:.2f})")
            plain, _, view = figures.cannon(part, host, layout, order, "exchange")
            if plain / view < COMMUNICATION:
                low.append(f"{name} {layout} {order} ({plain / view:.2f})")
        fast.setdefault(layout, []).append(f"{name} {', '.join(quick) or 'none'}")
    lines = [
        f"- {layout}: the program is {PROGRAM} times as fast, or more, at the orders: "
        f"{'; '.join(hosts)}."
        for layout, hosts in fast.items()
    ]
    return [
        *lines,
        f"- Slower than plain MPI: {', '.join(slower) or 'nowhere'}. Communication without waiting "
        f"less than {COMMUNICATION:.0f} times as fast: {', '.join(low) or 'nowhere'}.",
        "",
    ]


def save(figure: Any, name: str) -> None:
    """Finish a picture: every part has a grid and says what its lines are."""
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(PLOTS / name, dpi=90)


def draw_views(figures: Figures) -> None:
    """Draw round trips of both regimes."""
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(1, 2, figsize=(11, 4))
    host = next(name for name in figures.of("views", "host") if name in TABLE_HOSTS)
    regimes = {
        one["regime"] for one in figures.rows if (one["part"], one["host"]) == ("views", host)
    }
    regime = next(name for name in REGIMES if name in regimes)
    for axes, read in zip(all_axes, ("nothing", "all")):
        for side, way, label in (
            ("plain", "message", f"message, {HOST_TITLES[host]}"),
            ("overdrive", "message", "message, Overdrive"),
            ("overdrive", "view", "view"),
        ):
            sizes = figures.xs("views", "1x2")
            values = [
                figures.trip("views", host, side, regime, size, f"{way}-{read}") for size in sizes
            ]
            axes.loglog(sizes, values, marker="o", label=label)
        axes.set_title(f"{regime}, receiver reads {read}")
        axes.set_xlabel("bytes")
        axes.set_ylabel("us for one direction")
    save(figure, "smpi_views.png")


def draw_cannon(figures: Figures) -> None:
    """Draw where the program gains how much."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for part, layout, host in cannon_jobs(figures):
        points = []
        for order in figures.xs(part, layout):
            plain, _, view = figures.cannon(part, host, layout, order, "program")
            if not math.isnan(plain + view):
                points.append((order, plain / view))
        if points:
            axes.loglog(*zip(*points), marker="o", label=f"{HOST_TITLES[host]}, {layout}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.axhline(PROGRAM, color="grey", linestyle="--", linewidth=0.8)
    axes.set_xlabel("order of the matrices")
    axes.set_ylabel("plain MPI / SMPI, whole program")
    save(figure, "smpi_cannon.png")


def product(figures: Figures) -> str:
    """Return by what the local products of Cannon's algorithm were made."""
    kinds = {float(one["value"]) for one in figures.rows if one["what"] == "blas"}
    if kinds == {1.0}:
        return "cblas_dgemm, one thread per rank"
    return "a loop, no BLAS was found" if kinds == {0.0} else "cblas_dgemm or, without it, a loop"


def write_page(rows: Sequence[Row], notes: Sequence[str], lab: str) -> None:
    """Write the page and its pictures."""
    figures = Figures(rows)
    lines = [
        "# Measurements: views instead of messages",
        "",
        "`python3 bench/smpi.py` measures all this again and writes this page; the figures are in",
        "[data/smpi.csv](data/smpi.csv).",
        "",
        f"- Machine: {machine()}",
        "- Medians of several jobs; in a job messages and views take turns in batches. Jobs in",
        "  which the cores' distance changed are left out (*near*: a line takes less than 100 ns).",
        "- Tables name the commits of library and headers; what was not measured again stays.",
        *conformance(figures),
        *(note if note.startswith(" ") else f"- {note}" for note in notes),
        "",
        "## Round trips between two ranks of a node",
        "",
        *view_goals(figures),
        "Microseconds for one direction: the installed MPI's message, Overdrive's, and a view. The",
        "receiver sums up nothing, a tenth or all of it; the sender sends the same data again.",
        "",
        *views_section(figures, "views"),
        "![views](plots/smpi_views.png)",
        "",
        "The same when the sender writes the whole buffer anew before each send (with views: after",
        "`SMPI_Reclaim`); writing is part of the time:",
        "",
        *views_section(figures, "rewritten"),
        "## Cannon's algorithm",
        "",
        "`examples/cannon_mpi.c` and `cannon_smpi.c`; local product: "
        f"{product(figures)}. Seconds, the",
        "slowest rank; `times` is plain MPI without Overdrive divided by SMPI. With more ranks",
        "than cores waiting for the core is part of every communication time; `without waiting`",
        "adds up, over the exchanges, what the rank needed that came last. 2x2 and 4x4: nodes of a",
        f"virtual cluster ({lab}), all on the same processors.",
        "",
        *gains(figures),
        *cannon_section(figures),
        "![Cannon](plots/smpi_cannon.png)",
        "",
    ]
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    import matplotlib

    matplotlib.use("Agg")
    PLOTS.mkdir(parents=True, exist_ok=True)
    if figures.of("views", "host"):
        draw_views(figures)
    draw_cannon(figures)

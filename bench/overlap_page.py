"""The page of bench/overlap.py: what of a collective was hidden, beside what the model allows.

With the computation C and, all of `overlap=on`, the time T of a collective whose data is read at
once, T_init of the call alone and the whole W with C, hidden is H = T + C - W. The model allows
min(T - T_init, C): for computation that reads what comes as well, because reading all of it takes
C (SPEC: T_comm * R_comm / R_crc). Where ranks share cores C is what all of them take together.
"""

from __future__ import annotations

import textwrap
from statistics import median

from jobs import ROOT
from page import machine, table

DATA = ROOT / "docs" / "measurements" / "data" / "overlap.csv"
KERNEL_DATA = DATA.with_name("overlap-kernels.csv")
PROGRAM_DATA = DATA.with_name("overlap-programs.csv")
WIRE_DATA = DATA.with_name("overlap-wire.csv")
PAGE = ROOT / "docs" / "measurements" / "overlap.md"
DETAILS = PAGE.with_name("overlap-details.md")
NOTES = ROOT / "docs" / "measurements" / "data" / "overlap-notes.md"
COLUMNS = ["host", "layout", "rate", "what", "bytes", "overlap"]
COLUMNS += ["kind", "part", "ms", "call", "whole"]
KERNEL_COLUMNS = ["host", "layout", "rate", "kernel", "overlap", "ms", "messages"]
PROGRAM_COLUMNS = ["host", "layout", "rate", "program", "overlap", "ms", "equal"]
WIRE_COLUMNS = ["rate", "mbit_s", "idle"]
PARTS = {"0.50": "½", "1.00": "1", "2.00": "2"}
MODES = ("on", "auto")
GOAL = 0.95
Row = dict[str, str]


KERNEL_TEXT = """
Programs of `bench/kernels` in the manner of the NAS parallel benchmarks: ms of an iteration with
`off`, how much of it is spent in calls of MPI, and how many times as fast `on` and `auto` are.
Medians of three jobs of each mode, which take turns, of 15 samples each.
"""
PROGRAM_TEXT = """
Debian's `libfftw3-mpi` and Quantum ESPRESSO (8 atoms of silicon) and mpi4py-fft from PyPI,
unmodified: ms of a transform there and back or of the whole run, and how many times as fast `on`
and `auto` are.
"""
WIRE_TEXT = """
Idle cores while two nodes send by plain sockets that sleep, which is what a rank has to gain: the
host's own calls poll all that time.
"""
MICRO_TEXT = """
A collective, then computation of ½, 1 and 2 times the blocking call, then the received data is read
(*unrelated*), or computation that reads it bit by bit (*related*). Shares of what the model allows,
min(T - T_init, computation), that are hidden; *call alone*: of the call with `on`, by `off`.
Slowest rank, medians.
"""
DETAILS_TEXT = """
How each collective does by itself; what the words mean and the whole at a glance stand on
[overlap.md](overlap.md#one-collective-and-the-computation-after-it). In brackets how many times as
fast call and computation together are as with `off`. *host*, *off*, *on*: ms of the collective when
its data is read at once, without Overdrive and with both settings.
"""


def prose(text: str) -> list[str]:
    """Return the lines of a paragraph."""
    return [*textwrap.wrap(text.strip(), 100), ""]


def hidden(rows: list[Row], kind: str, part: str) -> tuple[float, float] | None:
    """Return the share of what the model allows that `on` hides, and how many times as fast."""
    at = {(one["overlap"], one["kind"], one["part"]): one for one in rows}
    none = at.get(("on", "none", "0.00"))
    off, on = at.get(("off", kind, part)), at.get(("on", kind, part))
    if none is None or off is None or on is None:
        return None
    alone = at.get(("on", "computation", part))
    comm = float(none["whole"])
    computation = float(on["ms"]) if alone is None else float(alone["whole"])
    allowed = min(comm - init_ms(rows), computation)
    if allowed <= 0:
        return None
    share = (comm + computation - float(on["whole"])) / allowed
    return share, float(off["whole"]) / float(on["whole"])


def init_ms(rows: list[Row]) -> float:
    """Return the time of the call alone, with `on`."""
    calls = [one for one in rows if one["overlap"] == "on" and one["kind"] != "computation"]
    return median(float(one["call"]) for one in calls)


def micro_row(rows: list[Row]) -> list[str]:
    """Return one line of the page's table: one collective at one size."""
    at = {one["overlap"]: one for one in rows if one["kind"] == "none"}
    if "off" not in at or "on" not in at:
        return []
    blocking, own = float(at["off"]["whole"]), float(at["on"]["whole"])
    cells = [f"{float(at['host']['whole']):.2f}" if "host" in at else "–"]
    cells += [f"{blocking:.2f}", f"{own:.2f}", f"{100 * init_ms(rows) / blocking:.0f} %"]
    for kind in ("unrelated", "related"):
        for part in PARTS:
            found = hidden(rows, kind, part)
            cells.append("–" if found is None else f"{100 * found[0]:.0f} % ({found[1]:.2f})")
    return cells


def micro_tables(rows: list[Row]) -> list[str]:
    """Return a table for each host, layout and rate."""
    header = ["call", "KiB", "host", "off", "on", "call alone"]
    header += [f"{kind} {part}" for kind in ("unrelated", "related") for part in PARTS.values()]
    lines: list[str] = []
    groups: dict[tuple[str, ...], list[Row]] = {}
    for one in rows:
        groups.setdefault((one["host"], one["layout"], one["rate"]), []).append(one)
    for (host, layout, rate), group in sorted(groups.items()):
        cells = []
        for what, size in dict.fromkeys((one["what"], one["bytes"]) for one in group):
            chosen = [one for one in group if (one["what"], one["bytes"]) == (what, size)]
            values = micro_row(chosen)
            if values:
                cells.append([what, str(int(size) // 1024), *values])
        lines += [f"### {host}, {layout} ranks, {rate}", "", *table(header, cells)]
    return lines


def goal_table(rows: list[Row]) -> list[str]:
    """Return how many points of each cluster reach the goals."""
    points: dict[tuple[str, ...], list[Row]] = {}
    for one in rows:
        key = (one["host"], one["layout"], one["rate"], one["what"], one["bytes"])
        points.setdefault(key, []).append(one)
    found: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for point, group in points.items():
        off = [one for one in group if one["overlap"] == "off" and one["kind"] == "none"]
        if not off:
            continue
        into = found.setdefault(point[:3], {})
        into.setdefault("call", []).append(init_ms(group) / float(off[0]["whole"]))
        for kind in ("unrelated", "related"):
            for part in PARTS:
                value = hidden(group, kind, part)
                if value is not None:
                    into.setdefault(kind, []).append(value[0])
    cells = []
    for key, values in sorted(found.items()):
        row = [*key]
        for kind in ("unrelated", "related"):
            shares = values.get(kind, [])
            reached = sum(share >= GOAL for share in shares)
            row.append(f"{100 * median(shares):.0f} %, {reached} of {len(shares)}")
        short = sum(share <= 0.2 for share in values["call"])
        row.append(f"{100 * median(values['call']):.0f} %, {short} of {len(values['call'])}")
        cells.append(row)
    header = ["host", "ranks", "links", "unrelated: median, ≥ 95 %", "related: median, ≥ 95 %"]
    header.append("call alone: median, ≤ 20 %")
    return table(header, cells)


def gains(rows: list[Row], columns: list[str]) -> list[list[str]]:
    """Return for each point its columns, ms with `off`, and how many times as fast others are."""
    cells = []
    for point in dict.fromkeys(tuple(one[name] for name in columns) for one in rows):
        at = {one["overlap"]: one for one in rows if tuple(one[name] for name in columns) == point}
        if "off" not in at:
            continue
        off = float(at["off"]["ms"])
        row = [*point, f"{off:.1f}"]
        if "messages" in at["off"]:
            row.append(f"{100 * float(at['off']['messages']):.0f} %")
        row += [f"{off / float(at[mode]['ms']):.2f}" if mode in at else "–" for mode in MODES]
        if "equal" in at["off"]:
            row.append(at["off"]["equal"])
        cells.append(row)
    return cells


def kernel_tables(rows: list[Row]) -> list[str]:
    """Return the part of the page about FT and IS."""
    if not rows:
        return []
    header = ["host", "ranks", "links", "program", "off, ms", "in messages", "on", "auto"]
    return [
        "## FT and IS",
        "",
        *prose(KERNEL_TEXT),
        *table(header, gains(rows, KERNEL_COLUMNS[:4])),
    ]


def program_tables(rows: list[Row]) -> list[str]:
    """Return the part of the page about programs from packages."""
    if not rows:
        return []
    header = ["host", "ranks", "links", "program", "off, ms", "on", "auto", "results equal"]
    return [
        "## Programs from packages",
        "",
        *prose(PROGRAM_TEXT),
        *table(header, gains(rows, PROGRAM_COLUMNS[:4])),
    ]


def page(rows: list[Row], kernels: list[Row], programs: list[Row], wire: list[Row]) -> str:
    """Return the page."""
    lines = [
        "# Measurements: overlap",
        "",
        "`python3 bench/overlap.py` measures this again, over virtual nodes on one machine;",
        "figures in `data/overlap*.csv`.",
        "",
        machine(),
        "",
    ]
    if NOTES.exists():
        lines += [NOTES.read_text().strip(), ""]
    if wire:
        header = ["links", "Mbit/s", "cores idle"]
        cells = [[one["rate"], one["mbit_s"], f"{100 * float(one['idle']):.0f} %"] for one in wire]
        lines += [*prose(WIRE_TEXT), *table(header, cells)]
    if rows:
        lines += [
            "## One collective and the computation after it",
            "",
            *prose(MICRO_TEXT),
            *goal_table(rows),
            f"Each collective and size: [{DETAILS.name}]({DETAILS.name}).",
            "",
        ]
    lines += [*kernel_tables(kernels), *program_tables(programs)]
    return "\n".join(lines).rstrip() + "\n"


def details(rows: list[Row]) -> str:
    """Return the page of single collectives."""
    lines = [
        "# Measurements: overlap of single collectives",
        "",
        "Generated by `python3 bench/overlap.py --part micro`; figures in `data/overlap.csv`.",
        "",
        *prose(DETAILS_TEXT),
        *micro_tables(rows),
    ]
    return "\n".join(lines).rstrip() + "\n"

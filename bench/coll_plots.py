"""Draws the figures of the page on collectives from the raw samples of its parts.

Usage: coll_plots.py SAMPLES_FOLDER FOLDER. Needs matplotlib; prints `file<TAB>caption` for each
picture.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis import REGIMES, Results
from campaign import FIVE, OVERDRIVE, PLAIN, load_part
from coll_campaign import (
    DRIVER_SIZES,
    FEW_SIZES,
    JUDGED,
    LAB_JUDGED,
    LAB_RANKS,
    PARTS,
    PIPELINES,
    REDUCTIONS,
    SIZES,
    with_net,
)
from coll_goals import BARRIER, LABS, SHAPES, driver_ratios, points
from coll_timeline import MEASURED_PICTURE, PICTURE, PICTURE_SIZE, kept, time_lines
from drawing import COLOURS, DOTS_PER_INCH, finish, line, plt, ratio_axis, run, style
from goals import HOST_TITLES, best_variant
from overdrive.errors import CommandError
from overdrive.study import timeline

MEASURED = [name for name in JUDGED if name != BARRIER]


def _ratios(
    results: Results, folder: Path, name: str, caption: str, collectives: list[str], what: tuple
) -> None:
    """Draw speeds relative to the hosts: a row per regime and shape, a column per collective."""
    ranks, sizes = what
    drawn = [
        (regime, shape)
        for regime in REGIMES
        for shape in SHAPES
        if any(
            results.speedup(regime, p, host, OVERDRIVE, host, PLAIN) is not None
            for collective in collectives
            for p in points(collective, shape, ranks, sizes)
            for host in FIVE
        )
    ]
    if not drawn:
        return
    figure, grid = plt.subplots(
        len(drawn),
        len(collectives),
        figsize=(3.2 * len(collectives), 3 * len(drawn) + 1),
        sharey=True,
        squeeze=False,
    )
    for row, (regime, shape) in enumerate(drawn):
        for column, collective in enumerate(collectives):
            axes = grid[row][column]
            wanted = points(collective, shape, ranks, sizes)
            bytes_ = [point.size_bytes for point in wanted]
            for host in FIVE:
                base = best_variant(results, regime, host, wanted) or PLAIN
                values = {
                    p.size_bytes: results.speedup(regime, p, host, OVERDRIVE, host, base)
                    for p in wanted
                }
                look = {"color": COLOURS[host], "label": HOST_TITLES[host]}
                line(axes, bytes_, values, marker="o", markersize=3, **look)
            ratio_axis(axes)
            label = f"{SHAPES[shape]}, {regime}" if column == 0 else ""
            style(axes, bytes_, collective, label)
    finish(figure, folder, name, caption)


def _drivers(results: Results, folder: Path) -> None:
    """Draw the segmented driver relative to the generic one."""
    figure, grid = plt.subplots(1, len(REDUCTIONS), figsize=(11, 4.5), sharey=True)
    found = False
    for axes, collective in zip(grid, REDUCTIONS, strict=True):
        for shape, dashes in zip(SHAPES, ("-", "--"), strict=True):
            wanted = points(collective, shape, 2, DRIVER_SIZES)
            bytes_ = [point.size_bytes for point in wanted]
            for regime, colour in zip(REGIMES, ("#1f77b4", "#d62728"), strict=True):
                ratios = driver_ratios(results, wanted, regime, "openmpi4")
                found = found or bool(ratios)
                values = {r.point.size_bytes: r.value for r in ratios}
                look = {"color": colour, "linestyle": dashes, "marker": "o", "markersize": 3}
                line(axes, bytes_, values, label=f"{SHAPES[shape]}, {regime}", **look)
        axes.axhline(1, color="black", linewidth=0.8)
        style(axes, bytes_, collective, "times as fast as the generic driver")
    if found:
        finish(figure, folder, "coll_drivers.png", "The segmented driver of reductions")
    plt.close(figure)


def _simulated(folder: Path) -> None:
    try:
        _time_lines(time_lines(PICTURE_SIZE), folder, PICTURE, "simulated")
    except CommandError as reason:
        print(f"bench: no simulated time line: {reason}", file=sys.stderr)


def _time_lines(
    reports: Mapping[str, Mapping[str, Any]], folder: Path, picture: str, how: str
) -> None:
    """Draw what happens when, with the vector uncut and in segments, one above the other."""
    if len(reports) < len(PIPELINES):
        return
    figure, grid = plt.subplots(len(reports), 1, figsize=(13, 9), sharex=True)
    for axes, (name, report) in zip(grid, reports.items(), strict=True):
        handles = timeline.draw_lanes(axes, report)
        axes.set_title(f"{name}: {timeline.summary(report)}", fontsize=9, loc="left")
    grid[0].set_xlim(0, max(report["last_ns"] for report in reports.values()) / 1000)
    figure.legend(handles=handles, loc="lower center", ncol=6, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(folder / picture, dpi=DOTS_PER_INCH)
    plt.close(figure)
    print(f"{picture}\tWhat happens when in an allreduce on 4 nodes of 2 ranks, {how}")


def draw(source: Path, folder: Path) -> None:
    """Draw everything that has been measured."""
    results = {part.name: Results(with_net(load_part(part.name, source))) for part in PARTS}
    pictures = [
        ("pair", "coll_pair.png", "2 ranks on 2 cores", MEASURED, (2, SIZES)),
        ("eight", "coll_eight.png", "8 ranks on 2 cores", MEASURED, (8, FEW_SIZES)),
    ]
    for part, title in LABS.items():
        file = f"coll_{part.replace('-', '_')}.png"
        where = f"4 nodes of 2 ranks, {title}"
        pictures.append((part, file, where, LAB_JUDGED, (LAB_RANKS, FEW_SIZES)))
    for part, file, where, collectives, what in pictures:
        caption = f"Collectives of {where}: speed relative to the host alone"
        _ratios(results[part], folder, file, caption, collectives, what)
    _drivers(results["drivers"], folder)
    _simulated(folder)
    _time_lines(kept(source), folder, MEASURED_PICTURE, "measured")


if __name__ == "__main__":
    sys.exit(run(__doc__, draw))

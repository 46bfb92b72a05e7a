"""Draws the figures of the page on copies from the raw samples of its parts.

Usage: copy_plots.py SAMPLES_FOLDER FOLDER. Needs matplotlib; prints `file<TAB>caption` for each
picture.
"""

from __future__ import annotations

import sys
from pathlib import Path

from analysis import REGIMES, Results, size_name
from campaign import MAIN_HOSTS, OVERDRIVE, PLAIN, load_part, parse_sizes
from copy_campaign import ENVELOPE_SIZES, MAIN_HOST, PATHS
from copy_goals import (
    DELAYS,
    ENVELOPE_GOAL,
    MEMCPY,
    SHAPE_TITLES,
    SHAPES,
    choice_at,
    envelope_point,
    skew_point,
    with_memcpy_beside,
)
from copy_report import CHOICE, best_path, kernel_points, kernel_title
from drawing import COLOURS, finish, line, plt, run, style
from goals import variant_title
from matplotlib.axes import Axes

LOOKS = {
    OVERDRIVE: ("black", "-", 2.2, CHOICE),
    "cells": ("#1f77b4", "-", 1.2, "cells"),
    "pull": ("#2ca02c", "-", 1.2, "pull"),
    "cooperative": ("#d62728", "-", 1.2, "cooperative"),
    "push": ("#ff7f0e", "-", 1.2, "push"),
    "kernel": ("#9467bd", "-", 1.2, "kernel"),
    MEMCPY: ("#7f7f7f", ":", 1.4, "plain memcpy"),
}
SKEW_SHOWN = [64 << 10, 1 << 20]


def _paths(axes: Axes, results: Results, regime: str, shape: str) -> None:
    """Draw bytes per nanosecond of every path and mark where another one becomes the best."""
    sizes = parse_sizes(ENVELOPE_SIZES)
    for variant, (colour, dashes, width, label) in LOOKS.items():
        medians = {
            size: results.median(regime, MAIN_HOST, variant, envelope_point(shape, size))
            for size in sizes
        }
        speeds = {size: size / median / 1e3 if median else None for size, median in medians.items()}
        look = {"color": colour, "linestyle": dashes, "linewidth": width, "label": label}
        line(axes, sizes, speeds, zorder=1 if variant == OVERDRIVE else 2, **look)
    last = ""
    for index, size in enumerate(sizes):
        choice = choice_at(results, regime, envelope_point(shape, size))
        if choice is None or choice.best == last or size < 1 << 10:
            continue
        last = choice.best
        axes.axvline(index, color=LOOKS[last][0], linewidth=0.6, linestyle="--", alpha=0.7)
    axes.set_yscale("log")
    style(axes, sizes, f"{SHAPE_TITLES[shape]}, {regime}", "size : half round trip, GB/s")


def envelope(results: Results, folder: Path) -> None:
    """Draw all paths and the choice."""
    figure, grid = plt.subplots(2, 2, figsize=(13, 9.5))
    for row, regime in enumerate(REGIMES):
        for column, shape in enumerate(SHAPES):
            _paths(grid[row][column], results, regime, shape)
    caption = "Every way to copy, and what the engine chooses (dashed: another way becomes best)"
    finish(figure, folder, "copy_envelope.png", caption)


def ratios(results: Results, folder: Path) -> None:
    """Draw the speed of the choice and of each path relative to the best single path."""
    sizes = parse_sizes(ENVELOPE_SIZES)
    figure, grid = plt.subplots(2, 2, figsize=(13, 8.5), sharey=True)
    for row, regime in enumerate(REGIMES):
        for column, shape in enumerate(SHAPES):
            axes = grid[row][column]
            choices = {s: choice_at(results, regime, envelope_point(shape, s)) for s in sizes}
            for variant in (*PATHS, OVERDRIVE):
                values = {
                    size: results.speedup(
                        regime,
                        envelope_point(shape, size),
                        MAIN_HOST,
                        variant,
                        MAIN_HOST,
                        choice.best,
                    )
                    for size, choice in choices.items()
                    if choice is not None
                }
                colour, dashes, width, label = LOOKS[variant]
                look = {"color": colour, "linestyle": dashes, "linewidth": width, "label": label}
                line(axes, sizes, values, **look)
            axes.axhline(ENVELOPE_GOAL, color="grey", linewidth=0.8, linestyle=":")
            axes.set_ylim(0, 1.25)
            title = f"{SHAPE_TITLES[shape]}, {regime}"
            style(axes, sizes, title, "speed relative to the best single path")
    caption = "The choice and each single path relative to the best one (dotted: the goal)"
    finish(figure, folder, "copy_choice.png", caption)


def skew(results: Results, folder: Path) -> None:
    """Draw how long the sender's call takes when the receiver is late."""
    figure, grid = plt.subplots(2, len(SKEW_SHOWN), figsize=(12, 8.5), sharey=True)
    cases = ["together", *(f"receiver late {delay}" for delay in DELAYS)]
    for row, regime in enumerate(REGIMES):
        for column, size in enumerate(SKEW_SHOWN):
            axes = grid[row][column]
            for host in MAIN_HOSTS:
                for variant, dashes in ((PLAIN, "--"), (OVERDRIVE, "-")):
                    known = [
                        (index, median)
                        for index, case in enumerate(cases)
                        if (
                            median := results.median(
                                regime, host, variant, skew_point(case, "call", size)
                            )
                        )
                        is not None
                    ]
                    axes.plot(
                        [index for index, _ in known],
                        [median for _, median in known],
                        color=COLOURS[host],
                        linestyle=dashes,
                        marker="o",
                        markersize=3,
                        label=variant_title(host, variant),
                    )
            axes.set_yscale("log")
            axes.set_xticks(range(len(cases)), ["0", *DELAYS], fontsize=8)
            axes.set_xlabel("receiver late by", fontsize=8)
            axes.set_title(f"{size_name(size)}, {regime}", fontsize=10)
            axes.set_ylabel("sender's call, µs", fontsize=9)
            axes.grid(alpha=0.3, which="both")
    finish(figure, folder, "copy_skew.png", "How long MPI_Send takes when the receiver is late")


def kernels(results: Results, folder: Path) -> None:
    """Draw the kernels' speed relative to the host alone."""
    points = kernel_points(results)
    figure, rows = plt.subplots(2, 1, figsize=(13, 8.5), sharex=True)
    for axes, regime in zip(rows, REGIMES, strict=True):
        for place, variant in enumerate((OVERDRIVE, *PATHS)):
            colour, _, _, label = LOOKS[variant]
            known = [
                (index, gain)
                for index, point in enumerate(points)
                if (gain := results.speedup(regime, point, MAIN_HOST, variant, MAIN_HOST))
                is not None
            ]
            places = [index + (place - 2.5) * 0.13 for index, _ in known]
            axes.bar(places, [gain for _, gain in known], 0.12, color=colour, label=label)
        for index, point in enumerate(points):
            if best_path(results, regime, point) is None:
                axes.text(index, 0.5, "not measured", ha="center", fontsize=7, rotation=90)
        axes.axhline(1, color="black", linewidth=0.8)
        names = [kernel_title(point).replace(", ", "\n") for point in points]
        axes.set_xticks(range(len(points)), names, fontsize=7)
        axes.set_title(regime, fontsize=10)
        axes.set_ylabel("times as fast as the host alone", fontsize=9)
        axes.grid(alpha=0.3, axis="y")
    finish(figure, folder, "copy_kernels.png", "Kernels: the choice and each single path")


def draw(source: Path, folder: Path) -> None:
    """Draw everything that has been measured."""
    for part, pictures in (
        ("envelope", (envelope, ratios)),
        ("skew", (skew,)),
        ("kernels", (kernels,)),
    ):
        samples = load_part(part, source)
        if samples:
            results = Results(with_memcpy_beside(samples))
            for picture in pictures:
                picture(results, folder)


if __name__ == "__main__":
    sys.exit(run(__doc__, draw))

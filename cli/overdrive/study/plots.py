"""Figures of `overdrive study copy`; the only part of the command that needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from overdrive.study.data import ALL_PATHS, DISTANCES, SHAPES, Study, time_text  # noqa: E402
from overdrive.thresholds import size_text  # noqa: E402

COLOURS = {
    "auto": "black", "cells": "#1f77b4", "pull": "#d62728", "push": "#2ca02c",
    "cooperative": "#9467bd", "kernel": "#ff7f0e",
}  # fmt: skip
DOTS_PER_INCH = 110


def _style(path: str) -> dict[str, Any]:
    thick = path == "auto"
    return {
        "color": COLOURS[path], "label": path, "marker": "o" if not thick else "x",
        "markersize": 3 if not thick else 6, "linewidth": 1.2, "linestyle": ":" if thick else "-",
    }  # fmt: skip


def _save(figure: plt.Figure, folder: Path, name: str) -> Path:
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=len(handles),
                      fontsize=8)  # fmt: skip
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=DOTS_PER_INCH)
    plt.close(figure)
    return path


def _sizes(axes: plt.Axes, sizes: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes[::2], [size_text(size) for size in sizes[::2]], fontsize=7)
    axes.grid(alpha=0.3)


def _topology(study: Study, folder: Path) -> Path:
    figure, axes = plt.subplots(figsize=(9, 3.5))
    pairs = sorted({s.cpus for s in study.samples if s.test == "pingpong"})
    spots = [
        [s.probe_before_ns for s in study.samples if s.test == "pingpong" and s.cpus == cpus]
        for cpus in pairs
    ]
    for i, values in enumerate(spots):
        step = max(1, len(values) // 400)
        some = values[::step]
        axes.plot([i + 0.6 * (k / max(1, len(some)) - 0.5) for k in range(len(some))], some,
                  ".", markersize=2, color="#1f77b4")  # fmt: skip
    axes.axhline(study.far_threshold_ns, color="#d62728", linewidth=0.8)
    axes.set_xticks(range(len(pairs)), [f"{a}, {b}" for a, b in pairs], rotation=60, fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("one cache line, ns")
    axes.set_title(
        "Each pair of processors, in the order of time; line: near below, far above", fontsize=9
    )
    axes.grid(alpha=0.3)
    return _save(figure, folder, "topology")


def _buffers(study: Study, folder: Path, distance: str) -> Path | None:
    found = study.exchanges(distance)
    shapes = [shape for shape in SHAPES if any(key[0] == shape for key in found)]
    if not shapes:
        return None
    figure, all_axes = plt.subplots(1, len(shapes), figsize=(4 * len(shapes), 4), squeeze=False)
    for axes, shape in zip(all_axes[0], shapes):
        sizes = sorted({size for s, _, size in found if s == shape})
        for path in ALL_PATHS:
            points = [(n, n / found[shape, path, n]) for n in sizes if (shape, path, n) in found]
            if points:
                axes.plot([x for x, _ in points], [y for _, y in points], **_style(path))
        _sizes(axes, sizes)
        axes.set_title(f"{distance}: {SHAPES[shape]}", fontsize=8)
        axes.set_ylabel("GB/s", fontsize=8)
        axes.set_yscale("log")
    return _save(figure, folder, f"buffers-{distance}")


def _skew(study: Study, folder: Path, distance: str) -> Path | None:
    calls, totals = study.skew(distance, False), study.skew(distance, True)
    sizes = sorted({size for _, size, _ in calls})
    if not sizes:
        return None
    figure, all_axes = plt.subplots(2, len(sizes), figsize=(4 * len(sizes), 6.5), squeeze=False)
    for column, size in enumerate(sizes):
        delays = sorted({delay for _, s, delay in calls if s == size})
        rows = (("in the sender's call", calls), ("from the later start", totals))
        for row, (title, found) in enumerate(rows):
            axes = all_axes[row][column]
            for path in ALL_PATHS:
                points = [
                    (i, found[path, size, delay] / 1e3)
                    for i, delay in enumerate(delays)
                    if (path, size, delay) in found
                ]
                if points:
                    axes.plot([x for x, _ in points], [y for _, y in points], **_style(path))
            names = [("-" if d < 0 else "") + time_text(abs(d)) for d in delays]
            axes.set_xticks(range(len(delays)), names, rotation=60, fontsize=7)
            axes.set_yscale("log")
            axes.grid(alpha=0.3)
            axes.set_title(f"{distance}, {size_text(size)}: us {title}", fontsize=8)
            axes.set_xlabel("sender late - receiver late", fontsize=7)
    return _save(figure, folder, f"skew-{distance}")


def _survival(study: Study, folder: Path, distance: str) -> Path | None:
    found: Mapping[tuple[str, int, int], float] = study.survival(distance)
    sets = sorted({working_set for _, working_set, _ in found})
    if not sets:
        return None
    figure, all_axes = plt.subplots(1, len(sets), figsize=(5 * len(sets), 3.8), squeeze=False)
    for axes, working_set in zip(all_axes[0], sets):
        sizes = sorted({size for _, w, size in found if w == working_set})
        for path in ALL_PATHS:
            points = [(n, 100 * found[path, working_set, n]) for n in sizes
                      if (path, working_set, n) in found]  # fmt: skip
            if points:
                axes.plot([x for x, _ in points], [y for _, y in points], **_style(path))
        _sizes(axes, sizes)
        axes.set_ylim(0, 105)
        axes.set_title(f"{distance}: % of {size_text(working_set)} still cached", fontsize=8)
        axes.set_xlabel("message", fontsize=7)
    return _save(figure, folder, f"working-set-{distance}")


def draw(study: Study, folder: Path) -> list[tuple[str, Path]]:
    """Write the figures; return the section and the file of each."""
    figures: list[tuple[str, Path]] = [("Topology", _topology(study, folder))]
    for title, painter in (("Buffers", _buffers), ("Skew", _skew), ("Working set", _survival)):
        for distance in DISTANCES:
            path = painter(study, folder, distance)
            if path is not None:
                figures.append((title, path))
    return figures

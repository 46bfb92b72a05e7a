"""Figures of `overdrive study copy`, as SVG that stands in its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from overdrive import page, svg
from overdrive.study.data import ALL_PATHS, DISTANCES, SHAPES, Study, time_text
from overdrive.thresholds import size_text

COLOURS = {
    "auto": "var(--ink)", "cells": "var(--c0)", "pull": "var(--c6)", "push": "var(--c3)",
    "cooperative": "var(--c4)", "kernel": "var(--c2)",
}  # fmt: skip

MOST_DOTS = 300
"""Of each pair of processors; with more, some are left out evenly."""


def _key(paths: Sequence[str]) -> str:
    return page.legend([(path, COLOURS[path]) for path in ALL_PATHS if path in paths])


def _by_path(
    found: Mapping[tuple[str, int], float],
) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each path; keys are path and x."""
    series: dict[str, list[tuple[float, float]]] = {}
    for path in ALL_PATHS:
        points = sorted((float(x), value) for (name, x), value in found.items() if name == path)
        if points:
            series[path] = points
    return series


def _grid(charts: Sequence[str], key: str) -> str:
    cells = "".join(f"<div>{chart}</div>" for chart in charts)
    return page.figure(f'{key}<div class="charts">{cells}</div>')


def _lines(series: Mapping[str, Sequence[tuple[float, float]]], **keywords: object) -> str:
    return svg.lines(series, colours=COLOURS, dashed=("auto",), **keywords)  # type: ignore[arg-type]


def _size(value: float) -> str:
    return size_text(round(value))


def topology(study: Study) -> str:
    """Return what a cache line takes between each pair of processors, in the order of time."""
    pairs = sorted({s.cpus for s in study.samples if s.test == "pingpong"})
    if not pairs:
        return ""
    spots = []
    for i, cpus in enumerate(pairs):
        times = [
            s.probe_before_ns for s in study.samples if s.test == "pingpong" and s.cpus == cpus
        ]
        some = times[:: max(1, len(times) // MOST_DOTS)]
        spots += [(i + 0.2 + 0.6 * k / max(1, len(some)), ns) for k, ns in enumerate(some)]
    chart = svg.dots(
        spots,
        title="One cache line from core to core",
        labels=[f"{a}, {b}" for a, b in pairs],
        y_text=time_text,
        line=(study.far_threshold_ns, "far from here"),
    )
    return page.figure(chart, "Each pair of processors; within a pair in the order of time.")


def buffers(study: Study, distance: str) -> str:
    """Return the bandwidth of each path by size, a chart for each use of buffers."""
    found = study.exchanges(distance)
    charts = []
    for shape, title in SHAPES.items():
        here = {(path, n): n / ns for (s, path, n), ns in found.items() if s == shape}
        charts.append(
            _lines(
                _by_path(here),
                title=f"{distance}: {title}",
                x_text=_size,
                x_base=2.0,
                y_text=lambda y: f"{y:.3g}",
                y_base=2.0,
                y_label="GB/s",
                x_label="message",
            )  # fmt: skip
        )
    charts = [chart for chart in charts if chart]
    return _grid(charts, _key([path for _, path, _ in found])) if charts else ""


def skew(study: Study, distance: str) -> str:
    """Return times when one side comes late, two charts for each size."""
    sides = (
        ("in the sender's call", study.skew(distance, False)),
        ("from the later start", study.skew(distance, True)),
    )
    charts = []
    for size in sorted({size for _, size, _ in sides[0][1]}):
        delays = sorted({delay for _, s, delay in sides[0][1] if s == size})
        names = [("-" if d < 0 else "") + time_text(abs(d)) for d in delays]
        for title, found in sides:
            here = {
                (path, delays.index(delay)): ns
                for (path, s, delay), ns in found.items()
                if s == size and delay in delays
            }
            charts.append(
                _lines(
                    _by_path(here),
                    title=f"{distance}, {size_text(size)}: {title}",
                    x_text=lambda x, names=names: names[round(x)],
                    y_text=time_text,
                    y_base=10.0,
                    x_label="sender late – receiver late",
                )  # fmt: skip
            )
    charts = [chart for chart in charts if chart]
    return _grid(charts, _key([path for path, _, _ in sides[0][1]])) if charts else ""


def survival(study: Study, distance: str) -> str:
    """Return what is left of working sets in the caches, a chart for each."""
    found = study.survival(distance)
    charts = [
        _lines(
            _by_path({(path, n): 100 * v for (path, w, n), v in found.items() if w == working_set}),
            title=f"{distance}: working set of {size_text(working_set)}",
            x_text=_size,
            x_base=2.0,
            y_text=lambda y: f"{y:.0f} %",
            y_label="still cached",
            x_label="message",
            y_low=0.0,
        )  # fmt: skip
        for working_set in sorted({w for _, w, _ in found})
    ]
    charts = [chart for chart in charts if chart]
    return _grid(charts, _key([path for path, _, _ in found])) if charts else ""


def draw(study: Study) -> list[tuple[str, str]]:
    """Return the section and the markup of each figure."""
    figures = [("Topology", topology(study))]
    for title, painter in (("Buffers", buffers), ("Skew", skew), ("Working set", survival)):
        figures += [(title, painter(study, distance)) for distance in DISTANCES]
    return [(title, markup) for title, markup in figures if markup]

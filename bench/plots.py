"""Draws the figures of the point-to-point measurements from the raw samples.

Usage: plots.py SAMPLES.csv FOLDER. Needs matplotlib; prints `file<TAB>caption` for each picture.
"""

from __future__ import annotations

import sys
from pathlib import Path

from analysis import REGIMES, Point, Results
from campaign import FIVE, OVERDRIVE, PLAIN, load
from drawing import COLOURS, finish, line, plt, ratio_axis, run, style
from goals import HOST_TITLES, best_variant, variant_title
from matplotlib.axes import Axes

SHAPE_TITLES = {"usual": "unchanged buffer", "alternating": "16 buffers", "app": "application"}


def _medians(
    results: Results, regime: str, host: str, variant: str, points: list[Point]
) -> dict[int, float | None]:
    return {p.size_bytes: results.median(regime, host, variant, p) for p in points}


def _speedups(
    results: Results, regime: str, host: str, points: list[Point], base: str = PLAIN
) -> dict[int, float | None]:
    return {p.size_bytes: results.speedup(regime, p, host, OVERDRIVE, host, base) for p in points}


def _with_and_without(
    axes: Axes, results: Results, regime: str, hosts: list[str], points: list[Point]
) -> None:
    """Draw the medians of each host, alone and with Overdrive, over the size."""
    sizes = [p.size_bytes for p in points]
    for host in hosts:
        for variant, dashes in ((PLAIN, "--"), (OVERDRIVE, "-")):
            line(
                axes,
                sizes,
                _medians(results, regime, host, variant, points),
                color=COLOURS[host],
                linestyle=dashes,
                linewidth=1.2,
                label=variant_title(host, variant),
            )
    axes.set_yscale("log")


def _latency_points(results: Results, shape: str) -> list[Point]:
    return results.points(test="latency", shape=shape, mode="blocking", kind="heap", ranks=2)


def latency_ratio(results: Results, folder: Path, hosts: list[str]) -> None:
    """Draw the speed relative to the host, by shape and regime."""
    figure, grid = plt.subplots(2, 3, figsize=(13, 8), sharey=True)
    for row, regime in enumerate(REGIMES):
        for column, (shape, title) in enumerate(SHAPE_TITLES.items()):
            axes = grid[row][column]
            points = _latency_points(results, shape)
            sizes = [p.size_bytes for p in points]
            for host in hosts:
                line(
                    axes,
                    sizes,
                    _speedups(results, regime, host, points),
                    color=COLOURS[host],
                    label=HOST_TITLES[host],
                    marker="o",
                    markersize=3,
                )
            ratio_axis(axes)
            style(axes, sizes, f"{title}, {regime}", "times as fast as the host alone")
    finish(figure, folder, "latency_ratio.png", "Latency with Overdrive relative to each host")


def latency(results: Results, folder: Path, hosts: list[str]) -> None:
    """Draw absolute latency."""
    figure, grid = plt.subplots(2, 2, figsize=(12, 9), sharey=True)
    for row, regime in enumerate(REGIMES):
        for column, shape in enumerate(("usual", "app")):
            axes = grid[row][column]
            points = _latency_points(results, shape)
            sizes = [p.size_bytes for p in points]
            _with_and_without(axes, results, regime, hosts, points)
            style(axes, sizes, f"{SHAPE_TITLES[shape]}, {regime}", "half round trip, µs")
    finish(figure, folder, "latency.png", "One-way latency of two ranks")


def streams(results: Results, folder: Path, hosts: list[str]) -> None:
    """Draw bandwidth and message rate."""
    figure, grid = plt.subplots(2, 3, figsize=(13, 8.5))
    titles = {"bw": "streaming", "bibw": "bidirectional", "rate": "message rate"}
    for row, regime in enumerate(REGIMES):
        for column, (test, title) in enumerate(titles.items()):
            axes = grid[row][column]
            points = results.points(test=test, ranks=2)
            sizes = [p.size_bytes for p in points]
            _with_and_without(axes, results, regime, hosts, points)
            label = "messages per second" if test == "rate" else "MB/s"
            style(axes, sizes, f"{title}, {regime}", label)
    finish(figure, folder, "bandwidth.png", "Bandwidth and message rate, 64 messages in flight")


def oversubscribed(results: Results, folder: Path, hosts: list[str]) -> None:
    """Draw the speed with more ranks than cores, against each host's best setting."""
    figure, grid = plt.subplots(2, 3, figsize=(13, 8), sharey=True)
    titles = {"pairs": "ping-pong", "ring": "Sendrecv ring", "halo": "non-blocking halo"}
    for row, ranks in enumerate((4, 8)):
        for column, (test, title) in enumerate(titles.items()):
            axes = grid[row][column]
            points = results.points(test=test, ranks=ranks)
            sizes = [p.size_bytes for p in points]
            for host in hosts:
                for regime, dashes in zip(REGIMES, ("-", ":"), strict=True):
                    best = best_variant(results, regime, host, points)
                    if best is None:
                        continue
                    line(
                        axes,
                        sizes,
                        _speedups(results, regime, host, points, best),
                        color=COLOURS[host],
                        linestyle=dashes,
                        marker="o",
                        markersize=3,
                        label=f"{HOST_TITLES[host]}, {regime}",
                    )
            axes.axhline(1, color="black", linewidth=0.8)
            axes.set_yscale("log")
            style(axes, sizes, f"{title}, {ranks} ranks", "times as fast as the host alone")
    finish(
        figure,
        folder,
        "oversubscribed.png",
        "More ranks than cores: speed relative to each host with its best setting",
    )


def draw(source: Path, folder: Path) -> None:
    """Draw everything."""
    samples = load(source)
    present = {sample.host for sample in samples}
    results = Results(samples)
    hosts = [host for host in HOST_TITLES if host in present]
    latency_ratio(results, folder, hosts)
    latency(results, folder, hosts)
    streams(results, folder, hosts)
    oversubscribed(results, folder, [host for host in FIVE if host in present])


if __name__ == "__main__":
    sys.exit(run(__doc__, draw))

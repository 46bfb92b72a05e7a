"""What the scripts that draw pictures share: the command line, axes, lines with gaps, saving.

Needs matplotlib.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from analysis import size_name  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

COLOURS = {
    "openmpi4": "#1f77b4",
    "openmpi5": "#17becf",
    "mpich4": "#d62728",
    "mpich5": "#ff7f0e",
    "impi": "#2ca02c",
    "mpiabi": "#9467bd",
}
DOTS_PER_INCH = 110


def run(usage: str, draw: Callable[[Path, Path], None]) -> int:
    """Draw what the command line says: from samples into a folder; return the exit status."""
    if len(sys.argv) != 3:
        print(usage, file=sys.stderr)
        return 2
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    draw(Path(sys.argv[1]), folder)
    return 0


def ratio_axis(axes: Axes) -> None:
    """Make twice and half as fast equally far from the line of equal speed."""
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def style(axes: Axes, sizes: list[int], title: str, label: str) -> None:
    """Give axes a title and the sizes as ticks."""
    axes.set_title(title, fontsize=10)
    axes.set_xticks(range(len(sizes)), [size_name(size) for size in sizes], rotation=60, fontsize=7)
    axes.set_ylabel(label, fontsize=9)
    axes.grid(alpha=0.3, which="both")


def line(axes: Axes, sizes: list[int], values: dict[int, float | None], **look: object) -> None:
    """Draw the known ones of values over sizes."""
    known = [(i, values[s]) for i, s in enumerate(sizes) if values.get(s) is not None]
    if known:
        axes.plot([i for i, _ in known], [value for _, value in known], **look)


def finish(figure: plt.Figure, folder: Path, name: str, caption: str) -> None:
    """Add caption and common legend, save, print file and caption; empty panels are hidden."""
    handles: dict[str, object] = {}
    for axes in figure.axes:
        axes.set_visible(bool(axes.get_legend_handles_labels()[1]))
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.suptitle(caption, fontsize=12)
    figure.legend(
        list(handles.values()), list(handles), loc="lower center", ncol=4, fontsize=8, frameon=False
    )
    figure.tight_layout(rect=(0, 0.09, 1, 0.98))
    figure.savefig(folder / name, dpi=DOTS_PER_INCH)
    plt.close(figure)
    print(f"{name}\t{caption}")

"""Draws the picture of the demo: how many times faster each figure became. Needs matplotlib.

Usage: demo_plot.py DEMO.csv DEMO.png
"""

from __future__ import annotations

import csv
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import matplotlib.ticker  # noqa: E402

DOTS_PER_INCH = 110
FASTER, SLOWER = "#2a7f3f", "#b03a2e"


def main() -> int:
    """Draw one panel per scene."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["shown"] == "1"]
    scenes = list(dict.fromkeys(row["scene"] for row in rows))
    if not scenes:
        print("demo: nothing to draw", file=sys.stderr)
        return 1
    counts = [sum(row["scene"] == scene for row in rows) for scene in scenes]
    figure, panels = plt.subplots(
        len(scenes),
        1,
        figsize=(8, 0.42 * sum(counts) + 0.9 * len(scenes)),
        gridspec_kw={"height_ratios": counts},
        squeeze=False,
        sharex=True,
    )
    for axes, scene in zip(panels[:, 0], scenes):
        own = [row for row in rows if row["scene"] == scene]
        gains = [float(row["gain"]) for row in own]
        colours = [FASTER if gain >= 1 else SLOWER for gain in gains]
        # Bars start at 1 on a logarithmic axis: twice as fast and half as fast are equally long.
        axes.barh(range(len(own)), [gain - 1 for gain in gains], left=1, color=colours)
        for i, row in enumerate(own):
            before, after = float(row["without"]), float(row["overdrive"])
            text = f" {gains[i]:.2f}x   {before:.3g} → {after:.3g} {row['unit']}"
            axes.text(max(gains[i], 1), i, text, va="center", fontsize=7)
        axes.set_yticks(range(len(own)), [row["figure"] for row in own], fontsize=8)
        axes.invert_yaxis()
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_title(scene, fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    gains = [float(row["gain"]) for row in rows]
    panels[0, 0].set_xscale("log")
    panels[0, 0].set_xlim(min(0.9, min(gains) / 1.1), max(2.0, max(gains)) ** 1.7)
    panels[0, 0].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panels[0, 0].xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    panels[-1, 0].set_xlabel("times as good as without Overdrive")
    figure.suptitle("Unmodified programs with Overdrive, results equal", fontsize=12)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=DOTS_PER_INCH)
    return 0


if __name__ == "__main__":
    sys.exit(main())

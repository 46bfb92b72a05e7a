"""The page of `overdrive tune`: what wins where, and what the built-in choice would lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from overdrive import page, svg
from overdrive.thresholds import size_text
from overdrive.tune.statistics import BUILT_IN, Table, regret, winner

Key = tuple[str, int]
"""A collective and a number of ranks."""


def _us(value: float) -> str:
    return f"{value:.3g} us"


def _size(value: float) -> str:
    return size_text(round(value))


def chart(title: str, table: Table) -> str:
    """Return the times of every variant by size."""
    series = {
        name: [(float(size), one.median) for size, one in sorted(sizes.items()) if size > 0]
        for name, sizes in table.items()
    }
    shown = {name: points for name, points in series.items() if points}
    colours = {
        name: "var(--ink)" if name == BUILT_IN else svg.COLOURS[i % len(svg.COLOURS)]
        for i, name in enumerate(shown)
    }
    picture = svg.lines(
        shown, title=title, x_text=_size, x_base=2.0, y_text=_us, y_base=10.0, x_label="size",
        colours=colours, dashed=(BUILT_IN,),
    )  # fmt: skip
    if not picture:
        return ""
    return page.figure(page.legend([(name, colours[name]) for name in shown]) + picture)


def rows(table: Table) -> list[list[str]]:
    """Return for each size what is taken, what it gains, and the times with their intervals."""
    found = []
    for size in sorted({size for sizes in table.values() for size in sizes}):
        usual = table.get(BUILT_IN, {}).get(size)
        best = winner(table, size)
        lost = regret(table, size, BUILT_IN)
        gain = "" if usual is None else f"{usual.median / table[best][size].median:.2f}"
        times = [
            f"{name} {one.median:.4g} ({one.low:.4g} to {one.high:.4g})"
            for name, sizes in sorted(table.items())
            if (one := sizes.get(size)) is not None
        ]
        found.append(
            [size_text(size), best, gain, "" if lost is None else f"{100 * lost:.0f} %",
             "; ".join(times)]
        )  # fmt: skip
    return found


def render(subtitle: str, tables: Mapping[Key, Table], lines: Sequence[str]) -> str:
    """Return the whole page."""
    parts = [
        "<h1>Tuned collectives</h1>",
        f'<p class="sub">{page.escape(subtitle)}</p>',
        "<h2>What follows</h2>",
        f"<pre>{page.escape(chr(10).join(lines))}</pre>",
        "<p>A variant is taken where it is 3 % faster than the built-in choice and their intervals "
        "do not overlap. Regret: by how much the built-in choice is slower than the best variant "
        "that was seen. Times in us, with intervals of 95 %.</p>",
    ]
    for (collective, ranks), table in tables.items():
        if not table:
            continue
        title = f"{collective}, {ranks} ranks"
        parts.append(f"<section><h2>{page.escape(title)}</h2>")
        parts.append(chart(title, table))
        body = [[*row[:4], page.wide(row[4])] for row in rows(table)]
        parts.append(page.table(["size", "taken", "times as fast", "regret", "medians"], body))
        parts.append("</section>")
    return page.document("Tuned collectives", "\n".join(parts))

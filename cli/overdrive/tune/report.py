"""The page of `overdrive tune`: what wins where, and what the built-in choice would lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from overdrive import page, svg
from overdrive.thresholds import size_text
from overdrive.tune.statistics import BUILT_IN, Table, regret, winner

Key = tuple[str, int]
"""A collective and a number of ranks."""


def _us(value: float) -> str:
    return f"{value:.3g} us"


def _size(value: float) -> str:
    return size_text(round(value))


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def regret_chart(tables: Mapping[Key, Table], usual: str) -> str:
    """Return by how much the usual choice is slower than the best variant, by size."""
    series: dict[str, list[tuple[float, float]]] = {}
    for (collective, ranks), table in tables.items():
        points = [
            (float(size), 100 * lost)
            for size in sorted(table.get(usual, {}))
            if size > 0 and (lost := regret(table, size, usual)) is not None
        ]
        if points:
            series[f"{collective}, {ranks} ranks"] = points
    colours = {name: svg.COLOURS[i % len(svg.COLOURS)] for i, name in enumerate(series)}
    picture = svg.lines(
        series, title="regret", x_text=_size, x_base=2.0, y_text=_percent, x_label="size",
        colours=colours,
    )  # fmt: skip
    if not picture:
        return ""
    return page.figure(page.legend(list(colours.items())) + picture)


def chart(title: str, table: Table, usual: str = BUILT_IN) -> str:
    """Return the times of every variant by size."""
    series = {
        name: [(float(size), one.median) for size, one in sorted(sizes.items()) if size > 0]
        for name, sizes in table.items()
    }
    shown = {name: points for name, points in series.items() if points}
    colours = {
        name: "var(--ink)" if name == usual else svg.COLOURS[i % len(svg.COLOURS)]
        for i, name in enumerate(shown)
    }
    picture = svg.lines(
        shown, title=title, x_text=_size, x_base=2.0, y_text=_us, y_base=10.0, x_label="size",
        colours=colours, dashed=(usual,),
    )  # fmt: skip
    if not picture:
        return ""
    return page.figure(page.legend([(name, colours[name]) for name in shown]) + picture)


def rows(
    table: Table,
    decided: Table,
    usual_name: str = BUILT_IN,
    choosable: Callable[[Table], Table] = lambda t: t,
) -> list[list[str]]:
    """Return for each size what is taken, what it gains, and the times with their intervals."""
    found = []
    for size in sorted({size for sizes in table.values() for size in sizes}):
        usual = decided.get(usual_name, {}).get(size)
        best = winner(choosable(decided), size, usual_name)
        lost = regret(table, size, usual_name)
        gain = "" if usual is None else f"{usual.median / decided[best][size].median:.2f}"
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


def render(
    subtitle: str,
    tables: Mapping[Key, Table],
    decided: Mapping[Key, Table],
    lines: Sequence[str],
    usual: str = BUILT_IN,
    choosable: Callable[[Table], Table] = lambda table: table,
) -> str:
    """Return the whole page.

    `decided`: what the last round alone tells; `choosable`: the part of a table that what is
    written can choose.
    """
    named = "the built-in choice" if usual == BUILT_IN else "the library's own choice"
    parts = [
        "<h1>Tuned collectives</h1>",
        f'<p class="sub">{page.escape(subtitle)}</p>',
        "<h2>What follows</h2>",
        f"<pre>{page.escape(chr(10).join(lines))}</pre>",
        f"<p>A variant is taken where in the last round it was 3 % faster than {named}, their "
        "intervals did not overlap, and it was not slower with one kind of buffers. Regret: by how "
        f"much {named} is slower than the best variant that was seen in any round, algorithms of "
        "the library by its own variables (host: …) included. Times in us, with intervals of "
        "95 %: geometric means of calls whose buffers nobody touches, and of calls whose buffers "
        "the program rewrites and reads, which is counted.</p>",
        f"<section><h2>Regret of {named}</h2>",
        regret_chart(tables, usual),
        "</section>",
    ]
    for (collective, ranks), table in tables.items():
        if not table:
            continue
        title = f"{collective}, {ranks} ranks"
        parts.append(f"<section><h2>{page.escape(title)}</h2>")
        parts.append(chart(title, table, usual))
        body = [
            [*row[:4], page.wide(row[4])]
            for row in rows(table, decided[collective, ranks], usual, choosable)
        ]
        parts.append(page.table(["size", "taken", "times as fast", "regret", "medians"], body))
        parts.append("</section>")
    return page.document("Tuned collectives", "\n".join(parts))

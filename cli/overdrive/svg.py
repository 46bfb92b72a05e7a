"""Draws figures as SVG that stands in a page: axes, lines, bars, heat maps; no package is needed.

Colours are the page's variables (overdrive.page), so a figure follows light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from overdrive.page import escape

COLOURS = [f"var(--c{i})" for i in range(7)]

HEAT_LEVELS = 12
"""Shades of a heat map."""

WIDEST_BAR = 56


def number(value: float) -> str:
    """Return a coordinate without digits that nobody sees."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round values within bounds, at most about `most`."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float, base: float) -> list[float]:
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base) - 1e-9)
    every = max(1, (last - first) // 8)
    return [base**i for i in range(first, last + 1, every)]


class Scale:
    """Maps values to a range of pixels, evenly or by logarithms."""

    def __init__(
        self, low: float, high: float, start: float, end: float, base: float | None = None
    ) -> None:
        self.base = base
        if base:
            low = max(low, 1e-12)
            high = max(high, low * base)
        self.low, self.high = low, high if high > low else low + 1
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """Return the place of a value in pixels."""
        low, high = self.low, self.high
        if self.base:
            value, low, high = (math.log(max(x, 1e-12)) for x in (value, low, high))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return where to put marks."""
        if not self.base:
            return ticks(self.low, self.high)
        found = _powers(self.low, self.high, self.base)
        return [x for x in found if self.low * 0.999 <= x <= self.high * 1.001] or [self.low]


def _frame(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" height="{number(height)}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'
    )


def _axes(
    x: Scale, y: Scale, x_text: Callable[[float], str], y_text: Callable[[float], str]
) -> list[str]:
    parts = []
    for value in y.ticks():
        at = number(y(value))
        parts.append(f'<path class="grid" d="M{number(x.start)} {at}H{number(x.end)}"/>')
        parts.append(_text(x.start - 6, y(value) + 4, y_text(value), "end"))
    last = -1e9
    for value in x.ticks():
        words = x_text(value)
        if x(value) - last > 6 * len(words) + 10:
            parts.append(_text(x(value), y.start + 16, words))
            last = x(value)
    parts.append(f'<path class="axis" fill="none" d="M{number(x.start)} {number(y.start)}'
                 f'H{number(x.end)}"/>')  # fmt: skip
    return parts


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    x_label: str = "",
    y_label: str = "",
    x_base: float | None = None,
    y_base: float | None = None,
    colours: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    size: tuple[float, float] = (460, 300),
    y_low: float | None = None,
) -> str:
    """Draw lines through points, with marks; an empty string if there are no points."""
    points = [point for values in series.values() for point in values]
    if not points:
        return ""
    width, height = size
    ys = [y for _, y in points]
    x = Scale(min(p[0] for p in points), max(p[0] for p in points), 62, width - 12, x_base)
    low = y_low if y_low is not None else (min(ys) if y_base else 0.0)
    y = Scale(low, max(ys), height - 40, 40, y_base)
    parts = [_text(4, 15, title, "start", "title"), _text(4, 31, y_label, "start")]
    parts += _axes(x, y, x_text, y_text)
    if x_label:
        parts.append(_text((x.start + x.end) / 2, height - 6, x_label))
    for index, (name, values) in enumerate(series.items()):
        colour = (colours or {}).get(name, COLOURS[index % len(COLOURS)])
        dash = ' stroke-dasharray="5 4"' if name in dashed else ""
        path = "L".join(f"{number(x(a))} {number(y(b))}" for a, b in values)
        parts.append(
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash} '
            f'stroke-linejoin="round"/>'
        )
        for a, b in values:
            parts.append(
                f'<circle cx="{number(x(a))}" cy="{number(y(b))}" r="2.4" fill="{colour}">'
                f"<title>{escape(f'{name}: {x_text(a)}, {y_text(b)}')}</title></circle>"
            )
    return _frame(width, height, title, parts)


def dots(
    points: Sequence[tuple[float, float]],
    *,
    title: str,
    labels: Sequence[str],
    y_text: Callable[[float], str],
    line: tuple[float, str],
    size: tuple[float, float] = (1040, 260),
) -> str:
    """Draw points; x counts the labels from 0 on. A line marks a value."""
    width, height = size
    x = Scale(0, len(labels), 62, width - 8)
    values = [value for _, value in points]
    y = Scale(min(values) * 0.9, max(*values, line[0]) * 1.1, height - 30, 30, 10.0)
    parts = [_text(4, 15, title, "start", "title")]
    marks = [value for value in y.ticks() if y.low <= value <= y.high]
    for value in marks if len(marks) > 1 else [min(values), max(values)]:
        at = number(y(value))
        parts.append(f'<path class="grid" d="M{number(x.start)} {at}H{number(x.end)}"/>')
        parts.append(_text(x.start - 6, y(value) + 4, y_text(value), "end"))
    spots = "".join(f"M{number(x(a))} {number(y(b))}h0" for a, b in points)
    parts.append(
        f'<path d="{spots}" stroke="var(--c0)" stroke-width="3.2" stroke-linecap="round" '
        f'stroke-opacity=".65"/>'
    )
    at = number(y(line[0]))
    parts.append(f'<path stroke="var(--c6)" d="M{number(x.start)} {at}H{number(x.end)}"/>')
    parts.append(_text(x.end - 4, y(line[0]) - 5, line[1], "end"))
    every = max(1, math.ceil(7 * max(len(label) for label in labels) * len(labels) / width))
    for i in range(0, len(labels), every):
        parts.append(_text(x(i + 0.5), y.start + 16, labels[i]))
    parts.append(f'<path class="axis" d="M{number(x.start)} {number(y.start)}H{number(x.end)}"/>')
    return _frame(width, height, title, parts)


def stacks(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    y_text: Callable[[float], str],
    colours: Mapping[str, str],
    size: tuple[float, float] = (1040, 240),
    tips: Sequence[str] = (),
    line: Sequence[float] = (),
    x_label: str = "",
) -> str:
    """Draw a bar for each label, made of one piece for each series."""
    if not labels:
        return ""
    width, height = size
    totals = [sum(values[i] for values in series.values()) for i in range(len(labels))]
    y = Scale(0, max([*totals, *line, 1e-12]), height - 38, 30)
    x = Scale(0, len(labels), 62, width - 8)
    parts = [_text(4, 15, title, "start", "title")]
    for value in y.ticks():
        at = number(y(value))
        parts.append(f'<path class="grid" d="M{number(x.start)} {at}H{number(x.end)}"/>')
        parts.append(_text(x.start - 6, y(value) + 4, y_text(value), "end"))
    step = (x.end - x.start) / len(labels)
    gap = max(min(8.0, 0.18 * step), step - WIDEST_BAR)
    every = max(1, math.ceil((7 * max(len(label) for label in labels) + 8) / step))
    for i, label in enumerate(labels):
        base = y.start
        tip = f"<title>{escape(tips[i])}</title>" if i < len(tips) else ""
        pieces = []
        for name, values in series.items():
            tall = y.start - y(values[i])
            if tall <= 0.05:
                continue
            base -= tall
            pieces.append(
                f'<rect x="{number(x(i) + gap / 2)}" y="{base:.2f}" '
                f'width="{max(0.5, step - gap):.2f}" height="{tall:.2f}" fill="{colours[name]}"/>'
            )
        parts.append(f"<g>{tip}{''.join(pieces)}</g>")
        if i % every == 0:
            parts.append(_text(x(i + 0.5), y.start + 15, label))
    if x_label:
        parts.append(_text((x.start + x.end) / 2, height - 6, x_label))
    parts.append(f'<path class="axis" d="M{number(x.start)} {number(y.start)}H{number(x.end)}"/>')
    return _frame(width, height, title, parts)


def _levels(value: float, most: float, logarithmic: bool, least: float) -> int:
    if value <= 0 or most <= 0:
        return 0
    if not logarithmic:
        share = value / most
    elif most > least:
        share = math.log(value / least) / math.log(most / least)
    else:
        share = 1.0
    return 1 + min(HEAT_LEVELS - 1, int(max(0.0, share) * (HEAT_LEVELS - 1) + 0.5))


def cells(rows: Sequence[Sequence[float]], *, logarithmic: bool, colour: str) -> str:
    """Return paths of unit squares, one path for each shade; runs of one shade become one piece."""
    positive = [value for row in rows for value in row if value > 0]
    most, least = max(positive, default=0.0), min(positive, default=0.0)
    paths: list[list[str]] = [[] for _ in range(HEAT_LEVELS + 1)]
    for y, row in enumerate(rows):
        x = 0
        levels = [_levels(value, most, logarithmic, least) for value in row]
        while x < len(levels):
            end = x + 1
            while end < len(levels) and levels[end] == levels[x]:
                end += 1
            if levels[x]:
                paths[levels[x]].append(f"M{x} {y}h{end - x}v1h-{end - x}z")
            x = end
    return "".join(
        f'<path fill="{colour}" fill-opacity="{0.06 + 0.94 * level / HEAT_LEVELS:.2f}" '
        f'd="{"".join(pieces)}"/>'
        for level, pieces in enumerate(paths)
        if pieces
    )


def heat_map(
    rows: Sequence[Sequence[float]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    value_text: Callable[[float], str],
    labels: Sequence[str],
    side: float = 420,
) -> str:
    """Draw a square matrix; shades follow the logarithm."""
    count = len(rows)
    if count == 0:
        return ""
    left, top = 54, 62
    size = side / count
    parts = [_text(4, 15, title, "start", "title")]
    every = max(1, math.ceil(count / 16))
    for i in range(0, count, every):
        parts.append(_text(left - 6, top + (i + 0.5) * size + 4, labels[i], "end"))
        parts.append(_text(left + (i + 0.5) * size, top - 6, labels[i]))
    parts.append(_text(4, 32, f"{y_label} down, {x_label} across", "start"))
    parts.append(
        f'<svg x="{left}" y="{top}" width="{number(side)}" height="{number(side)}" '
        f'viewBox="0 0 {count} {count}" shape-rendering="crispEdges">'
        f"{cells(rows, logarithmic=True, colour='var(--heat)')}"
    )
    if count <= 32:
        parts += [
            f'<rect x="{x}" y="{y}" width="1" height="1" fill="transparent">'
            f"<title>{escape(f'{labels[y]} to {labels[x]}: {value_text(value)}')}</title></rect>"
            for y, row in enumerate(rows)
            for x, value in enumerate(row)
            if value > 0
        ]
    parts.append("</svg>")
    parts.append(
        f'<rect x="{left}" y="{top}" width="{number(side)}" height="{number(side)}" fill="none" '
        f'class="grid"/>'
    )
    positive = [value for row in rows for value in row if value > 0]
    if positive:
        x = left + side + 24
        for level in range(HEAT_LEVELS):
            parts.append(
                f'<rect x="{number(x)}" y="{number(top + (HEAT_LEVELS - 1 - level) * 14)}" '
                f'width="14" height="14" fill="var(--heat)" '
                f'fill-opacity="{0.06 + 0.94 * (level + 1) / HEAT_LEVELS:.2f}"/>'
            )
        parts.append(_text(x + 20, top + 11, value_text(max(positive)), "start"))
        low = value_text(min(positive))
        parts.append(_text(x + 20, top + HEAT_LEVELS * 14 - 3, low, "start"))
    return _frame(left + side + 130, top + side + 8, title, parts)

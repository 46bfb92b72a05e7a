"""The time line of the report: all ranks by activity above, each rank below, with zoom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overdrive import svg
from overdrive.page import escape, legend
from overdrive.report.record import ACTIVITIES
from overdrive.report.text import time_text

COLOURS = {name: f"var(--c{i})" for i, name in enumerate(ACTIVITIES)}

MOST_ROWS = 128
"""Rows of ranks; more ranks are put together."""

MOST_CELLS = 70_000
"""Cells of the lower part; with more, slots are put together."""

WIDTH, LEFT, TOP, UPPER, ROW_MOST = 1040, 62, 26, 130, 12

SCRIPT = """\
document.querySelectorAll('figure.zoom').forEach(function (figure) {
  var parts = figure.querySelectorAll('svg svg'), axis = figure.querySelector('.ticks');
  var whole = +figure.dataset.slots, slotNs = +figure.dataset.slot, from = 0, to = whole;
  var left = +figure.dataset.left, right = +figure.dataset.right;
  var outer = figure.querySelector('svg');
  function text(ns) {
    var units = [['s', 1e9], ['ms', 1e6], ['us', 1e3]];
    for (var i = 0; i < 3; i++) if (Math.abs(ns) >= units[i][1] || i == 2)
      return +(ns / units[i][1]).toPrecision(4) + ' ' + units[i][0];
  }
  function show() {
    parts.forEach(function (part) {
      var box = part.getAttribute('viewBox').split(' ');
      part.setAttribute('viewBox', from + ' ' + box[1] + ' ' + (to - from) + ' ' + box[3]);
    });
    var raw = (to - from) * slotNs / 8, step = Math.pow(10, Math.floor(Math.log10(raw)));
    [2, 5, 10].some(function (f) { if (step * f >= raw) { step *= f; return true; } });
    axis.textContent = '';
    for (var t = Math.ceil(from * slotNs / step) * step; t <= to * slotNs; t += step) {
      var mark = document.createElementNS('http://www.w3.org/2000/svg', 'text');
      mark.setAttribute('x', left + (t / slotNs - from) / (to - from) * (right - left));
      mark.setAttribute('y', axis.dataset.y); mark.setAttribute('text-anchor', 'middle');
      mark.textContent = text(t); axis.appendChild(mark);
    }
  }
  function slot(event) {
    var box = outer.getBoundingClientRect(), x = (event.clientX - box.left) / box.width *
      outer.viewBox.baseVal.width;
    return from + Math.min(1, Math.max(0, (x - left) / (right - left))) * (to - from);
  }
  var start = null, veil = figure.querySelector('.veil');
  outer.addEventListener('pointerdown', function (event) {
    start = slot(event); outer.setPointerCapture(event.pointerId); event.preventDefault(); });
  function veilTo(a, b) {
    var x = function (s) { return left + (s - from) / (to - from) * (right - left); };
    veil.setAttribute('x', x(Math.min(a, b))); veil.setAttribute('width', x(Math.max(a, b)) -
      x(Math.min(a, b)));
  }
  outer.addEventListener('pointermove', function (event) {
    if (start !== null) veilTo(start, slot(event)); });
  outer.addEventListener('pointerup', function (event) {
    var end = slot(event), a = Math.min(start, end), b = Math.max(start, end);
    veil.setAttribute('width', 0); start = null;
    if (b - a < (to - from) / 200) return;
    if (b - a < 2) { var m = (a + b) / 2; a = Math.max(0, m - 1); b = a + 2; }
    from = a; to = b; show();
  });
  function zoom(factor) {
    var middle = (from + to) / 2, half = Math.max(1, (to - from) / 2 * factor);
    from = Math.max(0, middle - half); to = Math.min(whole, middle + half); show();
  }
  function move(part) {
    var by = Math.max(-from, Math.min(whole - to, (to - from) * part));
    from += by; to += by; show();
  }
  var acts = { 'in': function () { zoom(.5); }, out: function () { zoom(2); },
    left: function () { move(-.4); }, right: function () { move(.4); },
    all: function () { from = 0; to = whole; show(); } };
  figure.querySelectorAll('button').forEach(function (button) {
    button.addEventListener('click', acts[button.dataset.act]); });
  outer.addEventListener('dblclick', acts.all);
});
"""


def _areas(line: Mapping[str, Any], most: float) -> str:
    """Return the activities of all ranks on top of each other, as steps."""
    base = [0.0] * line["slots"]
    parts = []
    for name in ACTIVITIES:
        values = line["activities"][name]
        if not any(values):
            continue
        top = [base[i] + values[i] / most for i in range(line["slots"])]
        forth = "".join(f"H{i}V{1 - top[i]:.4f}" for i in range(line["slots"]))
        back = "".join(f"H{i + 1}V{1 - base[i]:.4f}" for i in reversed(range(line["slots"])))
        parts.append(f'<path fill="{COLOURS[name]}" d="M0 1{forth}H{line["slots"]}{back}H0z"/>')
        base = top
    return "".join(parts)


def _rows(line: Mapping[str, Any]) -> tuple[list[list[float]], int, int]:
    """Return the share of each rank's time by slot; how many ranks and slots one cell is."""
    ranks = line["ranks"]
    per_row = -(-len(ranks) // MOST_ROWS)
    rows = -(-len(ranks) // per_row)
    per_cell = 1
    while rows * -(-line["slots"] // per_cell) > MOST_CELLS:
        per_cell *= 2
    count = -(-line["slots"] // per_cell)
    found = []
    for first in range(0, len(ranks), per_row):
        row = [0.0] * count
        group = ranks[first : first + per_row]
        for rank in group:
            for i, value in enumerate(rank):
                if value:
                    row[i // per_cell] += value / (line["slot_ns"] * per_cell * len(group))
        found.append(row)
    return found, per_row, per_cell


def draw(line: Mapping[str, Any], numbers: list[int]) -> str:
    """Return the figure; `numbers` are those of the ranks."""
    slots = line["slots"]
    rows, per_row, per_cell = _rows(line)
    tall = max(2.0, min(ROW_MOST, 520 / len(rows)))
    lower = TOP + UPPER + 22
    bottom = lower + tall * len(rows)
    right = WIDTH - 8
    most = line["slot_ns"] * len(line["ranks"])
    inner = (
        '<svg x="{x}" y="{y}" width="{w}" height="{h}" viewBox="0 0 {slots} {units}" '
        'preserveAspectRatio="none" shape-rendering="crispEdges">{content}</svg>'
    )
    width = right - LEFT
    parts = [
        f'<text x="4" y="15" text-anchor="start" class="title">{escape("Share of time in MPI")}'
        f"</text>"
    ]
    for share in (0, 50, 100):
        y = TOP + UPPER * (1 - share / 100)
        parts.append(f'<path class="grid" d="M{LEFT} {svg.number(y)}H{right}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{svg.number(y + 4)}" text-anchor="end">{share} %'
                     f"</text>")  # fmt: skip
    parts.append(inner.format(x=LEFT, y=TOP, w=width, h=UPPER, slots=slots, units=1,
                              content=_areas(line, most)))  # fmt: skip
    every = max(1, -(-14 // int(max(1, tall))))
    for i in range(0, len(rows), every):
        label = str(numbers[i * per_row]) if i * per_row < len(numbers) else ""
        parts.append(f'<text x="{LEFT - 6}" y="{svg.number(lower + (i + 0.5) * tall + 4)}" '
                     f'text-anchor="end">{label}</text>')  # fmt: skip
    # Cells are drawn in units of slots, so that both parts zoom alike.
    squares = svg.cells(rows, logarithmic=False, colour="var(--heat)")
    content = f'<g transform="scale({per_cell} 1)">{squares}</g>'
    parts.append(inner.format(x=LEFT, y=svg.number(lower), w=width,
                              h=svg.number(tall * len(rows)), slots=slots, units=len(rows),
                              content=content))  # fmt: skip
    parts.append(f'<rect x="{LEFT}" y="{svg.number(lower)}" width="{width}" '
                 f'height="{svg.number(tall * len(rows))}" fill="none" class="grid"/>')  # fmt: skip
    scale = svg.Scale(0, slots * line["slot_ns"] / 1e9, LEFT, right)
    marks = "".join(
        f'<text x="{svg.number(scale(t))}" y="{svg.number(bottom + 16)}" text-anchor="middle">'
        f"{t:g} s</text>"
        for t in svg.ticks(0, slots * line["slot_ns"] / 1e9, 8)
    )
    parts.append(f'<g class="ticks" data-y="{svg.number(bottom + 16)}">{marks}</g>')
    parts.append(
        f'<rect class="veil" x="0" y="{TOP}" width="0" height="{svg.number(bottom - TOP)}" '
        f'fill="var(--ink)" fill-opacity=".15"/>'
    )
    height = svg.number(bottom + 24)
    names = [(name, COLOURS[name]) for name in ACTIVITIES if any(line["activities"][name])]
    buttons = "".join(
        f'<button type="button" data-act="{act}">{word}</button> '
        for act, word in (
            ("in", "zoom in"),
            ("out", "zoom out"),
            ("left", "←"),
            ("right", "→"),
            ("all", "all"),
        )  # fmt: skip
    )
    grouped = f" {per_row} ranks in each row." if per_row > 1 else ""
    return (
        f'<figure class="zoom" data-slots="{slots}" data-slot="{line["slot_ns"]}" '
        f'data-left="{LEFT}" data-right="{right}">{legend(names)}'
        f'<div class="screen">{buttons}</div>'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="Share of time in MPI over the run">'
        f"{''.join(parts)}</svg><figcaption>Above all ranks together, below a row for each rank: "
        f"the fuller the colour, the more of that time in MPI.{grouped} One slot of time is "
        f"{escape(time_text(line['slot_ns'] * per_cell))} long. "
        f'<span class="screen">Drag over a part to see it closer; a double click shows all.</span>'
        f"</figcaption></figure>"
    )

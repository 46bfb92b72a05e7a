"""The style of the command's HTML pages: one file, no network, light and dark, printable.

Colours are Okabe and Ito's palette, which colour-blind readers can tell apart (Color Universal
Design, 2008), lightened for dark screens; figures take them as variables, so one figure serves all.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

STYLE = """\
:root { color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2126; --soft: #59626b; --line: #d9dee3; --wash: #f4f6f8;
  --c0: #0072b2; --c1: #56b4e9; --c2: #e69f00; --c3: #009e73; --c4: #cc79a7; --c5: #9aa3ab;
  --c6: #d55e00; --heat: #0072b2; --warn: #b34700; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171a; --ink: #e4e7ea; --soft: #9aa4ad; --line: #343b42; --wash: #1d2226;
  --c0: #3d9bd8; --c1: #8accf2; --c2: #f0b43c; --c3: #2cbf97; --c4: #dd9abf; --c5: #77818a;
  --c6: #f08040; --heat: #5fb4ec; --warn: #ff9d5c; } }
@media print { :root { --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --wash: #fff;
  --c0: #0072b2; --c1: #56b4e9; --c2: #e69f00; --c3: #009e73; --c4: #cc79a7; --c5: #9aa3ab;
  --c6: #d55e00; --heat: #0072b2; --warn: #b34700; }
  nav, .screen { display: none !important; } section { break-inside: avoid-page; }
  body { font-size: 9.5pt; } main { max-width: none !important; padding: 0 !important; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1 { font-size: 1.75rem; line-height: 1.25; font-weight: 650; margin: 0 0 .3rem;
  letter-spacing: -.01em; }
h2 { font-size: 1.15rem; font-weight: 650; margin: 3rem 0 .35rem; padding-top: .7rem;
  border-top: 1px solid var(--line); }
h3 { font-size: .95rem; font-weight: 650; margin: 1.6rem 0 .3rem; }
p { margin: .3rem 0 .9rem; max-width: 46rem; }
p.sub, .note, figcaption { color: var(--soft); }
.note, figcaption { font-size: .86rem; }
a { color: var(--c0); text-decoration: none; } a:hover { text-decoration: underline; }
nav { margin: 1.2rem 0 0; font-size: .9rem; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .86em; }
code { overflow-wrap: anywhere; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .8rem; margin: .3rem 0 .9rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem;
  margin: 1.6rem 0 0; }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.5rem; font-weight: 620; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .84rem; }
.scroll { overflow-x: auto; margin: .4rem 0 1.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem;
  min-width: 24rem; }
th, td { padding: .22rem .8rem .22rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); vertical-align: baseline; }
th { color: var(--soft); font-weight: 550; border-bottom-color: var(--soft); }
th.l, td.l { text-align: left; } td.w { white-space: normal; overflow-wrap: anywhere;
  min-width: 12rem; }
td i { display: inline-block; height: .62em; background: var(--c0); border-radius: 1px; }
figure { margin: .6rem 0 1.4rem; } svg { display: block; max-width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; }
svg text.title { fill: var(--ink); font-weight: 600; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .axis { stroke: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; font-size: .86rem;
  color: var(--soft); margin: .2rem 0 .3rem; }
.legend i { display: inline-block; width: .75em; height: .75em; border-radius: 2px;
  margin-right: .4em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr));
  gap: 1.2rem 1.6rem; }
.advice { border-left: 3px solid var(--c2); padding: .1rem 0 .1rem 1rem; margin: 1rem 0; }
.advice b { font-weight: 620; } .advice p { margin: .15rem 0 .3rem; }
.advice pre { margin: .2rem 0 .3rem; }
button { font: inherit; font-size: .84rem; color: var(--ink); background: var(--wash);
  border: 1px solid var(--line); border-radius: 5px; padding: .12rem .6rem; cursor: pointer; }
"""


def escape(text: object) -> str:
    """Return text as it may stand in HTML and in attributes."""
    return html.escape(str(text), quote=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: Sequence[int] = (0,)) -> str:
    """Return a table; columns are right-aligned but for those in `left`.

    A cell that is a Cell stands as it is, everything else is escaped.
    """

    def kind(column: int) -> str:
        return ' class="l"' if column in left else ""

    parts = ['<div class="scroll"><table><thead><tr>']
    parts += [f"<th{kind(i)}>{escape(word)}</th>" for i, word in enumerate(head)]
    parts.append("</tr></thead><tbody>")
    for row in rows:
        parts.append("<tr>")
        for i, value in enumerate(row):
            if isinstance(value, Cell):
                parts.append(f'<td class="{value.kind}">{value.markup}</td>')
            else:
                parts.append(f"<td{kind(i)}>{escape(value)}</td>")
        parts.append("</tr>")
    return "".join([*parts, "</tbody></table></div>"])


class Cell:
    """A cell of a table that is markup already."""

    def __init__(self, markup: str, kind: str = "l") -> None:
        self.markup = markup
        self.kind = kind


def bar(share: float, colour: str = "var(--c0)", width_em: float = 7.0) -> Cell:
    """Return a cell with a bar whose length is a share of 1."""
    length = max(0.0, min(1.0, share)) * width_em
    return Cell(f'<i style="width:{length:.2f}em;background:{colour}"></i>')


def wide(text: object) -> Cell:
    """Return a cell whose text may be broken into lines."""
    return Cell(escape(text), "l w")


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Return the key of a figure: words and their colours."""
    items = [f'<span><i style="background:{c}"></i>{escape(word)}</span>' for word, c in entries]
    return f'<div class="legend">{"".join(items)}</div>'


def figure(content: str, caption: str = "") -> str:
    """Return a figure with what is said about it."""
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{content}{text}</figure>"


def document(title: str, body: str, script: str = "") -> str:
    """Return the whole page."""
    tail = f"<script>{script}</script>" if script else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body><main>{body}</main>{tail}</body></html>\n"
    )

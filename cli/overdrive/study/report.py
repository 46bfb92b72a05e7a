"""The report of `overdrive study copy`: text, tables and figures on one page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from overdrive import page, thresholds
from overdrive.measure import PATHS, medians
from overdrive.study import plots
from overdrive.study.data import ALL_PATHS, DISTANCES, SHAPES, Study, time_text
from overdrive.thresholds import size_text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return page.table(head, rows)


def topology_rows(study: Study) -> list[list[str]]:
    """Return line and copy times of each pair of processors and distance."""
    rows = []
    for distance in DISTANCES:
        here = study.of("pingpong", distance)
        lines = medians(here, lambda s: s.cpus, lambda s: s.probe_before_ns)
        copies = medians(
            here,
            lambda s: (s.cpus, s.path, s.bytes) if s.shape == "app" else None,
            lambda s: s.bytes / s.ns,
        )
        for cpus, (line_ns, count) in sorted(lines.items()):
            speeds = [
                f"{copies[cpus, path, size][0]:.1f}" if (cpus, path, size) in copies else ""
                for path in ("cells", "pull")
                for size in (65536, 1 << 20)
            ]
            rows.append([f"{cpus[0]}, {cpus[1]}", distance, f"{line_ns:.0f}", *speeds, str(count)])
    return rows


def _exchange_tables(study: Study, distance: str) -> list[str]:
    found = study.exchanges(distance)
    parts = []
    for shape, title in SHAPES.items():
        sizes = sorted({size for s, p, size in found if s == shape and p == "auto"})
        if not sizes:
            continue
        rows = []
        for size in sizes:
            values = {p: found.get((shape, p, size)) for p in ALL_PATHS}
            best = min(v for p, v in values.items() if v is not None and p != "auto")
            rows.append(
                [size_text(size)]
                + [
                    "" if v is None else f"{v / 1e3:.2f}{' *' if v == best else ''}"
                    for v in values.values()
                ]
            )
        parts.append(f"<h3>{distance}: {html.escape(title)}</h3>")
        parts.append(_table(["size", *ALL_PATHS], rows))
    return parts


def _skew_tables(study: Study, distance: str) -> list[str]:
    parts = []
    for second, title in ((False, "in the sender's call"), (True, "from the later one's start")):
        found = study.skew(distance, second)
        for size in sorted({size for _, size, _ in found}):
            rows = [
                [_delay_text(delay)]
                + [
                    f"{found[path, size, delay] / 1e3:.1f}" if (path, size, delay) in found else ""
                    for path in ALL_PATHS
                ]
                for delay in sorted({d for _, s, d in found if s == size})
            ]
            parts.append(f"<h3>{distance}, {size_text(size)}: us {html.escape(title)}</h3>")
            parts.append(_table(["apart", *ALL_PATHS], rows))
    return parts


def _delay_text(delay_ns: int) -> str:
    if delay_ns == 0:
        return "together"
    who = "receiver" if delay_ns > 0 else "sender"
    return f"{who} {time_text(abs(delay_ns))} late"


def _survival_tables(study: Study, distance: str) -> list[str]:
    found = study.survival(distance)
    parts = []
    for working_set in sorted({w for _, w, _ in found}):
        rows = [
            [size_text(size)]
            + [
                f"{100 * found[path, working_set, size]:.0f} %"
                if (path, working_set, size) in found
                else ""
                for path in ALL_PATHS
            ]
            for size in sorted({s for _, w, s in found if w == working_set})
        ]
        parts.append(f"<h3>{distance}: working set of {size_text(working_set)}</h3>")
        parts.append(_table(["message", *ALL_PATHS], rows))
    return parts


def conclusions(study: Study) -> list[str]:
    """Return in sentences what follows from the samples."""
    lines = []
    derived = study.derived()
    for distance in DISTANCES:
        found = derived.get(distance)
        if found is None:
            lines.append(f"{distance}: not seen often enough to say anything.")
            continue
        lines.append(
            f"{distance}: a cache line takes {found.line_ns:.0f} ns from core to core. With the "
            f"thresholds below a message takes {100 * (found.slowdown - 1):.1f} % longer than by "
            f"the best path on average, {100 * (found.worst - 1):.0f} % at worst."
        )
        for name, value in found.settings().items():
            text = "never" if value == thresholds.NEVER else f"from {size_text(value)}"
            lines.append(f"  {name}: {text}")
        lines += _auto_sentence(study, distance)
        lines += _skew_sentence(study, distance)
        lines += _survival_sentence(study, distance)
    return lines


def _auto_sentence(study: Study, distance: str) -> list[str]:
    found = study.exchanges(distance)
    worst: tuple[float, str] = (0.0, "")
    for shape, path, size in found:
        if path != "auto":
            continue
        best = min(found[shape, p, size] for p in PATHS if (shape, p, size) in found)
        ratio = found[shape, "auto", size] / best
        worst = max(worst, (ratio, f"{size_text(size)}, {SHAPES[shape]}"))
    if not worst[1]:
        return []
    return [
        f"  The engine's own choice (with the settings of this run) is at worst "
        f"{100 * (worst[0] - 1):.0f} % behind the best single path: {worst[1]}."
    ]


def _skew_sentence(study: Study, distance: str) -> list[str]:
    calls = study.skew(distance, False)
    late = 1_000_000
    parts = [
        f"{size_text(size)} {time_text(calls['auto', size, late])}"
        for size in sorted({s for p, s, d in calls if p == "auto" and d == late})
    ]
    if not parts:
        return []
    return [f"  Receiver 1 ms late: the sender's call takes {', '.join(parts)}."]


def _survival_sentence(study: Study, distance: str) -> list[str]:
    found = study.survival(distance)
    if not found:
        return []
    working_set = min(w for _, w, _ in found)
    size = max(s for _, w, s in found if w == working_set)
    parts = [
        f"{path} {100 * found[path, working_set, size]:.0f} %"
        for path in ALL_PATHS
        if (path, working_set, size) in found
    ]
    return [
        f"  Of a working set of {size_text(working_set)}, after a message of {size_text(size)} is "
        f"left: {', '.join(parts)}."
    ]


EXPLANATIONS = {
    "Topology": "What one cache line takes between two processors, and copies in GB/s: rewritten "
    "buffers, read by the receiver, all of it in the time.",
    "Buffers": "Half a round trip in us, by path; * marks the best forced path. Reading a buffer "
    "leaves its lines in the reader's cache, and writing them again is what costs.",
    "Skew": "Sender and receiver come at different times. Total time counts from the start of the "
    "later one, so 0 would be a message that was there already.",
    "Working set": "How much of what the receiver works with is still in its caches after a "
    "message: 100 % as after an empty message, 0 % as if everything had been thrown out.",
}


def _page(study: Study) -> str:
    figures = plots.draw(study)

    def section(name: str) -> list[str]:
        found = [f"<section><h2>{name}</h2>", f"<p>{html.escape(EXPLANATIONS[name])}</p>"]
        return found + [markup for title, markup in figures if title == name]

    parts = [
        "<h1>Ways of a message between two processes</h1>",
        f'<p class="sub">{html.escape(study.fingerprint)} · {html.escape(study.date)} · '
        f"{len(study.samples)} samples, medians</p>",
        "<h2>What follows</h2>",
        "<pre>" + html.escape("\n".join(conclusions(study))) + "</pre>",
    ]
    parts += section("Topology")
    head = ["processors", "distance", "line ns", "cells 64K", "cells 1M", "pull 64K", "pull 1M",
            "samples"]  # fmt: skip
    parts += [_table(head, topology_rows(study)), "</section>"]
    for name, tables in (
        ("Buffers", _exchange_tables),
        ("Skew", _skew_tables),
        ("Working set", _survival_tables),
    ):
        parts += section(name)
        for distance in DISTANCES:
            parts += tables(study, distance)
        parts.append("</section>")
    return page.document("Ways of a message", "\n".join(parts))


def write(study: Study, folder: Path) -> None:
    """Write index.html and conclusions.txt."""
    (folder / "conclusions.txt").write_text("\n".join(conclusions(study)) + "\n")
    (folder / "index.html").write_text(_page(study), encoding="utf-8")

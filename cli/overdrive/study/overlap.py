"""`overdrive study overlap`: how much of a program's communication hides behind its computation.

Runs the program with `overlap=on` (or `trace`), and makes one page of what its ranks have noted: a
table of the places from which collectives are called, with the published model beside what was
measured, and for each kind of call a time line: what was sent when, what was touched when, and
where the program waited.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overdrive import page, svg, trusted
from overdrive.arguments import Parser
from overdrive.errors import CommandError
from overdrive.installation import Installation

TIMELINES = "timeline-%r.json"
STATISTICS = "statistics-%r.json"
PAGE = "overlap.html"

MOST_RANKS = 32
"""More lanes than that cannot be told apart."""

MOST_PICTURES = 8

MEANS = (
    "comm_ns", "init_ns", "between_ns", "unrelated_ns", "related_ns", "related_bytes",
    "received_bytes", "model_ns", "hidden_ns", "waited_ns",
)  # fmt: skip
"""Per call, in the statistics of a rank."""

OF_EARLY_CALLS = ("init_ns", "hidden_ns", "waited_ns")
"""Of these, means over the calls that returned early."""


def _read(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """Return the content of the files of all ranks, by rank."""
    found = []
    for path in sorted(folder.glob(pattern.replace("%r", "*"))):
        try:
            content = json.loads(trusted.read_text(path))
        except (OSError, ValueError, RecursionError) as reason:
            raise CommandError(f"{path} cannot be read: {reason}") from reason
        if not isinstance(content, dict) or not isinstance(content.get("rank"), int):
            raise CommandError(f"{path} is not the file of a rank")
        found.append(content)
    if not found:
        raise CommandError(f"there is no file {folder / pattern}: has the program called MPI?")
    found.sort(key=lambda rank: rank["rank"])
    if len({rank["rank"] for rank in found}) != len(found):
        raise CommandError(f"{folder} holds files of several jobs: remove it and start anew")
    return found


def _weight(name: str) -> str:
    return "early" if name in OF_EARLY_CALLS else "calls"


def places(statistics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join the ranks' places: means over ranks, weighted by calls; the longest ones first."""
    joined: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rank in statistics:
        for site in rank.get("overlap", []):
            key = (site["place"], site["collective"], site["ranks"], site["bytes"])
            row = joined.setdefault(key, {**site, "calls": 0, "early": 0, "traced": 0,
                                          **dict.fromkeys(MEANS, 0.0)})  # fmt: skip
            for name in ("calls", "early", "traced"):
                row[name] += site[name]
            for name in MEANS:
                row[name] += site[name] * site[_weight(name)]
    for row in joined.values():
        for name in MEANS:
            row[name] /= max(1, row[_weight(name)])
    return sorted(joined.values(), key=lambda row: -row["comm_ns"] * row["calls"])


def pictured(ranks: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the last call of each kind in which something is known, as the ranks saw it.

    A call has the same number on all ranks of a job whose collectives are all on MPI_COMM_WORLD;
    numbers that do not fit together are left out.
    """
    by_number = [{call["number"]: call for call in rank["calls"]} for rank in ranks]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for number in sorted(set.intersection(*(set(calls) for calls in by_number))):
        calls = [its[number] for its in by_number]
        kinds = {(call["collective"], call["bytes"], call["ranks"]) for call in calls}
        if len(kinds) == 1 and any("returned_ns" in call for call in calls):
            found[calls[0]["collective"], calls[0]["bytes"]] = calls
    return list(found.values())


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.2f}"


def _rectangle(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{svg.number(x)}" y="{svg.number(y)}" width="{svg.number(max(width, 1.0))}" '
        f'height="{svg.number(height)}" fill="{colour}"><title>{page.escape(title)}</title></rect>'
    )


def _last_ns(call: Mapping[str, Any]) -> int:
    opened = [touch["opened_ns"] for touch in call.get("touches", [])]
    return max([call["end_ns"], call.get("next_ns", 0), *opened])


def time_line(calls: Sequence[Mapping[str, Any]], same_clock: bool) -> str:
    """Draw a call: a lane for each rank, with the call, its messages, touches and waits."""
    width, left, lane, top = 940.0, 62.0, 46.0, 8.0
    calls = calls[:MOST_RANKS]
    starts = [call["begin_ns"] for call in calls]
    zeros = [min(starts)] * len(calls) if same_clock else starts
    ends = [_last_ns(call) - zero for call, zero in zip(calls, zeros)]
    scale = svg.Scale(0, max(ends) / 1e6, left, width - 12)
    height = top + lane * len(calls) + 30
    parts = []
    for row, (call, zero) in enumerate(zip(calls, zeros)):
        y = top + row * lane

        def bar(
            begin: float, end: float, dy: float, high: float, colour: str, what: str,
            y: float = y, zero: float = zero,
        ) -> None:  # fmt: skip
            x = scale((begin - zero) / 1e6)
            title = f"{what}: {_ms(begin - zero)} to {_ms(end - zero)} ms"
            parts.append(_rectangle(x, y + dy, scale((end - zero) / 1e6) - x, high, colour, title))

        parts.append(
            f'<text x="{svg.number(left - 6)}" y="{svg.number(y + 20)}" text-anchor="end">'
            f"rank {row}</text>"
        )
        returned = call.get("returned_ns", call["end_ns"])
        bar(call["begin_ns"], returned, 2, 12, "var(--c0)", "the call")
        if call["end_ns"] > returned:
            bar(returned, call["end_ns"], 5, 6, "var(--c1)", "the rest of the communication")
        for step in call["steps"]:
            if step["what"] not in ("send", "receive"):
                continue
            sent = step["what"] == "send"
            where = "to another node" if step["between_nodes"] else "inside the node"
            bar(
                step["begin_ns"], step["end_ns"], 18 if sent else 24, 5,
                "var(--c3)" if sent else "var(--c4)",
                f"{step['what']}, rank {step['peer']}, {step['bytes']} bytes, {where}",
            )  # fmt: skip
        for touch in call.get("touches", []):
            what = f"{touch['bytes']} bytes of rank {touch['source']}, from byte {touch['offset']}"
            bar(touch["touched_ns"], touch["opened_ns"], 31, 10, "var(--c6)", f"wait for {what}")
            bar(touch["touched_ns"], touch["touched_ns"], 31, 10, "var(--ink)", f"touch of {what}")
        if "next_ns" in call:
            bar(call["next_ns"], call["next_ns"], 2, 40, "var(--soft)", "the next call of MPI")
    bottom = top + lane * len(calls)
    for tick in scale.ticks():
        x = svg.number(scale(tick))
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{svg.number(top)}" y2="{svg.number(bottom)}" '
            'stroke="var(--line)" stroke-width="0.5"/>'
            f'<text x="{x}" y="{svg.number(bottom + 14)}" text-anchor="middle">{tick:g}</text>'
        )
    parts.append(
        f'<text x="{svg.number(width - 12)}" y="{svg.number(bottom + 27)}" text-anchor="end">'
        "ms</text>"
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {svg.number(width)} {svg.number(height)}" role="img" '
        f'aria-label="time line">{"".join(parts)}</svg>'
    )


LEGEND = (
    ("var(--c0)", "in the call"),
    ("var(--c1)", "communication after its return"),
    ("var(--c3)", "send"),
    ("var(--c4)", "receive"),
    ("var(--ink)", "first touch"),
    ("var(--c6)", "wait at a page"),
    ("var(--soft)", "next call of MPI"),
)


def render(
    statistics: Sequence[Mapping[str, Any]], timelines: Sequence[Mapping[str, Any]], words: str
) -> str:
    """Return the page."""
    rows = [
        [
            row["collective"], row["bytes"] or "various", row["ranks"], row["calls"],
            f"{100 * row['early'] / max(1, row['calls']):.0f} %",
            *(_ms(row[name]) for name in
              ("comm_ns", "init_ns", "unrelated_ns", "related_ns", "model_ns", "hidden_ns",
               "waited_ns")),
            page.wide(row["place"]),
        ]
        for row in places(statistics)
    ]  # fmt: skip
    head = ["collective", "bytes", "ranks", "calls", "early", "T_comm", "T_init", "T_curc",
            "related", "model", "hidden", "waited", "place"]  # fmt: skip
    body = ["<h1>Overlap of collectives with computation</h1>"]
    body.append(f'<p class="sub"><code>{page.escape(words)}</code></p>' if words else "")
    body.append("<h2>Places</h2>")
    if rows:
        body.append(
            '<p class="note">Milliseconds per call and rank. The model is T_overlap = '
            "min(T_comm − T_init, T_curc + T_comm·R_comm/R_crc): what can be hidden behind the "
            "computation up to the next call of MPI. Hidden is what was: the communication went on "
            "and the program did not wait. Where no call returned early, nothing was hidden, and "
            "the model says what could be.</p>"
        )
        body.append(page.table(head, rows, left=(0, 12)))
    else:
        body.append(
            "<p>No collective of this program may outlast its call: broadcasts, allgathers and "
            "all-to-alls on communicators that span nodes, of a size above "
            "<code>overlap_min</code>, in programs that do not ask for "
            "<code>MPI_THREAD_MULTIPLE</code>.</p>"
        )
    calls = pictured(timelines)
    if calls:
        body.append("<h2>Time lines</h2>")
        body.append(page.legend((words, colour) for colour, words in LEGEND))
    same_clock = len({rank.get("clock") for rank in timelines}) == 1
    for each in calls[:MOST_PICTURES]:
        note = "The last call of its kind."
        if not same_clock:
            note += " The ranks' clocks differ: each lane begins with the rank's own call."
        if len(each) > MOST_RANKS:
            note += f" The first {MOST_RANKS} of {len(each)} ranks."
        body.append(f"<h3>{page.escape(each[0]['collective'])}, {each[0]['bytes']} bytes</h3>")
        body.append(page.figure(time_line(each, same_clock), note))
    return page.document("Overlap of collectives with computation", "\n".join(body))


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive study overlap",
        description="Runs a program and shows what of its collectives hides behind computation.",
        usage="overdrive study overlap [--mode on|trace] [--output DIR] COMMAND...\n"
        "       overdrive study overlap --measured DIR",
    )
    made.add_argument(
        "--mode",
        choices=("on", "trace"),
        default="on",
        help="`on`: calls return early; `trace`: they do not, and the page shows what could be",
    )
    made.add_argument(
        "--output", type=Path, default=Path("study/overlap"), help="folder for files and page"
    )
    made.add_argument("--measured", type=Path, metavar="DIR", help="the folder of an earlier run")
    return made


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Part own options from the command, which begins with the first word that is none."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        takes_value = arguments[at] in ("--mode", "--output", "--measured")
        if arguments[at] == "--":
            return arguments[:at], arguments[at + 1 :]
        at += 2 if takes_value else 1
    return arguments[:at], arguments[at:]


def _measure(folder: Path, mode: str, command: list[str], environment: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in (TIMELINES, STATISTICS):
        for old in folder.glob(pattern.replace("%r", "*")):
            old.unlink()
    path = str(folder.resolve()).replace("%", "%%")
    words = [sys.executable, os.path.abspath(sys.argv[0])]
    for name, value in (
        ("overlap", mode),
        ("timeline", f"{path}/{TIMELINES}"),
        ("stats", f"{path}/{STATISTICS}"),
    ):
        words += ["--set", f"{name}={value}"]
    done = subprocess.run([*words, *command], env=dict(environment), check=False)
    if done.returncode != 0:
        raise CommandError(f"the program ended with status {done.returncode}")


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Measure and render; return the exit status."""
    own, command = _split(arguments)
    chosen = parser().parse_args(own)
    if bool(chosen.measured) == bool(command):
        raise CommandError(
            "name the command that starts the program (mpirun ...), or --measured DIR"
        )
    folder = chosen.measured or chosen.output
    if command:
        _measure(folder, chosen.mode, command, environment)
    target = folder / PAGE
    text = render(_read(folder, STATISTICS), _read(folder, TIMELINES), " ".join(command))
    target.write_text(text)
    print(target)
    return 0

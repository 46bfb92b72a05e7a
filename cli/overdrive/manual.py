"""`overdrive manual`: the reference of settings and counters, from the library's tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from overdrive import settings, trusted
from overdrive.errors import CommandError
from overdrive.installation import Installation

USAGE = """\
Usage: overdrive manual [--write FILE | --check FILE]

Prints the reference of settings and statistics in Markdown; --write puts it into FILE, in a folder
that is there; --check tells whether FILE is what --write would make (status 1 if not).
"""

GROUP_TITLES = {
    "job": "The job as a whole",
    "report": "Reports",
    "wait": "Waiting",
    "p2p": "Messages",
    "reach": "Reachable memory",
    "copy": "Copying",
    "smpi": "Address passing (SMPI)",
    "coll": "Collectives",
    "test": "For tests",
}

COUNTER_TITLES = {
    "messages": "Messages by path",
    "bytes": "Bytes by path",
    "in_network": "Sums made by switches",
    "matching": "Matching",
    "buffering": "Buffering",
    "copying": "Copying",
    "smpi": "Address passing (SMPI)",
    "waiting": "Waiting",
    "host": "The installed MPI library",
    "overlap": "Overlap",
    "setup": "Setup and checks",
}

HEAD = """\
# Settings and statistics

<!-- Made by `overdrive manual --write docs/manual/settings.md` from the tables in src/. -->

Every setting can be given in four ways; the first one that is there counts:

1. on the command line: `overdrive --set eager_max=4K mpirun …`
2. in the environment: `OVERDRIVE_EAGER_MAX=4K`
3. in the file `overdrive.toml` of the directory where the job starts: `eager_max = "4K"`
4. in the user's file `$XDG_CONFIG_HOME/overdrive/config.toml` (usually
   `~/.config/overdrive/config.toml`), in the same notation

The thresholds `near_…` and `far_…` come from the calibration that `overdrive calibrate` has made,
if none of these gives them.

In a file a setting may also stand in a table named after its group, such as `[p2p]`. A file counts
only if it belongs to you or to root and nobody else can write it (`chmod go-w`); the same holds for
tuning and calibration files. `overdrive.toml` may be no symbolic link and names no files to write
(`stats`, `timeline`).

| Type | Notation |
|---|---|
| bool | `1`, `true`, `yes`, `on` or `0`, `false`, `no`, `off` |
| int | a whole number |
| size | bytes; `K`, `M`, `G`, `T` stand for powers of 1024: `64K` |
| duration | a number with its unit `ns`, `us`, `ms` or `s`: `50us`; `0` needs none |
| choice | one of the words listed |
| string | text |
| pairs | pairs of ranks, `0-1,2-3`, or `all` |

A wrong value is reported with its place and has no effect; with `strict` it ends the job.
`overdrive info --settings` shows every setting with its value and where the value comes from.
"""


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _range(setting: dict[str, Any]) -> str:
    kind = setting["type"]
    if kind == "choice":
        return ", ".join(f"`{word}`" for word in setting["choices"].split("|"))
    if kind == "bool":
        return ""
    if kind in ("string", "pairs"):
        return f"at most {setting['max']}"
    return f"`{setting['min']}` to `{setting['max']}`"


def _setting(setting: dict[str, Any]) -> list[str]:
    default = f"`{setting['default']}`" if setting["default"] else "none"
    parts = [f"type {setting['type']}", f"default {default}"]
    accepted = _range(setting)
    if accepted:
        parts.append(f"accepts {accepted}")
    if setting["agreed"]:
        parts.append("rank 0's value counts for the whole job")
    return [
        f"### `{setting['name']}`",
        "",
        setting["doc"],
        "",
        f"Variable `{setting['variable']}`; {'; '.join(parts)}.",
        "",
    ]


def paths(report: dict[str, Any]) -> list[str]:
    """Return the table of the paths of messages; design pages show the same lines."""
    lines = ["| Path | What happens | Who copies | Needs | Good for | Counters |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for path in report["paths"]:
        name = f"`{path['name']}`" if path["forced"] else path["name"]
        counters = ", ".join(f"`{counter}`" for counter in path["counters"])
        words = (path["doc"], path["who"], path["needs"] or "nothing", path["good_for"])
        lines.append(f"| {name} | {' | '.join(map(_escape, words))} | {counters} |")
    return lines


def render(report: dict[str, Any]) -> str:
    """Return the whole reference."""
    lines = [HEAD]
    groups = list(dict.fromkeys(setting["group"] for setting in report["settings"]))
    for group in groups:
        lines += [f"## {GROUP_TITLES.get(group, group.capitalize())} (`[{group}]`)", ""]
        for setting in report["settings"]:
            if setting["group"] == group:
                lines += _setting(setting)
    lines += ["## Paths of messages", ""]
    lines += [
        "How a message comes from the sender's buffer into the receiver's. `copy_path` can force",
        "those in code letters; what a path cannot serve takes `cells`. The first ones carry",
        "messages that go in one piece, before their receiver has come.",
        "",
        *paths(report),
        "",
        "| Path | From which size on | Allowed by |",
        "|---|---|---|",
    ]
    for path in report["paths"]:
        if path["forced"]:
            names = ", ".join(f"`{name}`" for name in path["settings"]) or "any"
            lines.append(f"| `{path['name']}` | {names} | `--paths={path['option']}` |")
    lines += ["", "## Statistics", ""]
    lines += [
        "What `OVERDRIVE_STATS` counts, per rank. Peaks are marked; of them the table shows the",
        "largest over all ranks instead of the sum.",
        "",
    ]
    groups = list(dict.fromkeys(counter["group"] for counter in report["counters"]))
    for group in groups:
        lines += [f"### {COUNTER_TITLES.get(group, group.capitalize())}", ""]
        lines += ["| Counter | Meaning |", "|---|---|"]
        for counter in report["counters"]:
            if counter["group"] == group:
                mark = " (peak)" if counter["kind"] == "peak" else ""
                lines.append(f"| `{counter['name']}` | {_escape(counter['doc'])}{mark} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def run(installation: Installation, arguments: list[str]) -> int:
    """Print, write or check the reference; return the exit status."""
    if arguments in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    if arguments and (len(arguments) != 2 or arguments[0] not in ("--write", "--check")):
        raise CommandError("usage: overdrive manual [--write FILE | --check FILE]")
    report = settings.query(installation, {}, "--defaults", "--counters")
    text = render(report)
    if not arguments:
        print(text, end="")
        return 0
    path = Path(arguments[1])
    try:
        if arguments[0] == "--write":
            path.write_text(text)
            return 0
        current = trusted.read_text(path)
    except OSError as reason:
        remedy = "; the folder must be there" if not path.parent.is_dir() else ""
        raise CommandError(f"{path}: {reason.strerror}{remedy}") from reason
    if current != text:
        print(f"{path} is not what the tables say: run `overdrive manual --write {path}`",
              file=sys.stderr)  # fmt: skip
        return 1
    return 0

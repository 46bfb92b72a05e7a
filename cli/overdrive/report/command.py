"""`overdrive report`: reads a record, and writes a page, JSON, or what differs between two runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overdrive.arguments import Parser
from overdrive.errors import CommandError
from overdrive.report import advice, record
from overdrive.report.text import bytes_text, count_text, percent, time_text

EPILOG = """\
RECORD is the folder of a run with --record, or one file of a rank (also one of --stats=PATH).

Examples:
  overdrive --record=run1 mpirun -n 64 ./app && overdrive report run1
  overdrive report --diff run1 run2
"""

MOST_DIFFERENCES = 12


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive report",
        description="Shows what a recorded run spent in MPI: one page that needs no network.",
        epilog=EPILOG,
        usage="overdrive report RECORD [-o FILE] [--json] | overdrive report --diff A B [--json]",
    )
    made.add_argument("records", nargs="+", metavar="RECORD", help="folder or file")
    made.add_argument("-o", "--output", type=Path, metavar="FILE", help="where the page goes")
    made.add_argument("--json", action="store_true", help="print the numbers, for programs")
    made.add_argument("--diff", action="store_true", help="print what differs between two runs")
    return made


def summary(path: Path) -> dict[str, Any]:
    """Return the numbers and the advice of a record."""
    ranks = record.load(path)
    try:
        found = record.summarise(ranks, path.resolve().name)
        found["advice"] = advice.advise(found)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as reason:
        version = ranks[0].get("overdrive", "an unknown version")
        raise CommandError(
            f"{path} is damaged, or was recorded by a version of Overdrive that writes something "
            f"else ({version}): {type(reason).__name__}: {reason}"
        ) from reason
    return found


def _per_rank(found: Mapping[str, Any], ns: float) -> float:
    return ns / max(1, found["ranks_recorded"])


def _by_function(found: Mapping[str, Any]) -> dict[str, float]:
    times: dict[str, float] = {}
    for site in found["sites"]:
        times[site["function"]] = times.get(site["function"], 0.0) + site["ns"]
    return {name: _per_rank(found, ns) for name, ns in times.items()}


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two runs have in common and how it differs; times in ns for each rank."""
    a, b = _by_function(first), _by_function(second)
    functions = [
        {"function": name, "a_ns": a.get(name, 0.0), "b_ns": b.get(name, 0.0)}
        for name in sorted(set(a) | set(b), key=lambda n: -abs(b.get(n, 0.0) - a.get(n, 0.0)))
    ]
    ways = {way["way"]: [0, 0] for found in (first, second) for way in found["ways"]}
    for i, found in enumerate((first, second)):
        for way in found["ways"]:
            ways[way["way"]][i] = way["messages"]
    return {
        "a": first["name"],
        "b": second["name"],
        "elapsed_ns": [first["elapsed_ns"], second["elapsed_ns"]],
        "mpi_ns": [_per_rank(found, found["mpi_ns"]) for found in (first, second)],
        "mpi_share": [first["mpi_share"], second["mpi_share"]],
        "calls": [first["calls"], second["calls"]],
        "memory_bytes": [
            max(row["peak_memory_bytes"] for row in found["ranks"]) for found in (first, second)
        ],
        "functions": functions,
        "ways": [{"way": way, "a": counts[0], "b": counts[1]} for way, counts in ways.items()],
        "same_ranks": first["ranks_of_job"] == second["ranks_of_job"],
    }


def _change(a: float, b: float) -> str:
    if a == b:
        return "same"
    return "new" if a == 0 else "gone" if b == 0 else f"{100 * (b / a - 1):+.1f} %"


def difference_text(found: Mapping[str, Any]) -> str:
    """Return the comparison as a table."""
    rows = [("", found["a"], found["b"], "change")]
    for name, key, text in (
        ("run", "elapsed_ns", time_text), ("in MPI, each rank", "mpi_ns", time_text),
        ("share of time in MPI", "mpi_share", percent), ("MPI calls", "calls", count_text),
        ("memory of the largest", "memory_bytes", bytes_text),
    ):  # fmt: skip
        a, b = found[key]
        rows.append((name, text(a), text(b), _change(a, b)))
    for row in found["functions"][:MOST_DIFFERENCES]:
        rows.append((f"  {row['function']}", time_text(row["a_ns"]), time_text(row["b_ns"]),
                     _change(row["a_ns"], row["b_ns"])))  # fmt: skip
    for row in found["ways"]:
        rows.append((f"  by {row['way']}", count_text(row["a"]), count_text(row["b"]),
                     _change(row["a"], row["b"])))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        f"{row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}"
        for row in rows
    ]
    if not found["same_ranks"]:
        lines.append("The runs have different numbers of ranks.")
    return "\n".join(line.rstrip() for line in lines)


def _default_output(path: Path) -> Path:
    return path / "report.html" if path.is_dir() else path.with_name(path.stem + "-report.html")


def _write(path: Path, output: Path | None) -> int:
    from overdrive.report import html

    found = summary(path)
    target = output or _default_output(path)
    try:
        target.write_text(html.render(found), encoding="utf-8")
    except OSError as reason:
        raise CommandError(
            f"cannot write {target}: {reason.strerror}; name another with -o"
        ) from reason
    print(f"{target}: {found['ranks_recorded']} ranks, {time_text(found['elapsed_ns'])}, "
          f"{percent(found['mpi_share'])} of the time in MPI")  # fmt: skip
    for one in found["advice"]:
        print(f"  {one['title']}: {one['why']}")
    return 0


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments ask for; return the exit status."""
    made = parser()
    chosen = made.parse_args(list(arguments))
    wanted = 2 if chosen.diff else 1
    if len(chosen.records) != wanted:
        made.error("--diff takes two records" if chosen.diff else "it takes one record")
    if chosen.output is not None and (chosen.json or chosen.diff):
        made.error("-o names the page, and --json and --diff print")
    paths = [Path(name) for name in chosen.records]
    if chosen.diff:
        found = difference(summary(paths[0]), summary(paths[1]))
        print(json.dumps(found, indent=2) if chosen.json else difference_text(found))
        return 0
    if chosen.json:
        print(json.dumps(summary(paths[0]), indent=2))
        return 0
    return _write(paths[0], chosen.output)

"""Turns results into tables for the terminal, JSON and the page in docs/measurements."""

from __future__ import annotations

import json
import platform
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from conformance.compare import (
    BASELINE_ONLY,
    DIFFERENCE,
    FAIL,
    FLAKY_WITH,
    FLAKY_WITHOUT,
    PASS,
    WITH_FIRST,
    WITHOUT_ONLY,
    Result,
    as_json,
)
from conformance.jobs import Traffic
from conformance.mpi4py_tests import PythonResults
from conformance.mpich_tests import HostResults


@dataclass
class Report:
    """Everything that one invocation found out."""

    mpich: list[HostResults] = field(default_factory=list)
    mpi4py: list[PythonResults] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def _results(self) -> list[Result]:
        found = [result for host in self.mpich for result in host.results]
        return found + [result for part in self.mpi4py for result in part.results]

    def differences(self) -> int:
        """Return how many tests pass without Overdrive and fail with it."""
        return sum(result.status == DIFFERENCE for result in self._results())

    def summary(self) -> str:
        """Return the counts of all suites in one line; what was not compared counts as skipped."""
        passed = failed = skipped = 0
        for found in self.mpich:
            for row in rows(found).values():
                passed += row.counts[PASS] + row.counts[FLAKY_WITH] + row.counts[BASELINE_ONLY]
                failed += row.counts[DIFFERENCE]
                skipped += row.unbuildable + row.skipped
                skipped += row.counts[FAIL] + row.counts[FLAKY_WITHOUT]
        for part in self.mpi4py:
            good = part.passed_without if part.order == WITHOUT_ONLY else part.passed_with
            good += sum(result.status == FLAKY_WITH for result in part.results)
            different = sum(result.status == DIFFERENCE for result in part.results)
            passed += good
            failed += different
            skipped += part.tests - good - different
        return f"{passed} passed, {failed} failed, {skipped} skipped"


@dataclass
class Row:
    """One line of the table of MPICH's suite: a folder."""

    tests: int = 0
    unbuildable: int = 0
    skipped: int = 0
    counts: Counter = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def passed_without(self) -> int:
        """Return how many tests pass without Overdrive."""
        good = (PASS, DIFFERENCE, FLAKY_WITH, BASELINE_ONLY)
        return sum(self.counts[status] for status in good)

    def add(self, other: Row) -> None:
        """Add another line."""
        self.tests += other.tests
        self.unbuildable += other.unbuildable
        self.skipped += other.skipped
        self.counts += other.counts
        self.traffic.add(other.traffic)


def _top(identity: str) -> str:
    return identity.split("/")[0]


def rows(found: HostResults) -> dict[str, Row]:
    """Return the lines of a host's table by folder."""
    table: dict[str, Row] = {}
    for result in found.results:
        row = table.setdefault(_top(result.identity), Row())
        row.tests += 1
        row.counts[result.status] += 1
        row.traffic.add(result.traffic)
    for identity in found.unbuildable:
        row = table.setdefault(_top(identity), Row())
        row.tests += 1
        row.unbuildable += 1
    for identity in found.skipped:
        row = table.setdefault(_top(identity), Row())
        row.tests += 1
        row.skipped += 1
    return dict(sorted(table.items()))


HEADINGS = [
    "folder",
    "tests",
    "not built",
    "left out",
    "fail without",
    "flaky without",
    "pass without",
    "pass with",
    "flaky with",
    "differences",
    "messages on own path",
    "to self",
    "through host",
]


def _cells(name: str, row: Row, order: str) -> list[str]:
    ran_with = order != WITHOUT_ONLY
    return [
        name,
        str(row.tests),
        str(row.unbuildable),
        str(row.skipped),
        str(row.counts[FAIL]),
        str(row.counts[FLAKY_WITHOUT]),
        str(row.passed_without) if order != WITH_FIRST else "-",
        str(row.counts[PASS] + row.counts[FLAKY_WITH]) if ran_with else "-",
        str(row.counts[FLAKY_WITH]) if ran_with else "-",
        str(row.counts[DIFFERENCE]) if ran_with else "-",
        str(row.traffic.own),
        str(row.traffic.to_self),
        str(row.traffic.host),
    ]


def _table(headings: list[str], lines: list[list[str]], markdown: bool) -> str:
    if markdown:
        text = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
        text += ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join(text)
    widths = [max(len(line[i]) for line in [headings, *lines]) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))
        )
        for line in [headings, *lines]
    )


def mpich_table(found: HostResults, markdown: bool = False) -> str:
    """Return the table of MPICH's suite on one host."""
    total = Row()
    lines = []
    for name, row in rows(found).items():
        lines.append(_cells(name, row, found.order))
        total.add(row)
    lines.append(_cells("**all**" if markdown else "all", total, found.order))
    text = _table(HEADINGS, lines, markdown)
    if markdown:
        return text
    return f"MPICH's suite on {found.host} {found.version}\n{text}"


def mpi4py_table(found: list[PythonResults], markdown: bool = False) -> str:
    """Return the table of mpi4py's suite."""
    headings = [
        "host",
        "ranks",
        "tests",
        "skipped by the suite",
        "pass without",
        "pass with",
        "flaky with",
        "differences",
        "messages on own path",
        "to self",
        "through host",
        "seconds without",
        "seconds with",
    ]
    lines = []
    for part in found:
        counts = Counter(result.status for result in part.results)
        ran = part.order != WITHOUT_ONLY
        lines.append(
            [
                f"{part.host} {part.version}",
                str(part.ranks),
                str(part.tests),
                str(part.skipped),
                str(part.passed_without) if part.order != WITH_FIRST else "-",
                str(part.passed_with + counts[FLAKY_WITH]) if ran else "-",
                str(counts[FLAKY_WITH]) if ran else "-",
                str(counts[DIFFERENCE]) if ran else "-",
                str(part.traffic.own),
                str(part.traffic.to_self),
                str(part.traffic.host),
                f"{part.seconds_without:.0f}" if part.order != WITH_FIRST else "-",
                f"{part.seconds_with:.0f}" if ran else "-",
            ]
        )
    text = _table(headings, lines, markdown)
    return text if markdown else f"mpi4py's suite\n{text}"


def write_json(whole: Report, path: Path) -> None:
    """Write everything for other programs."""
    content = {
        "seconds": round(whole.seconds, 1),
        "skipped": whole.skipped,
        "mpich": [
            {
                "host": found.host,
                "version": found.version,
                "results": as_json(found.results),
                "left_out": found.skipped,
                "not_built": found.unbuildable,
                "problems": found.problems,
            }
            for found in whole.mpich
        ],
        "mpi4py": [asdict(part) for part in whole.mpi4py],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _list(title: str, results: list[tuple[str, Result]]) -> list[str]:
    if not results:
        return [f"{title}: none.", ""]
    lines = [f"{title}:", ""]
    lines += [f"- {host} `{result.identity}`: {result.reason}" for host, result in results]
    return [*lines, ""]


def _reasons(title: str, reasons: dict[str, str]) -> list[str]:
    """Return a folded list, tests grouped by reason."""
    if not reasons:
        return []
    grouped: dict[str, list[str]] = {}
    for identity, reason in reasons.items():
        grouped.setdefault(reason, []).append(identity)
    lines = [f"<details><summary>{title}: {len(reasons)}</summary>", ""]
    for reason, names in sorted(grouped.items(), key=lambda item: -len(item[1])):
        unique = list(dict.fromkeys(name.split(" ")[0] for name in names))
        shown = ", ".join(f"`{name}`" for name in unique[:12])
        more = f" and {len(unique) - 12} more programs" if len(unique) > 12 else ""
        lines.append(f"- {len(names)}: {reason}: {shown}{more}")
    return [*lines, "", "</details>", ""]


def page(whole: Report) -> str:
    """Return the page for docs/measurements."""
    tagged = [(found.host, result) for found in whole.mpich for result in found.results]
    tagged += [(part.host, result) for part in whole.mpi4py for result in part.results]
    lines = [
        "# Conformance",
        "",
        "Generated by `make conformance` (`tests/conformance/run.py --all`); do not edit.",
        "",
        "Two test suites that others wrote run without and with Overdrive on each host MPI. What",
        "passes without must pass with. A test counts as passing without only if it passes in each",
        "of three tries whenever its result matters, and as a difference only if it fails in each",
        "of three tries with Overdrive; what changes from run to run is listed as flaky.",
        "The last columns are Overdrive's own counters: messages between different ranks that took",
        "its path, messages of a rank to itself, and sends that went through the host MPI.",
        "",
        f"Machine: {platform.machine()}, Linux {platform.release()}. Most tests have more ranks",
        "than this machine has processors, so Open MPI and Intel MPI run with their settings for",
        "that, and MPICH, which has none, with a preloaded function that yields while it polls.",
        "",
    ]
    if whole.seconds:
        lines += [f"The whole run took {whole.seconds / 60:.0f} minutes.", ""]
    lines += [f"**{whole.differences()} differences.**", ""]
    lines += _list("Differences", [item for item in tagged if item[1].status == DIFFERENCE])
    lines += _list(
        "Flaky with Overdrive", [item for item in tagged if item[1].status == FLAKY_WITH]
    )
    if whole.skipped:
        lines += ["Not run: " + "; ".join(whole.skipped) + ".", ""]
    if whole.mpi4py:
        lines += ["## mpi4py's test suite", "", mpi4py_table(whole.mpi4py, markdown=True), ""]
    for found in whole.mpich:
        lines += [f"## MPICH's test suite on {found.host} {found.version}", ""]
        lines += [mpich_table(found, markdown=True), ""]
        failing = {r.identity: r.reason for r in found.results if r.status == FAIL}
        flaky = {r.identity: r.reason for r in found.results if r.status == FLAKY_WITHOUT}
        lines += _reasons("Fail without Overdrive, not compared", failing)
        lines += _reasons("Flaky without Overdrive", flaky)
        lines += _reasons("Not built", found.unbuildable)
        lines += _reasons("Left out", found.skipped)
    return "\n".join(lines)

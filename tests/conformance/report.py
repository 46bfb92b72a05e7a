"""Turns results into tables for the terminal, JSON and the page in docs/measurements."""

from __future__ import annotations

import json
import os
import platform
import re
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
from conformance.jobs import WAYS, Traffic
from conformance.mpi4py_tests import EXCLUDED_MODULES, EXCLUDED_MODULES_ON, PythonResults
from conformance.mpich_tests import NOT_RUN, HostResults
from conformance.selection import FORCED_DIRECTORIES, ONE_RANK_MPI4PY


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

    def compared(self) -> int:
        """Return how many tests pass without Overdrive, as far as that had to be known, and ran."""
        good = (PASS, FLAKY_WITH, DIFFERENCE)
        number = sum(r.status in good for found in self.mpich for r in found.results)
        number += sum(part.passed_with + len(part.results) for part in self.mpi4py)
        return number

    def not_run(self) -> int:
        """Return how many tests of MPICH's suite are known by name only."""
        return sum(r == NOT_RUN for found in self.mpich for r in found.skipped.values())

    def summary(self) -> str:
        """Return the counts of all suites in one line; what was not compared counts as skipped."""
        passed = failed = skipped = 0
        for found in self.mpich:
            total = sum_of(rows(found))
            passed += total.counts[PASS] + total.counts[FLAKY_WITH] + total.counts[BASELINE_ONLY]
            failed += total.counts[DIFFERENCE]
            skipped += total.unbuildable + total.skipped
            skipped += total.counts[FAIL] + total.counts[FLAKY_WITHOUT]
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


def sum_of(table: dict[str, Row]) -> Row:
    """Return the line of all folders together."""
    total = Row()
    for row in table.values():
        total.add(row)
    return total


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
    table = rows(found)
    lines = [_cells(name, row, found.order) for name, row in table.items()]
    lines.append(_cells("**all**" if markdown else "all", sum_of(table), found.order))
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
    """Return a folded list, tests grouped by reason; numbers such as times do not count."""
    if not reasons:
        return []
    grouped: dict[str, list[str]] = {}
    for identity, reason in reasons.items():
        grouped.setdefault(re.sub(r"\d+", "_", reason), []).append(identity)
    lines = [f"<details><summary>{title}: {len(reasons)}</summary>", ""]
    for reason, names in sorted(grouped.items(), key=lambda item: -len(item[1])):
        unique = list(dict.fromkeys(name.split(" ")[0] for name in names))
        shown = ", ".join(f"`{name}`" for name in unique[:12])
        more = f" and {len(unique) - 12} more programs" if len(unique) > 12 else ""
        lines.append(f"- {len(names)}: {reason}: {shown}{more}")
    return [*lines, "", "</details>", ""]


FORCED_HEADINGS = [
    "suite and host",
    "tests",
    "not run yet",
    "left out",
    "not built",
    "fail without",
    "flaky",
    "pass with",
    "differences",
    "messages on own path",
    *(f"received: {way}" for way in WAYS),
]


def forced_table(mpich: list[HostResults], mpi4py: list[PythonResults]) -> str:
    """Return the table of the runs with one choice of settings."""
    lines = []
    for found in mpich:
        not_run = sum(reason == NOT_RUN for reason in found.skipped.values())
        total = sum_of(rows(found))
        counts = total.counts
        lines.append(
            [
                f"MPICH's, {found.host}",
                str(total.tests),
                str(not_run),
                str(total.skipped - not_run),
                str(total.unbuildable),
                str(counts[FAIL]),
                str(counts[FLAKY_WITHOUT] + counts[FLAKY_WITH]),
                str(counts[PASS] + counts[FLAKY_WITH]),
                str(counts[DIFFERENCE]),
                str(total.traffic.own),
                *(str(total.traffic.ways.get(way, 0)) for way in WAYS),
            ]
        )
    for part in mpi4py:
        counts = Counter(result.status for result in part.results)
        passed = part.passed_with + counts[FLAKY_WITH]
        failing = part.tests - part.skipped - passed - counts[DIFFERENCE]
        lines.append(
            [
                f"mpi4py's, {part.host}, {part.ranks} ranks",
                str(part.tests),
                "0",
                str(part.skipped),
                "0",
                str(failing),
                str(counts[FLAKY_WITH]),
                str(passed),
                str(counts[DIFFERENCE]),
                str(part.traffic.own),
                *(str(part.traffic.ways.get(way, 0)) for way in WAYS),
            ]
        )
    return _table(FORCED_HEADINGS, lines, markdown=True)


def _forced_section(whole: Report) -> list[str]:
    """Return the part of the page about forced ways."""
    labels = sorted({part.settings for part in [*whole.mpich, *whole.mpi4py] if part.settings})
    if not labels:
        return ["## With each way of copying forced", "", "Not run yet.", ""]
    lines = [
        "## With each way of copying forced",
        "",
        f"Folders {', '.join(FORCED_DIRECTORIES)} of MPICH's suite and mpi4py's suite without the",
        "modules that only use collectives, windows and files, once per line of settings. The last",
        "columns count received messages by the way their data took: `cells`, one of the direct",
        "ways, or `buffered`, from a copy that a sender made because the receiver was late. What",
        "fits a fast box (512 bytes) is in none of them. A message that the forced way cannot",
        "serve takes cells: pull and cooperative need a send buffer that is shared, and push and",
        "cooperative a receive buffer that is.",
        "",
    ]
    for label in labels:
        mpich = [found for found in whole.mpich if found.settings == label]
        mpi4py = [part for part in whole.mpi4py if part.settings == label]
        lines += [f"### `{label}`", "", forced_table(mpich, mpi4py), ""]
    return lines


def _totals(whole: Report) -> list[str]:
    """Return the table with one line per suite, host and choice of settings."""
    lines = []
    for found in whole.mpich:
        total = sum_of(rows(found))
        counts = total.counts
        lines.append(
            [
                f"MPICH's on {found.host} {found.version}",
                f"`{found.settings}`" if found.settings else "default",
                str(counts[PASS] + counts[FLAKY_WITH] + counts[DIFFERENCE]),
                str(counts[DIFFERENCE]),
                str(counts[FAIL] + counts[FLAKY_WITHOUT]),
                str(total.skipped + total.unbuildable),
                str(total.traffic.own + total.traffic.to_self),
                found.overdrive,
            ]
        )
    grouped: dict[tuple[str, str, str], list[PythonResults]] = {}
    for part in whole.mpi4py:
        grouped.setdefault((part.host, part.version, part.settings), []).append(part)
    for (host, version, settings), parts in grouped.items():
        flaky = sum(result.status == FLAKY_WITH for part in parts for result in part.results)
        passed = sum(part.passed_with for part in parts) + flaky
        different = sum(result.status == DIFFERENCE for p in parts for result in p.results)
        skipped = sum(part.skipped for part in parts)
        tests = sum(part.tests for part in parts)
        lines.append(
            [
                f"mpi4py's on {host} {version}, {_numbers(parts)} ranks",
                f"`{settings}`" if settings else "default",
                str(passed + different),
                str(different),
                str(tests - skipped - passed - different),
                str(skipped),
                str(sum(part.traffic.own + part.traffic.to_self for part in parts)),
                ", ".join(sorted({part.overdrive for part in parts})),
            ]
        )
    headings = [
        "suite",
        "settings",
        "compared",
        "differences",
        "fail or flaky without Overdrive",
        "skipped, left out or not built",
        "messages on own path",
        "Overdrive",
    ]
    return ["## All results", "", _table(headings, lines, markdown=True), ""]


def _numbers(parts: list[PythonResults]) -> str:
    numbers = sorted(part.ranks for part in parts)
    return ", ".join(str(number) for number in numbers)


def page(whole: Report) -> str:
    """Return the page for docs/measurements."""
    tagged = [(_where(found), result) for found in whole.mpich for result in found.results]
    tagged += [(_where(part), result) for part in whole.mpi4py for result in part.results]
    parts = [*whole.mpich, *whole.mpi4py]
    versions = {text for part in parts for text in part.overdrive.split(", ") if text}
    lines = [
        "# Conformance",
        "",
        "Generated by `make conformance` (`tests/conformance/run.py`); do not edit.",
        "",
        "Two test suites that others wrote run without and with Overdrive on each host MPI: what",
        "passes without must pass with. A difference is a test that passes in each of three tries",
        "without Overdrive and fails in each of three tries with it; what changes from run to run",
        "is listed as flaky. Where a table has no number of tests that pass without, only tests",
        "that failed with Overdrive were run without it.",
        "Overdrive's own counters show that the tests tested something: messages between different",
        "ranks that took its path, messages of a rank to itself, sends that went through the host.",
        "",
        f"Machine: {platform.machine()}, Linux {platform.release()}, {os.cpu_count()} processors.",
        "Most tests have more ranks than this machine has processors, so Open MPI and Intel MPI",
        "run with their settings for that, and Open MPI and MPICH with a preloaded library that",
        "makes their idle polls sleep a moment (`tests/conformance/yield.c`), without Overdrive as",
        "with it.",
        f"Overdrive: {'; '.join(sorted(versions))}.",
        "",
        "To reproduce: `make conformance` runs everything, for hours on a small machine. Parts:",
        "",
        "```",
        "tests/conformance/run.py --hosts mpich4 --dirs pt2pt,comm --with-first   # MPICH's suite",
        "tests/conformance/run.py --hosts impi --dirs mpi4py --ranks 1,2,3,4      # mpi4py's suite",
        "tests/conformance/run.py --forced-paths                                  # forced ways",
        "tests/conformance/run.py --page                                          # this page",
        "```",
        "",
        f"**{whole.differences()} differences** among {whole.compared()} tests compared,",
        f'{whole.not_run()} tests of MPICH\'s suite not run yet (under "left out" below).',
        "",
    ]
    lines += _list("Differences", [item for item in tagged if item[1].status == DIFFERENCE])
    lines += _list(
        "Flaky with Overdrive", [item for item in tagged if item[1].status == FLAKY_WITH]
    )
    if whole.skipped:
        lines += ["Not run yet:", "", *(f"- {text}" for text in whole.skipped), ""]
    lines += _totals(whole)
    mpi4py = [part for part in whole.mpi4py if not part.settings]
    if mpi4py:
        lines += ["## mpi4py's test suite", "", mpi4py_table(mpi4py, markdown=True), ""]
        lines += [
            f"Left out everywhere: {_names(EXCLUDED_MODULES)} (dynamic processes: several hosts",
            "crash in containers when these modules are imported); with more than one rank:",
            f"{_names(ONE_RANK_MPI4PY)} (communicates nothing).",
        ]
        for part in mpi4py:
            usual = ONE_RANK_MPI4PY if part.ranks > 1 else []
            more = [name for name in part.left_out if name not in usual]
            if more:
                lines.append(f"On {part.host} with {part.ranks} ranks also: {_names(more)}.")
        for host, modules in EXCLUDED_MODULES_ON.items():
            lines.append(f"On {host}: {_names(modules)} (needs Fortran, which this host has not).")
        lines.append("")
    for found in whole.mpich:
        if found.settings:
            continue
        lines += [f"## MPICH's test suite on {found.host} {found.version}", ""]
        lines += [mpich_table(found, markdown=True), ""]
        failing = {r.identity: r.reason for r in found.results if r.status == FAIL}
        flaky = {r.identity: r.reason for r in found.results if r.status == FLAKY_WITHOUT}
        lines += _reasons("Fail without Overdrive, not compared", failing)
        lines += _reasons("Flaky without Overdrive", flaky)
        lines += _reasons("Not built", found.unbuildable)
        lines += _reasons("Left out", found.skipped)
    return "\n".join(lines + _forced_section(whole)).rstrip() + "\n"


def _names(modules: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in modules)


def _where(found: HostResults | PythonResults) -> str:
    return f"{found.host} {found.settings}".rstrip()

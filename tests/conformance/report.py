"""Turns results into counts, JSON and the page in docs/measurements."""

from __future__ import annotations

import csv
import json
import os
import platform
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path

from conformance.compare import (
    BASELINE_ONLY,
    DIFFERENCE,
    FAIL,
    FLAKY_WITH,
    FLAKY_WITHOUT,
    PASS,
    WITHOUT_ONLY,
    Result,
    as_json,
)
from conformance.jobs import settings_label
from conformance.mpi4py_tests import (
    ENDING_TESTS_OVER_NODES,
    EXCLUDED_MODULES,
    EXCLUDED_MODULES_ON,
    HANGING_TESTS_ON,
    HANGING_TESTS_WITH_OVERLAP,
    PythonResults,
)
from conformance.mpich_tests import NOT_RUN, HostResults
from conformance.selection import (
    ARRIVAL,
    FAULTS_OF_HOSTS,
    FORCED_DIRECTORIES,
    LAB_DIRECTORIES,
    ONE_RANK_MPI4PY,
    OVERLAP,
    OVERLAP_DIRECTORIES,
)
from conformance.tables import (
    ARRIVAL_COLUMNS,
    FORCED_COLUMNS,
    LAB_COLUMNS,
    OVERLAP_COLUMNS,
    as_table,
    kind_table,
    mpi4py_table,
    mpich_table,
    rows,
    sum_of,
)

PAGE = "conformance.md"
DETAILS = "conformance-details.md"
"""The two pages in docs/measurements, which link to each other."""


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


def write_json(whole: Report, path: Path) -> None:
    """Write everything for other programs."""
    content = {
        "seconds": round(whole.seconds, 1),
        "skipped": whole.skipped,
        "mpich": [
            {
                "host": found.host,
                "version": found.version,
                "layout": found.layout,
                "settings": found.settings,
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
    for host, result in results:
        fault = FAULTS_OF_HOSTS.get((host.split()[0], result.identity.rsplit(" ", 1)[0]))
        known = f" ({fault})" if fault else ""
        lines.append(f"- {host} `{result.identity}`: {result.reason}{known}")
    return [*lines, ""]


def write_not_compared(whole: Report, path: Path) -> None:
    """Write every test of MPICH's suite that could not be compared, with its reason."""
    nodes: dict[tuple[str, ...], list[str]] = {}
    # Those without settings first: what is left out with settings as well is not told again.
    for found in sorted(whole.mpich, key=lambda found: bool(found.settings)):
        for kind, reasons in _not_compared(found).items():
            for test, reason in reasons.items():
                usual = (found.host, "default", kind, test, reason)
                if kind == "left out" and found.settings and usual in nodes:
                    continue
                key = (found.host, found.settings or "default", kind, test, reason)
                nodes.setdefault(key, []).append(found.layout or "one")
    rows = [[host, " ".join(places), *rest] for (host, *rest), places in nodes.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["host", "nodes", "settings", "kind", "test", "reason"])
        writer.writerows(rows)


def _not_compared(found: HostResults) -> dict[str, dict[str, str]]:
    """Return the tests of a host that were not compared, with reasons, by kind.

    Tests that simply have not run yet are known by name only, and there are thousands of them.
    """
    return {
        "fails without Overdrive": {
            r.identity: r.reason for r in found.results if r.status == FAIL
        },
        "flaky without Overdrive": {
            r.identity: r.reason for r in found.results if r.status == FLAKY_WITHOUT
        },
        "not built": found.unbuildable,
        "left out": {name: why for name, why in found.skipped.items() if why != NOT_RUN},
    }


def _forced_section(whole: Report) -> list[str]:
    """Return the part of the page about forced ways."""
    mpich = [found for found in whole.mpich if found.settings and not found.layout]
    mpi4py = [part for part in whole.mpi4py if part.settings and not part.layout]
    if not mpich and not mpi4py:
        return ["## With each way of copying forced", "", "Not run yet.", ""]
    return [
        "## With each way of copying forced",
        "",
        f"Folders {', '.join(FORCED_DIRECTORIES)} of MPICH's suite and mpi4py's suite without the",
        "modules that only use collectives, windows and files, with each of the settings. The last",
        "columns count received messages by the way their data took: `cells`, one of the direct",
        "ways, or `buffered`, from a copy that a sender made because the receiver was late. What",
        "fits a fast box (512 bytes) is in none of them. A message that the forced way cannot",
        "serve takes cells: pull and cooperative need a send buffer that is shared, and push and",
        "cooperative a receive buffer that is.",
        "",
        kind_table(mpich, mpi4py, FORCED_COLUMNS, "settings"),
        "",
    ]


def _lab_section(whole: Report) -> list[str]:
    """Return the part of the page about jobs over several nodes."""
    mpich = [found for found in whole.mpich if found.layout]
    mpi4py = [part for part in whole.mpi4py if part.layout]
    lines = [
        "## Over several nodes, in the lab",
        "",
        f"Folders {', '.join(LAB_DIRECTORIES)} of MPICH's suite and mpi4py's suite without the",
        "modules that only use windows, files, neighbours and groups that do not overlap, over the",
        "virtual nodes of [`overdrive lab`](../design/lab.md). A layout says how many ranks each",
        "node has: 2x2 are 2 nodes with 2 ranks each, 3+1+2 are 3 nodes with so many. The tests of",
        "MPICH's suite name their number of ranks themselves. Nodes get these ranks in turn until",
        "each has its share, and then all over again: on 3+1+2, 2 ranks lie 1+1+0, 4 ranks 2+1+1",
        "and 10 ranks 5+2+3. The ranks of a node follow each other, and with `round-robin` they",
        "are dealt as the nodes get them. Tests with one rank are left out.",
        "",
        "Messages `on own path` went between ranks of one node, those `through host` between nodes",
        "(a rank that is alone on its node does not count them). `Collective calls served` were",
        "made by Overdrive, counted once per rank. With mpich4 a preloaded library keeps",
        "connections open until all ranks end (`tests/support/disconnect.c`), without Overdrive as",
        "with it: MPICH 4.0 alone hangs at the end of one in three jobs over several nodes.",
        f"With `{settings_label(OVERLAP)}` the folders are {', '.join(OVERLAP_DIRECTORIES)}, and",
        "mpi4py asks for `MPI_THREAD_SERIALIZED`, because with more no call returns early.",
        "",
    ]
    if not mpich and not mpi4py:
        return [*lines[:2], "Not run yet.", ""]
    columns_of = {
        settings_label(ARRIVAL): ARRIVAL_COLUMNS,
        settings_label(OVERLAP): OVERLAP_COLUMNS,
    }
    for label in sorted({part.settings for part in [*mpich, *mpi4py]}):
        lines += [f"### With `{label}`" if label else "### With default settings", ""]
        columns = columns_of.get(label, LAB_COLUMNS)
        alike = [found for found in mpich if found.settings == label]
        alike_mpi4py = [part for part in mpi4py if part.settings == label]
        lines += [kind_table(alike, alike_mpi4py, columns, "layout"), ""]
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
                found.layout or "one",
                f"`{found.settings}`" if found.settings else "default",
                str(counts[PASS] + counts[FLAKY_WITH] + counts[DIFFERENCE]),
                str(counts[DIFFERENCE]),
                str(counts[FAIL] + counts[FLAKY_WITHOUT]),
                str(total.skipped + total.unbuildable),
                str(total.traffic.own + total.traffic.to_self),
                found.overdrive,
            ]
        )
    grouped: dict[tuple[str, str, str, str], list[PythonResults]] = {}
    for part in whole.mpi4py:
        key = (part.host, part.version, part.layout, part.settings)
        grouped.setdefault(key, []).append(part)
    for (host, version, layout, settings), parts in grouped.items():
        flaky = sum(result.status == FLAKY_WITH for part in parts for result in part.results)
        passed = sum(part.passed_with for part in parts) + flaky
        different = sum(result.status == DIFFERENCE for p in parts for result in p.results)
        skipped = sum(part.skipped for part in parts)
        tests = sum(part.tests for part in parts)
        lines.append(
            [
                f"mpi4py's on {host} {version}, {_numbers(parts)} ranks",
                layout or "one",
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
        "nodes",
        "settings",
        "compared",
        "differences",
        "fail or flaky without Overdrive",
        "skipped, left out or not built",
        "messages on own path",
        "Overdrive",
    ]
    return ["## All results", "", as_table(headings, lines, markdown=True), ""]


def _numbers(parts: list[PythonResults]) -> str:
    numbers = sorted(part.ranks for part in parts)
    return ", ".join(str(number) for number in numbers)


def _wide(lines: list[str]) -> list[str]:
    """Return the lines with those of a paragraph in long ones."""
    found: list[str] = []
    words: list[str] = []
    code = False
    for line in [*"\n".join(lines).split("\n"), ""]:
        code ^= line.startswith("```")
        if line and not code and line[0] not in "|#-`":
            words.append(line)
            continue
        if words:
            found += textwrap.wrap(
                " ".join(words), 220, break_long_words=False, break_on_hyphens=False
            )
            words = []
        found.append(line)
    return found[:-1]


def page(whole: Report) -> str:
    """Return the page for docs/measurements: what was found, and how to find it again."""
    tagged = [(where(found), result) for found in whole.mpich for result in found.results]
    tagged += [(where(part), result) for part in whole.mpi4py for result in part.results]
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
        "tests/conformance/run.py --lab                                           # several nodes",
        "tests/conformance/run.py --first-arrival       # several nodes, begun by who comes first",
        "tests/conformance/run.py --overlap    # several nodes, collectives that return early",
        "tests/conformance/run.py --page                                          # this page",
        "```",
        "",
        f"**{whole.differences()} differences** among {whole.compared()} tests compared,",
        f"{whole.not_run()} tests of MPICH's suite not run yet. Tests that were not compared, with",
        "their reasons, are in [data/conformance/not-compared.csv]"
        "(data/conformance/not-compared.csv).",
        "",
    ]
    lines += _list("Differences", [item for item in tagged if item[1].status == DIFFERENCE])
    lines += _list(
        "Flaky with Overdrive", [item for item in tagged if item[1].status == FLAKY_WITH]
    )
    if whole.skipped:
        lines += ["Not run yet:", "", *(f"- {text}" for text in whole.skipped), ""]
    lines += _totals(whole)
    lines += [f"By folders, ranks and layouts: [{DETAILS}]({DETAILS})."]
    return "\n".join(_wide(lines)).rstrip() + "\n"


def details(whole: Report) -> str:
    """Return the page beside it: the results by folders, numbers of ranks, settings and nodes."""
    lines = ["# Conformance, in detail", "", f"How it was found: [{PAGE}]({PAGE}).", ""]
    mpi4py = [part for part in whole.mpi4py if not part.settings and not part.layout]
    if mpi4py:
        lines += ["## mpi4py's test suite", "", mpi4py_table(mpi4py, markdown=True), ""]
        lines += [
            f"Left out everywhere: {_names(EXCLUDED_MODULES)} (dynamic processes: several hosts",
            "crash in containers when these modules are imported); with more than one rank:",
            f"{_names(ONE_RANK_MPI4PY)} (communicates nothing).",
        ]
        also: dict[str, list[str]] = {}
        for part in mpi4py:
            # With one rank and with more other modules say nothing.
            more = [name for name in part.left_out if name not in ONE_RANK_MPI4PY]
            if more:
                also.setdefault(_names(more), []).append(f"{part.host} with {part.ranks}")
        lines += [f"On {', '.join(on)} ranks also: {names}." for names, on in also.items()]
        for host, modules in EXCLUDED_MODULES_ON.items():
            lines.append(f"On {host}: {_names(modules)} (needs Fortran, which this host has not).")
        for host, patterns in HANGING_TESTS_ON.items():
            lines += [
                f"On {host} with more than one rank: {_names(patterns)} (locks that poll their own",
                "memory; most of these tests never end there without Overdrive either).",
            ]
        for host, patterns in HANGING_TESTS_WITH_OVERLAP.items():
            lines.append(f"On {host} over nodes with overlap: {_names(patterns)} (likewise).")
        for host, patterns in ENDING_TESTS_OVER_NODES.items():
            lines.append(f"On {host} over nodes: {_names(patterns)} (it ends the job by itself).")
        lines.append("")
    for found in whole.mpich:
        if found.settings or found.layout:
            continue
        lines += [f"## MPICH's test suite on {found.host} {found.version}", ""]
        lines += [mpich_table(found, markdown=True), ""]
    lines += [*_forced_section(whole), *_lab_section(whole)]
    return "\n".join(_wide(lines)).rstrip() + "\n"


def _names(modules: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in modules)


def where(found: HostResults | PythonResults) -> str:
    """Return on what a result was found: host, layout of nodes and settings."""
    place = f"in the lab {found.layout}" if found.layout else ""
    return " ".join(word for word in (found.host, place, found.settings) if word)

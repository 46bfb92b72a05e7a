"""The tables of the reports, as plain text for the terminal or as Markdown for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.compare import (
    BASELINE_ONLY,
    DIFFERENCE,
    FAIL,
    FLAKY_WITH,
    FLAKY_WITHOUT,
    PASS,
    WITH_FIRST,
    WITHOUT_ONLY,
)
from conformance.jobs import WAYS, Traffic
from conformance.mpi4py_tests import PythonResults
from conformance.mpich_tests import NOT_RUN, HostResults


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


OUTCOMES = [
    "pass without",
    "pass with",
    "flaky with",
    "differences",
    "messages on own path",
    "to self",
    "through host",
]
"""What is said of both suites."""

HEADINGS = [
    "folder",
    "tests",
    "not built",
    "left out",
    "fail without",
    "flaky without",
    *OUTCOMES,
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


def as_table(headings: list[str], lines: list[list[str]], markdown: bool) -> str:
    """Return headings and lines as a table."""
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
    """Return the table of MPICH's suite on one host; a page names folders of which a test ran."""
    table = rows(found)
    shown = {name: row for name, row in table.items() if row.counts or not markdown}
    lines = [_cells(name, row, found.order) for name, row in shown.items()]
    lines.append(_cells("**all**" if markdown else "all", sum_of(table), found.order))
    text = as_table(HEADINGS, lines, markdown)
    if markdown:
        rest = [name for name in table if name not in shown]
        return f"{text}\n\nNothing has run yet of {', '.join(rest)}." if rest else text
    return f"MPICH's suite on {found.host} {found.version}\n{text}"


def mpi4py_table(found: list[PythonResults], markdown: bool = False) -> str:
    """Return the table of mpi4py's suite."""
    headings = [
        "host",
        "ranks",
        "tests",
        "skipped by the suite",
        *OUTCOMES,
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
    text = as_table(headings, lines, markdown)
    return text if markdown else f"mpi4py's suite\n{text}"


KIND_HEADINGS = [
    "suite and host",
    "tests",
    "not run yet",
    "left out",
    "not built",
    "fail without",
    "flaky",
    "pass with",
    "differences",
]

Columns = dict[str, Callable[[Traffic], int]]

FORCED_COLUMNS: Columns = {
    "messages on own path": lambda traffic: traffic.own,
    **{f"received: {way}": lambda traffic, way=way: traffic.ways.get(way, 0) for way in WAYS},
}

LAB_COLUMNS: Columns = {
    "messages on own path": lambda traffic: traffic.own,
    "through host": lambda traffic: traffic.host,
    "collective calls served": lambda traffic: traffic.collectives,
}

ARRIVAL_COLUMNS: Columns = {
    **LAB_COLUMNS,
    "of these by first_arrival": lambda traffic: traffic.arrivals,
}

OVERLAP_COLUMNS: Columns = {
    **LAB_COLUMNS,
    "returned before their data": lambda traffic: traffic.overlapped,
}


def kind_table(
    mpich: list[HostResults], mpi4py: list[PythonResults], columns: Columns, by: str
) -> str:
    """Return a table with a line for each suite and host on each `layout` or with each `settings`.

    Lines that are alike in what `by` names follow each other, MPICH's suite first.
    """
    lines = []
    for found in mpich:
        not_run = sum(reason == NOT_RUN for reason in found.skipped.values())
        total = sum_of(rows(found))
        counts = total.counts
        lines.append(
            [
                f"`{getattr(found, by)}`",
                f"MPICH's, {found.host}",
                str(total.tests),
                str(not_run),
                str(total.skipped - not_run),
                str(total.unbuildable),
                str(counts[FAIL]),
                str(counts[FLAKY_WITHOUT] + counts[FLAKY_WITH]),
                str(counts[PASS] + counts[FLAKY_WITH]),
                str(counts[DIFFERENCE]),
                *(str(number(total.traffic)) for number in columns.values()),
            ]
        )
    for part in mpi4py:
        counts = Counter(result.status for result in part.results)
        passed = part.passed_with + counts[FLAKY_WITH]
        failing = part.tests - part.skipped - passed - counts[DIFFERENCE]
        lines.append(
            [
                f"`{getattr(part, by)}`",
                f"mpi4py's, {part.host}, {part.ranks} ranks",
                str(part.tests),
                "0",
                str(part.skipped),
                "0",
                str(failing),
                str(counts[FLAKY_WITH]),
                str(passed),
                str(counts[DIFFERENCE]),
                *(str(number(part.traffic)) for number in columns.values()),
            ]
        )
    lines.sort(key=lambda line: line[0])
    heading = {"layout": "nodes", "settings": "forced"}[by]
    return as_table([heading, *KIND_HEADINGS, *columns], lines, markdown=True)

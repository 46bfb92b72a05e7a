#!/usr/bin/env python3
"""Measures how well the engine chooses among the ways a message can be copied.

Writes docs/measurements/copy.md, its pictures and its data: every size by every way beside the
engine's own choice, the host MPIs beside Overdrive, late senders and receivers, real programs, and
the collectives of the hosts. Raw samples stay in build/bench/copy and can be added to (`--add`) or
evaluated again (`--evaluate`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from campaign import build_programs
from copy_campaign import PARTS, CopyCampaign
from copy_goals import with_memcpy_beside
from copy_report import write_page
from jobs import Failures, Host, library
from script import Script

SCRIPT = Script("copy_paths.py", "copy", PARTS, budget_seconds=1500, quick_seconds=300)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = SCRIPT.parser(__doc__)
    parser.add_argument("--group", help="of the parts, only the groups of jobs with this name")
    return SCRIPT.parse(parser, arguments)


def build(hosts: list[Host], failures: Failures) -> dict[tuple[str, str], Path]:
    """Compile the programs of all hosts; return them by host and name."""
    programs: dict[tuple[str, str], Path] = {}
    for host in hosts:
        built = build_programs(host)
        failures += built.notes
        if built.problem:
            failures.add(f"{host.name}: benchmarks not built: {built.problem}")
            continue
        assert built.od_p2p is not None and built.od_kernels is not None
        programs[host.name, "od_p2p"] = built.od_p2p
        programs[host.name, "od_kernels"] = built.od_kernels
    return programs


def library_of(options: argparse.Namespace) -> Path:
    """Return the library to measure."""
    return library(options.preset).resolve()


def measure(options: argparse.Namespace, hosts: list[Host]) -> list[str]:
    """Measure the wanted parts; return what failed."""
    failures = Failures()
    programs = build(hosts, failures)
    if options.build:
        return failures
    campaign = CopyCampaign(
        {host.name: host for host in hosts},
        programs,
        library_of(options),
        options.samples,
        options.nice,
        options.group or "",
        failures,
    )
    for part, seconds in SCRIPT.in_turn(options, SCRIPT.wanted(options)):
        campaign.measure(part, seconds)
    return failures


def main() -> int:
    """Measure and write the page."""
    options = parse_arguments(sys.argv[1:])
    return SCRIPT.run(options, library_of(options), measure, with_memcpy_beside, write_page)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures collectives with and without Overdrive over every host MPI.

Writes docs/measurements/coll.md, its pictures and its data: two ranks on two cores, eight ranks on
two cores, a virtual cluster with and without a limit on its links, the drivers of reductions,
segments in flight between nodes, and what collectives cost beside moving data. Raw samples stay in
build/bench/coll and can be added to (`--add`) or evaluated again (`--evaluate`), so the whole can
be measured in short pieces.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from campaign import INTEL
from coll_campaign import DRIVERS, PARTS, CollCampaign, build, with_net
from coll_report import write_page
from coll_timeline import record
from jobs import BUILD, Failures, Host, library, select_hosts
from lab_runs import NoLab
from script import Script

SCRIPT = Script("coll.py", "coll", PARTS, budget_seconds=3600, quick_seconds=600)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = SCRIPT.parser(__doc__)
    parser.add_argument("--ranks", type=int, help="only parts with so many ranks")
    parser.add_argument("--without", action="store_true", help="measure the hosts alone")
    return SCRIPT.parse(parser, arguments)


def driver_variable(preset: str) -> str:
    """Return the variable that chooses the driver of reductions, if this build has one."""
    program = BUILD / preset / "bin" / "overdrive-settings"
    if not program.exists():
        return ""
    found = subprocess.run([program], capture_output=True, text=True, check=False)
    for setting in json.loads(found.stdout or "{}").get("settings", []):
        if all(driver in setting["choices"] for driver in DRIVERS):
            return setting["variable"]
    return ""


def measure(options: argparse.Namespace, hosts: list[Host]) -> list[str]:
    """Measure the wanted parts; return what failed."""
    programs: dict[str, Path] = {}
    failures = Failures()
    # Intel MPI alone is the reference for two ranks, whichever hosts are wanted.
    reference, _ = select_hosts(INTEL)
    by_name = {host.name: host for host in [*reference, *hosts]}
    for host in by_name.values():
        program, problem = build(host)
        if problem:
            failures.add(f"{host.name}: od_coll not built: {problem}")
        else:
            programs[host.name] = program
    if options.build:
        return failures
    parts = [part for part in SCRIPT.wanted(options) if options.ranks in (None, part.ranks)]
    campaign = CollCampaign(
        by_name,
        programs,
        library_of(options),
        options.samples,
        options.nice,
        [host.name for host in hosts],
        driver_variable(options.preset),
        failures,
    )
    for part, seconds in SCRIPT.in_turn(options, parts):
        try:
            campaign.measure(part, seconds)
            if part.name == "pipeline" and campaign.lib is not None:
                for problem in record(
                    part, by_name[part.hosts[0]], programs[part.hosts[0]], campaign.lib,
                    options.samples, options.nice,
                ):  # fmt: skip
                    failures.add(problem)
        except NoLab as reason:
            failures.add(f"{part.name}: {reason}")
    return failures


def library_of(options: argparse.Namespace) -> Path | None:
    """Return the library to measure, None for the hosts alone."""
    return None if options.without else library(options.preset).resolve()


def main() -> int:
    """Measure and write the page."""
    options = parse_arguments(sys.argv[1:])
    return SCRIPT.run(options, library_of(options), measure, with_net, write_page)


if __name__ == "__main__":
    sys.exit(main())

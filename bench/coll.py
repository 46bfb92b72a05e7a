#!/usr/bin/env python3
"""Measures collectives with and without Overdrive over every host MPI.

Writes docs/measurements/coll.md, its pictures and its data: two ranks on two cores, eight ranks on
two cores, a virtual cluster with and without a limit on its links, the drivers of reductions, and
what collectives cost beside moving data. Raw samples stay in build/bench/coll and can be added to
(`--add`) or evaluated again (`--evaluate`), so the whole can be measured in short pieces.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from analysis import Results
from campaign import OVERDRIVE
from coll_campaign import (
    DRIVERS,
    INTEL,
    PARTS,
    SAMPLES,
    CollCampaign,
    build,
    load_part,
    samples_file,
    with_net,
)
from coll_report import write_page
from jobs import BUILD, ROOT, Host, end_jobs_on_termination, library, select_hosts
from lab_runs import NoLab
from page import draw, niceness_fact, print_findings, replace_path

PAGE = ROOT / "docs" / "measurements" / "coll.md"
BUDGET_SECONDS = 3600
QUICK_SECONDS = 600


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    names = ", ".join(part.name for part in PARTS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--budget", type=float, metavar="S", help=f"seconds to measure ({BUDGET_SECONDS})"
    )
    parser.add_argument("--quick", action="store_true", help="few samples of everything")
    parser.add_argument("--hosts", "--host", help="comma-separated; all by default")
    parser.add_argument("--part", "--only", help=f"comma-separated parts of: {names}")
    parser.add_argument("--ranks", type=int, help="only parts with so many ranks")
    parser.add_argument("--preset", default="release", help="build whose library is used")
    parser.add_argument("--without", action="store_true", help="measure the hosts alone")
    parser.add_argument(
        "--nice", type=int, default=0, help="niceness of the runs; negative needs privilege"
    )
    parser.add_argument("--add", action="store_true", help="add to the samples of earlier runs")
    parser.add_argument("--evaluate", action="store_true", help="only evaluate earlier samples")
    parser.add_argument("--build", action="store_true", help="only compile the programs")
    parser.add_argument("--no-page", action="store_true", help="measure, but write no page")
    parser.add_argument("--samples", type=Path, default=SAMPLES, help="folder of the raw samples")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page goes")
    parser.add_argument(
        "--note", action="append", default=[], help="a sentence for the page on these samples"
    )
    parser.add_argument("--no-plots", action="store_true", help="draw no pictures")
    options = parser.parse_args(arguments)
    known = {part.name for part in PARTS}
    if options.part and (unknown := set(options.part.split(",")) - known):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {names}")
    return options


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


def measure(options: argparse.Namespace, hosts: list[Host], lib: Path | None) -> list[str]:
    """Measure the wanted parts; return what failed."""
    programs: dict[str, Path] = {}
    failures: list[str] = []
    # Intel MPI alone is the reference for two ranks, whichever hosts are wanted.
    reference, _ = select_hosts(INTEL)
    by_name = {host.name: host for host in [*reference, *hosts]}
    for host in by_name.values():
        programs[host.name], problem = build(host)
        if problem:
            del programs[host.name]
            failures.append(f"{host.name}: od_coll not built: {problem}")
            print(f"bench: {failures[-1]}", file=sys.stderr)
    if options.build:
        return failures
    wanted = options.part.split(",") if options.part else [part.name for part in PARTS]
    parts = [part for part in PARTS if part.name in wanted]
    if options.ranks:
        parts = [part for part in parts if part.ranks == options.ranks]
    budget = options.budget or (QUICK_SECONDS if options.quick else BUDGET_SECONDS)
    whole = sum(part.share for part in parts)
    campaign = CollCampaign(
        by_name,
        programs,
        lib,
        options.nice,
        options.samples,
        [host.name for host in hosts],
        driver_variable(options.preset),
    )
    for part in parts:
        if not options.add:
            samples_file(part.name, options.samples).unlink(missing_ok=True)
        try:
            campaign.measure(part, budget * part.share / whole)
        except NoLab as reason:
            failures.append(f"{part.name}: {reason}")
            print(f"bench: {part.name} is NOT measured: {reason}", file=sys.stderr)
    return failures + campaign.failures


def note_seconds(options: argparse.Namespace, seconds: float) -> None:
    """Remember for how long the samples that there are have been measured."""
    note = options.samples / "seconds"
    before = float(note.read_text()) if options.add and note.exists() else 0.0
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(f"{before + seconds:.0f}")


def reproduction(samples: Path, niceness: int) -> str:
    """Return the one command that measures as much as the calls did that made the samples."""
    note = samples / "seconds"
    seconds = float(note.read_text()) if note.exists() else BUDGET_SECONDS
    command = ["python3", "bench/coll.py", "--budget", f"{round(seconds, -1):.0f}"]
    return shlex.join([*command, *(["--nice", str(niceness)] if niceness else [])])


def evaluate(
    options: argparse.Namespace,
    hosts: list[Host],
    missing: dict[str, str],
    failures: list[str],
) -> None:
    """Write page, data and pictures from the raw samples."""
    results: dict[str, Results] = {}
    measured: set[str] = set()
    mine = False
    for part in PARTS:
        samples = with_net(load_part(part.name, options.samples))
        measured |= {sample.host for sample in samples}
        mine = mine or any(sample.variant == OVERDRIVE for sample in samples)
        results[part.name] = Results(samples)
        results[part.name].save_cells(options.page.parent / "data" / f"coll-{part.name}.csv")
    folder = options.page.parent / "plots"
    plots = [] if options.no_plots else draw("coll_plots.py", options.samples, folder)
    facts = [*niceness_fact(options.nice), *options.note]
    if not mine:
        facts.append("**Overdrive was absent: only the hosts were measured.**")
    facts += [f"Failed: {replace_path(failure)}" for failure in failures]
    versions = {host.name: host.version for host in hosts if host.name in measured}
    command = reproduction(options.samples, options.nice)
    print_findings(write_page(options.page, results, versions, missing, command, facts, plots))
    print(f"bench: wrote {options.page}")


def main() -> int:
    """Measure and write the page."""
    end_jobs_on_termination()
    options = parse_arguments(sys.argv[1:])
    hosts, missing = select_hosts(options.hosts)
    for name, why in missing.items():
        print(f"bench: {name} is NOT measured: {why}", file=sys.stderr)
    lib = None if options.without else library(options.preset).resolve()
    failures: list[str] = []
    if not options.evaluate:
        if lib is not None and not lib.exists() and not options.build:
            print(f"bench: {lib} is missing: build Overdrive first (make)", file=sys.stderr)
            return 1
        started = time.monotonic()
        failures = measure(options, hosts, lib)
        if not options.build:
            note_seconds(options, time.monotonic() - started)
        if options.build or options.no_page:
            return 1 if failures else 0
        hosts, missing = select_hosts(None)
    evaluate(options, hosts, missing, failures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

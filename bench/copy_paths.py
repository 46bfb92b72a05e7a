#!/usr/bin/env python3
"""Measures how well the engine chooses among the ways a message can be copied.

Writes docs/measurements/copy.md, its pictures and its data: every size by every way beside the
engine's own choice, the host MPIs beside Overdrive, late senders and receivers, real programs, and
the collectives of the hosts. Raw samples stay in build/bench/copy and can be added to (`--add`) or
evaluated again (`--evaluate`).
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from analysis import Results
from campaign import build_programs
from copy_campaign import PARTS, SAMPLES, CopyCampaign, Part, load_part, samples_file
from copy_goals import with_memcpy_beside
from copy_report import write_page
from jobs import ROOT, Host, end_jobs_on_termination, library, select_hosts
from page import draw, niceness_fact, print_findings, replace_path

PAGE = ROOT / "docs" / "measurements" / "copy.md"
BUDGET_SECONDS = 1500
QUICK_SECONDS = 300


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
    parser.add_argument("--hosts", help="comma-separated; all by default")
    parser.add_argument("--only", help=f"comma-separated parts of: {names}")
    parser.add_argument("--group", help="of the parts, only the groups of jobs with this name")
    parser.add_argument("--preset", default="release", help="build whose library is used")
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
    if options.only and (unknown := set(options.only.split(",")) - known):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {names}")
    return options


def build(hosts: list[Host]) -> tuple[dict[tuple[str, str], Path], list[str]]:
    """Compile the programs of all hosts; return them and what failed."""
    programs: dict[tuple[str, str], Path] = {}
    failures: list[str] = []
    for host in hosts:
        built = build_programs(host)
        failures += built.notes
        if built.problem:
            failures.append(f"{host.name}: benchmarks not built: {built.problem}")
            print(f"bench: {failures[-1]}", file=sys.stderr)
            continue
        assert built.od_p2p is not None and built.od_kernels is not None
        programs[host.name, "od_p2p"] = built.od_p2p
        programs[host.name, "od_kernels"] = built.od_kernels
    return programs, failures


def measure(options: argparse.Namespace, hosts: list[Host], lib: Path) -> list[str]:
    """Measure the wanted parts; return what failed."""
    programs, failures = build(hosts)
    if options.build:
        return failures
    wanted = options.only.split(",") if options.only else [part.name for part in PARTS]
    parts: list[Part] = [part for part in PARTS if part.name in wanted]
    budget = options.budget or (QUICK_SECONDS if options.quick else BUDGET_SECONDS)
    whole = sum(part.share for part in parts)
    by_name = {host.name: host for host in hosts}
    campaign = CopyCampaign(
        by_name, programs, lib, options.nice, options.samples, options.group or ""
    )
    for part in parts:
        if not options.add:
            samples_file(part.name, options.samples).unlink(missing_ok=True)
        campaign.measure(part, budget * part.share / whole)
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
    command = ["python3", "bench/copy_paths.py", "--budget", f"{round(seconds, -1):.0f}"]
    return shlex.join([*command, *(["--nice", str(niceness)] if niceness else [])])


def evaluate(
    options: argparse.Namespace,
    command: str,
    hosts: list[Host],
    missing: dict[str, str],
    failures: list[str],
) -> None:
    """Write page, data and pictures from the raw samples."""
    results: dict[str, Results] = {}
    measured: set[str] = set()
    for part in PARTS:
        samples = with_memcpy_beside(load_part(part.name, options.samples))
        measured |= {sample.host for sample in samples}
        results[part.name] = Results(samples)
        results[part.name].save_cells(options.page.parent / "data" / f"copy-{part.name}.csv")
    folder = options.page.parent / "plots"
    plots = [] if options.no_plots else draw("copy_plots.py", options.samples, folder)
    facts = [*niceness_fact(options.nice), *options.note]
    facts += [f"Failed: {replace_path(failure)}" for failure in failures]
    versions = {host.name: host.version for host in hosts if host.name in measured}
    print_findings(write_page(options.page, results, versions, missing, command, facts, plots))
    print(f"bench: wrote {options.page}")


def main() -> int:
    """Measure and write the page."""
    end_jobs_on_termination()
    options = parse_arguments(sys.argv[1:])
    hosts, missing = select_hosts(options.hosts)
    for name, why in missing.items():
        print(f"bench: {name} is NOT measured: {why}", file=sys.stderr)
    lib = library(options.preset).resolve()
    failures: list[str] = []
    if not options.evaluate:
        if not lib.exists() and not options.build:
            print(f"bench: {lib} is missing: build Overdrive first (make)", file=sys.stderr)
            return 1
        started = time.monotonic()
        failures = measure(options, hosts, lib)
        if not options.build:
            note_seconds(options, time.monotonic() - started)
        if options.build or options.no_page:
            return 1 if failures else 0
    command = reproduction(options.samples, options.nice)
    evaluate(options, command, hosts, missing, failures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

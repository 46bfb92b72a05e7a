#!/usr/bin/env python3
"""Measures point-to-point communication with and without Overdrive over every host MPI.

Writes docs/measurements/p2p.md, its pictures and its data. Rounds of alternating runs are repeated
until the medians are tight or the time budget is spent. Raw samples stay in build/bench/samples.csv
and can be added to (`--add`) or evaluated again (`--evaluate`).
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from analysis import Results
from campaign import PROGRAMS, TOPICS, Campaign, build_programs, load, next_round, save
from jobs import ROOT, Failures, Host, end_jobs_on_termination, library, select_hosts
from page import Circumstances, draw, print_findings, replace_path, usual_facts
from report import write_page

PAGE = ROOT / "docs" / "measurements" / "p2p.md"
RAW = PROGRAMS / "samples.csv"
BUDGET_SECONDS = 1800
QUICK_SECONDS = 240
TIGHT = 0.03
"""Relative uncertainty of a median at which it needs no more samples."""
TIGHT_SHARE = 0.9
MIN_ROUNDS = 3


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    names = ", ".join(topic.name for topic in TOPICS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, metavar="S", help="seconds to measure (1800)")
    parser.add_argument("--quick", action="store_true", help="one or two rounds, short")
    parser.add_argument("--hosts", help="comma-separated; all by default")
    parser.add_argument("--only", help=f"comma-separated topics of: {names}")
    parser.add_argument("--preset", default="release", help="build whose library is used")
    parser.add_argument(
        "--library", dest="lib", type=Path, help="the library itself instead of a preset"
    )
    parser.add_argument(
        "--nice", type=int, default=0, help="niceness of the runs; negative needs privilege"
    )
    parser.add_argument("--add", action="store_true", help="add to the samples of earlier runs")
    parser.add_argument("--evaluate", action="store_true", help="only evaluate earlier samples")
    parser.add_argument("--samples", type=Path, default=RAW, help="file of the raw samples")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page goes")
    parser.add_argument("--no-plots", action="store_true", help="draw no pictures")
    options = parser.parse_args(arguments)
    known = {topic.name for topic in TOPICS}
    if options.only and (unknown := set(options.only.split(",")) - known):
        parser.error(f"unknown topic {', '.join(sorted(unknown))}; known: {names}")
    return options


def measure(options: argparse.Namespace, hosts: list[Host], lib: Path | None) -> list[str]:
    """Run rounds until the medians are tight or the budget is spent; return what failed."""
    programs = {}
    usable = []
    failures = Failures()
    for host in hosts:
        programs[host.name] = build_programs(host)
        failures += programs[host.name].notes
        if programs[host.name].problem:
            failures.add(f"{host.name}: benchmark not built: {programs[host.name].problem}")
        else:
            usable.append(host)
    wanted = options.only.split(",") if options.only else [topic.name for topic in TOPICS]
    topics = [topic for topic in TOPICS if topic.name in wanted]
    campaign = Campaign(usable, programs, topics, lib, options.nice, failures)
    budget = options.budget or (QUICK_SECONDS if options.quick else BUDGET_SECONDS)
    end = time.monotonic() + budget
    samples = load(options.samples) if options.add and options.samples.exists() else []
    first = next_round(samples)
    if not samples:
        options.samples.unlink(missing_ok=True)
    number = first
    while True:
        started = time.monotonic()
        for batch in campaign.run_round(number):
            samples += batch
            save(batch, options.samples, append=True)
        number += 1
        share = Results(samples).tight_share(TIGHT)
        left = end - time.monotonic()
        print(
            f"bench: round {number - first}: {len(samples)} samples, {share:.0%} of the medians "
            f"within {TIGHT:.0%}, {max(left, 0):.0f} s left",
            flush=True,
        )
        if left < (time.monotonic() - started) / 2:
            break
        if number - first >= MIN_ROUNDS and share >= TIGHT_SHARE:
            break
    return failures


def evaluate(
    options: argparse.Namespace,
    command: str,
    hosts: dict[str, str],
    missing: dict[str, str],
    failures: list[str],
) -> None:
    """Write page, data and pictures from the raw samples."""
    samples = load(options.samples)
    results = Results(samples)
    results.save(options.page.parent / "data")
    plots = (
        [] if options.no_plots else draw("plots.py", options.samples, options.page.parent / "plots")
    )
    measured = {sample.host for sample in samples}
    versions = {name: version for name, version in hosts.items() if name in measured}
    facts = [f"Rounds: {len({sample.round for sample in samples})}."]
    facts += usual_facts(options.nice, [], samples, failures)
    around = Circumstances(versions, missing, command, facts, plots)
    print_findings(write_page(options.page, results, around))
    print(f"bench: wrote {options.page}")


def main() -> int:
    """Measure and write the page."""
    end_jobs_on_termination()
    options = parse_arguments(sys.argv[1:])
    hosts, missing = select_hosts(options.hosts)
    for name, why in missing.items():
        print(f"bench: {name} is NOT measured: {why}", file=sys.stderr)
    lib: Path | None = options.lib or library(options.preset)
    assert lib is not None
    if not lib.exists():
        print(f"bench: {lib} is missing; only the hosts are measured", file=sys.stderr)
        lib = None
    failures: list[str] = []
    if not options.evaluate:
        failures = measure(options, hosts, lib.resolve() if lib else None)
    # The page shows how the samples were made, also when they are only evaluated again.
    note = options.samples.with_suffix(".command")
    if options.evaluate and note.exists():
        command = note.read_text()
    else:
        shown = [replace_path(argument) for argument in sys.argv[1:]]
        command = shlex.join(["python3", "bench/run.py", *shown])
        note.write_text(command)
    versions = {host.name: host.version for host in hosts}
    evaluate(options, command, versions, missing, failures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures what `overdrive tune` is worth at points that it has not measured.

    tuned.py                                   both main hosts: tune, then measure; write the page
    tuned.py --host mpich4 --tune 3m --seconds 10     only this (keeps the rest)
    tuned.py --lab 4x2 --rate 1gbit            over so many nodes with so many ranks on each
    tuned.py --evaluate                        write the page again from earlier samples

Tuned are the ranks that are measured, or others, at the sizes that the command takes by itself;
measured are sizes between them. The host alone, as it comes and with each of its algorithms by its
own settings, Overdrive's default, the rules, and every algorithm by its name take turns at every
point; over nodes also what the program's run before has learnt (`learn_file`).

The *regret* of a choice is by how much it is slower than the best of all. Of many noisy medians the
smallest is too small, so the best is found in half of the rounds and all are compared in the other
half, and the other way round. Where ranks share cores a job is a quarter faster or slower than
another of the same kind for as long as it lives, so over nodes each half has jobs of its own, and
algorithms that are far from the best in a first look are left out. Medians are kept in
docs/measurements/data/tuned.csv, the page is docs/measurements/tuned.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from analysis import geometric_mean, size_name
from campaign import PLAIN, Sample, load_part, samples_file, save
from coll_campaign import JUDGED, OTHERS, build
from goals import HOST_TITLES
from jobs import BUILD, ROOT, Host, JobResult, library, select_hosts
from lab_runs import NoLab, nodes_and_ranks, up
from page import machine, table
from turns import WITH_OTHERS, Variant, run_together, start_here

sys.path.insert(0, str(ROOT / "cli"))

from overdrive.bench import serving  # noqa: E402
from overdrive.tune import host_settings  # noqa: E402

COMMAND = [sys.executable, str(ROOT / "overdrive")]
RAW = BUILD / "bench" / "tuned"
DATA = ROOT / "docs" / "measurements" / "data" / "tuned.csv"
PAGE = ROOT / "docs" / "measurements" / "tuned.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
TESTS = (*JUDGED, *OTHERS)
# None of them, nor a neighbour within a tenth, is measured by `overdrive tune`.
SIZES = "40,300,1500,10K,100K,600K"
RANKS = "2,4"
MOST_JOBS = 32
"""That can take turns."""
DEFAULT, TUNED, LEARNT = "default", "tuned", "learnt"
CHOICES = (DEFAULT, TUNED, LEARNT)
HALVES = ("even", "odd")
"""Of the rounds: medians of each, in microseconds; empty where there are none."""
PROMISING = 1.3
"""Whoever takes more times as long as the best at every point of a first look is left out."""
COLUMNS = ["host", "ranks", "collective", "bytes", "variant", *HALVES, "commit"]
Point = tuple[str, str, str, int]
"""Host, ranks, collective, bytes."""
Halves = tuple[dict[str, float], dict[str, float]]
"""What each variant takes in even and in odd rounds."""


@dataclass(frozen=True)
class Place:
    """Where jobs run: on this node, or over the nodes of a virtual cluster."""

    tune: tuple[str, ...]
    """What tells it `overdrive tune`."""
    start: Callable[..., JobResult] = start_here


@contextmanager
def place(options: argparse.Namespace) -> Iterator[Place]:
    """Yield where to measure; a cluster is there as long as it is needed."""
    if not options.lab:
        yield Place(("-n", options.tuned_ranks or options.ranks))
        return
    nodes, per_node = nodes_and_ranks(options.lab)
    with up(nodes, per_node, options.rate) as cluster:
        words = ("--lab", cluster.name, "--ppn", str(per_node), "-n", str(nodes * per_node))
        yield Place(words, cluster.start)


def lab_name(options: argparse.Namespace) -> str:
    """Return what samples over the cluster are called."""
    return options.lab if options.rate == "off" else f"{options.lab} {options.rate}"


def groups(options: argparse.Namespace) -> dict[str, int]:
    """Return the numbers of ranks that are asked for, by what samples call them."""
    if not options.lab:
        return {ranks: int(ranks) for ranks in options.ranks.split(",")}
    nodes, per_node = nodes_and_ranks(options.lab)
    return {lab_name(options): nodes * per_node}


def tune(host: Host, where: Place, options: argparse.Namespace, file: Path) -> None:
    """Let the command measure and write its rules to the file."""
    words = ["tune", *where.tune, "--budget", options.tune, "--launcher", host.launcher]
    words += ["--mpicc", " ".join(host.mpicc), "--output", str(file)]
    words += ["--collectives", options.tests]
    if not options.go_on:
        file.unlink(missing_ok=True)
        words.append("--again")
    environment = {**os.environ, **host.env, "OVERDRIVE_LIBRARY": str(library())}
    with file.with_suffix(".log").open("w") as log:
        subprocess.run([*COMMAND, *words], env=environment, stdout=log, stderr=log, check=True)


def algorithms(test: str, ranks: int, nodes: int, largest: str) -> list[str]:
    """Return the ways that can serve a collective up to a size, as rules write them."""
    words = ["explain", test, largest, "--ranks", str(ranks), "--nodes", str(nodes), "--json"]
    environment = {**os.environ, "OVERDRIVE_LIBRARY": str(library()), "OVERDRIVE_TUNING": "off"}
    done = subprocess.run(
        [*COMMAND, *words], env=environment, capture_output=True, text=True, check=True
    )
    return serving(json.loads(done.stdout))


def variants_of(
    host: Host, test: str, rules: Path, names: list[str], learnt: Path | None
) -> list[Variant]:
    """Return the default, what was tuned, every algorithm, the host alone and its algorithms.

    With a file also what an earlier run has learnt. One more job than MOST_JOBS could not take
    turns; the host's own algorithms come last.
    """
    program, problem = build(host)
    if problem:
        sys.exit(f"tuned: {problem}")
    # The rules of earlier calls of the command would be found by the default.
    none = {"OVERDRIVE_TUNING": "off"}
    variable = f"OVERDRIVE_ADJUST_{test.upper()}"
    found = [
        Variant(PLAIN, host, program),
        Variant(DEFAULT, host, program, library(), none),
        Variant(TUNED, host, program, library(), {"OVERDRIVE_TUNING": str(rules)}),
        Variant("host", host, program, library(), {**none, variable: "host"}),
    ]
    if learnt:
        kept = {**none, "OVERDRIVE_LEARN_FILE": str(learnt)}
        found.append(Variant(LEARNT, host, program, library(), kept))
    found += [Variant(name, host, program, library(), {**none, variable: name}) for name in names]
    family = host_settings.family_of(HOST_TITLES[host.name])
    found += [
        Variant(name, host, program, None, settings)
        for name, settings in host_settings.candidates(family, test).items()
    ]
    return found[:MOST_JOBS]


def run_all(
    variants: list[Variant], arguments: list[str], ranks: int, seconds: float, where: Place
) -> tuple[list[Sample], list[str]]:
    """Return samples and what went wrong; algorithms that the host refuses are left out."""
    while True:
        samples, wrong = run_together(
            variants, arguments, ranks, seconds, 0, start=where.start, folder=RAW
        )
        refused = {
            one.name
            for one in variants
            if host_settings.is_setting(one.name)
            and any(f", {one.name}: " in text and WITH_OTHERS not in text for text in wrong)
        }
        if not refused:
            return samples, wrong
        variants = [one for one in variants if one.name not in refused]


def promising(samples: list[Sample]) -> set[str]:
    """Return the variants that come near the best at some point."""
    values: dict[tuple[str, str, int], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for sample in samples:
        if sample.kind == "all" and sample.shape != "work":
            point = (sample.test, sample.shape, sample.size_bytes)
            values[point][sample.variant].append(sample.value)
    near = set()
    for variants in values.values():
        medians = {name: statistics.median(every) for name, every in variants.items()}
        limit = PROMISING * min(medians.values())
        near |= {name for name, median in medians.items() if median <= limit}
    return near


def run_apart(
    variants: list[Variant],
    arguments: list[str],
    ranks: int,
    where: Place,
    options: argparse.Namespace,
) -> tuple[list[Sample], list[str]]:
    """Return samples of two jobs of each variant that is worth it, in even and in odd rounds.

    One job beforehand learns for those that begin with what was learnt.
    """
    learner = next(one for one in variants if one.name == LEARNT)
    file = Path(learner.settings["OVERDRIVE_LEARN_FILE"])
    file.unlink(missing_ok=True)
    _, wrong = run_all([learner], arguments, ranks, options.seconds / 2, where)
    if wrong:
        return [], wrong
    text = file.read_text() if file.exists() else ""
    rest = [one for one in variants if one.name != LEARNT]
    looked, wrong = run_all(rest, arguments, ranks, options.seconds / 2, where)
    near = promising(looked) | {PLAIN, *CHOICES, "host"}
    kept = [one for one in variants if one.name in near]
    found: list[Sample] = []
    for half in range(len(HALVES)):
        if text:
            file.write_text(text)
        samples, more = run_all(kept, arguments, ranks, options.seconds, where)
        wrong += more
        found += [replace(one, round=len(HALVES) * one.round + half) for one in samples]
    return found, wrong


def measure(host: Host, where: Place, options: argparse.Namespace) -> list[str]:
    """Tune and measure one host; return what went wrong."""
    RAW.mkdir(parents=True, exist_ok=True)
    words = lab_name(options).split() if options.lab else []
    rules = RAW / f"{'-'.join([host.name, *words])}.json"
    if not options.keep_rules:
        tune(host, where, options, rules)
    nodes = nodes_and_ranks(options.lab)[0] if options.lab else 1
    problems: list[str] = []
    for label, ranks in groups(options).items():
        found: list[Sample] = []
        for test in options.tests.split(","):
            arguments = ["--tests", test, "--shapes", "usual,app", "--modes", "blocking"]
            arguments += ["--kinds", "all", "--sizes", options.sizes, "--sample-ms", "3"]
            arguments += ["--share", str(RAW), "--whole-round", "1"]
            names = algorithms(test, ranks, nodes, options.sizes.rsplit(",", 1)[-1])
            learnt = rules.with_suffix(".learnt.json") if options.lab else None
            variants = variants_of(host, test, rules, names, learnt)
            if options.without_host_settings:
                variants = [one for one in variants if not host_settings.is_setting(one.name)]
            if options.lab:
                samples, wrong = run_apart(variants, arguments, ranks, where, options)
            else:
                samples, wrong = run_all(variants, arguments, ranks, options.seconds, where)
            found += samples
            problems += [f"{host.name}, {label}, {test}: {text}" for text in wrong]
        save(found, samples_file(f"{host.name}-{label}", RAW), append=False)
    return problems


def evaluate(name: str, commit: str) -> Iterator[list[str]]:
    """Yield the rows of a host and number of ranks: medians of even and of odd rounds."""
    host, ranks = name.split("-", 1)
    values: dict[tuple[str, int, str], list[list[float]]] = defaultdict(lambda: [[], []])
    for sample in load_part(name, RAW):
        # `work` is what programs do without the call.
        if sample.kind != "all" or sample.shape == "work":
            continue
        point = (f"{sample.test} {sample.shape}", sample.size_bytes, sample.variant)
        values[point][sample.round % 2].append(sample.value)
    for (test, size, variant), halves in sorted(values.items()):
        us = [f"{statistics.median(every):.4g}" if every else "" for every in halves]
        yield [host, ranks, test, str(size), variant, *us, commit]


def is_of_host(name: str) -> bool:
    """Tell whether a variant is the host alone, as it comes or by its own settings."""
    return name == PLAIN or host_settings.is_setting(name)


def point_of(row: dict[str, str]) -> Point:
    """Return what was measured in a row."""
    return row["host"], row["ranks"], row["collective"], int(row["bytes"])


def halves_of(rows: list[dict[str, str]]) -> dict[Point, Halves]:
    """Return the medians of both halves of the rounds, of each point."""
    found: dict[Point, Halves] = {}
    for row in rows:
        both = found.setdefault(point_of(row), ({}, {}))
        for half, name in zip(both, HALVES):
            if row[name]:
                half[row["variant"]] = float(row[name])
    return found


def regret(
    both: Halves, choice: str, rival: Callable[[str], bool] = lambda name: True
) -> float | None:
    """Return by how much a choice is slower than the best rival of a point: 1 is as fast.

    The rival is found in one half and compared in the other, and the other way round. None where
    no half has the choice and a rival.
    """
    ratios = []
    for known, values in (both, both[::-1]):
        common = [name for name in known if name in values]
        rivals = [name for name in common if rival(name)]
        if choice in common and rivals:
            best = min(rivals, key=lambda name: known[name])
            ratios.append(values[choice] / values[best])
    return geometric_mean(ratios) if ratios else None


def regrets(
    rows: list[dict[str, str]], choice: str, rival: Callable[[str], bool] = lambda name: True
) -> dict[Point, float]:
    """Return by how much a choice is slower than the best rival, of each point that has both."""
    found = {point: regret(both, choice, rival) for point, both in halves_of(rows).items()}
    return {point: value for point, value in found.items() if value is not None}


def grouped(rows: list[dict[str, str]]) -> Iterator[tuple[list[str], list[dict[str, str]]]]:
    """Yield host and ranks for people, with their rows."""
    for host, ranks in sorted({(row["host"], row["ranks"]) for row in rows}):
        here = [row for row in rows if (row["host"], row["ranks"]) == (host, ranks)]
        yield [HOST_TITLES[host], ranks], here


def regret_cells(rows: list[dict[str, str]], choice: str) -> list[str]:
    """Return what a table says of a choice's regret: mean, near points, most."""
    found = sorted(regrets(rows, choice).values())
    if not found:
        return ["–"] * 3
    near = sum(value <= 1.05 for value in found)
    return [f"{geometric_mean(found):.3f}", f"{near} of {len(found)}", f"{found[-1]:.2f}"]


def against_host(
    rows: list[dict[str, str]], choice: str, rival: Callable[[str], bool], least: float
) -> str:
    """Return how many times as fast as the host a choice is: mean, least, points below a limit."""
    faster = [1 / lost for lost in regrets(rows, choice, rival).values()]
    if not faster:
        return "–"
    slower = sum(value < least for value in faster)
    return f"{geometric_mean(faster):.2f}, {min(faster):.2f}, {slower} of {len(faster)}"


def glance(rows: list[dict[str, str]]) -> list[str]:
    """Return the table of regrets: hosts and ranks down, default and rules across."""
    body = [
        [
            *names,
            *regret_cells(here, DEFAULT),
            *regret_cells(here, TUNED),
            against_host(here, TUNED, PLAIN.__eq__, 0.97),
            against_host(here, TUNED, is_of_host, 0.95),
        ]
        for names, here in grouped(rows)
    ]
    titles = ["host", "ranks"]
    for choice in (DEFAULT, TUNED):
        titles += [f"{choice}: mean", "at most 1.05", "most"]
    titles += ["tuned against the host: mean, least, below 0.97", "its best setting, below 0.95"]
    return table(titles, body)


def glance_learnt(rows: list[dict[str, str]]) -> list[str]:
    """Return the table of what the run before has learnt, beside the default."""
    body = []
    for names, here in grouped(rows):
        if not regrets(here, LEARNT):
            continue
        cells = [*names]
        for choice in (DEFAULT, LEARNT):
            cells += [*regret_cells(here, choice), against_host(here, choice, PLAIN.__eq__, 0.97)]
        body.append(cells)
    if not body:
        return []
    titles = ["host", "ranks"]
    for choice in (DEFAULT, LEARNT):
        titles += [f"{choice}: mean", "at most 1.05", "most", "against the host, below 0.97"]
    return ["Beginning with what the run before has learnt (`learn_file`):", "",
            *table(titles, body), ""]  # fmt: skip


def worst(rows: list[dict[str, str]], limit: float, most: int) -> list[str]:
    """Return the points at which the rules lose most."""
    found = sorted(((value, point) for point, value in regrets(rows, TUNED).items()), reverse=True)
    found = [(value, point) for value, point in found if value > limit]
    default = regrets(rows, DEFAULT)
    body = [
        [HOST_TITLES[host], ranks, test, size_name(size), f"{value:.2f}",
         f"{default.get((host, ranks, test, size), 0):.2f}"]
        for value, (host, ranks, test, size) in found[:most]
    ]  # fmt: skip
    lines = [f"Points at which the rules are more than {limit - 1:.0%} slower: {len(found)}."]
    if body:
        lines += ["", *table(["host", "ranks", "call", "size", "tuned", "default"], body)]
    return lines


def worth_keeping(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows that say something: all choices, and whoever may be the best.

    What was measured in one half only is compared with nothing, and whoever takes more than twice
    as long as the best in both halves is nobody's rival. The host alone has a best of its own.
    """
    whole = [row for row in rows if all(row[half] for half in HALVES)]
    known = halves_of(whole)
    of_host = halves_of([row for row in whole if is_of_host(row["variant"])])
    kept = []
    for row in whole:
        rivals = of_host if is_of_host(row["variant"]) else known
        halves = zip(HALVES, rivals[point_of(row)])
        near = any(float(row[name]) <= 2 * min(half.values()) for name, half in halves)
        if near or row["variant"] in (PLAIN, *CHOICES, "host"):
            kept.append(row)
    return kept


def write(rows: list[dict[str, str]], commit: str) -> None:
    """Write data and page."""
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with DATA.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(worth_keeping(rows))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    lines = [f"Machine: {machine()} Commit {commits or commit}.", "", *glance(rows)]
    lines += glance_learnt(rows)
    lines += worst(rows, 1.1, 30)
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, END]) + rest.split(END)[1])


def main() -> int:
    """Measure what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", default="openmpi4,mpich4", help="comma-separated names")
    parser.add_argument("--ranks", default=RANKS, help="to measure")
    parser.add_argument("--tuned-ranks", default="", help="to tune, if others than those")
    parser.add_argument("--without-host-settings", action="store_true",
                        help="of the host measure its own choice only")  # fmt: skip
    parser.add_argument("--lab", metavar="NODESxRANKS", help="over so many nodes instead")
    parser.add_argument("--rate", default="off", help="of the links between them")
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--tune", default="5m", help="how long to tune")
    parser.add_argument("--seconds", type=float, default=15, help="of each collective")
    parser.add_argument("--go-on", action="store_true", help="with the last call's measurements")
    parser.add_argument("--keep-rules", action="store_true", help="take those of the last call")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--commit", default="not said")
    options = parser.parse_args()
    hosts, missing = select_hosts(options.host)
    for name, why in missing.items():
        print(f"tuned: without {name}: {why}", file=sys.stderr)
    failed = []
    rows: list[dict[str, str]] = []
    if DATA.exists():
        with DATA.open() as file:
            rows = list(csv.DictReader(file))
    for host in hosts:
        if not options.evaluate:
            try:
                with place(options) as where:
                    failed += measure(host, where, options)
            except NoLab as reason:
                print(f"tuned: no virtual cluster: {reason}", file=sys.stderr)
                return 1
        for ranks in groups(options):
            new = [
                dict(zip(COLUMNS, row, strict=True))
                for row in evaluate(f"{host.name}-{ranks}", options.commit)
            ]
            if new:
                kept = [row for row in rows if (row["host"], row["ranks"]) != (host.name, ranks)]
                rows = kept + new
    for problem in failed:
        print(f"tuned: {problem}", file=sys.stderr)
    write(rows, options.commit)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

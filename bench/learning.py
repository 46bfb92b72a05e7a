#!/usr/bin/env python3
"""Measures what `learn` finds from a wrong start, what noise does to it, and what it costs.

    learning.py                                everything; write the page
    learning.py --host mpich4 --rate 1gbit --parts start --budget 900      only this, added to
                                               the samples that there are
    learning.py --evaluate                     write the page again from earlier samples

Jobs run over the nodes of a virtual cluster. Three parts:

  start   Jobs that learn, from what MPI_Init measures and from two networks that are not there,
          take turns with the best ways by a first look, each forced, and with the host alone.
  noise   Jobs that learn while busy loops come and go on the cores; afterwards the ways that they
          have found and the best one by the first look, forced and undisturbed.
  cost    A job that learns, then one in which the way serves with which that one has ended.

Each job is started anew. Raw samples and what the library has said are kept in
build/bench/learning, medians in docs/measurements/data/learning.csv; the page is
docs/measurements/learning.md.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import learning_page
from campaign import Sample, load_part, next_round, parse_sizes, repeat_for, samples_file, save
from jobs import Failures, Host, select_hosts
from lab_runs import NoLab, nodes_and_ranks, up
from learning_jobs import (
    FAST,
    LEARN,
    SLOW,
    STARTS,
    WRONG,
    Look,
    Outcome,
    Place,
    build,
    look_at,
    samples_of,
    wrong_network,
)
from learning_noise import noise
from learning_page import RAW, VERDICT_COLUMNS, by_job, median_us, switches, verdicts_file

COLLECTIVES = "bcast,reduce,allreduce,allgather"
SIZES = "64,4K,64K,512K"
PARTS = ("start", "noise", "cost")
WORD = 8
NEAR, MOST_WAYS = 3.0, 6
"""Of a first look only ways this near to the best are measured on, and not more."""
FAR, FAR_ROUNDS = 1.3, 3
"""After so many rounds, those so far from the best are not measured on."""
SHORT_US = 1000.0
"""Calls below are short ones."""
LONGEST_US = 40e6
"""Jobs that would take longer are not run."""
NOISY_CALLS, NOISY_TIMES = 100_000, 6
"""Calls of a job amid noise, where its calls take so many times as long."""
QUIET_JOBS = 2
"""Undisturbed jobs of each way that jobs amid noise have found, in a round."""


class Step:
    """One part of one collective at one place."""

    def __init__(
        self, place: Place, part: str, collective: str, options: argparse.Namespace, wrong: Failures
    ) -> None:
        """Take what is to be measured, and have the first look if there was none."""
        self.place, self.part, self.collective = place, part, collective
        self.options, self.failures = options, wrong
        self.sizes = parse_sizes(options.sizes)
        self.look = self._look()

    def _look(self) -> Look:
        """Return the first look, which is kept for further calls of this script."""
        RAW.mkdir(parents=True, exist_ok=True)
        file = RAW / f"{self.place.name}-{self.collective}-look.json"
        if file.exists():
            look = Look.read(file.read_text())
            if all(any(size in of for of in look.us.values()) for size in self.sizes):
                return look
        problems: list[str] = []
        look = look_at(self.place, self.collective, self.sizes, problems)
        # Many ways cannot serve; that is not a failure of this measurement.
        print(f"bench: first look at {self.collective}: {len(problems)} jobs failed", flush=True)
        file.write_text(look.text())
        return look

    def samples(self) -> list[Sample]:
        """Return what has been measured for this step so far."""
        return [
            sample
            for sample in load_part(self.place.name, RAW)
            if (sample.shape, sample.test) == (self.part, self.collective)
        ]

    def fits(self, size: int, calls: int) -> bool:
        """Tell whether so many calls of a size can be waited for."""
        return calls * self.look.fastest(size) <= LONGEST_US

    def job(
        self, name: str, calls: dict[int, int], number: int, rules: dict[str, Path],
        variant: str = "", times: float = 1,
    ) -> Outcome:  # fmt: skip
        """Run a job and keep what it says; `variant` is what samples call it instead of its name.

        Its calls take so many times as long as in the first look.
        """
        us = times * sum(
            count * self.look.us.get(name, {}).get(size, self.look.fastest(size))
            for size, count in calls.items()
        )
        started = self.place.variant(self.collective, name, rules)
        outcome = self.place.run(started, self.collective, calls, us)
        label = variant or name
        found = samples_of(outcome, self.place, self.part, self.collective, label, calls, number)
        save(list(found), samples_file(self.place.name, RAW), append=True)
        self._keep_verdicts(outcome, label, calls, number)
        if outcome.problem:
            self.failures.add(outcome.problem)
        return outcome

    def _keep_verdicts(
        self, outcome: Outcome, variant: str, calls: dict[int, int], number: int
    ) -> None:
        """Keep what the library has said of each size."""
        file = verdicts_file(self.place.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = not file.exists()
        with file.open("a", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            if new:
                writer.writerow(VERDICT_COLUMNS)
            for at, verdict in enumerate(outcome.verdicts):
                inside = [s for s in calls if verdict.least_bytes <= s <= verdict.most_bytes]
                size = inside[0] if inside else -1
                point = [self.part, self.collective, size, calls.get(size, 0), number, variant]
                writer.writerow([*point, at, verdict.way, verdict.times])

    def measure(self, seconds: float) -> None:
        """Repeat rounds until the time is over."""
        kinds = {"start": self.start_round, "noise": self.noise_round, "cost": self.cost_round}
        name = f"{self.place.name}, {self.part}, {self.collective}"
        repeat_for(seconds, name, lambda _left: kinds[self.part](next_round(self.samples())))

    def _rules(self) -> dict[str, Path]:
        """Write the tuning files that are wrong about the network."""
        network = self.look.network
        if network is None:
            return {}
        rules = {}
        for name, factors in WRONG.items():
            rules[name] = RAW / f"{self.place.name}-{name.split()[0]}.json"
            rules[name].write_text(wrong_network(network, factors))
        return rules

    def start_jobs(self) -> dict[str, dict[int, int]]:
        """Return the calls of each size that each job makes."""
        calls = self.options.calls
        sizes = [size for size in self.sizes if self.fits(size, calls)]
        jobs: dict[str, dict[int, int]] = {name: dict.fromkeys(sizes, calls) for name in STARTS}
        before = self.samples()
        for size in sizes:
            ways = self.look.near(size, NEAR, MOST_WAYS)
            here = [s for s in before if s.size_bytes == size]
            if next_round(here) >= FAR_ROUNDS:
                us = median_us(here, learning_page.last_window(here))
                least = min((us[way] for way in ways if way in us), default=0)
                ways = [way for way in ways if us.get(way, least) <= FAR * least]
            for way in ways:
                jobs.setdefault(way, {})[size] = calls
        return jobs

    def start_round(self, number: int) -> None:
        """Run each job once, in an order that changes."""
        rules, jobs = self._rules(), self.start_jobs()
        if not rules:
            self.failures.add(f"{self.place.name}: the library has not said how the network is")
            for name in (FAST, SLOW):
                jobs.pop(name)
        names = list(jobs)
        names = names[number % len(names) :] + names[: number % len(names)]
        for name in names if number % 2 == 0 else names[::-1]:
            self.job(name, jobs[name], number, rules)

    def noise_round(self, number: int) -> None:
        """Run a job of each size amid noise, then the ways that jobs have found, and the best."""
        for size in self.sizes:
            us = self.look.fastest(size)
            if us >= SHORT_US:
                continue
            calls = min(self.options.noisy_calls, int(LONGEST_US / (NOISY_TIMES * us)))
            with noise(number):
                self.job(LEARN, {size: calls}, number, {}, times=NOISY_TIMES)
            here = [
                row
                for row in learning_page.read_verdicts(self.place.name)
                if (row["part"], row["collective"], row["bytes"])
                == (self.part, self.collective, str(size))
            ]
            # Who has not switched may have ended at a slow way as well.
            ends = {ways[-1] for ways in by_job(here)}
            best = self.look.near(size, NEAR, 1)[-1]
            ways = sorted({best} | ends | {way for pair in switches(here) for way in pair})
            for _ in range(QUIET_JOBS):
                for way in ways:
                    self.job(way, {size: self.options.calls}, number, {})

    def cost_round(self, number: int) -> None:
        """Run pairs of jobs: one that learns, one with the way that it has ended with."""
        for size in self.sizes:
            short = self.look.fastest(size) < SHORT_US
            numbers = self.options.short_calls if short else self.options.long_calls
            for calls in map(int, numbers.split(",")):
                if not self.fits(size, calls):
                    continue
                outcome = self.job(LEARN, {size: calls}, number, {})
                if not outcome.verdicts:
                    self.failures.add(
                        f"{self.place.name}, {self.collective}, {size} bytes: no verdict in {calls}"
                    )
                    continue
                way = outcome.verdicts[-1].way
                # Its name would hide that it stands beside the other job.
                self.job(way, {size: calls}, number, {}, learning_page.FORCED)


@contextmanager
def place_of(host: Host, layout: str, rate: str) -> Iterator[Place]:
    """Yield a cluster with a host's jobs."""
    nodes, per_node = nodes_and_ranks(layout)
    program = build(host)
    with up(nodes, per_node, rate) as cluster:
        yield Place(host, layout, rate, program, cluster, nodes * per_node)


def measure(hosts: Sequence[Host], options: argparse.Namespace, failures: Failures) -> None:
    """Measure each part of each collective at each place in an equal share of the time."""
    steps = [
        (host, layout, rate, part, collective)
        for host in hosts
        for layout in options.layout.split(",")
        for rate in options.rate.split(",")
        for part in options.parts.split(",")
        for collective in options.collectives.split(",")
    ]
    end = time.monotonic() + options.budget
    for done, (host, layout, rate, part, collective) in enumerate(steps):
        finish = time.monotonic() + (end - time.monotonic()) / (len(steps) - done)
        with place_of(host, layout, rate) as place:
            step = Step(place, part, collective, options, failures)
            step.measure(finish - time.monotonic())


def main() -> int:
    """Measure what is asked for and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--host", default="openmpi4,mpich4", help="comma-separated names")
    add("--layout", default="4x2", help="nodes x ranks on each; several with commas")
    add("--rate", default="off,1gbit", help="of the links between the nodes")
    add("--collectives", default=COLLECTIVES)
    add("--sizes", default=SIZES, help="bytes, with suffixes K and M")
    add("--parts", default=",".join(PARTS))
    add("--budget", type=float, default=14400, metavar="SECONDS", help="for all of it")
    add("--calls", type=int, default=400, help="of each job of `start`")
    add("--noisy-calls", type=int, default=NOISY_CALLS, help="of each job amid noise, at most")
    add("--short-calls", default="2000,20000", help="of jobs of `cost` below 1 ms a call")
    add("--long-calls", default="500", help="of jobs of `cost` with longer calls")
    add("--evaluate", action="store_true", help="only write the page again")
    add("--commit", default="not said", help="of the library that is measured, for the page")
    options = parser.parse_args()
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"parts are {', '.join(PARTS)}")
    if any(size % WORD for size in parse_sizes(options.sizes)):
        parser.error(f"sizes are multiples of {WORD} bytes")
    failures = Failures()
    if not options.evaluate:
        hosts, missing = select_hosts(options.host)
        for name, why in missing.items():
            print(f"learning: without {name}: {why}", file=sys.stderr)
        try:
            measure(hosts, options, failures)
        except NoLab as reason:
            print(f"learning: no virtual cluster: {reason}", file=sys.stderr)
            return 1
    learning_page.write(options.commit)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

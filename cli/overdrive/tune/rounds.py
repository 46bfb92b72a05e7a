"""Measures in rounds: who may win, and whether that is so where it has not been measured yet.

A number of ranks and a collective follow the other, so that a time that is too short decides some
of them and not none. A heat is one collective, some sizes, and the variants that are still in; all
are jobs that take turns. Three rounds choose: after each the variants that cannot win any more, and
the slower half in any case, are left out; from the second on parameters of the best algorithm take
part too. The last round, in which only the built-in choice and what was best somewhere take part,
decides. It measures the sizes where something else was best, and those halfway to their neighbours:
what is best of many is partly the luckiest, and between two sizes another way may begin.

Every heat has calls on buffers that nobody touches, and calls whose buffers the program rewrites
and reads: what is best for one may be bad for the other. Collectives whose ranks do not know each
other's sizes have one heat, with calls of several sizes: a rule of theirs serves all.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from overdrive import bench
from overdrive.bench_tables import Sample, parse_size
from overdrive.errors import CommandError
from overdrive.progress import Progress
from overdrive.tune import host_settings, rules
from overdrive.tune.journal import Journal
from overdrive.tune.statistics import (
    BUILT_IN,
    Measured,
    Table,
    buckets,
    candidate,
    combined,
    halfway,
    measured,
    ratios,
    survivors,
)

SHARES = (0.35, 0.2, 0.15)
"""Of a collective's time, for each of the rounds that choose."""

LAST = len(SHARES)
"""The number of the round that decides, which has the rest of the time."""

KINDS = ("usual", "app")
"""Of buffers: not touched, or rewritten and read around each call (in its time)."""

SHORTEST_SECONDS = 0.8
"""Of a heat; its jobs take about as long to start."""

PARAMETERS = {
    "radix": ("2", "3", "4", "8", "16"),
    "segment": ("8K", "32K", "128K", "512K"),
    "leaders": ("1", "2", "4", "8"),
    "pipeline": ("128K", "512K", "2M"),
    "window": ("2", "4", "8", "16"),
}
"""Values that are tried, of those that an algorithm takes."""

MOST_JOBS = 24
"""Of one heat; the program that takes turns knows 32."""

SLACK_SECONDS = 10.0
"""What a call may take beyond its budget, so that what is nearly decided is."""

MIXED_BYTES = (64, 4 << 10, 64 << 10, 512 << 10)
"""Sizes of calls where no rule can tell them apart."""


Point = tuple[int, str]
"""Number of ranks and collective."""


@dataclass(frozen=True)
class Heat:
    """What is measured at one go: one collective, some sizes, the variants that are still in."""

    ranks: int
    collective: str
    sizes: tuple[int, ...]

    def name(self, number: int) -> str:
        """Return what the journal calls it in a round."""
        sizes = "+".join(map(str, self.sizes))
        return f"{self.ranks}/{self.collective}/{sizes}/{number}"


@dataclass
class Clock:
    """What of the time is over, and the line that tells it."""

    seconds: float
    progress: Progress
    started: float

    def passed(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.started

    def show(self, text: str) -> None:
        """Tell what is being measured."""
        self.progress.show(self.passed() / self.seconds, text)


@dataclass
class Tuning:
    """One call of the command."""

    bench: bench.Bench
    journal: Journal
    heats: list[Heat]
    seconds: float
    cores: int
    family: str = ""
    """Whose algorithms are known by its own variables (host_settings)."""
    host_alone: bool = False
    known: dict[tuple[Heat, int], list[bench.Variant]] = field(default_factory=dict)
    """Who takes part, by heat and round: to find out takes programs and all samples so far."""
    left: list[Point] = field(default_factory=list)
    """What there was no time to decide."""

    @property
    def usual(self) -> str:
        """Return the variant that the others are compared with."""
        return rules.HOST if self.host_alone else BUILT_IN

    @property
    def points(self) -> list[Point]:
        """Return numbers of ranks and collectives, in the order in which they are measured."""
        return list(dict.fromkeys((heat.ranks, heat.collective) for heat in self.heats))

    def run(self) -> bool:
        """Measure what is not decided yet; False if it was stopped."""
        progress = Progress(self.seconds)
        clock = Clock(self.seconds, progress, time.monotonic())
        todo = [point for point in self.points if not self.is_decided(point)]
        try:
            for i, point in enumerate(todo):
                share = max(0.0, self.seconds - clock.passed()) / (len(todo) - i)
                end = clock.passed() + share
                rounds = range(LAST + 1)
                if not all(self._round(number, point, end, clock) for number in rounds):
                    self.left = todo[i:]
                    break
                self.journal.add(decided_name(point), [])
        except KeyboardInterrupt:
            return False
        finally:
            progress.end()
        return True

    def heats_of(self, point: Point) -> list[Heat]:
        """Return the heats of each round but the last one."""
        return [heat for heat in self.heats if (heat.ranks, heat.collective) == point]

    def is_decided(self, point: Point) -> bool:
        """Tell whether all rounds of it are over."""
        return decided_name(point) in self.journal.heats

    def _round(self, number: int, point: Point, end: float, clock: Clock) -> bool:
        """Measure those heats of a round that are not in the journal; False: the time is over.

        Without the first round nothing is known, and without the last one nothing follows: the
        others only save time, and are left out where the point's share of it is over.
        """
        needed = number in (0, LAST)
        heats = self.last_heats(point) if number == LAST else self.heats_of(point)
        todo = [heat for heat in heats if heat.name(number) not in self.journal.heats]
        todo = [heat for heat in todo if len(self.variants(heat, number)) > 1]
        part = SHARES[number] / (1 - sum(SHARES[:number])) if number < LAST else 1
        begin = clock.passed()
        end = begin + max(0.0, end - begin) * part
        for i, heat in enumerate(todo):
            passed = clock.passed()
            if passed >= self.seconds + SLACK_SECONDS:
                return not needed
            if passed >= end and not needed:
                return True
            variants = self.variants(heat, number)
            starting = 0.3 + 0.1 * len(variants) * heat.ranks / self.cores
            each = max(SHORTEST_SECONDS, (end - passed) / (len(todo) - i) - starting)
            clock.show(
                f"round {number + 1} of {LAST + 1}, {heat.collective} with "
                f"{heat.ranks} ranks, {len(variants)} variants"
            )
            self.journal.add(heat.name(number), self.measure(heat, variants, each))
        return True

    def best_by_size(self, ranks: int, collective: str) -> dict[int, str]:
        """Return what the rounds that choose found best at each size: of many, so by luck too."""
        table = self.choosable(self.table(ranks, collective))
        return {
            size: candidate(table, size, self.usual)
            for size in sorted({size for known in table.values() for size in known})
        }

    def last_heats(self, point: Point) -> list[Heat]:
        """Return what the last round measures: where something else was best, and beside it."""
        ranks, collective = point
        best = self.best_by_size(ranks, collective)
        # One setting of the library's may have to serve all sizes.
        wanted = set(best) if self.host_alone and set(best.values()) != {self.usual} else set()
        for low, high in pairwise(best):
            if {best[low], best[high]} != {self.usual}:
                wanted.add(halfway(low, high))
        wanted |= {size for size, name in best.items() if name != self.usual}
        groups = [[0]] if wanted == {0} else buckets(sorted(wanted))
        return [Heat(ranks, collective, tuple(group)) for group in groups]

    def variants(self, heat: Heat, number: int) -> list[bench.Variant]:
        """Return who takes part in a round; those before it must be over."""
        if (heat, number) not in self.known:
            if number == 0:
                found = self.every_variant(heat)
            elif number == LAST:
                found = self._of_last(heat)
            else:
                found = self._after(heat, number - 1)
            self.known[heat, number] = found
        return self.known[heat, number]

    def _after(self, heat: Heat, number: int) -> list[bench.Variant]:
        """Return who goes on after a round, and after the first one other parameters too."""
        every = self.variants(heat, number)
        names = {variant.name for variant in every}
        table = self.table(heat.ranks, heat.collective, number + 1, heat.sizes)
        table = {name: known for name, known in table.items() if name in names}
        if len(table) < 2:
            return []
        kept = survivors(table, self.usual)
        found = [variant for variant in every if variant.name in kept]
        if number == 0 and not self.host_alone:
            found += self.parameters(heat, table)[: MOST_JOBS - len(found)]
        return found

    def _of_last(self, heat: Heat) -> list[bench.Variant]:
        """Return the built-in choice, and what was best at some size."""
        names = set(self.best_by_size(heat.ranks, heat.collective).values()) | {self.usual}
        found: dict[str, bench.Variant] = {}
        for one in self.heats_of((heat.ranks, heat.collective)):
            for number in range(LAST):
                found.update((each.name, each) for each in self.variants(one, number))
        return [each for name, each in found.items() if name in names][:MOST_JOBS]

    def every_variant(self, heat: Heat) -> list[bench.Variant]:
        """Return the built-in choice, every algorithm that can serve, and the host's own."""
        variable = f"OVERDRIVE_ADJUST_{heat.collective.upper()}"
        own = host_settings.candidates(self.family, heat.collective)
        if self.host_alone:
            found = [bench.Variant(rules.HOST, None)]
            return [*found, *(bench.Variant(name, None, given) for name, given in own.items())]
        found = [bench.Variant(BUILT_IN, {}), bench.Variant(rules.HOST, {variable: rules.HOST})]
        found += [bench.Variant(name, {variable: rules.HOST}, given) for name, given in own.items()]
        for variant in self._bench(heat).algorithms(heat.collective):
            # As rules write it; on one node `/hierarchical` is shared memory alone.
            name = (variant.settings or {})[variable]
            found.append(bench.Variant(name, {variable: name}))
        return found[:MOST_JOBS]

    def parameters(self, heat: Heat, table: Table) -> list[bench.Variant]:
        """Return variants of the best of our algorithms with other parameters."""
        ours = {
            name: sizes
            for name, sizes in host_settings.choosable(table).items()
            if name not in (BUILT_IN, rules.HOST)
        }
        if not ours:
            return []
        best = min(ours, key=lambda name: (min(ratios(table, name)), name))
        takes = self._bench(heat).parameters_of(heat.collective, best)
        variable = f"OVERDRIVE_ADJUST_{heat.collective.upper()}"
        largest = max(measured_bytes(heat))
        most = {"radix": heat.ranks, "leaders": heat.ranks // self.bench.nodes,
                "segment": largest - 1, "pipeline": largest - 1,
                "window": heat.ranks - 1}  # fmt: skip
        found = []
        for name, values in PARAMETERS.items():
            if name not in takes:
                continue
            for value in values:
                size = parse_size(value)
                if size > most[name] or size == takes[name]:
                    continue
                given = {variable: best, f"{variable}_{name.upper()}": value}
                found.append(bench.Variant(f"{best} {name}={value}", given))
        return found

    def _bench(self, heat: Heat) -> bench.Bench:
        options = copy.copy(self.bench.options)
        options.collectives = [heat.collective]
        options.sizes = ",".join(map(str, measured_bytes(heat)))
        return replace(self.bench, options=options, ranks=heat.ranks, problems=[])

    def measure(self, heat: Heat, variants: list[bench.Variant], seconds: float) -> list[Sample]:
        """Return the samples of one heat."""
        for variant in variants:
            # Programs without rules learn between nodes, and that is what rules have to beat.
            if variant.settings:
                variant.settings = {"OVERDRIVE_LEARN": "off", **variant.settings}
        tried_again = False
        while True:
            here = self._bench(heat)
            samples: list[Sample] = []
            if here.spans_nodes():
                bench.one_after_the_other(here, variants, seconds, samples)
            else:
                bench.at_the_same_time(here, variants, seconds, samples)
            if not here.problems:
                return [as_ruled(s) for s in samples if s.what == "all" and s.shape in KINDS]
            # The library may refuse an algorithm for this number of ranks; then it is none.
            refused = {name for name in here.failed if host_settings.is_setting(name)}
            if refused and set(here.failed) == refused:
                variants = [variant for variant in variants if variant.name not in refused]
            elif tried_again:
                raise CommandError(here.problems[0])
            else:
                # Launchers that start and end at the same time trip over each other now and then.
                tried_again = True

    def _samples(self, ranks: int, collective: str, *, last: bool) -> list[Sample]:
        """Return those of the last round, or of all."""
        return [
            sample
            for name, found in self.journal.heats.items()
            if name.startswith(f"{ranks}/{collective}/") and (not last or name.endswith(f"/{LAST}"))
            for sample in found
        ]

    def seen(self, ranks: int, collective: str) -> dict[str, dict[int, Measured]]:
        """Return what is known of a collective: of the last round where a variant was in it.

        Early rounds are short, and see the built-in choice while it still learns.
        """
        table = tabulate(self._samples(ranks, collective, last=False), self.cores)
        for name, sizes in tabulate(
            self._samples(ranks, collective, last=True), self.cores
        ).items():
            table.setdefault(name, {}).update(sizes)
        return table

    def decided(self, ranks: int, collective: str) -> dict[str, dict[int, Measured]]:
        """Return what the last round tells of a collective.

        Elsewhere nothing was better than the usual choice, or there was no time: there it alone is
        known.
        """
        table = tabulate(self._samples(ranks, collective, last=True), self.cores)
        before = self.table(ranks, collective).get(self.usual, {})
        table[self.usual] = {**before, **table.get(self.usual, {})}
        return table

    def choosable(self, table: Table) -> Table:
        """Return the variants that what is written can choose."""
        return table if self.host_alone else host_settings.choosable(table)

    def table(
        self,
        ranks: int,
        collective: str,
        rounds: int = LAST,
        sizes: Sequence[int] | None = None,
    ) -> dict[str, dict[int, Measured]]:
        """Return what the first rounds, all those that choose, tell of a collective."""
        samples = [
            sample
            for heat in self.heats_of((ranks, collective))
            for number in range(rounds)
            for sample in self.journal.heats.get(heat.name(number), [])
            if sizes is None or sample.bytes in sizes
        ]
        return tabulate(samples, self.cores)


def decided_name(point: Point) -> str:
    """Return what the journal calls the end of the last round."""
    return "{}/{}/decided".format(*point)


def measured_bytes(heat: Heat) -> tuple[int, ...]:
    """Return the sizes of the calls of a heat."""
    if heat.collective == "barrier":
        return (8,)  # It has none, and the program wants one.
    return MIXED_BYTES if heat.collective in rules.WITHOUT_SIZE else heat.sizes


def as_ruled(sample: Sample) -> Sample:
    """Return a sample with the size by which rules tell calls apart; others are kinds of calls."""
    if sample.collective not in rules.WITHOUT_SIZE or sample.bytes == 0:
        return sample
    return replace(sample, bytes=0, shape=f"{sample.shape} {sample.bytes}")


def tabulate(samples: Iterable[Sample], cores: int) -> dict[str, dict[int, Measured]]:
    """Return medians by variant and size, of the distance of cores that most samples have.

    A variant that has not been seen with all kinds of buffers at a size cannot be compared there.
    """
    everything = list(samples)
    regimes = Counter(regime for sample in everything if (regime := sample.regime(cores)))
    usual = regimes.most_common(1)[0][0] if regimes else None
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    kinds: dict[int, set[str]] = {}
    for sample in everything:
        if usual is None or sample.regime(cores) == usual:
            here = values.setdefault((sample.job, sample.bytes), {})
            here.setdefault(sample.shape, []).append(sample.us)
            kinds.setdefault(sample.bytes, set()).add(sample.shape)
    found: dict[str, dict[int, Measured]] = {}
    for (variant, size), times in values.items():
        if times.keys() == kinds[size]:
            one = combined([measured(times[kind]) for kind in sorted(times)])
            found.setdefault(variant, {})[size] = one
    return found

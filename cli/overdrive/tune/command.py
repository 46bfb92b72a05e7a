"""`overdrive tune`: which algorithm each collective should take on this machine.

Every algorithm that can serve is a job of the user's own MPI library; the jobs are there at the
same time and take turns at every point, so that whatever disturbs the machine disturbs all alike.
After each of three rounds the variants that cannot win any more, and the slower half in any case,
are left out (successive halving), and what is left of the time goes to the others. A variant gets a
rule only where it is 3 % faster than the built-in choice and their intervals do not overlap, by
what the rounds after the first have measured. From the second round on parameters of the best
algorithm take part too. The library's own algorithms are
measured beside ours, so that the page shows how far its best setting is away; rules cannot name
them.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from overdrive import bench, calibrate, launch, launchers, settings
from overdrive.arguments import Parser, number
from overdrive.bench_tables import Sample, parse_size
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.lab import state as lab_state
from overdrive.options import Options, take_settings
from overdrive.progress import Progress
from overdrive.thresholds import size_text
from overdrive.tune import host_settings, report, rules
from overdrive.tune.journal import Journal, write_whole
from overdrive.tune.statistics import (
    BUILT_IN,
    Measured,
    Table,
    buckets,
    measured,
    ratios,
    regret,
    survivors,
    winner,
)

KNOWN = bench.KNOWN
SIZES = "8,64,512,2K,4K,16K,64K,256K,1M,4M"

SHARES = (0.4, 0.3, 0.3)
"""Of the time, for each round."""

SHORTEST_SECONDS = 0.8
"""Of a heat; its jobs take about as long to start."""

PARAMETERS = {
    "radix": ("2", "3", "4", "8", "16"),
    "segment": ("8K", "32K", "128K", "512K"),
    "leaders": ("1", "2", "4", "8"),
    "pipeline": ("128K", "512K", "2M"),
}
"""Values that are tried, of those that an algorithm takes."""

MOST_JOBS = 24
"""Of one heat; the program that takes turns knows 32."""

SLACK_SECONDS = 10.0
"""What a call may take beyond its budget, so that very short ones measure something of all."""

STOP_STATUS = 130

EPILOG = """\
Without --collectives: all that are measured, which are barrier, bcast, reduce, allreduce,
allgather, alltoall, reduce_scatter, gather, scatter and scan. The rules are written to
tuning-MPI.json in the user's configuration folder, MPI being the library and its version; later
jobs over it find them there by themselves (setting `tuning`). They hold for the numbers of
ranks that were tuned, and for those between two of them that take the same.

It can be stopped at any moment, with Ctrl-C too; the same call goes on from there.

--hosts-launcher names the command that starts a job and waits for it, such as `srun` in an
allocation; {ranks} in it stands for the number of ranks, which otherwise follows it as `-n RANKS`.
--nodes tells on how many nodes such jobs lie. --mpicc names the compiler then.

--emit host measures the MPI library alone, and writes a script that makes it take its best
algorithms, for jobs that cannot use Overdrive (Open MPI, MPICH, Intel MPI).

Examples:
  overdrive tune --budget 3m --collectives allreduce,bcast -n 4
  overdrive tune -n 2,4,8 --launcher /opt/mpich/bin/mpiexec
  overdrive lab up --nodes 4 && overdrive tune --lab --ppn 2
  overdrive tune --hosts-launcher 'srun -N 4 -n {ranks}' --nodes 4 -n 16,64 --mpicc mpicc
  overdrive tune --emit host --output best.sh && source best.sh
"""

VERSION_PROGRAM = """\
#include <mpi.h>
#include <stdio.h>
int main(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return 1;
  fwrite(text, 1, (size_t)length, stdout);
  return 0;
}
"""


def budget(text: str) -> float:
    """Return the seconds of a duration such as 90s, 10m or 2h."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not 1 <= seconds <= 7 * 24 * 3600:
        raise argparse.ArgumentTypeError(
            f"it takes a time such as 90s, 10m or 2h, and not '{text}'"
        )
    return seconds


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive tune",
        description="Measures which algorithm each collective should take here; writes the rules.",
        epilog=EPILOG,
    )
    made.add_argument("--budget", type=budget, default=600.0, metavar="TIME",
                      help="how long to measure (10m)")  # fmt: skip
    made.add_argument("--collectives", default=",".join(KNOWN), metavar="LIST",
                      help="separated by commas")  # fmt: skip
    made.add_argument("-n", default="", metavar="LIST", help="numbers of ranks, such as 2,4,8 (2)")
    made.add_argument("--sizes", default=SIZES, metavar="LIST", help="bytes; suffixes K and M")
    made.add_argument("--launcher", default="mpirun", help="mpirun or another one, or its path")
    made.add_argument("--mpicc", help="compiler of the MPI library, where it is not found")
    made.add_argument("--options", default="", metavar="TEXT", help="options for the launcher")
    made.add_argument(
        "--hosts-launcher", default="", metavar="COMMAND",
        help="what starts jobs in a batch system, such as 'srun -n {ranks}'",
    )  # fmt: skip
    made.add_argument(
        "--nodes", type=number(1, bench.MOST_RANKS), metavar="COUNT",
        help="on how many nodes jobs lie, with --options or --hosts-launcher (1)",
    )  # fmt: skip
    made.add_argument(
        "--emit", choices=["host"],
        help="measure the MPI library alone; write its own best settings",
    )  # fmt: skip
    made.add_argument("--lab", nargs="?", const=lab_state.DEFAULT_NAME, metavar="NAME",
                      help="over a lab that is up")  # fmt: skip
    made.add_argument("--ppn", type=number(1, bench.MOST_RANKS), metavar="RANKS",
                      help="ranks on each node of the lab")  # fmt: skip
    made.add_argument("--output", type=Path, metavar="FILE", help="instead of the user's file")
    made.add_argument("--again", action="store_true", help="forget what was measured before")
    return made


def _parse(words: Sequence[str]) -> argparse.Namespace:
    made = parser()
    options = made.parse_args(list(words))
    options.collectives = [name for name in options.collectives.split(",") if name]
    unknown = [name for name in options.collectives if name not in KNOWN]
    if unknown or not options.collectives:
        made.error(f"--collectives takes some of {', '.join(KNOWN)}")
    try:
        options.counts = sorted({int(word) for word in options.n.split(",") if word})
    except ValueError:
        options.counts = [0]
    if any(not 2 <= count <= bench.MOST_RANKS for count in options.counts):
        made.error(f"-n takes numbers of ranks such as 2,4,8, and not '{options.n}'")
    for text in options.sizes.split(","):
        if not 1 <= parse_size(text) <= bench.MOST_BYTES:
            made.error(f"--sizes takes sizes from 1 to {bench.MOST_BYTES >> 20}M, and not '{text}'")
    if options.ppn is not None and not options.lab:
        made.error("--ppn belongs to --lab; for other nodes use --options")
    for name in ("nodes", "hosts_launcher"):
        if getattr(options, name) and options.lab:
            made.error(f"--{name.replace('_', '-')} and --lab exclude each other")
    try:
        bench.start_words(options.hosts_launcher, 2)
    except ValueError as reason:
        made.error(f"--hosts-launcher {options.hosts_launcher}: {reason}")
    # What Bench reads beside these.
    options.shapes, options.mode, options.sample_ms = "usual", "blocking", None
    options.algorithms = options.without_overdrive = False
    return options


def host_version(compiler: str, environment: Mapping[str, str], start: Sequence[str] = ()) -> str:
    """Return how the MPI library calls itself, without what follows its version.

    `start` is what starts a job of one rank, where a program cannot be run by itself.
    """
    # Other nodes do not see this one's /tmp.
    within = bench.cache_folder(environment) if start else None
    if within is not None:
        within.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=within) as folder:
        source, program = Path(folder) / "version.c", Path(folder) / "version"
        source.write_text(VERSION_PROGRAM)
        done = subprocess.run([compiler, str(source), "-o", str(program)], env=dict(environment),
                              capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode == 0:
            done = subprocess.run([*start, str(program)], env=dict(environment),
                                  capture_output=True, text=True, errors="replace",
                                  check=False)  # fmt: skip
        if done.returncode != 0:
            raise CommandError(
                f"the MPI library of {compiler} does not tell its version:\n{done.stderr.strip()}"
            )
    return short_version(done.stdout)


def short_version(text: str) -> str:
    """Return the first line of a library's version up to a comma: `Open MPI v4.1.4`."""
    return text.splitlines()[0].partition(",")[0].strip() if text.strip() else ""


def standard_file(environment: Mapping[str, str], host: str) -> Path:
    """Return the file that the library loads by itself, over this MPI library (job_terms.cc)."""
    words = re.sub(r"[^a-z0-9.]+", "-", host.lower()).strip("-")
    return calibrate.standard_file(environment).with_name(f"tuning-{words}.json")


@dataclass(frozen=True)
class Heat:
    """What is measured at one go: one collective, some sizes, the variants that are still in."""

    ranks: int
    collective: str
    sizes: tuple[int, ...]

    def name(self, number: int) -> str:
        """Return what the journal calls it in a round."""
        return f"{self.ranks}/{self.collective}/{self.sizes[0]}/{number}"


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
    known: dict[Heat, list[bench.Variant]] = field(default_factory=dict)
    not_measured: int = 0
    """Heats for which there was no time at all."""

    @property
    def usual(self) -> str:
        """Return the variant that the others are compared with."""
        return rules.HOST if self.host_alone else BUILT_IN

    def run(self) -> bool:
        """Measure all rounds; False if it was stopped."""
        progress = Progress(self.seconds)
        started = time.monotonic()
        try:
            for number, share in enumerate(SHARES):
                todo = [heat for heat in self.heats if heat.name(number) not in self.journal.heats]
                todo = [heat for heat in todo if len(self.variants(heat, number)) > 1]
                begin = time.monotonic() - started
                part = share / sum(SHARES[number:])
                end = begin + max(0.0, self.seconds - begin) * part
                for i, heat in enumerate(todo):
                    passed = time.monotonic() - started
                    # The first round tells of all; it is worth more than the time that was named.
                    if passed > self.seconds * (1 if number else 2) + SLACK_SECONDS:
                        if number == 0:
                            self.not_measured = len(todo) - i
                        break
                    variants = self.variants(heat, number)
                    starting = 0.3 + 0.1 * len(variants) * heat.ranks / self.cores
                    each = max(SHORTEST_SECONDS, (end - passed) / (len(todo) - i) - starting)
                    progress.show(
                        passed / self.seconds,
                        f"round {number + 1} of {len(SHARES)}, {heat.collective} with "
                        f"{heat.ranks} ranks, {len(variants)} variants",
                    )
                    self.journal.add(heat.name(number), self.measure(heat, variants, each))
        except KeyboardInterrupt:
            return False
        finally:
            progress.end()
        return True

    def variants(self, heat: Heat, number: int) -> list[bench.Variant]:
        """Return who takes part in a round."""
        if heat not in self.known:
            self.known[heat] = self.every_variant(heat)
        every = self.known[heat]
        for before in range(number):
            names = {variant.name for variant in every}
            table = self.table(heat.ranks, heat.collective, before, heat.sizes)
            table = {name: known for name, known in table.items() if name in names}
            if len(table) < 2:
                return []
            kept = survivors(table, self.usual)
            every = [variant for variant in every if variant.name in kept]
            if before == 0 and not self.host_alone:
                every += self.parameters(heat, table)[: MOST_JOBS - len(every)]
        return every

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
        most = {"radix": heat.ranks, "leaders": heat.ranks // self.bench.nodes,
                "segment": max(heat.sizes) - 1, "pipeline": max(heat.sizes) - 1}  # fmt: skip
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
        # A barrier has no size, and the program wants one.
        options.sizes = ",".join(str(size or 8) for size in heat.sizes)
        return replace(self.bench, options=options, ranks=heat.ranks, problems=[])

    def measure(self, heat: Heat, variants: list[bench.Variant], seconds: float) -> list[Sample]:
        """Return the samples of one heat."""
        # The learning of the program would measure beside us.
        for variant in variants:
            if variant.settings is not None:
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
                return [sample for sample in samples if sample.what == "all"]
            # The library may refuse an algorithm for this number of ranks; then it is none.
            refused = {name for name in here.failed if host_settings.is_setting(name)}
            if refused and set(here.failed) == refused:
                variants = [variant for variant in variants if variant.name not in refused]
            elif tried_again:
                raise CommandError(here.problems[0])
            else:
                # Launchers that start and end at the same time trip over each other now and then.
                tried_again = True

    def confirmed(self, ranks: int, collective: str) -> dict[str, dict[int, Measured]]:
        """Return what the rounds after the first tell of a collective.

        Of many variants the best of one short round is partly the luckiest, so that round only says
        who goes on. Where nobody did, or there was no time, the usual choice alone is known.
        """
        samples: list[Sample] = []
        for heat in self.heats:
            if (heat.ranks, heat.collective) != (ranks, collective):
                continue
            first, *later = (self.journal.heats.get(heat.name(n), []) for n in range(len(SHARES)))
            again = [sample for found in later for sample in found]
            samples += again or [sample for sample in first if sample.job == self.usual]
        return tabulate(samples, self.cores)

    def choosable(self, table: Table) -> Table:
        """Return the variants that what is written can choose."""
        return table if self.host_alone else host_settings.choosable(table)

    def table(
        self, ranks: int, collective: str, last_round: int, sizes: Sequence[int] | None = None
    ) -> dict[str, dict[int, Measured]]:
        """Return what all rounds up to one tell of a collective."""
        samples = [
            sample
            for heat in self.heats
            if (heat.ranks, heat.collective) == (ranks, collective)
            for number in range(last_round + 1)
            for sample in self.journal.heats.get(heat.name(number), [])
            if sizes is None or sample.bytes in sizes or collective == "barrier"
        ]
        return tabulate(samples, self.cores)


def tabulate(samples: Iterable[Sample], cores: int) -> dict[str, dict[int, Measured]]:
    """Return medians by variant and size, of the distance of cores that most samples have."""
    everything = list(samples)
    regimes = Counter(regime for sample in everything if (regime := sample.regime(cores)))
    usual = regimes.most_common(1)[0][0] if regimes else None
    values: dict[str, dict[int, list[float]]] = {}
    for sample in everything:
        if usual is None or sample.regime(cores) == usual:
            values.setdefault(sample.job, {}).setdefault(sample.bytes, []).append(sample.us)
    found: dict[str, dict[int, Measured]] = {}
    for variant, sizes in values.items():
        for size, times in sizes.items():
            if (one := measured(times)) is not None:
                found.setdefault(variant, {})[size] = one
    return found


def summary(tuning: Tuning, options: argparse.Namespace) -> list[str]:
    """Return in a table what wins where and what the built-in choice would lose."""
    lines = []
    for ranks in options.counts:
        for collective in options.collectives:
            table = tuning.confirmed(ranks, collective)
            sizes = sorted({size for known in table.values() for size in known})
            if not sizes:
                lines.append(f"{collective}, {ranks} ranks: not measured")
                continue
            lines.append(f"{collective}, {ranks} ranks")
            for size in sizes:
                best = winner(tuning.choosable(table), size, tuning.usual)
                usual = table.get(tuning.usual, {}).get(size)
                lost = regret(table, size, tuning.usual)
                if usual is None or lost is None:
                    continue
                what = size_text(size)
                text = f"  {what:>6}  {tuning.usual} {usual.median:10.2f} us"
                if best != tuning.usual:
                    mine = table[best][size]
                    times = usual.median / mine.median
                    text += f"  {best} {mine.median:.2f} us, {times:.2f} times as fast"
                elif lost > 0:
                    text += f"  within {100 * lost:.0f} % of the best or not told apart"
                lines.append(text)
    return lines


def _finish(
    tuning: Tuning,
    options: argparse.Namespace,
    output: Path,
    head: tuple[str, str],
    where: Mapping[str, object],
) -> None:
    date = time.strftime("%Y-%m-%d")
    lines = summary(tuning, options)
    points = [(c, ranks) for c in options.collectives for ranks in options.counts]
    seen = {(c, ranks): tuning.table(ranks, c, len(SHARES) - 1) for c, ranks in points}
    tables = {(c, ranks): tuning.confirmed(ranks, c) for c, ranks in points}
    subtitle = f"{head[1]} · {head[0]} · {date}"
    picture = output.with_suffix(".html")
    write_whole(picture, report.render(subtitle, seen, lines, tuning.usual, tuning.choosable))
    print("\n".join(lines))
    if tuning.host_alone:
        files = host_settings.emit(tuning.family, [subtitle], tables, output)
        for path, text in files.items():
            write_whole(path, text)
        print(f"the library's best settings are in {output}; figures: {picture}")
        return
    found: list[dict[str, Any]] = []
    for collective in options.collectives:
        by_ranks = {ranks: tuning.choosable(tables[collective, ranks]) for ranks in options.counts}
        planned = {size for h in tuning.heats if h.collective == collective for size in h.sizes}
        found += rules.rules_of(collective, by_ranks, where, sorted(planned))
    write_whole(output, rules.render(*head, date, found))
    print(f"{len(found)} rules written to {output}; figures: {picture}")


def _bench_of(
    installation: Installation,
    chosen: Options,
    options: argparse.Namespace,
    environment: Mapping[str, str],
) -> bench.Bench:
    """Return what starts jobs."""
    if options.hosts_launcher:
        here = bench.Bench(installation, chosen, options, environment)
        here.job_command = options.hosts_launcher
    else:
        path = shutil.which(options.launcher)
        if path is None:
            raise CommandError(
                f"{options.launcher} was not found: load or install the MPI you want to use, or "
                f"name its launcher with --launcher"
            )
        family = launchers.identify(path).family
        here = bench.Bench(installation, chosen, options, environment, path, family)
    if options.lab:
        here.nodes = len(lab_state.select(options.lab).nodes)
    elif options.nodes:
        here.nodes = options.nodes
    return here


def _compiler_of(here: bench.Bench, options: argparse.Namespace) -> str:
    if here.job_command and options.mpicc is None:
        found = shutil.which("mpicc")
        if found is None:
            raise CommandError("mpicc was not found: name the MPI library's compiler with --mpicc")
        return found
    return bench.find_compiler(here.launcher, options.mpicc)


def run(
    installation: Installation,
    chosen: Options,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> int:
    """Tune; return the exit status."""
    words = take_settings(chosen, list(arguments))
    environment = {**environment, **chosen.variables()}
    # Rules that are there already would be measured, and not the built-in choice.
    environment["OVERDRIVE_TUNING"] = "off"
    options = _parse(words)
    here = _bench_of(installation, chosen, options, environment)
    if not options.counts:
        options.counts = [here.nodes * (options.ppn or 1) if options.lab else 2]
    job, _ = launch.job_environment(installation, chosen, environment)
    launch.check_settings(installation, chosen, job)
    compiler = _compiler_of(here, options)
    here.program = bench.build(bench.source_folder(installation.home), compiler, environment)
    fingerprint = settings.query(installation, environment, "--machine")["fingerprint"]
    start = bench.start_words(here.job_command, 1) if here.job_command else []
    host = host_version(compiler, environment, start)
    host_family = host_settings.family_of(host)
    if options.emit and not host_family:
        raise CommandError(f"--emit host does not know the variables of {host}")
    output: Path = options.output or standard_file(environment, host)
    if options.emit and not options.output:
        output = output.with_name(output.name.replace("tuning-", "host-", 1)).with_suffix(".sh")
    sizes = sorted({parse_size(text) for text in options.sizes.split(",")})
    heats = [
        Heat(ranks, collective, tuple(group))
        for ranks in options.counts
        for collective in options.collectives
        for group in ([[0]] if collective == "barrier" else buckets(sizes))
    ]
    where: dict[str, object] = {"nodes": here.nodes}
    if options.ppn:
        where["ranks_per_node"] = options.ppn
    plan = {"fingerprint": fingerprint, "host": host, "counts": options.counts, "sizes": sizes,
            "collectives": options.collectives, "where": where, "options": options.options,
            "set": sorted(chosen.variables().items()), "emit": options.emit or "",
            "start": options.hosts_launcher}  # fmt: skip
    partial = output.with_name(output.name + ".partial")
    if options.again:
        partial.unlink(missing_ok=True)
    journal = Journal(partial, plan)
    cores = len(os.sched_getaffinity(0))
    print(f"# {host}; {here.nodes} nodes, ranks {options.counts}; {len(heats)} heats, of which "
          f"{len(journal.heats)} are measured already in some round", flush=True)  # fmt: skip
    tuning = Tuning(here, journal, heats, options.budget, cores, host_family, bool(options.emit))
    try:
        complete = tuning.run()
    except BaseException:
        journal.close(remove=False)
        raise
    if not complete:
        journal.close(remove=False)
        print(f"stopped; {len(journal.heats)} heats are kept in {partial}, and the same call goes "
              f"on from there", file=sys.stderr)  # fmt: skip
        return STOP_STATUS
    _finish(tuning, options, output, (fingerprint, host), where)
    journal.close(remove=tuning.not_measured == 0)
    if tuning.not_measured:
        print(f"the time was over before {tuning.not_measured} of {len(heats)} heats were measured "
              f"at all: the same call goes on with them; or name a longer --budget, or less with "
              f"--collectives, -n or --sizes", file=sys.stderr)  # fmt: skip
    return 0

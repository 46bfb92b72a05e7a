"""`overdrive tune`: which algorithm each collective should take on this machine.

Every algorithm that can serve is a job of the user's own MPI library; the jobs are there at the
same time and take turns at every point, so that whatever disturbs the machine disturbs all alike
(`rounds.py`). A variant gets a rule only where it is 3 % faster than the built-in choice, their
intervals do not overlap, and it is not slower with buffers of either kind, by what the last round
alone has measured, also halfway to the neighbouring sizes. The library's own algorithms are
measured beside ours, so that the page shows how far its best setting is away; rules cannot name
them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from overdrive import bench, calibrate, launch, launchers, settings
from overdrive.arguments import Parser, number
from overdrive.bench_tables import parse_size
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.lab import state as lab_state
from overdrive.options import Options, take_settings
from overdrive.thresholds import size_text
from overdrive.tune import host_settings, report, rules
from overdrive.tune.journal import Journal, write_whole
from overdrive.tune.rounds import KINDS, Heat, Tuning
from overdrive.tune.statistics import Table, buckets, halfway, regret, winner

KNOWN = bench.KNOWN
SIZES = "8,64,512,2K,4K,16K,64K,256K,1M,4M"

STOP_STATUS = 130

EPILOG = """\
Without --collectives: all, from bcast to scatterv. They are decided one after the other, so that
a time that is too short decides the first ones. The rules are written to
tuning-MPI.json in the user's configuration folder, MPI being the library and its version; later
jobs over it find them there by themselves (setting `tuning`). They hold for the numbers of
ranks that were tuned, and for those between two of them that take the same.

A rule is written where something was 3 % faster beyond doubt, with buffers that nobody touches and
with buffers that are rewritten and read around each call, once more in a last round and halfway to
the neighbouring sizes too.

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
    options.shapes, options.mode, options.sample_ms = ",".join(KINDS), "blocking", None
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


def summary(
    tuning: Tuning,
    options: argparse.Namespace,
    every: Mapping[report.Key, Table],
    decided: Mapping[report.Key, Table],
) -> list[str]:
    """Return in a table what wins where and what the built-in choice would lose."""
    lines = []
    for ranks in options.counts:
        for collective in options.collectives:
            table, seen = decided[collective, ranks], every[collective, ranks]
            if not seen:
                lines.append(f"{collective}, {ranks} ranks: not measured")
                continue
            lines.append(f"{collective}, {ranks} ranks")
            for size in sorted({size for known in seen.values() for size in known}):
                best = winner(tuning.choosable(table), size, tuning.usual)
                usual = table.get(tuning.usual, {}).get(size)
                lost = regret(seen, size, tuning.usual)
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
    points = [(c, ranks) for c in options.collectives for ranks in options.counts]
    seen = {(c, ranks): tuning.seen(ranks, c) for c, ranks in points}
    tables = {(c, ranks): tuning.decided(ranks, c) for c, ranks in points}
    lines = summary(tuning, options, seen, tables)
    subtitle = f"{head[1]} · {head[0]} · {date}"
    picture = output.with_suffix(".html")
    write_whole(
        picture, report.render(subtitle, seen, tables, lines, tuning.usual, tuning.choosable)
    )
    print("\n".join(lines))
    if tuning.host_alone:
        files = host_settings.emit(tuning.family, [subtitle], tables, output)
        for path, text in files.items():
            write_whole(path, text)
        print(f"the library's best settings are in {output}; figures: {picture}")
        return
    found: list[dict[str, Any]] = []
    sizes = sorted({size for heat in tuning.heats for size in heat.sizes if size})
    planned = [*sizes, *(halfway(low, high) for low, high in pairwise(sizes))]
    for collective in options.collectives:
        by_ranks = {ranks: tuning.choosable(tables[collective, ranks]) for ranks in options.counts}
        found += rules.rules_of(collective, by_ranks, where, planned)
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
        for group in ([[0]] if collective in rules.WITHOUT_SIZE else buckets(sizes))
    ]
    where: dict[str, object] = {"nodes": here.nodes}
    if options.ppn:
        where["ranks_per_node"] = options.ppn
    plan = {"fingerprint": fingerprint, "host": host, "counts": options.counts, "sizes": sizes,
            "collectives": options.collectives, "where": where, "options": options.options,
            "set": sorted(chosen.variables().items()), "emit": options.emit or "",
            "start": options.hosts_launcher, "rounds": "each"}  # fmt: skip
    partial = output.with_name(output.name + ".partial")
    if options.again:
        partial.unlink(missing_ok=True)
    journal = Journal(partial, plan)
    cores = len(os.sched_getaffinity(0))
    tuning = Tuning(here, journal, heats, options.budget, cores, host_family, bool(options.emit))
    decided = sum(map(tuning.is_decided, tuning.points))
    print(f"# {host}; {here.nodes} nodes, ranks {options.counts}; "
          f"{len(options.collectives)} collectives; {decided} of {len(tuning.points)} decided "
          f"already", flush=True)  # fmt: skip
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
    journal.close(remove=not tuning.left)
    if tuning.left:
        names = ", ".join(f"{collective} with {ranks} ranks" for ranks, collective in tuning.left)
        print(f"the time was over before all was decided; left are: {names}. The same call goes on "
              f"with them; or name a longer --budget, or less with --collectives, -n or --sizes",
              file=sys.stderr)  # fmt: skip
    return 0

"""`overdrive bench`: collectives with and without Overdrive over the user's own MPI library.

The measuring program is compiled with the library's compiler and kept in the user's cache. The
compared jobs run at the same time and take turns; where they cannot share a file they run one after
the other, again and again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from overdrive import bench_tables, collectives, launch, launchers, together, trusted
from overdrive.arguments import Parser, number
from overdrive.bench_tables import Sample
from overdrive.errors import CommandError
from overdrive.installation import Installation, is_checkout
from overdrive.lab import state as lab_state
from overdrive.options import Options, take_settings

SOURCES = (
    "coll/od_coll.c",
    "coll/calls.c",
    "coll/results.c",
    "coll/cost.c",
    "p2p/harness.c",
    "p2p/probe.c",
    "p2p/turns.c",
)
HEADERS = ("coll/od_coll.h", "p2p/harness.h", "p2p/probe.h", "p2p/turns.h")
FLAGS = ("-O3", "-g", "-std=gnu11")

JUDGED = ("bcast", "reduce", "allreduce", "allgather", "alltoall", "reduce_scatter", "barrier")
KNOWN = (
    *JUDGED, "reduce_scatter_block", "gather", "scatter", "scan", "exscan", "allgatherv",
    "alltoallv", "alltoallw", "gatherv", "scatterv",
)  # fmt: skip
SIZES = "8,64,512,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M"
MODES = ("blocking", "nonblocking", "persistent")
HOST, OVERDRIVE = "host", "Overdrive"
ROUNDS_APART = 3
"""How often jobs that cannot take turns are run each."""
SHORTEST_SECONDS = 0.1
"""Of one of these runs; starting it takes longer."""
MORE_SECONDS = 120
"""What a job may take beyond its measuring time; where jobs take turns, without any of them having
passed its turn on: the first round of many jobs with slow calls may take minutes."""

EPILOG = """\
Without names: bcast, reduce, allreduce, allgather, alltoall, reduce_scatter and barrier; also
reduce_scatter_block, gather, scatter, scan, exscan, allgatherv, alltoallv, alltoallw, gatherv and
scatterv. Sizes are those of the usual benchmarks: of the buffer; for allgather, alltoall, gather
and scatter the block that one rank sends to one rank; for reduce_scatter and allgatherv all blocks
together. Blocks of the last five differ: of alltoallv, alltoallw, gatherv and scatterv they have
half and one and a half of the size in turn, of allgatherv each second one has three times as much.

shapes: usual = buffers never rewritten; app = every rank writes all it contributes before each call
and reads all it gets after it, everything timed; the same work without the call is shown beside it.

Examples:
  overdrive bench coll
  overdrive bench coll allreduce --shapes app -n 4 --launcher /opt/mpich/bin/mpiexec
  overdrive bench coll bcast --algorithms
  overdrive lab up --nodes 4 && overdrive bench coll allgather --lab --ppn 2
"""


MOST_RANKS, MOST_BYTES, MOST_SECONDS = 1 << 20, 1 << 30, 7 * 24 * 3600.0
"""Far beyond what is measured in earnest; more is a slip of the fingers."""

USAGE = """\
Usage: overdrive bench coll [COLLECTIVE...] [OPTION...]
       overdrive bench arrival [OPTION...]

  coll      collectives with and without Overdrive, with results checked
  arrival   broadcasts, reductions or gathers to which ranks come at different times

`overdrive bench coll --help` and `overdrive bench arrival --help` show the options.
"""


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive bench coll",
        description="Measures collectives with and without Overdrive, and checks their results.",
        epilog=EPILOG,
    )
    made.add_argument("collectives", nargs="*", metavar="COLLECTIVE", help="see below")
    made.add_argument("-n", type=number(1, MOST_RANKS), metavar="RANKS", help="number of ranks (2)")
    made.add_argument("--sizes", default=SIZES, metavar="LIST", help="bytes; suffixes K and M")
    made.add_argument("--shapes", default="usual", metavar="LIST", help="usual, app or both")
    made.add_argument(
        "--mode",
        default=MODES[0],
        choices=MODES,
        help="how the collectives are called; the last ones followed by MPI_Wait at once",
    )
    made.add_argument(
        "--seconds",
        type=number(0.1, MOST_SECONDS, whole=False),
        default=20,
        help="how long to measure (20); each point once in any case",
    )
    made.add_argument(
        "--sample-ms",
        type=number(0.001, 60_000, whole=False),
        metavar="MS",
        help="length of a batch (3; 15 if ranks share cores)",
    )
    made.add_argument("--launcher", default="mpirun", help="mpirun or another one, or its path")
    made.add_argument("--mpicc", help="compiler of the MPI library, where it is not found")
    made.add_argument("--options", default="", metavar="TEXT", help="options for the launcher")
    made.add_argument(
        "--algorithms", action="store_true", help="each algorithm beside Overdrive's own choice"
    )
    made.add_argument(
        "--without-overdrive", action="store_true", help="measure the MPI library alone"
    )
    made.add_argument(
        "--lab",
        nargs="?",
        const=lab_state.DEFAULT_NAME,
        metavar="NAME",
        help="over a lab that is up",
    )
    made.add_argument(
        "--ppn", type=number(1, MOST_RANKS), metavar="RANKS", help="ranks on each node of the lab"
    )
    made.add_argument("--csv", type=Path, metavar="FILE", help="write all samples there")
    return made


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser()
    words = list(arguments)
    if "--options" in words[:-1]:
        # What follows may start with a hyphen itself.
        place = words.index("--options")
        words[place : place + 2] = [f"--options={words[place + 1]}"]
    options = made.parse_args(words)
    unknown = [name for name in options.collectives if name not in KNOWN]
    if unknown:
        made.error(f"'{unknown[0]}' is none of {', '.join(KNOWN)}")
    options.collectives = options.collectives or list(JUDGED)
    wrong = [shape for shape in options.shapes.split(",") if shape not in ("usual", "app")]
    if wrong:
        made.error(f"--shapes takes usual and app, and not '{wrong[0]}'")
    for text in options.sizes.split(","):
        if not 1 <= bench_tables.parse_size(text) <= MOST_BYTES:
            made.error(f"--sizes takes sizes from 1 to {MOST_BYTES >> 20}M, and not '{text}'")
    try:
        shlex.split(options.options)
    except ValueError as reason:
        made.error(f"--options {options.options}: {reason}")
    if options.csv is not None and not options.csv.parent.is_dir():
        made.error(f"--csv {options.csv}: there is no such folder")
    if options.ppn is not None and not options.lab:
        made.error("--ppn belongs to --lab; for other nodes use --options")
    if options.algorithms and len(options.collectives) != 1:
        made.error("--algorithms needs one collective")
    if options.algorithms and options.without_overdrive:
        made.error("--algorithms and --without-overdrive exclude each other")
    return options


@dataclass(frozen=True)
class Program:
    """A measuring program: its name and the files that it is made of."""

    name: str
    sources: tuple[str, ...]
    headers: tuple[str, ...]


COLLECTIVES = Program("od_coll", SOURCES, HEADERS)


def source_folder(home: Path, made: Program = COLLECTIVES) -> Path:
    """Return the folder of the program's sources in a checkout or below a prefix."""
    folder = home / "bench" if is_checkout(home) else home / "share" / "overdrive" / "bench"
    missing = [name for name in (*made.sources, *made.headers) if not (folder / name).exists()]
    if missing:
        raise CommandError(f"{folder / missing[0]} is missing: install Overdrive completely")
    return folder


def find_compiler(launcher: str, named: str | None) -> str:
    """Return the C compiler that belongs to a launcher, which lies beside it."""
    if named is not None:
        path = shutil.which(named)
        if path is None:
            raise CommandError(f"{named} is not an executable file")
        return path
    name = Path(launcher).name
    suffix = name.partition(".")[2]
    names = [f"mpicc.{suffix}"] if suffix else []
    names += ["mpicc.mpich"] if suffix == "hydra" else []
    for folder in dict.fromkeys([Path(launcher).parent, Path(launcher).resolve().parent]):
        for candidate in (*names, "mpicc"):
            if os.access(folder / candidate, os.X_OK):
                return str(folder / candidate)
    raise CommandError(
        f"there is no mpicc beside {launcher}: install the MPI library's compiler, or name it with "
        f"--mpicc"
    )


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the compiled programs."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or tempfile.gettempdir(), ".cache"
    )
    return Path(base) / "overdrive" / "bench"


def build(
    sources: Path, compiler: str, environment: Mapping[str, str], made: Program = COLLECTIVES
) -> Path:
    """Compile the program unless that has been done with this compiler and these sources."""
    content = hashlib.sha256(os.path.realpath(compiler).encode())
    content.update(str(os.stat(compiler).st_mtime_ns).encode())
    for name in (*made.sources, *made.headers):
        content.update((sources / name).read_bytes())
    folder = cache_folder(environment) / content.hexdigest()[:16]
    program = folder / made.name
    # It will be run: nobody else may have put it there.
    trusted.make_own_folder(folder)
    if program.exists():
        trusted.check_own_file(program)
        return program
    partial = folder / f"{made.name}.{os.getpid()}"
    command = [compiler, *FLAGS, *(str(sources / name) for name in made.sources), "-lm"]
    done = subprocess.run(
        [*command, "-o", str(partial)],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CommandError(f"{compiler} cannot compile the benchmark:\n{done.stderr.strip()}")
    partial.replace(program)
    return program


@dataclass
class Variant:
    """One of the compared jobs; `settings` is None for the MPI library alone."""

    name: str
    settings: dict[str, str] | None
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the MPI library."""


def serving(report: Mapping[str, Any]) -> list[str]:
    """Return Overdrive's ways that can serve, as rules write them, of what `explain` tells.

    On one node the hierarchical form of every algorithm is shared memory alone: it is there once.
    """
    found: list[str] = []
    shared = False
    for candidate in report["candidates"]:
        if candidate["why_not"] or candidate["algorithm"] == "host":
            continue
        if report["nodes"] == 1 and candidate["mode"] == "hierarchical":
            if shared:
                continue
            shared = True
        found.append(f"{candidate['algorithm']}/{candidate['mode']}")
    return found


@dataclass
class Bench:
    """One call of the command."""

    installation: Installation
    chosen: Options
    options: argparse.Namespace
    environment: Mapping[str, str]
    launcher: str = ""
    family: str = ""
    program: Path = Path()
    nodes: int = 1
    ranks: int = 2
    job_command: str = ""
    """What starts a job where no launcher is called directly; `{ranks}` stands for their number."""
    problems: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Variants whose jobs failed, and were not ended because another one had."""

    def variants(self) -> list[Variant]:
        """Return the jobs to compare."""
        found = [Variant(HOST, None)]
        if not self.options.without_overdrive:
            found.append(Variant(OVERDRIVE, {}))
        if self.options.algorithms:
            found += self.algorithms(self.options.collectives[0])
        return found

    def algorithms(self, collective: str) -> list[Variant]:
        """Return a job for each algorithm that can serve."""
        largest = max(bench_tables.parse_size(text) for text in self.options.sizes.split(","))
        words = ["explain", collective, str(largest), "--ranks", str(self.ranks)]
        words += ["--nodes", str(self.nodes)]
        report, _ = collectives.query(self.installation, self.environment, *words)
        found = []
        for name in serving(report):
            shared = self.nodes == 1 and name.endswith("/hierarchical")
            value = {f"OVERDRIVE_ADJUST_{collective.upper()}": name}
            found.append(Variant("shared memory" if shared else name, value))
        return found

    def parameters_of(self, collective: str, variant: str) -> dict[str, int]:
        """Return what an algorithm such as `ring/flat` takes as parameters, and its values."""
        largest = max(bench_tables.parse_size(text) for text in self.options.sizes.split(","))
        words = ["explain", collective, str(largest), "--ranks", str(self.ranks)]
        words += ["--nodes", str(self.nodes)]
        report, _ = collectives.query(self.installation, self.environment, *words)
        for candidate in report["candidates"]:
            if f"{candidate['algorithm']}/{candidate['mode']}" == variant:
                return dict(candidate["parameters"])
        return {}

    def session(self, environment: dict[str, str]) -> AbstractContextManager[dict[str, str]]:
        """Return the environment of one of several jobs that run here at the same time.

        In a virtual cluster launchers are on its head, and nodes have their own places.
        """
        if self.family != "openmpi" or self.options.lab or self.job_command:
            return contextlib.nullcontext(environment)
        return together.own_session(environment)

    def command(self, variant: Variant, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the environment of a job."""
        program = [str(self.program), *arguments]
        environment = {**self.environment, **variant.environment, **(variant.settings or {})}
        if self.job_command:
            return self._batch_command(variant, program, environment), dict(self.environment)
        extra = shlex.split(self.options.options)
        if self.options.lab:
            words = [sys.executable, os.path.abspath(sys.argv[0]), "lab", self.launcher]
            words += ["--name", self.options.lab, "-n", str(self.ranks)]
            words += ["--ppn", str(self.options.ppn)] if self.options.ppn else []
            words += ["--without-overdrive"] if variant.settings is None else []
            words += ["--options", self.options.options] if extra else []
            return [*words, *program], {**environment, **self.chosen.variables()}
        environment.update(self._oversubscription())
        words = [self.launcher, "-n", str(self.ranks), *extra, *program]
        if variant.settings is None:
            return words, environment
        job, ours = launch.job_environment(self.installation, self.chosen, environment)
        return launch.launch_command(words, job, ours), job

    def _batch_command(
        self, variant: Variant, program: list[str], environment: Mapping[str, str]
    ) -> list[str]:
        words = start_words(self.job_command, self.ranks)
        given = dict(variant.environment)
        if variant.settings is not None:
            job, ours = launch.job_environment(self.installation, self.chosen, environment)
            names = [name for name in job if name.startswith("OVERDRIVE_") or name in ours]
            given.update((name, job[name]) for name in names)
        # Not everything that starts jobs hands on its environment.
        pairs = [f"{name}={value}" for name, value in sorted(given.items())]
        return [*words, "env", *pairs, *program] if pairs else [*words, *program]

    def _oversubscription(self) -> dict[str, str]:
        """Return what lets Open MPI start more ranks than there are cores."""
        if self.family != "openmpi" or self.ranks <= len(os.sched_getaffinity(0)):
            return {}
        usual = {
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
        }
        return {name: value for name, value in usual.items() if name not in self.environment}

    def arguments(self) -> list[str]:
        """Return the arguments that all jobs get."""
        usual_ms = 15 if self.ranks > len(os.sched_getaffinity(0)) else 3
        return [
            *("--tests", ",".join(self.options.collectives), "--sizes", self.options.sizes),
            *("--shapes", self.options.shapes, "--kinds", "all,min,avg,max"),
            *("--modes", self.options.mode),
            *("--sample-ms", f"{self.options.sample_ms or usual_ms:g}"),
            # A point that is missing from the table would say nothing about why.
            *("--whole-round", "1"),
        ]

    def spans_nodes(self) -> bool:
        """Tell whether ranks may be on other machines, which share no file to take turns over."""
        if self.job_command:
            return True
        words = shlex.split(self.options.options)
        return launchers.spans_nodes(self.family, words, self.environment) and not self.options.lab


def start_words(command: str, ranks: int) -> list[str]:
    """Return the words that start a job of so many ranks."""
    words = shlex.split(command)
    if any("{ranks}" in word for word in words):
        return [word.replace("{ranks}", str(ranks)) for word in words]
    return [*words, "-n", str(ranks)]


def run_job(
    command: list[str],
    environment: dict[str, str],
    seconds: float,
    stop: threading.Event,
    progress: Callable[[], object] = lambda: None,
) -> tuple[str, str, bool]:
    """Run a job; return what it wrote on both channels, and whether it ended well.

    It is ended after so many seconds in which `progress` has not returned anything else.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    waited = 0.0
    seen = progress()
    while True:
        try:
            out, err = process.communicate(timeout=0.3)
            return out, err, process.returncode == 0
        except subprocess.TimeoutExpired:
            waited += 0.3
            last, seen = seen, progress()
            if seen != last:
                waited = 0.0
            if stop.is_set() or waited > seconds:
                process.terminate()
                try:
                    out, err = process.communicate(timeout=5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    out, err = process.communicate()
                if waited > seconds:
                    err += f"\nended, because nothing had happened for {seconds:.0f} s"
                return out, err, False


def at_the_same_time(
    bench: Bench, variants: list[Variant], seconds: float, samples: list[Sample]
) -> None:
    """Run all jobs at the same time; they take turns over a file."""
    outcomes: dict[int, tuple[str, str, bool]] = {}
    stop = threading.Event()
    folder = cache_folder(bench.environment)
    with tempfile.NamedTemporaryFile(prefix="turns-", dir=folder) as turns:

        def run(index: int) -> None:
            words = [*bench.arguments(), "--seconds", f"{seconds:.1f}", "--share", str(folder)]
            words += ["--turns", f"{turns.name},{index},{len(variants)}"]
            command, environment = bench.command(variants[index], words)
            with bench.session(environment) as own:
                limit = seconds + MORE_SECONDS
                outcomes[index] = run_job(command, own, limit, stop, Path(turns.name).read_bytes)
            if not outcomes[index][2]:
                if not stop.is_set():
                    bench.failed.append(variants[index].name)
                stop.set()

        together.all_at_once(len(variants), run, stop)
    for index, variant in enumerate(variants):
        _take(bench, variant, outcomes[index], samples)


def one_after_the_other(
    bench: Bench, variants: list[Variant], seconds: float, samples: list[Sample]
) -> None:
    """Run jobs in alternation, for those on other machines."""
    each = max(SHORTEST_SECONDS, seconds / ROUNDS_APART / len(variants))
    for _ in range(ROUNDS_APART):
        for variant in variants:
            words = [*bench.arguments(), "--seconds", f"{each:.1f}"]
            command, environment = bench.command(variant, words)
            outcome = run_job(command, environment, each + MORE_SECONDS, threading.Event())
            if not outcome[2]:
                bench.failed.append(variant.name)
            _take(bench, variant, outcome, samples)


def _take(
    bench: Bench, variant: Variant, outcome: tuple[str, str, bool], samples: list[Sample]
) -> None:
    out, err, good = outcome
    samples += bench_tables.parse(out, variant.name)
    if not good:
        tail = "\n  ".join(err.strip().splitlines()[-6:])
        bench.problems.append(f"{variant.name} failed:\n  {tail}")


@contextlib.contextmanager
def _csv(path: Path | None) -> Iterator[list[Sample]]:
    samples: list[Sample] = []
    yield samples
    if path is not None:
        bench_tables.write_csv(path, samples)
        print(f"{len(samples)} samples: {path}", file=sys.stderr)


def run(
    installation: Installation,
    chosen: Options,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> int:
    """Measure and print; return the exit status."""
    if arguments[:1] in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    if not arguments or arguments[0] != "coll":
        raise CommandError(
            "`overdrive bench` measures collectives: `overdrive bench coll --help`, "
            "`overdrive bench arrival --help`"
        )
    words = take_settings(chosen, list(arguments[1:]))
    environment = {**environment, **chosen.variables()}
    options = _parse(words)
    path = shutil.which(options.launcher)
    if path is None:
        raise CommandError(
            f"{options.launcher} was not found: load or install the MPI you want to use, or name "
            f"its launcher with --launcher"
        )
    found = launchers.identify(path)
    bench = Bench(installation, chosen, options, environment, path, found.family)
    if options.lab:
        bench.nodes = len(lab_state.select(options.lab).nodes)
    bench.ranks = options.n or (bench.nodes * (options.ppn or 1) if options.lab else 2)
    if not options.without_overdrive:
        job, _ = launch.job_environment(installation, chosen, environment)
        launch.check_settings(installation, chosen, job)
    bench.program = build(
        source_folder(installation.home), find_compiler(path, options.mpicc), environment
    )
    variants = bench.variants()
    place = f"{bench.nodes} nodes of lab '{options.lab}'" if options.lab else "this node"
    if bench.spans_nodes():
        place = "several nodes"
    print(f"# {found.title}; {bench.ranks} ranks, {place}", flush=True)
    with _csv(options.csv) as samples:
        if bench.spans_nodes():
            one_after_the_other(bench, variants, options.seconds, samples)
        else:
            at_the_same_time(bench, variants, options.seconds, samples)
    names = [variant.name for variant in variants]
    cores = len(os.sched_getaffinity(0))
    print(bench_tables.render(samples, names, options.collectives, cores), end="")
    for problem in bench.problems:
        print(f"overdrive: error: {problem}", file=sys.stderr)
    return 1 if bench.problems else 0

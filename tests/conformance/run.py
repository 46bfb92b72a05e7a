#!/usr/bin/env python3
"""Checks that whatever passes without Overdrive passes with it.

Two test suites that were written by others for other purposes serve as black boxes: MPICH's own
(from Debian's source package) and mpi4py's own (from its source on PyPI). Every test runs without
and with Overdrive on every host MPI; the difference must be empty.

    run.py --all               everything; writes docs/measurements/conformance.md
    run.py --representative    the part that `make check` runs
    run.py --forced-paths      parts of both suites with each way of copying forced in turn
    run.py --lab               parts of both suites over several nodes, for each layout in turn
    run.py --first-arrival     collectives of MPICH's suite over several nodes, those that have such
                               a form begun by whoever comes first, or ended by whoever comes last
    run.py --overlap           parts of both suites over several nodes, with collectives that return
                               before their data have arrived
    run.py --hosts mpich4 --dirs pt2pt,comm --only icsend --verbose
    run.py --hosts mpich4 --dirs pt2pt --settings copy_path=pull,reach_min=4K
    run.py --hosts openmpi4 --dirs coll,mpi4py --lab 2x2,3+1+2,2x2:round-robin
    run.py --page              writes the page from the results of all earlier invocations, which
                               it adds to those in docs/measurements/data/conformance
"""

# ruff: noqa: E402 -- the folders of our own modules must be known first

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "hosts")]

import hosts as host_mpis

from conformance import lab, mpi4py_tests, mpich_tests, report, store
from conformance.compare import (
    DIFFERENCE,
    FLAKY_WITH,
    WITH_FIRST,
    WITHOUT_FIRST,
    WITHOUT_ONLY,
    Result,
)
from conformance.jobs import DEFAULT_LIBRARY, layout_label, settings_label
from conformance.processes import STOP, Interrupted
from conformance.selection import (
    ARRIVAL,
    ARRIVAL_DIRECTORIES,
    ARRIVAL_LAYOUTS,
    FORCED,
    FORCED_DIRECTORIES,
    FORCED_MPI4PY_HOSTS,
    FORCED_MPI4PY_RANKS,
    FORCED_MPICH_HOSTS,
    HANGING_OVER_NODES,
    HEAVY_MPI4PY,
    LAB_DIRECTORIES,
    LAB_HOSTS,
    ONE_RANK_MPI4PY,
    OVERLAP,
    OVERLAP_DIRECTORIES,
    OVERLAP_LAYOUTS,
    left_out_of_mpi4py,
)
from conformance.suite import SuiteError

WORK = ROOT / "build" / "conformance"
PAGES = ROOT / "docs" / "measurements"
KEPT = ROOT / "docs" / "measurements" / "data" / "conformance"

SAVE_AFTER = 10
"""Results of MPICH's suite between two writes of the store."""

ALL_MPICH_HOSTS = ["openmpi4", "mpich4"]
"""Where `--all` runs MPICH's suite: the distribution's MPI libraries; mpi4py's runs everywhere."""

LAB_PARTS = {
    settings_label(ARRIVAL): ARRIVAL_DIRECTORIES,
    settings_label(OVERLAP): OVERLAP_DIRECTORIES,
}
"""Folders of MPICH's suite that run in the lab with these settings."""

ALL_MPI4PY_RANKS = (1, 2, 3, 4)

REPRESENTATIVE_DIRECTORIES = ["threads", "pt2pt", "comm", "datatype", "f77", "f08"]
"""Not f90: its tests are those of f77, which call the same entry points. The longest come first, so
that none is left for the end, when the other processors have nothing to do."""
REPRESENTATIVE_MPICH_HOSTS = ["mpich4"]
REPRESENTATIVE_MPI4PY_HOSTS = ["openmpi5", "mpich5"]


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--all", action="store_true", help="all tests; write the page")
    parts.add_argument("--page", action="store_true", help="write the page from earlier runs")
    parts.add_argument("--representative", action="store_true", help="the part for `make check`")
    parts.add_argument(
        "--forced-paths", action="store_true", help="each way of copying forced in turn"
    )
    parser.add_argument(
        "--first-arrival",
        action="store_true",
        help=f"collectives begun by whoever comes first, over {','.join(ARRIVAL_LAYOUTS)} or --lab",
    )
    parser.add_argument(
        "--overlap",
        action="store_true",
        help=f"with collectives that return early, over {','.join(OVERLAP_LAYOUTS)} or --lab",
    )
    parser.add_argument(
        "--lab",
        nargs="?",
        const=",".join(lab.LAYOUTS),
        default="",
        metavar="LAYOUT,...",
        help=f"jobs over the nodes of `overdrive lab`, placed like this ({','.join(lab.LAYOUTS)}); "
        "results are kept apart",
    )
    parser.add_argument("--hosts", default="", help=f"of {','.join(host_mpis.NAMES)}")
    parser.add_argument("--dirs", default="", help="folders of MPICH's suite, or mpi4py")
    parser.add_argument("--only", default="", help="tests whose name contains this text")
    parser.add_argument("--ranks", default="", help="numbers of ranks for mpi4py, e.g. 1,2")
    parser.add_argument("--jobs", type=int, default=2, help="MPI jobs at once (2)")
    parser.add_argument("--build-jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--nice", type=int, default=0, help="lower the priority by this much")
    parser.add_argument(
        "--settings", default="", help="NAME=VALUE,... for Overdrive; results are kept apart"
    )
    parser.add_argument("--patience", type=float, default=1.0, help="factor for time limits (1)")
    parser.add_argument("--without-only", action="store_true", help="only run without Overdrive")
    parser.add_argument(
        "--library", dest="lib", type=Path, default=DEFAULT_LIBRARY, help="what is preloaded"
    )
    parser.add_argument("--with-first", action="store_true", help="run without only what fails")
    parser.add_argument("--fresh", action="store_true", help="forget stored runs without Overdrive")
    parser.add_argument(
        "--continue", dest="resume", action="store_true",
        help="only tests without a result, stored here or in docs/measurements/data/conformance",
    )  # fmt: skip
    parser.add_argument(
        "--without-heavy",
        action="store_true",
        help="leave out what takes long, and of mpi4py's suite what passes through to the host",
    )
    parser.add_argument("--build-only", action="store_true", help="only build MPICH's suite")
    parser.add_argument("--stacks", action="store_true", help="show where a hanging test waits")
    parser.add_argument("--verbose", action="store_true", help="show outputs of differing tests")
    options = parser.parse_args()
    chosen = options.all or options.representative or options.page or options.forced_paths
    if chosen and options.lab:
        parser.error("--lab goes with --hosts, --dirs and the like only; --all includes it")
    if options.first_arrival:
        if chosen or options.dirs or options.settings:
            parser.error("--first-arrival goes with --lab, --hosts, --only and the like")
        options.lab = options.lab or ",".join(ARRIVAL_LAYOUTS)
    if options.overlap:
        if chosen or options.first_arrival or options.settings:
            parser.error("--overlap goes with --lab, --hosts, --dirs, --only and the like")
        options.lab = options.lab or ",".join(OVERLAP_LAYOUTS)
    if not chosen and not (options.hosts or options.dirs or options.lab):
        parser.error(
            "choose --all, --representative, --forced-paths, --lab, --first-arrival, --overlap, "
            "--page, --hosts or --dirs"
        )
    try:
        options.lab = [lab.parse_layout(text) for text in options.lab.split(",") if text]
    except ValueError as problem:
        parser.error(f"--lab: {problem}")
    pairs = [text.partition("=") for text in options.settings.split(",") if text]
    if not all(equals and value for _, equals, value in pairs):
        parser.error("--settings takes NAME=VALUE, several separated by commas")
    options.settings = {name: value for name, _, value in pairs}
    if options.first_arrival:
        options.dirs, options.settings = ",".join(ARRIVAL_DIRECTORIES), dict(ARRIVAL)
        options.hosts = options.hosts or ",".join(LAB_HOSTS)
        options.without_heavy = True
    if options.overlap:
        options.dirs = options.dirs or ",".join([*OVERLAP_DIRECTORIES, "mpi4py"])
        options.settings = dict(OVERLAP)
        options.hosts = options.hosts or ",".join(LAB_HOSTS)
        options.without_heavy = True
    return options


def announce(name: str, result: Result, verbose: bool) -> None:
    """Print a line for a test that is not as it should be."""
    if result.status not in (DIFFERENCE, FLAKY_WITH):
        return
    print(f"{result.status.upper()} {name} {result.identity}: {result.reason}", flush=True)
    if verbose:
        for title, text in (
            ("with Overdrive", result.output),
            ("without", result.output_without),
            ("stacks", result.stacks),
        ):
            if text.strip():
                print(f"--- {title}\n{text.rstrip()}\n---", flush=True)


def chosen_hosts(options: argparse.Namespace) -> list:
    """Return the hosts to test; tells which are not there."""
    names = options.hosts.split(",") if options.hosts else host_mpis.NAMES
    if options.representative and not options.hosts:
        names = [*REPRESENTATIVE_MPICH_HOSTS, *REPRESENTATIVE_MPI4PY_HOSTS]
    found = []
    for name in names:
        if name not in host_mpis.NAMES:
            raise SystemExit(f"unknown host {name}; known: {', '.join(host_mpis.NAMES)}")
        host = host_mpis.get(name)
        if host is None:
            print(f"host {name} skipped: {host_mpis.probe(name)}", flush=True)
        else:
            found.append(host)
    return found


def write_page(options: argparse.Namespace, skipped: list[str]) -> int:
    """Write the page of docs/measurements from everything that is stored, here and elsewhere."""
    store.keep(WORK, KEPT)
    whole = report.Report(skipped=skipped)
    hosts = chosen_hosts(options)
    for host in hosts:
        for layout, settings in store.kinds(KEPT, host.name):
            found, parts = store.load(KEPT, host.name, host.version, settings, layout)
            whole.mpi4py += parts
            if found is not None:
                whole.mpich.append(found)
                part = FORCED_DIRECTORIES if settings else mpich_tests.DIRECTORIES
                if layout:
                    part = LAB_PARTS.get(settings, LAB_DIRECTORIES)
                mpich_tests.add_what_did_not_run(host, WORK, found, part)
    whole.skipped += missing_parts(whole, [host.name for host in hosts])
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in ((report.PAGE, report.page(whole)), (report.DETAILS, report.details(whole))):
        (PAGES / name).write_text(text, encoding="utf-8")
        print(f"wrote {(PAGES / name).relative_to(ROOT)}")
    report.write_not_compared(whole, KEPT / "not-compared.csv")
    print(whole.summary())
    return 1 if whole.differences() else 0


def missing_parts(whole: report.Report, hosts: list[str]) -> list[str]:
    """Return what the page lacks altogether."""
    labels = [settings_label(settings) for settings in FORCED]
    # Host, settings, layout, ranks of mpi4py's suite (0: MPICH's suite).
    wanted: list[tuple[str, str, str, int]] = [(name, "", "", 0) for name in ALL_MPICH_HOSTS]
    wanted += [(name, "", "", ranks) for name in hosts for ranks in ALL_MPI4PY_RANKS]
    wanted += [(name, label, "", 0) for label in labels for name in FORCED_MPICH_HOSTS]
    for label in labels:
        for name in FORCED_MPI4PY_HOSTS:
            wanted += [(name, label, "", ranks) for ranks in FORCED_MPI4PY_RANKS]
    for layout in lab.LAYOUTS:
        numbers = (0, lab.parse_layout(layout).ranks)
        wanted += [(name, "", layout, ranks) for name in LAB_HOSTS for ranks in numbers]
    label = settings_label(ARRIVAL)
    wanted += [(name, label, layout, 0) for layout in ARRIVAL_LAYOUTS for name in LAB_HOSTS]
    label = settings_label(OVERLAP)
    for layout in OVERLAP_LAYOUTS:
        numbers = (0, lab.parse_layout(layout).ranks)
        wanted += [(name, label, layout, ranks) for name in LAB_HOSTS for ranks in numbers]
    found = {(part.host, part.settings, part.layout, 0) for part in whole.mpich}
    found |= {(part.host, part.settings, part.layout, part.ranks) for part in whole.mpi4py}
    missing: dict[tuple[str, str, str], list[int]] = {}
    for name, label, layout, ranks in wanted:
        if name in hosts and (name, label, layout, ranks) not in found:
            missing.setdefault((name, label, layout), []).append(ranks)
    alike: dict[tuple[str, str], list[str]] = {}
    for (name, label, layout), numbers in missing.items():
        suites = ["MPICH's suite"] if 0 in numbers else []
        several = ", ".join(str(number) for number in numbers if number)
        suites += [f"mpi4py's suite with {several} ranks"] if several else []
        where = f"`{label}` forced" if label else "one node"
        if layout:
            where = f"in the lab, {layout}" + (f", with `{label}`" if label else "")
        alike.setdefault((where, " and ".join(suites)), []).append(name)
    places: dict[str, list[str]] = {}
    for (where, what), names in alike.items():
        places.setdefault(f"{what} on {', '.join(names)}", []).append(where)
    return [f"{'; '.join(wheres)}: {what}" for what, wheres in places.items()]


@dataclass
class Plan:
    """What one sweep over the hosts runs."""

    mpich: mpich_tests.Options
    mpi4py: bool = True
    ranks: Sequence[int] = ALL_MPI4PY_RANKS
    mpich_hosts: Sequence[str] = field(default_factory=lambda: list(host_mpis.NAMES))
    mpi4py_hosts: Sequence[str] = field(default_factory=lambda: list(host_mpis.NAMES))
    layout: lab.Layout | None = None
    """The lab's nodes over which all jobs go."""


def make_plans(options: argparse.Namespace) -> list[Plan]:
    """Return the sweeps that the command line asks for."""
    directories = options.dirs.split(",") if options.dirs else mpich_tests.DIRECTORIES + ["mpi4py"]
    if options.lab and not options.dirs:
        directories = [*LAB_DIRECTORIES, "mpi4py"]
    if options.representative and not options.dirs:
        directories = [*REPRESENTATIVE_DIRECTORIES, "mpi4py"]
    unknown = set(directories) - set(mpich_tests.DIRECTORIES) - {"mpi4py"}
    if unknown:
        raise SystemExit(f"unknown folder {', '.join(sorted(unknown))}")
    order = WITHOUT_FIRST
    if options.without_only:
        order = WITHOUT_ONLY
    elif options.representative or options.with_first or options.forced_paths or options.lab:
        order = WITH_FIRST
    plan = Plan(
        mpich_tests.Options(
            directories=[name for name in directories if name != "mpi4py"],
            only=options.only,
            jobs=options.jobs,
            build_jobs=options.build_jobs,
            niceness=options.nice,
            lib=options.lib.resolve(),
            order=order,
            build_only=options.build_only,
            representative=options.representative,
            without_heavy=options.without_heavy,
            stacks=options.stacks,
            settings=options.settings,
            patience=options.patience,
        ),
        mpi4py="mpi4py" in directories and not options.build_only,
    )
    if options.representative and not options.hosts:
        plan.mpich_hosts = REPRESENTATIVE_MPICH_HOSTS
        plan.mpi4py_hosts = REPRESENTATIVE_MPI4PY_HOSTS
        plan.ranks = [2]
    if options.all and not options.hosts:
        plan.mpich_hosts = ALL_MPICH_HOSTS
    if options.ranks:
        plan.ranks = [int(text) for text in options.ranks.split(",")]
    if options.lab:
        return [lab_plan(options, plan, layout) for layout in options.lab]
    plans = [] if options.forced_paths else [plan]
    if options.forced_paths or (options.all and not options.without_only):
        plans += [forced_plan(options, plan, settings) for settings in FORCED]
    if options.all and not options.without_only:
        plans += [lab_plan(options, plan, lab.parse_layout(text)) for text in lab.LAYOUTS]
        plans += [arrival_plan(options, plan, text) for text in ARRIVAL_LAYOUTS]
        plans += [overlap_plan(options, plan, text) for text in OVERLAP_LAYOUTS]
    return plans


def lab_plan(options: argparse.Namespace, plan: Plan, layout: lab.Layout) -> Plan:
    """Return the sweep over the nodes of one layout."""
    directories = plan.mpich.directories
    if not options.dirs:
        directories = [name for name in LAB_DIRECTORIES if name in directories]
    order = plan.mpich.order if options.without_only else WITH_FIRST
    return replace(
        plan,
        mpich=replace(plan.mpich, directories=directories, order=order),
        ranks=plan.ranks if options.ranks else [layout.ranks],
        mpich_hosts=plan.mpich_hosts if options.hosts else LAB_HOSTS,
        mpi4py_hosts=plan.mpi4py_hosts if options.hosts else LAB_HOSTS,
        layout=layout,
    )


def arrival_plan(options: argparse.Namespace, plan: Plan, layout: str) -> Plan:
    """Return the sweep over the nodes of one layout with collectives begun by the first rank."""
    found = lab_plan(options, plan, lab.parse_layout(layout))
    directories = [name for name in ARRIVAL_DIRECTORIES if name in plan.mpich.directories]
    mpich = replace(
        found.mpich, directories=directories, settings=dict(ARRIVAL), without_heavy=True
    )
    return replace(found, mpich=mpich, mpi4py=False)


def overlap_plan(options: argparse.Namespace, plan: Plan, layout: str) -> Plan:
    """Return the sweep over the nodes of one layout with collectives that return early."""
    found = lab_plan(options, plan, lab.parse_layout(layout))
    directories = [name for name in OVERLAP_DIRECTORIES if name in plan.mpich.directories]
    mpich = replace(
        found.mpich, directories=directories, settings=dict(OVERLAP), without_heavy=True
    )
    return replace(found, mpich=mpich)


def forced_plan(options: argparse.Namespace, plan: Plan, settings: dict[str, str]) -> Plan:
    """Return the sweep with one choice of settings."""
    directories = [name for name in FORCED_DIRECTORIES if name in plan.mpich.directories]
    return replace(
        plan,
        mpich=replace(
            plan.mpich,
            directories=directories,
            settings=settings,
            without_heavy=True,
            order=WITH_FIRST,
        ),
        ranks=plan.ranks if options.ranks else FORCED_MPI4PY_RANKS,
        mpich_hosts=FORCED_MPICH_HOSTS,
        mpi4py_hosts=FORCED_MPI4PY_HOSTS,
    )


def stored_of(
    host: host_mpis.Host, plan: Plan
) -> list[tuple[mpich_tests.HostResults | None, list[mpi4py_tests.PythonResults]]]:
    """Return what earlier runs found with this plan, here and on other machines."""
    label = settings_label(plan.mpich.settings)
    place = layout_label(plan.mpich.lab)
    return [store.load(folder, host.name, host.version, label, place) for folder in (WORK, KEPT)]


def run_mpich(
    host: host_mpis.Host, plan: Plan, verbose: bool, resume: bool, whole: report.Report
) -> None:
    """Run MPICH's suite on one host."""
    keep = plan.mpich.order != WITHOUT_ONLY and not plan.mpich.build_only

    pending: list[mpich_tests.HostResults] = []

    def save() -> None:
        if pending and keep:
            results = [result for found in pending for result in found.results]
            store.add_mpich(WORK, replace(pending[0], results=results))
        pending.clear()

    def tell(found: mpich_tests.HostResults, result: Result) -> None:
        announce(report.where(found), result, verbose)
        with lock:
            pending.append(found)
            if len(pending) >= SAVE_AFTER:
                save()

    lock = threading.Lock()
    if resume:
        known: set[str] = set()
        for stored, _ in stored_of(host, plan):
            if stored is not None:
                known |= {result.identity for result in stored.results}
                # To try again to build what this host cannot have takes longer than the tests.
                known |= stored.unbuildable.keys()
        plan = replace(plan, mpich=replace(plan.mpich, known=frozenset(known)))
    try:
        found = mpich_tests.run_host(host, WORK, plan.mpich, tell)
    except SuiteError as problem:
        print(f"MPICH's suite skipped on {host.name}: {problem}", flush=True)
        whole.skipped.append(f"MPICH's suite on {host.name}: {problem}")
        return
    finally:
        save()  # whoever interrupts the run keeps what it found
    whole.mpich.append(found)
    if keep:
        store.add_mpich(WORK, found)
    print(report.mpich_table(found), flush=True)


def run_mpi4py(
    host: host_mpis.Host, plan: Plan, verbose: bool, resume: bool, whole: report.Report
) -> None:
    """Run mpi4py's suite on one host."""
    left_out = []
    if plan.mpich.settings == OVERLAP:
        # Windows and files of the host use memory that is still on its way.
        left_out = [*HEAVY_MPI4PY, *HANGING_OVER_NODES.get(host.name, [])]
    elif plan.mpich.representative or plan.mpich.settings:
        left_out = left_out_of_mpi4py(host.name, forced=bool(plan.mpich.settings))
    elif plan.mpich.without_heavy or plan.layout is not None:
        left_out = left_out_of_mpi4py(host.name, forced=True)
    ranks = list(plan.ranks)
    if resume:
        enough = {*left_out, *ONE_RANK_MPI4PY}
        parts = [part for _, found in stored_of(host, plan) for part in found]
        known = {part.ranks for part in parts if enough.issuperset(part.left_out)}
        ranks = [number for number in ranks if number not in known]
    if not ranks:
        return
    try:
        found = mpi4py_tests.run_host(
            host,
            WORK,
            ranks,
            only=plan.mpich.only,
            niceness=plan.mpich.niceness,
            patience=plan.mpich.patience,
            lib=plan.mpich.lib,
            order=plan.mpich.order,
            left_out=left_out,
            settings=plan.mpich.settings,
            lab=plan.mpich.lab,
            report=lambda name, result: announce(name, result, verbose),
        )
    except SuiteError as problem:
        print(f"mpi4py's suite skipped on {host.name}: {problem}", flush=True)
        whole.skipped.append(f"mpi4py's suite on {host.name}: {problem}")
        return
    whole.mpi4py += found
    if plan.mpich.order != WITHOUT_ONLY and not plan.mpich.only:
        store.add_mpi4py(WORK, found)
    print(report.mpi4py_table(found), flush=True)


def sweep(plan: Plan, hosts: list, options: argparse.Namespace, whole: report.Report) -> None:
    """Run one sweep over the hosts."""
    if plan.mpich.settings:
        print(f"with {settings_label(plan.mpich.settings)}", flush=True)
    if plan.mpich.lab is not None:
        print(f"in the lab, {layout_label(plan.mpich.lab)}", flush=True)
    mpich = [h for h in hosts if plan.mpich.directories and h.name in plan.mpich_hosts]
    mpi4py = [h for h in hosts if plan.mpi4py and h.name in plan.mpi4py_hosts]
    if options.representative:
        sweep_beside(plan, mpich, mpi4py, options, whole)
        return
    for host in hosts:
        if host in mpich:
            run_mpich(host, plan, options.verbose, options.resume, whole)
        if host in mpi4py:
            run_mpi4py(host, plan, options.verbose, options.resume, whole)


def sweep_beside(
    plan: Plan, mpich: list, mpi4py: list, options: argparse.Namespace, whole: report.Report
) -> None:
    """Run both suites at the same time: the jobs of either wait for most of their time."""
    with ThreadPoolExecutor(max_workers=1) as pool:

        def run_python() -> None:
            for host in mpi4py:
                run_mpi4py(host, plan, options.verbose, options.resume, whole)

        beside = pool.submit(run_python)
        try:
            for host in mpich:
                run_mpich(host, plan, options.verbose, options.resume, whole)
            beside.result()
        except BaseException:
            STOP.set()  # the other thread's job ends as well
            raise


def main() -> int:
    """Run what was asked for; 1 when there are differences, 2 when nothing could be run."""
    options = parse_arguments()
    if options.page:
        return write_page(options, [])
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)
    started = time.monotonic()
    needed = not options.without_only and not options.build_only
    if needed and not options.lib.is_file():
        print(f"{options.lib} is missing: run `make` first", file=sys.stderr)
        return 2
    plans = make_plans(options)
    if options.fresh:
        for path in WORK.glob("baseline-*.json"):
            path.unlink()
    whole = report.Report()
    hosts = chosen_hosts(options)
    for plan in plans:
        try:
            with lab.up(plan.layout) as nodes:
                sweep(replace(plan, mpich=replace(plan.mpich, lab=nodes)), hosts, options, whole)
        except lab.CannotMakeLab as problem:
            assert plan.layout is not None
            print(f"lab {plan.layout.text} skipped: {problem}", flush=True)
            whole.skipped.append(f"everything in the lab, {plan.layout.text}: {problem}")
    whole.seconds = time.monotonic() - started
    report.write_json(whole, WORK / "results.json")
    if options.all and not options.without_only and not options.only:
        write_page(options, whole.skipped)
    if not whole.mpich and not whole.mpi4py:
        print("no suite could be run", file=sys.stderr)
        return 2
    number = whole.differences()
    print(f"{number} differences, {whole.seconds:.0f} s")
    print(whole.summary())
    return 1 if number else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, Interrupted):
        sys.exit(130)

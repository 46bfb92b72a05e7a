#!/usr/bin/env python3
"""Checks that whatever passes without Overdrive passes with it.

Two test suites that were written by others for other purposes serve as black boxes: MPICH's own
(from Debian's source package) and mpi4py's own (from its source on PyPI). Every test runs without
and with Overdrive on every host MPI; the difference must be empty.

    run.py --all               everything; writes docs/measurements/conformance.md
    run.py --representative    the part that `make check` runs
    run.py --hosts mpich4 --dirs pt2pt,comm --only icsend --verbose
"""

# ruff: noqa: E402 -- the folders of our own modules must be known first

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "hosts")]

import hosts as host_mpis

from conformance import mpi4py_tests, mpich_tests, report, store
from conformance.compare import (
    DIFFERENCE,
    FLAKY_WITH,
    WITH_FIRST,
    WITHOUT_FIRST,
    WITHOUT_ONLY,
    Result,
)
from conformance.jobs import DEFAULT_LIBRARY
from conformance.processes import Interrupted
from conformance.selection import left_out_of_mpi4py
from conformance.suite import SuiteError

WORK = ROOT / "build" / "conformance"
PAGE = ROOT / "docs" / "measurements" / "conformance.md"

REPRESENTATIVE_DIRECTORIES = ["pt2pt", "comm", "datatype", "f77", "f90", "f08", "threads"]
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
    parser.add_argument("--hosts", default="", help=f"of {','.join(host_mpis.NAMES)}")
    parser.add_argument("--dirs", default="", help="folders of MPICH's suite, or mpi4py")
    parser.add_argument("--only", default="", help="tests whose name contains this text")
    parser.add_argument("--ranks", default="", help="numbers of ranks for mpi4py, e.g. 1,2")
    parser.add_argument("--jobs", type=int, default=2, help="MPI jobs at once (2)")
    parser.add_argument("--build-jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--nice", type=int, default=0, help="lower the priority by this much")
    parser.add_argument("--without-only", action="store_true", help="only run without Overdrive")
    parser.add_argument("--library", type=Path, default=DEFAULT_LIBRARY, help="what is preloaded")
    parser.add_argument("--with-first", action="store_true", help="run without only what fails")
    parser.add_argument("--fresh", action="store_true", help="forget stored runs without Overdrive")
    parser.add_argument("--build-only", action="store_true", help="only build MPICH's suite")
    parser.add_argument("--stacks", action="store_true", help="show where a hanging test waits")
    parser.add_argument("--verbose", action="store_true", help="show outputs of differing tests")
    options = parser.parse_args()
    chosen = options.all or options.representative or options.page
    if not chosen and not (options.hosts or options.dirs):
        parser.error("choose --all, --representative, --page, or --hosts and --dirs")
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


def write_page(whole: report.Report) -> None:
    """Write the page of docs/measurements."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(report.page(whole), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page_from_store(options: argparse.Namespace) -> int:
    """Write the page from what earlier invocations found."""
    whole = report.Report()
    for host in chosen_hosts(options):
        found, parts = store.load(WORK, host.name, host.version)
        whole.mpi4py += parts
        if found is not None:
            whole.mpich.append(found)
    write_page(whole)
    print(whole.summary())
    return 1 if whole.differences() else 0


def main() -> int:
    """Run what was asked for; 1 when there are differences, 2 when nothing could be run."""
    options = parse_arguments()
    if options.page:
        return page_from_store(options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    needed = not options.without_only and not options.build_only
    if needed and not options.library.is_file():
        print(f"{options.library} is missing: run `make` first", file=sys.stderr)
        return 2
    directories = options.dirs.split(",") if options.dirs else mpich_tests.DIRECTORIES + ["mpi4py"]
    if options.representative and not options.dirs:
        directories = [*REPRESENTATIVE_DIRECTORIES, "mpi4py"]
    unknown = set(directories) - set(mpich_tests.DIRECTORIES) - {"mpi4py"}
    if unknown:
        raise SystemExit(f"unknown folder {', '.join(sorted(unknown))}")
    order = WITHOUT_FIRST
    if options.without_only:
        order = WITHOUT_ONLY
    elif options.representative or options.with_first:
        order = WITH_FIRST
    mpich_options = mpich_tests.Options(
        directories=[name for name in directories if name != "mpi4py"],
        only=options.only,
        jobs=options.jobs,
        build_jobs=options.build_jobs,
        niceness=options.nice,
        library=options.library.resolve(),
        order=order,
        build_only=options.build_only,
        representative=options.representative,
        stacks=options.stacks,
    )
    if options.fresh:
        for path in WORK.glob("baseline-*.json"):
            path.unlink()
    whole = report.Report()

    def tell(name: str, result: Result) -> None:
        announce(name, result, options.verbose)

    for host in chosen_hosts(options):
        for_check = options.representative and not options.hosts
        mpich_wanted = not for_check or host.name in REPRESENTATIVE_MPICH_HOSTS
        mpi4py_wanted = not for_check or host.name in REPRESENTATIVE_MPI4PY_HOSTS
        if mpich_options.directories and mpich_wanted:
            try:
                found = mpich_tests.run_host(host, WORK, mpich_options, tell)
            except SuiteError as problem:
                print(f"MPICH's suite skipped on {host.name}: {problem}", flush=True)
                whole.skipped.append(f"MPICH's suite on {host.name}: {problem}")
            else:
                whole.mpich.append(found)
                if order != WITHOUT_ONLY and not options.build_only:
                    store.add_mpich(WORK, found)
                print(report.mpich_table(found), flush=True)
        if "mpi4py" in directories and mpi4py_wanted and not options.build_only:
            ranks = [int(text) for text in options.ranks.split(",") if text]
            if not ranks:
                ranks = [2] if for_check else [1, 2, 3, 4]
            try:
                python = mpi4py_tests.run_host(
                    host,
                    WORK,
                    ranks,
                    only=options.only,
                    niceness=options.nice,
                    library=options.library.resolve(),
                    order=order,
                    left_out=left_out_of_mpi4py(host.name) if options.representative else [],
                    report=tell,
                )
            except SuiteError as problem:
                print(f"mpi4py's suite skipped on {host.name}: {problem}", flush=True)
                whole.skipped.append(f"mpi4py's suite on {host.name}: {problem}")
            else:
                whole.mpi4py += python
                if order != WITHOUT_ONLY and not options.only:
                    store.add_mpi4py(WORK, python)
                print(report.mpi4py_table(python), flush=True)
    whole.seconds = time.monotonic() - started
    report.write_json(whole, WORK / "results.json")
    if options.all and not options.without_only and not options.only:
        write_page(whole)
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

"""Which tests run where, and which are left out, each with its reason.

`EVERYWHERE` are tests that cannot say anything in this setting; `HEAVY` are left out of the
representative part and of the runs with forced ways, because of what they cost on a small machine.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hosts import Host

    from conformance.testlist import Test

EVERYWHERE: list[tuple[str, str, str]] = [
    ("openmpi4", "pt2pt/rqstatus *", "compares an error field that Open MPI leaves as it was, and "
     "that the test has not set: what the stack held decides"),
]  # fmt: skip
"""Host pattern, pattern for the identity of a test, reason."""

LONG = "sends hundreds of datatypes in up to a minute; its smaller variants run"
FILES = "collective output into files, all of it the host's; writeord and those without all run"
THREADS = "many threads that take turns on few processors; similar tests with fewer run"
CANCEL = "wants sends cancelled that have left; fails or hangs without Overdrive, too"
HEAVY: list[tuple[str, str]] = [
    ("pt2pt/pingping* 2 *cnt=512 *", LONG),
    ("pt2pt/pingping* 2 *cnt=1018 *", LONG),
    ("pt2pt/pingping* 2 *cnt=65530 *", LONG),
    ("pt2pt/pingping* 2 *cnt=262144 *", LONG),
    ("pt2pt/sendrecv1 2 *cnt=65530 *", LONG),
    ("pt2pt/sendrecv1 2 *cnt=262144 *", LONG),
    ("pt2pt/sendself 1 *cnt=65530 *", LONG),
    ("pt2pt/sendself 1 *cnt=262144 *", LONG),
    ("coll/bcast* -count=262144 *", LONG),
    ("comm/ctxalloc *", "creates a hundred thousand communicators"),
    ("comm/ctxsplit *", "creates a hundred thousand communicators"),
    ("threads/pt2pt/multisend[234] *", "25 threads that spin in a barrier of their own"),
    ("threads/pt2pt/mt_*_huge *", "64 rounds of 16 MiB from several threads"),
    ("threads/comm/comm_create_threads *", THREADS),
    ("threads/comm/idup_nb *", THREADS),
    ("threads/comm/dup_leak_test * -iter=12345", "duplicates 12345 times; a shorter form runs"),
    ("threads/rma/*", "passes through to the host"),
    ("threads/pt2pt/greq_test *", "sleeps for seconds in requests of its own, as greq_wait does"),
    ("datatype/darray_pack 72", "its smaller variants run"),
    ("f77/io/*all*", FILES),
    ("f77/io/*sh*", FILES),
    ("f77/io/i*", FILES),
    ("f08/io/*", FILES),
    ("pt2pt/scancel *", CANCEL),
    ("pt2pt/pscancel *", CANCEL),
    ("pt2pt/cancelrecv *", CANCEL),
    ("pt2pt/scancel_unmatch *", CANCEL),
    ("pt2pt/large_message *", "needs 6.5 GiB of memory"),
]
"""Pattern for the identity of a test, reason."""

ONE_RANK_MPI4PY = ["test_util_dtlib"]
"""Modules that communicate nothing and compute for minutes: they run with one rank only."""

HEAVY_MPI4PY = {"test_util_dtlib": "converts thousands of datatypes, communicates nothing"}
"""Modules of mpi4py's suite that those parts leave out, with the reason."""

HOST_ONLY_MPI4PY = [
    "test_cco_buf_inter",
    "test_cco_ngh_buf",
    "test_cco_ngh_obj",
    "test_cco_obj_inter",
    "test_cco_pr_ngh_buf",
    "test_cco_vec_inter",
    "test_file",
    "test_io",
    "test_rma",
    "test_rma_nb",
    "test_win",
]
"""Modules whose calls mostly pass through to the host: the representative part runs some of them on
one host, because MPICH, which does not give up its core while it waits, takes minutes for them."""

HANGING_OVER_NODES = {"openmpi4": ["test_io"]}
"""Modules that do not end over several nodes without Overdrive: `MPI_File_open` waits for ever."""

PASSED_MPI4PY = ["test_file", "test_io", "test_rma", "test_rma_nb", "test_win"]
"""Modules of files and one-sided access, which take half of the time and pass through to the host:
the representative part has MPICH's tests of both (f77/io, f77/rma, f08/rma) in their place."""


REACHABLE = {"pull_wait": "1ms", "reach_min": "4K"}
"""Senders wait for late receivers, and more buffers are shared: else few messages could take the
forced way where ranks have to share processors."""

FORCED: list[dict[str, str]] = [
    {"copy_path": "cells"},
    {"copy_path": "pull", **REACHABLE},
    {"copy_path": "push", **REACHABLE},
    {"copy_path": "cooperative", **REACHABLE},
    {"copy_path": "kernel", "pull_wait": "1ms"},
    {"reach": "off"},
]
"""Settings that force each way of copying in turn, or switch reachable memory off."""

FORCED_LEFT_OUT = [
    ("pt2pt/sendflood *", "each of its senders would wait a millisecond for every late receiver"),
]
"""Pattern for the identity of a test, reason; holds for runs with settings that force a way."""

FORCED_DIRECTORIES = ["pt2pt", "datatype", "comm", "threads"]
FORCED_MPICH_HOSTS = ["openmpi4", "mpich4"]
FORCED_MPI4PY_HOSTS = ["openmpi5", "mpich5"]
FORCED_MPI4PY_RANKS = [2, 3]


LAB_DIRECTORIES = ["coll", "comm", "pt2pt", "datatype"]
LAB_HOSTS = ["openmpi4", "mpich4"]
"""What runs over the nodes of a lab; mpi4py's suite does as well."""

ARRIVAL: dict[str, str] = {
    f"adjust_{name}": "first_arrival"
    for name in ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")
}
"""Settings with which every collective that has such a form starts with whoever comes first to its
node, or ends with whoever comes last."""
ARRIVAL_DIRECTORIES = ["coll"]
ARRIVAL_LAYOUTS = ("2x2", "3x2", "3+1+2")

OVERLAP: dict[str, str] = {"overlap": "on", "overlap_min": "4K"}
"""Settings with which every collective that can returns before its data have arrived: all that
have a whole page."""
OVERLAP_DIRECTORIES = ["coll", "pt2pt", "comm", "datatype", "io", "rma", "threads"]
OVERLAP_LAYOUTS = ("2x2", "3+1+2")
OVERLAP_PYTHON = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
"""mpi4py asks for MPI_THREAD_MULTIPLE, with which no call returns early."""

FAULTS_OF_HOSTS = {
    ("openmpi4", "comm/comm_idup_isend"): "without Overdrive it waits for ever in `MPI_Waitall`, "
    "too, in 24 of 24 runs on an idle machine; it ends beside other work",
    ("openmpi4", "pt2pt/sendflood"): "over nodes it takes 40 to more than 90 s without Overdrive, "
    "23 to more than 90 s with it",
    ("openmpi4", "rma/atomic_rmw_gacc"): "over nodes two of three runs without Overdrive did not "
    "end within 61 s, the third took 21",
    ("openmpi4", "errors/comm/intercomm_abort"): "its `mpirun` crashes or hangs by itself when "
    "several ranks abort: of 97 runs each in turns 26 without Overdrive, 35 with it",
}
"""What was found about tests that do not always end with Overdrive: by host and test."""

ONE_RANK = "has one rank, for which a node is like any other"
VARIANT = "chooses one of MPICH's algorithms; runs in its plain form"
"""What a short run over nodes leaves out, hundreds of tests: where Overdrive serves a collective,
such a choice changes nothing."""


def left_out_of_mpi4py(host_name: str, forced: bool = False) -> list[str]:
    """Return the modules of mpi4py's suite that a short run leaves out on a host."""
    others = HOST_ONLY_MPI4PY if forced or host_name.startswith("mpich") else PASSED_MPI4PY
    return [*HEAVY_MPI4PY, *others]


def excluded(
    host: Host, test: Test, representative: bool, forced: bool = False, in_lab: bool = False
) -> str:
    """Return why a test is left out; empty when it is to be run."""
    for hosts, pattern, reason in EVERYWHERE:
        if fnmatch.fnmatchcase(host.name, hosts) and fnmatch.fnmatchcase(test.identity, pattern):
            return reason
    if representative:
        for pattern, reason in HEAVY:
            if fnmatch.fnmatchcase(test.identity, pattern):
                return reason
        if in_lab and any(name.startswith("MPIR_CVAR_") for name, _ in test.environment):
            return VARIANT
    if in_lab and test.ranks == 1:
        return ONE_RANK
    for pattern, reason in FORCED_LEFT_OUT if forced else []:
        if fnmatch.fnmatchcase(test.identity, pattern):
            return reason
    return ""

"""What hosts get wrong by themselves: left out of random programs there, by name.

Names are those that the planner asks for: a mode of sending, `NAME` of a collective, `FORM-NAME` of
a collective's form, `NAME-in-place`, or one of the features below. Each entry was found by running
programs without Overdrive. What Overdrive serves itself is left in where it does.
"""

from __future__ import annotations

from collections.abc import Mapping

OPENMPI = {
    "persistent-buf": "a persistent buffered send delivers zeroes",
    "free-pending": "freeing a communicator with a pending collective ends in a crash",
    "started-alltoallw-in-place": "wrong data",
    "persistent-alltoallw-in-place": "wrong data",
    "started-alltoallv-in-place": "wrong data",
    "persistent-alltoallv-in-place": "wrong data",
    "started-inter": "an allgather between groups is over before its data have come",
    "idup-overlap": "two ranks that duplicate and split in different orders wait for ever",
    "create-group": "hangs now and then with messages pending on the communicator",
    "comms-in-threads": "several threads that make communicators get invalid ones",
    "window-test": "a rank that polls MPI_Win_test does not go on with its messages",
}
MPICH = {
    "persistent-collectives": "wrong data in the second round; MPI_Testall takes them for failed",
    "persistent-own": "the same with operations of the program, which are always the host's",
    "persistent-inter": "the same between groups",
    "persistent-alone": "the same on communicators of one rank",
    "persistent-neighbours": "the same among neighbours, most of which are the host's",
    "partitioned-together": "their status is not set where several requests are completed at once",
    "file-in-threads": "several threads with files wait for ever",
    "gaps": "reductions of datatypes with gaps are wrong or end in a crash",
    "window-strided-get": "MPI_Rget of every third word is complete before its data have come",
}
MPICH5 = {
    **MPICH,
    "started-inter": "a bcast between groups is over before its data have come, a barrier never",
    "thread-levels": "windows crash or hang where ranks have other levels of thread support",
    "status": "MPI_Request_get_status of a persistent receive shows the round before",
}
WAIT = {
    "window-pscw": "MPI_Win_wait does not go on with collectives that others wait for",
}
FAULTS: dict[str, dict[str, str]] = {
    "openmpi4": {
        **OPENMPI,
        "no-persistent-collectives": "MPI 3.1: there are none",
        "partitioned": "MPI 3.1: there are no partitioned messages",
        "window-swap": "MPI_Compare_and_swap ends in a crash",
        "window-part": "two groups that make windows at the same time share a file: MPI_ERR_WIN",
        "graph-distributed": "after windows MPI_Dist_graph_create waits for ever now and then",
    },
    "openmpi5": {
        **OPENMPI,
        "window-get": "MPI_Get is not over now and then when MPI_Win_unlock returns",
        "graph-of-grid": "a distributed graph of a grid's ranks counts as a grid: crash",
        "partitioned": "partitioned messages bring wrong data, take others', or never come",
    },
    "mpich4": {
        **MPICH,
        "started-inter": "a bcast between groups brings wrong data or ends in an assertion",
        "reduce-in-place": "the root of two ranks reads MPI_IN_PLACE: crash",
        "neighbor_alltoallw": "wrong data where a rank is its own neighbour in a graph",
        "mprobe-self": "a matched receive of a message to itself ends in a crash",
        **WAIT,
        "window-allocate": "words of MPI_Win_allocate's memory are not what was put or stored",
    },
    "mpich5": {**MPICH5, **WAIT},
    "mpiabi": {**MPICH5, **WAIT},
    "impi": {
        **MPICH5,
        "free-pending": "freed with messages pending, between two groups of which one was: crash",
        "started-allgatherv": "seven ranks and more wait for ever for blocks of some lengths",
        "inter-large": "nothing arrives between groups, one of five ranks or more, whose members "
        "have made other numbers of communicators before",
    },
}
"""By host: what is wrong, and how."""

BETWEEN_NODES: dict[str, dict[str, str]] = {
    "openmpi4": {
        f"window-{name}": "without InfiniBand there are no windows between nodes"
        for name in ("create", "allocate", "shared", "dynamic", "fence", "lock", "pscw", "all")
    },
    "impi": {"graph-distributed": "a graph has a neighbour too many on a busy machine"},
}
"""By host: what virtual nodes add; layouts for which ranks are kept apart add nothing."""

SERVED = {
    "reduce-in-place",
    "persistent-collectives",
    "started-alltoallw-in-place",
    "persistent-alltoallw-in-place",
    "started-alltoallv-in-place",
    "persistent-alltoallv-in-place",
    "status",
}
"""What is Overdrive's wherever it serves everything."""


def of(
    host: str, overdrive: bool, settings: Mapping[str, str], spans_nodes: bool
) -> frozenset[str]:
    """Return the names of what programs for a host leave out."""
    hosts_part = (
        spans_nodes
        or "collective_shuffle" in settings
        or "collectives" in settings
        or "host" in settings.values()
    )
    found = set(FAULTS.get(host, {}))
    if overdrive and not hosts_part:
        found -= SERVED
        if settings.get("neighbour_collectives") == "all":
            found.discard("persistent-neighbours")
    return frozenset(found)

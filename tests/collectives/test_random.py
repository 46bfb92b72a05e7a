"""Random calls of every collective in every form, against the host's results, on every host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, programs, sharing
from support.nodes import Nodes

HERE = Path(__file__).parent
Build = Callable[..., str]

REFERENCE_FAULTS = {
    "openmpi4": ["small-sums", "signedness"],
    "openmpi5": ["small-sums", "signedness"],
    "mpich4": ["signedness", "reduce-short-int"],
    "impi": ["reduce-pairs"],
}
"""By host: where its reductions are wrong (tests/coll_ops) and cannot be the reference. MPICH 4.0
reduces the lowest MPI_SHORT_INT wrongly, for instance over three ranks on two nodes; Intel MPI some
900 pairs and more that begin with a double, over three ranks and more."""

OPENMPI_FAULTS = [
    # Unpacking of a derived type from a message that was cut inside an element of more than 16
    # bytes writes beyond a buffer.
    "wide",
    # On one rank it ignores displacements.
    "alltoallw-alone",
    # Never completes on some ranks.
    "ialltoallw-in-place",
    # Each rank chooses the algorithm by its own counts, whatever the datatype.
    "allgatherv-types",
    # Intermediate results are written outside their memory.
    "user-bounds",
]
MPICH_FAULTS = [
    # Completion functions take a persistent collective that is complete for an active one.
    "persistent",
    # Intermediate results are written outside their memory.
    "user-bounds",
]
HOST_FAULTS = {
    "openmpi4": OPENMPI_FAULTS,
    # Lets go of a datatype that is freed before a persistent collective is started; its
    # non-blocking alltoallv in place gives wrong results over seven ranks.
    "openmpi5": [*OPENMPI_FAULTS, "persistent", "ialltoallv-in-place"],
    # All-to-all in place with pairs that have padding ends in a truncation error, the non-blocking
    # alltoallw in place gives wrong results where ranks describe blocks differently (Intel's, too).
    "mpich4": [*MPICH_FAULTS, "alltoall-pairs", "ialltoallw-in-place"],
    "mpich5": MPICH_FAULTS,
    "mpiabi": MPICH_FAULTS,
    # Where a block is empty, its non-blocking allgatherv between nodes sends the others element by
    # element of the rank's own datatype: ranks that describe blocks differently receive parts of
    # them, and what is left over meets messages of later calls, which then hang.
    "impi": [*MPICH_FAULTS, "alltoall-pairs", "ialltoallw-in-place", "iallgatherv-types"],
}
"""By host: what it gets wrong in calls that it serves."""

FAULTS_BETWEEN_NODES = {
    # A rooted or gathering collective within a node and then between nodes takes each rank's
    # datatype for the others', too.
    "openmpi5": ["types"],
}
"""Likewise, between nodes only."""

FAULTS_LEFT = {
    "alltoallw-alone": ["alltoallw-alone"],
    "persistent": ["persistent-alone", "persistent-user"],
    "user-bounds": ["started-user-bounds"],
}
"""Of those, what remains where the host serves communicators of one rank, and the non-blocking and
persistent reductions with operations of the program."""

CASES = 150

OTHER_REDUCTIONS = ("allreduce", "reduce_scatter", "exscan")
"""In `make check` on one host: how the operation is called does not depend on the collective."""


@dataclass
class Job:
    """The program on a host, and how it is started."""

    host: Host
    program: str
    overdrive: bool
    ranks: int
    settings: dict[str, str]
    nodes: Nodes | None = None
    env: dict[str, str] = field(default_factory=dict)

    def run(self, arguments: Iterable[str], limit: float = 120) -> jobs.Result:
        """Run with these arguments."""
        faults = list(HOST_FAULTS.get(self.host.name, []))
        some_are_hosts = "collective_shuffle" in self.settings or self.nodes is not None
        if self.overdrive and not some_are_hosts:
            faults = [left for fault in faults for left in FAULTS_LEFT.get(fault, [])]
        faults += REFERENCE_FAULTS.get(self.host.name, [])
        nodes = self.nodes
        if nodes is not None:
            faults += FAULTS_BETWEEN_NODES.get(self.host.name, [])
        return jobs.run(
            self.host,
            self.ranks,
            [self.program, f"--without={','.join(faults)}", *arguments],
            overdrive=self.overdrive,
            settings=self.settings,
            env=sharing.environment(self.host) | self.env,
            preload=([], sharing.libraries(self.host, between_nodes=nodes is not None)),
            launcher_prefix=nodes.enter(nodes.head) if nodes else None,
            launcher_options=nodes.launcher_options(self.host.family, 2) if nodes else None,
            limit=limit,
        )


def failed(result: jobs.Result) -> bool:
    """Tell whether a run found anything or did not end well."""
    return result.timed_out or result.returncode != 0 or "PASS " not in result.stdout


def smaller_case(job: Job, seed: int, result: jobs.Result) -> str:
    """Return the smallest repetition of a failure that still fails, and what it says."""
    found = re.search(r"case (\d+):", result.stderr)
    if found is None:
        return "no case to repeat"
    case = int(found[1])
    attempts = [[f"--first={case}", "--cases=1"]]
    attempts += [[f"--first={max(0, case - back)}", f"--cases={back + 1}"] for back in (3, 20)]
    for kept in attempts:
        last = job.run([f"--seed={seed}", *kept], limit=30)
        if failed(last):
            break
    else:
        return f"case {case} does not fail by itself"
    simplifications = [["--ops=1"], ["--blocking=1"], ["--plain=1"]]
    simplifications += [[f"--most={most}"] for most in (1, 6, 60, 600, 6000)]
    for more in simplifications:
        if any(word.startswith("--most") for word in kept) and more[0].startswith("--most"):
            continue
        attempt = job.run([f"--seed={seed}", *kept, *more], limit=30)
        if failed(attempt):
            kept, last = [*kept, *more], attempt
    return f"smallest: --seed={seed} {' '.join(kept)}\n{last.report()}"


def check(job: Job, seed: int, arguments: Iterable[str]) -> jobs.Result:
    """Run; a failure is made small before it is reported."""
    result = job.run([f"--seed={seed}", *arguments])
    if failed(result):
        pytest.fail(f"{smaller_case(job, seed, result)}\n\nfirst seen:\n{result.report()}")
    expect.passed(result)
    return result


def build(compiled: Build) -> str:
    """Return the compiled program."""
    return compiled(HERE / "random.c", [f"-I{programs.ROOT / 'src'}", "-ldl"])


@pytest.mark.quick
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.everywhere)])
def test_random_calls(ranks: int, host: Host, compiled: Build, overdrive: bool, seed: int) -> None:
    """Whatever is chosen by default."""
    result = check(Job(host, build(compiled), overdrive, ranks, {}), seed, [f"--cases={CASES}"])
    if overdrive:
        served = result.counter("collectives_served")
        assert served > CASES, f"only {served} collectives were served\n{result.report()}"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [66, 96])
def test_random_calls_of_many_ranks(
    ranks: int, host: Host, compiled: Build, needs_overdrive: None, seed: int
) -> None:
    """More ranks than a word has bits."""
    if host.family != "openmpi":
        pytest.skip("its own calls take minutes where so many ranks share a core")
    job = Job(host, build(compiled), True, ranks, {})
    result = check(job, seed, ["--cases=40", "--most=3000"])
    assert result.counter("collectives_served") > 40, result.report()


@pytest.mark.quick
@pytest.mark.parametrize("shuffle", [0, pytest.param(1, marks=pytest.mark.one), 2])
def test_random_algorithms(
    shuffle: int, host: Host, compiled: Build, needs_overdrive: None, seed: int
) -> None:
    """Each call by one of the algorithms that can serve it, the host's own among them."""
    settings = {"collective_shuffle": str(seed % 1000 + 1 + shuffle)}
    job = Job(host, build(compiled), True, 3 + shuffle, settings)
    check(job, seed, [f"--cases={CASES}", "--bytes=200000"])


@pytest.mark.quick
@pytest.mark.parametrize(
    "only",
    ["reduce", "scan", *(pytest.param(name, marks=pytest.mark.one) for name in OTHER_REDUCTIONS)],
)
def test_operations_of_the_program_in_shared_memory(
    only: str, host: Host, compiled: Build, needs_overdrive: None, seed: int
) -> None:
    """Whatever the operation and the datatype, no blocking reduction goes by messages."""
    # A long one of two ranks is a message and joins nothing.
    settings = {"adjust_exscan": "shared_memory"} if only == "exscan" else {}
    job = Job(host, build(compiled), True, 3, settings)
    result = check(job, seed, ["--cases=80", "--blocking=1", f"--only={only}"])
    served = result.counter("collectives_served")
    assert result.counter("collectives_shared") == served > 80, result.report()


@pytest.mark.parametrize("only", ["gatherv", "scatterv", "alltoallv", "alltoallw"])
def test_long_blocks_of_two_ranks(
    only: str, host: Host, compiled: Build, needs_overdrive: None, seed: int
) -> None:
    """A rank knows its own lengths only, and long blocks are messages."""
    # Where both send from 32 KiB on if they are far from each other.
    settings = {"far_threshold": "1ns"} if "alltoall" in only else {"far_threshold": "10us"}
    job = Job(host, build(compiled), True, 2, settings)
    result = check(job, seed, ["--cases=80", "--bytes=8000000", f"--only={only}"])
    assert result.counter("team_messages") > 0, result.report()


@pytest.mark.quick
@pytest.mark.parametrize(
    "machine",
    ["pack:2 core:2 pu:1", pytest.param("pack:2 core:1 pu:1", marks=pytest.mark.one)],
)
def test_random_reductions_in_groups(
    machine: str, host: Host, compiled: Build, needs_overdrive: None, seed: int
) -> None:
    """Ranks on sockets, which are not there: 2 + 1 and 3 + 2 of them."""
    ranks = 3 if "core:2" in machine else 5
    job = Job(host, build(compiled), True, ranks, {"collective_driver": "grouped"})
    job.env["HWLOC_SYNTHETIC"] = machine
    result = check(
        job, seed, ["--cases=250", "--bytes=6000000", "--blocking=1", "--only=allreduce"]
    )
    assert result.counter("reductions_in_groups") > 0, result.report()


@pytest.mark.quick
@pytest.mark.netns
@pytest.mark.parametrize("shuffled", [False, True], ids=["default", "shuffled"])
def test_random_calls_across_nodes(
    shuffled: bool,
    host: Host,
    two_nodes: Nodes,
    compiled: Build,
    needs_overdrive: None,
    seed: int,
) -> None:
    """Two ranks on each of two nodes."""
    settings = {"collective_shuffle": str(seed % 1000 + 1)} if shuffled else {}
    job = Job(host, build(compiled), True, 4, settings, two_nodes)
    result = check(job, seed, ["--cases=60", "--bytes=200000"])
    served = result.counter("collectives_served")
    assert served > 60, f"only {served} collectives were served\n{result.report()}"


BETWEEN = {"progress": "calls", "nonblocking_min": "0", "nonblocking_reduce_min": "0"}
"""All non-blocking and persistent calls are served between nodes."""


@pytest.mark.quick
@pytest.mark.parametrize(
    ("nodes", "shuffled"),
    [("0011", True), pytest.param("01012", False, marks=pytest.mark.one)],
)
def test_random_calls_under_way_between_nodes(
    nodes: str, shuffled: bool, host: Host, compiled: Build, needs_overdrive: None, seed: int
) -> None:
    """Ranks that are taken for ones on other nodes."""
    ranks = range(len(nodes))
    pairs = [f"{a}-{b}" for a in ranks for b in ranks if a < b and nodes[a] != nodes[b]]
    settings = BETWEEN | {"test_remote": ",".join(pairs)}
    if shuffled:
        settings["collective_shuffle"] = str(seed % 1000 + 1)
    job = Job(host, build(compiled), True, len(nodes), settings)
    result = check(job, seed, ["--cases=100", "--bytes=200000"])
    assert result.counter("collectives_between") > 20, result.report()


@pytest.mark.slow
@pytest.mark.netns
def test_random_calls_under_way_across_nodes(
    host: Host, two_nodes: Nodes, compiled: Build, needs_overdrive: None, seed: int
) -> None:
    """Two ranks on each of two nodes."""
    job = Job(host, build(compiled), True, 4, BETWEEN, two_nodes)
    result = check(job, seed, ["--cases=60", "--bytes=200000"])
    assert result.counter("collectives_between") > 20, result.report()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_thousands_of_calls(
    ranks: int, host: Host, compiled: Build, overdrive: bool, seed: int
) -> None:
    """The same for long, with random algorithms where there are any to choose."""
    if host.name == "mpiabi" and ranks > 4:
        pytest.skip("MPICH 5.0's own calls by the standard ABI abort or hang with seven ranks")
    settings = {"collective_shuffle": str(seed % 1000 + 1)} if ranks != 4 else {}
    job = Job(host, build(compiled), overdrive, ranks, settings)
    for part in range(4):
        check(job, seed + part, ["--cases=1000"])

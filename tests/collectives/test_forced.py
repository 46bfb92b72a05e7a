"""Every value of every OVERDRIVE_ADJUST variable: right results, by the algorithm that it names.

What there is to force is read from `overdrive info --algorithms`. A job gives each collective one
value, so there are as many jobs as the collective with most algorithms has values. Ranks 0 and 1
lie on one node, 2 and 3 on another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hosts import Host
from support import expect, jobs, programs, sharing

HERE = Path(__file__).parent
NODES = "0011"
EVERY_VALUE_ON = "openmpi4"
"""Where `make check` forces every value, in several tests; on other hosts it forces a few."""
PARTS = 4
A_FEW = 12
"""Of so many values one."""
HOST_FAULTS = {
    # Copies from the address that MPI_IN_PLACE is, if the vector is long and the root not rank 0.
    "mpich4": ["--first-root=1"]
}
"""By host: how the program avoids what the host gets wrong when it is the one that is forced."""


@dataclass(frozen=True)
class Forced:
    """A value and what it means."""

    value: str
    algorithm: str
    mode: str
    """flat, hierarchical, or neither: as the collective permits."""
    commutes: bool
    """It needs an operation that commutes."""
    even: bool
    """It needs an even number: of ranks, or in a hierarchical form of nodes."""
    has_form: bool
    """The collective has a hierarchical form, and the algorithm can be in it."""

    @property
    def hierarchical(self) -> bool:
        """Tell which form the value asks for."""
        return self.mode == "hierarchical" or (self.mode == "" and self.has_form)

    def permits(self, ranks: int, kind: str) -> bool:
        """Tell whether it can serve such a call."""
        if self.hierarchical and not self.has_form:
            return False
        if self.commutes and kind == "ordered":
            return False
        nodes = len(set(NODES[:ranks]))
        return not self.even or (nodes if self.hierarchical else ranks) % 2 == 0


def values_of(family: dict[str, Any]) -> list[Forced]:
    """Return every value of a collective's variable: own numbers, names with modes, Intel's."""
    found = []
    for algorithm in family["algorithms"]:
        name, needs = algorithm["name"], algorithm["needs"]
        known = {"an operation that commutes", "an even number of ranks"}
        assert set(needs) <= known, f"{name} needs something that this test does not know: {needs}"
        is_host = name == "host"
        values = [(str(algorithm["number"]), "")]
        if not is_host:
            values += [(f"{name}/{mode}", mode) for mode in ("flat", "hierarchical")]
        values += [
            (str(number["number"]), "hierarchical" if number["hierarchical"] else "flat")
            for number in algorithm["intel_numbers"]
        ]
        found += [
            Forced(
                value,
                name,
                mode,
                "an operation that commutes" in needs,
                "an even number of ranks" in needs,
                not family["hierarchical_why_not"] and not is_host,
            )
            for value, mode in values
        ]
    return found


@cache
def families() -> dict[str, list[Forced]]:
    """Return the values of all collectives, by their names."""
    library = jobs.overdrive_library()
    done = subprocess.run(
        [sys.executable, str(programs.ROOT / "overdrive"), "info", "--algorithms", "--json"],
        env={"PATH": "/usr/bin:/bin", "OVERDRIVE_LIBRARY": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {family["collective"]: values_of(family) for family in json.loads(done.stdout)}


def calls_made(result: jobs.Result) -> dict[str, Counter[tuple[int, str]]]:
    """Return how often ranks have called each collective, by number of ranks and kind."""
    found: dict[str, Counter[tuple[int, str]]] = {}
    for line in result.stdout.splitlines():
        if line.startswith("CALLS "):
            _, name, ranks, kind, number = line.split()
            found.setdefault(name, Counter())[int(ranks), kind] += int(number) * int(ranks)
    return found


def calls_served(result: jobs.Result, collective: str) -> Counter[tuple[str, str]]:
    """Return by (algorithm, way) how often ranks say that they have served the collective."""
    rows = [row for rank in result.stats.values() for row in rank.get("collectives", [])]
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["collective"] == collective:
            found[row["algorithm"], row["way"]] += row["calls"]
    return found


def judge(collective: str, forced: Forced, result: jobs.Result) -> list[str]:
    """Return what is wrong with the algorithms that served a collective."""
    made = calls_made(result)[collective]
    served = calls_served(result, collective)
    wrong = []
    if served.total() != made.total():
        wrong.append(f"{made.total()} calls, but {served.total()} in the statistics")
    ways = {"messages"}
    if forced.algorithm == "host":
        ways = {"host"}
    elif forced.hierarchical or (forced.algorithm == "first_arrival" and not forced.has_form):
        # Where ranks do not know each other's lengths this has two levels, whatever the mode.
        # A rank that is alone on its node has nobody to share memory with.
        ways = {"messages", "both levels"}
    right = sum(served[forced.algorithm, way] for way in ways)
    wanted = sum(calls for call, calls in made.items() if forced.permits(*call))
    # Where it is the form that the collective does not have, the model may choose the algorithm.
    by_model = forced.hierarchical and not forced.has_form
    if right < wanted or (right > wanted and not by_model):
        wrong.append(f"{right} calls were served so, not {wanted}")
    if wanted and forced.hierarchical and served[forced.algorithm, "both levels"] == 0:
        wrong.append("nothing went through shared memory")
    return [f"{collective}={forced.value}: {text}: {dict(served)}" for text in wrong]


def run(host: Host, program: str, chosen: dict[str, Forced]) -> list[str]:
    """Run a job with one value for each collective; return what was wrong."""
    pairs = [f"{a}-{b}" for a, b in combinations(range(len(NODES)), 2) if NODES[a] != NODES[b]]
    values = {f"OVERDRIVE_ADJUST_{name.upper()}": f.value for name, f in chosen.items()}
    result = jobs.run(
        host,
        len(NODES),
        [program, *HOST_FAULTS.get(host.name, [])],
        env={
            **values,
            "OVERDRIVE_TEST_REMOTE": ",".join(pairs),
            **sharing.environment(host),
        },
        preload=([], sharing.libraries(host)),
    )
    expect.passed(result)
    assert set(calls_made(result)) == set(chosen)
    return [text for name, forced in chosen.items() for text in judge(name, forced, result)]


def run_all(host: Host, program: str, first: int, stride: int) -> None:
    """Run jobs with every `stride`-th value of each collective, from the first on."""
    found = families()
    most = max(len(values) for values in found.values())
    problems: list[str] = []
    for job in range(first, most, stride):
        chosen = {name: values[job % len(values)] for name, values in found.items()}
        problems += run(host, program, chosen)
    assert not problems, "\n".join(problems)


@pytest.mark.quick
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.one) for part in range(1, PARTS))]
)
def test_forced_algorithms(
    part: int, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """All values on one host, some on the others."""
    stride = PARTS if host.name == EVERY_VALUE_ON else A_FEW
    run_all(host, compiled(HERE / "forced.c"), part, stride)


@pytest.mark.slow
def test_forced_algorithms_everywhere(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    """All values."""
    run_all(host, compiled(HERE / "forced.c"), 0, 1)

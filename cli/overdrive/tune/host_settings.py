"""The MPI library's own choice of algorithms: its variables as candidates, and the best of them.

`overdrive tune` compares with the library's best algorithm and not with its default. `--emit host`
writes what makes the library take its best ones where Overdrive cannot be loaded: a script to
source, for Open MPI also the rule file that it names.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from overdrive.tune import rules
from overdrive.tune.statistics import LEAST_GAIN, Table, winner

OPEN_MPI, MPICH, INTEL = "Open MPI", "MPICH", "Intel MPI"

PREFIX = "host: "
"""Before the name of an algorithm of the library, where variants have names."""

# Numbers are given once and for all by each library; those that serve only two ranks, or only
# calls in place, are left out.
OPEN_MPI_NAMES = {
    "allgather": ("linear", "bruck", "recursive doubling", "ring", "neighbour exchange"),
    "allgatherv": ("linear", "bruck", "ring", "neighbour exchange"),
    "allreduce": ("linear", "reduce and bcast", "recursive doubling", "ring", "segmented ring",
                  "rabenseifner"),
    "alltoall": ("linear", "pairwise", "modified bruck", "linear with sync"),
    "alltoallv": ("linear", "pairwise"),
    "barrier": ("linear", "double ring", "recursive doubling", "bruck", None, "tree"),
    "bcast": ("linear", "chain", "pipeline", "split binary tree", "binary tree", "binomial",
              "knomial", "scatter and allgather", "scatter and allgather ring"),
    "exscan": ("linear", "recursive doubling"),
    "gather": ("linear", "binomial", "linear with sync"),
    "reduce": ("linear", "chain", "pipeline", "binary", "binomial", "in-order binary",
               "rabenseifner"),
    "reduce_scatter": ("reduce and scatter", "recursive halving", "ring", "butterfly"),
    "reduce_scatter_block": ("linear", "recursive doubling", "recursive halving", "butterfly"),
    "scan": ("linear", "recursive doubling"),
    "scatter": ("linear", "binomial", "non-blocking linear"),
}  # fmt: skip

OPEN_MPI_NUMBERS = {
    "allgather": 0, "allgatherv": 1, "allreduce": 2, "alltoall": 3, "alltoallv": 4, "barrier": 6,
    "bcast": 7, "exscan": 8, "gather": 9, "reduce": 11, "reduce_scatter": 12,
    "reduce_scatter_block": 13, "scan": 14, "scatter": 15,
}  # fmt: skip

TIMES_RANKS = frozenset(("allgather", "alltoall", "gather", "scatter"))
"""Whose sizes in Open MPI's rule files are those of all blocks together."""

MPICH_NAMES = {
    "allgather": ("brucks", "recursive_doubling", "ring"),
    "allgatherv": ("brucks", "recursive_doubling", "ring"),
    "allreduce": ("smp", "recursive_doubling", "reduce_scatter_allgather"),
    "alltoall": ("brucks", "pairwise", "scattered"),
    "alltoallv": ("scattered",),
    "alltoallw": ("scattered",),
    "barrier": ("smp", "dissemination"),
    "bcast": ("smp", "binomial", "scatter_recursive_doubling_allgather", "scatter_ring_allgather"),
    "exscan": ("recursive_doubling",),
    "gather": ("binomial",),
    "reduce": ("smp", "binomial", "reduce_scatter_gather"),
    "reduce_scatter": ("pairwise", "recursive_doubling", "recursive_halving"),
    "reduce_scatter_block": ("pairwise", "recursive_doubling", "recursive_halving"),
    "scan": ("smp", "recursive_doubling"),
    "scatter": ("binomial",),
}

INTEL_COUNTS = {
    "allgather": 5, "allgatherv": 4, "allreduce": 12, "alltoall": 4, "alltoallv": 2, "barrier": 9,
    "bcast": 11, "exscan": 2, "gather": 4, "gatherv": 3, "reduce": 11, "reduce_scatter": 5,
    "scan": 2, "scatter": 3, "scatterv": 2,
}  # fmt: skip


def family_of(version: str) -> str:
    """Return which family a library's version text belongs to; empty: none that is known."""
    for family, words in ((OPEN_MPI, "open mpi"), (INTEL, "intel"), (MPICH, "mpich")):
        if words in version.lower():
            return family
    return ""


def candidates(library: str, collective: str) -> dict[str, dict[str, str]]:
    """Return the variables of each of the library's algorithms, by the variant's name."""
    upper = collective.upper()
    if library == OPEN_MPI:
        known = OPEN_MPI_NAMES.get(collective, ())
        return {
            f"{PREFIX}{i + 1} {name}": {
                "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
                f"OMPI_MCA_coll_tuned_{collective}_algorithm": str(i + 1),
            }
            for i, name in enumerate(known)
            if name is not None
        }
    if library == MPICH:
        return {
            f"{PREFIX}{name}": {f"MPIR_CVAR_{upper}_INTRA_ALGORITHM": name}
            for name in MPICH_NAMES.get(collective, ())
        }
    if library == INTEL:
        return {
            f"{PREFIX}{number}": {f"I_MPI_ADJUST_{upper}": str(number)}
            for number in range(1, INTEL_COUNTS.get(collective, 0) + 1)
        }
    return {}


def is_setting(variant: str) -> bool:
    """Tell whether a variant is one of the library's algorithms by its own variables."""
    return variant.startswith(PREFIX)


def choosable(table: Table) -> Table:
    """Return the part of a table that Overdrive's rules can choose."""
    return {name: sizes for name, sizes in table.items() if not is_setting(name)}


def of_host(table: Table) -> Table:
    """Return the library's default and its algorithms."""
    return {name: sizes for name, sizes in table.items() if name == rules.HOST or is_setting(name)}


def number_of(variant: str) -> str:
    """Return the number, or the name, by which the library knows a variant."""
    return variant.removeprefix(PREFIX).split(" ", 1)[0] if is_setting(variant) else "0"


@dataclass(frozen=True)
class Range:
    """Sizes for which the library has one best algorithm; 0 is its own choice."""

    first: int
    last: int
    algorithm: str


def ranges(table: Table) -> list[Range]:
    """Return what the library should take, from the smallest size to the largest."""
    return [
        Range(first, last, number_of(best))
        for best, first, last, _ in rules.ranges(of_host(table), usual=rules.HOST)
    ]


def single(table: Table) -> str:
    """Return the one algorithm that gains most over all sizes and loses nowhere; "0": none does."""
    here = of_host(table)
    usual = here.get(rules.HOST, {})
    best, gain = "0", math.log(1 + LEAST_GAIN)
    for name, sizes in here.items():
        if name == rules.HOST or set(sizes) < set(usual) or not usual:
            continue
        logs = [math.log(usual[size].median / sizes[size].median) for size in usual]
        sure = any(winner({rules.HOST: usual, name: sizes}, size, rules.HOST) == name
                   for size in usual)  # fmt: skip
        if not sure or min(logs) < -math.log(1 + LEAST_GAIN):
            continue
        if sum(logs) / len(logs) > gain:
            best, gain = number_of(name), sum(logs) / len(logs)
    return best


def open_mpi_rules(tables: Mapping[tuple[str, int], Table]) -> str:
    """Return the rule file of Open MPI's component `tuned`; `tables` by collective and ranks."""
    lines: list[str] = []
    found = 0
    for collective in dict.fromkeys(name for name, _ in tables):
        counts = sorted(ranks for name, ranks in tables if name == collective)
        chosen = {ranks: ranges(tables[collective, ranks]) for ranks in counts}
        if all(one.algorithm == "0" for known in chosen.values() for one in known):
            continue
        found += 1
        # An entry holds from its number of ranks on; beyond the last one the library chooses.
        entries: list[tuple[int, list[tuple[int, str]]]] = []
        for i, ranks in enumerate(counts):
            low = ranks if i == 0 else rules.between(counts[i - 1], ranks) + 1
            times = ranks if collective in TIMES_RANKS else 1
            steps = [(one.first * times, one.algorithm) for one in chosen[ranks]]
            last = chosen[ranks][-1].last if chosen[ranks] else 0
            if collective not in rules.WITHOUT_SIZE:
                steps.append(((last + 1) * times, "0"))
            entries.append((low, steps or [(0, "0")]))
        entries.append((counts[-1] + 1, [(0, "0")]))
        lines += [f"{OPEN_MPI_NUMBERS[collective]} # {collective}",
                  f"{len(entries)} # numbers of ranks"]  # fmt: skip
        for low, steps in entries:
            lines += [f"{low} # ranks and more", f"{len(steps)} # sizes"]
            lines += [f"{size} {algorithm} 0 0" for size, algorithm in steps]
    return "\n".join([f"{found} # collectives", *lines]) + "\n" if found else ""


def intel_value(table: Table) -> str:
    """Return what `I_MPI_ADJUST_...` takes: algorithms by sizes; empty: the library chooses."""
    known = [one for one in ranges(table) if one.algorithm != "0"]
    return ";".join(f"{one.algorithm}:{one.first}-{one.last}" for one in known)


def emit(
    library: str, head: Sequence[str], tables: Mapping[tuple[str, int], Table], output: Path
) -> dict[Path, str]:
    """Return the files that make the library take its best algorithms."""
    lines = ["# The MPI library's best algorithms; source this file before starting jobs."]
    lines += [f"# {line}" for line in head]
    files: dict[Path, str] = {}
    exports: list[tuple[str, str]] = []
    if library == OPEN_MPI:
        text = open_mpi_rules(tables)
        if text:
            beside = output.with_suffix(".rules")
            files[beside] = text
            exports = [
                ("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"),
                ("OMPI_MCA_coll_tuned_dynamic_rules_filename", str(beside.resolve())),
            ]
    else:
        # These variables know no numbers of ranks: those of the largest one count.
        largest = max((ranks for _, ranks in tables), default=0)
        for (collective, ranks), table in tables.items():
            if ranks != largest:
                continue
            if library == INTEL:
                value = intel_value(table)
                if value and collective in rules.WITHOUT_SIZE:
                    value = ranges(table)[0].algorithm
                if value:
                    exports.append((f"I_MPI_ADJUST_{collective.upper()}", value))
            elif library == MPICH and single(table) != "0":
                exports.append((f"MPIR_CVAR_{collective.upper()}_INTRA_ALGORITHM", single(table)))
    if not exports:
        lines.append("# Nothing is faster than what the library chooses by itself.")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in exports]
    files[output] = "\n".join(lines) + "\n"
    return files

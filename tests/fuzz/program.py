"""What a random MPI program is: operations along one line of steps, and their text.

Each operation stands at a step. A rank executes its operations in the order of the steps, and an
operation that blocks waits only for operations that stand at its own step or an earlier one. That
makes every program free of deadlocks: of all ranks that wait, the one at the lowest step waits for
something that has been started. Operations of one step belong to different ranks.

Operations belong to *units*, the smallest parts that can be left out: a message with its receive, a
collective, a communicator with its release. Completions (`done`, `poke`) belong to none; they list
requests, each with the unit whose operation it completes, and shrink with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

Request = tuple[int, int]
"""A request's number and the unit that has started it."""


@dataclass
class Op:
    """One operation of one or more ranks."""

    verb: str
    ranks: tuple[int, ...]
    args: dict[str, Any]
    unit: int = 0
    """0: belongs to no unit of its own (completions)."""
    step: int = 0
    strand: int = 0

    def get(self, name: str, otherwise: Any = None) -> Any:
        """Return an argument."""
        return self.args.get(name, otherwise)

    def copy(self) -> Op:
        """Return a copy that can be changed."""
        args = {key: list(v) if isinstance(v, list) else v for key, v in self.args.items()}
        return Op(self.verb, self.ranks, args, self.unit, self.step, self.strand)

    def text(self) -> str:
        """Return the line that the interpreter reads."""
        words = [str(self.step), str(self.strand), ",".join(map(str, self.ranks)), self.verb]
        for name, value in self.args.items():
            if name == "units" or value is None:
                continue
            words.append(f"{name}={_text(value)}")
        return " ".join(words)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(item[0]) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


NOBODY = -1
"""The neighbour beyond the border of a grid."""

Neighbours = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""By rank: from whom it gets in neighbourhood collectives, and whom it gives to."""


@dataclass(frozen=True)
class Comm:
    """A communicator: one group of ranks of MPI_COMM_WORLD, or two."""

    number: int
    sides: tuple[tuple[int, ...], ...]
    unit: int = 0
    strand: int = 0
    neighbours: Neighbours = ()
    """Empty: it has no topology."""

    @property
    def is_inter(self) -> bool:
        """Tell whether it is an inter-communicator."""
        return len(self.sides) == 2

    @property
    def members(self) -> tuple[int, ...]:
        """Return all ranks that have a handle of it."""
        return tuple(rank for side in self.sides for rank in side)

    def side_of(self, rank: int) -> int:
        """Return which group a rank is in."""
        return 0 if rank in self.sides[0] else 1

    def peers_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks to which a rank can send."""
        return self.sides[1 - self.side_of(rank)] if self.is_inter else self.sides[0]

    def number_of(self, peer: int, seen_by: int) -> int:
        """Return the rank by which `seen_by` addresses a peer."""
        return self.peers_of(seen_by).index(peer)


@dataclass
class Program:
    """A program with what the analysis needs to know about it."""

    number: int
    seed: int
    ranks: int
    strands: int = 1
    ops: list[Op] = field(default_factory=list)
    comms: dict[int, Comm] = field(default_factory=dict)
    depends: dict[int, set[int]] = field(default_factory=dict)
    """Units without which a unit makes no sense."""
    partial: set[int] = field(default_factory=set)
    """Units that are collective over a part of their communicator only."""

    def units(self) -> list[int]:
        """Return the units that are left."""
        return sorted({op.unit for op in self.ops if op.unit})

    def copy(self) -> Program:
        """Return a copy that can be changed."""
        ops = [op.copy() for op in self.ops]
        return replace(self, ops=ops)

    def without(self, units: Iterable[int]) -> Program:
        """Return the program without these units and all that depends on them."""
        gone = set(units)
        grown = True
        while grown:
            more = {unit for unit, needs in self.depends.items() if needs & gone} - gone
            grown = bool(more)
            gone |= more
        return self.kept(lambda unit: unit not in gone)

    def kept(self, keep: Callable[[int], bool]) -> Program:
        """Return the program with only the units of which `keep` is true."""
        result = self.copy()
        ops = []
        for op in result.ops:
            if op.unit and not keep(op.unit):
                continue
            if op.verb in ("done", "poke"):
                op.args["q"] = [entry for entry in op.args["q"] if keep(entry[1])]
                if not op.args["q"]:
                    continue
            elif op.verb == "start":
                if not keep_starts(op, keep):
                    continue
            ops.append(op)
        result.ops = ops
        return result

    def renumbered(self) -> Program:
        """Return the program with steps from 1 on without holes."""
        result = self.copy()
        numbers = {step: i + 1 for i, step in enumerate(sorted({op.step for op in result.ops}))}
        for op in result.ops:
            op.step = numbers[op.step]
        return result

    def text(self, messages: Iterable[str] = ()) -> str:
        """Return what the interpreter reads."""
        lines = [f"program {self.number} seed={self.seed} strands={self.strands}"]
        lines += messages
        lines += [op.text() for op in self.ops]
        return "\n".join([*lines, "end", ""])


def keep_starts(op: Op, keep: Callable[[int], bool]) -> bool:
    """Leave only the starts of kept units in an operation; tell whether any is left."""
    kept = [i for i, (_, unit) in enumerate(op.args["q"]) if keep(unit)]
    candidates = [op.args.get(f"cand{i}") for i in range(len(op.args["q"]))]
    for i in range(len(candidates)):
        op.args.pop(f"cand{i}", None)
    for name in ("q", "m"):
        op.args[name] = [op.args[name][i] for i in kept]
    for position, i in enumerate(kept):
        if candidates[i] is not None:
            op.args[f"cand{position}"] = candidates[i]
    return bool(kept)

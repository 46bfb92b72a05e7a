"""Makes a failing program small: units left out, ranks left out, what is left made plain.

`fails` runs a legal program and tells whether it still fails. Every attempt is settled first, so a
part without which the rest would be illegal stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fuzz.analysis import Illegal, settle
from fuzz.datatypes import Type
from fuzz.program import Comm, Op, Program

Fails = Callable[[Program], bool]

NEEDS_ITS_RANKS = ("send", "recv", "exch", "sinit", "rinit", "cancel", "psend", "precv", "win")
"""What a rank that takes part in it cannot be taken out of."""


class Shrinker:
    """One failure on its way to a few lines."""

    def __init__(self, program: Program, fails: Fails, most_runs: int = 400) -> None:
        self.best = program
        self.fails = fails
        self.runs = 0
        self.most_runs = most_runs
        self.tried: set[str] = set()

    def attempt(self, candidate: Program) -> bool:
        """Keep a candidate if it is legal and fails."""
        try:
            settled, analysis = settle(candidate)
        except Illegal:
            return False
        text = settled.text(analysis.messages())
        if text in self.tried or self.runs >= self.most_runs or not settled.ops:
            return False
        self.tried.add(text)
        self.runs += 1
        if not self.fails(settled):
            return False
        self.best = settled
        return True

    def run(self) -> Program:
        """Return the smallest program found."""
        before = -1
        while before != len(self.tried) and self.runs < self.most_runs:
            before = len(self.tried)
            self._leave_out_units()
            self._leave_out_completions()
            self._leave_out_ranks()
            self._make_plain()
        return self.best

    def _leave_out_units(self) -> None:
        units = self.best.units()
        size = max(1, len(units) // 2)
        while True:
            position = 0
            while position < len(units):
                part = set(units[position : position + size])
                if self.attempt(self.best.without(part)):
                    left = set(self.best.units())
                    units = [unit for unit in units if unit in left]
                else:
                    position += size
            if size == 1:
                return
            size = max(1, size // 2)

    def _leave_out_completions(self) -> None:
        """Leave out looks at requests, and join completions that follow each other."""
        i = 0
        while i < len(self.best.ops):
            if self.best.ops[i].verb in ("poke", "delay", "look"):
                candidate = self.best.copy()
                del candidate.ops[i]
                if self.attempt(candidate):
                    continue
            i += 1
        for i in range(len(self.best.ops) - 1, 0, -1):
            if i < len(self.best.ops):
                self._join(i)

    def _join(self, i: int) -> None:
        op = self.best.ops[i]
        if op.verb != "done":
            return
        for j in range(i + 1, len(self.best.ops)):
            later = self.best.ops[j]
            if op.ranks[0] not in later.ranks:
                continue
            if later.verb == "done" and later.ranks == op.ranks:
                candidate = self.best.copy()
                candidate.ops[j].args["q"] += candidate.ops[i].args["q"]
                del candidate.ops[i]
                self.attempt(candidate)
            return

    def _leave_out_ranks(self) -> None:
        for rank in range(self.best.ranks - 1, -1, -1):
            if self.best.ranks <= 2:
                return
            candidate = without_rank(self.best, rank)
            if candidate is not None:
                self.attempt(candidate)

    def _make_plain(self) -> None:
        for i in range(len(self.best.ops)):
            if i >= len(self.best.ops):
                return
            for change in plainer(self.best.ops[i]):
                candidate = self.best.copy()
                apply(candidate, i, change)
                self.attempt(candidate)


def apply(program: Program, i: int, change: dict[str, Any]) -> None:
    """Change an operation, and what must be the same elsewhere: the other parts of a collective."""
    changed = program.ops[i]
    same = [changed]
    if changed.verb == "coll":
        same = [op for op in program.ops if op.verb == "coll" and op.unit == changed.unit]
    for op in same:
        for name, value in change.items():
            if value is None:
                op.args.pop(name, None)
            else:
                op.args[name] = value


def plainer(op: Op) -> Iterator[dict[str, Any]]:
    """Yield changes that make an operation simpler, the boldest first."""
    for name in ("mem", "rmem"):
        if op.get(name) not in (None, "h:0"):
            yield {name: "h:0"}
    if op.get("op") is None:
        for name, length in (("type", "n"), ("rtype", "rn")):
            spec = op.get(name)
            if spec is not None and len(spec) > 1:
                yield {name: spec[0]}
                yield {name: spec[0], length: 1}
    for length in ("n", "rn"):
        n = op.get(length)
        if isinstance(n, int) and n > 1:
            spec = op.get("type" if length == "n" else "rtype", "b")
            per = Type(spec).per
            for shorter in (per, n // 8 // per * per, n // 2 // per * per):
                if 0 < shorter < n:
                    yield {length: shorter}
    if op.verb in ("send", "sinit") and op.get("mode") != "std":
        yield {"mode": "std"}
    if op.verb == "recv" and op.get("how", "plain") != "plain":
        yield {"how": None}
    if op.verb == "done" and op.get("how") != "waitall":
        yield {"how": "waitall"}
    for name in ("early", "gap", "place", "replace", "after"):
        if op.get(name):
            yield {name: None}
    for name in ("from", "tag"):
        if op.verb in ("recv", "rinit") and op.get(name) == "any":
            continue
    if op.verb == "coll" and op.get("op") not in (None, "sum") and op.get("type") in ("i", "l"):
        yield {"op": "sum"}


def without_rank(program: Program, gone: int) -> Program | None:
    """Return the program with one rank fewer, or None where that rank takes part in a message."""
    for op in program.ops:
        if gone in op.ranks and op.verb in NEEDS_ITS_RANKS:
            return None
        if op.verb == "comm" and op.get("how") not in ("dup", "idup"):
            return None

    def moved(rank: int) -> int:
        return rank - (rank > gone)

    for comm in program.comms.values():
        if comm.is_inter and any(side == (gone,) for side in comm.sides):
            return None
    result = program.copy()
    result.ranks -= 1
    result.comms = {
        number: Comm(
            comm.number,
            tuple(tuple(moved(r) for r in side if r != gone) for side in comm.sides),
            comm.unit,
            comm.strand,
        )
        for number, comm in program.comms.items()
    }
    ops = []
    for op in result.ops:
        comm = program.comms.get(op.get("c", op.get("parent")))
        op.ranks = tuple(moved(rank) for rank in op.ranks if rank != gone)
        if not op.ranks:
            continue
        for name, value in op.args.items():
            if name.startswith("ranks"):
                op.args[name] = [moved(rank) for rank in value if rank != gone]
        if comm is not None and gone in comm.members:
            position = comm.sides[comm.side_of(gone)].index(gone)
            for name in ("to", "from", "root"):
                value = op.get(name)
                if isinstance(value, int):
                    op.args[name] = max(0, value - (value >= position and value > 0))
        ops.append(op)
    result.ops = ops
    return result


def shrink(program: Program, fails: Fails, most_runs: int = 400) -> Program:
    """Return a small program that still fails."""
    return Shrinker(program, fails, most_runs).run()

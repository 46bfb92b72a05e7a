"""Makes random legal programs from seeds.

The planner writes down operations in the order of steps. Whatever has two sides, a message or the
start of a non-blocking collective, may come in halves: the second half, and later the completions,
are put off, and other things happen between. What is planned so freely may turn out illegal, mostly
because a wildcard could take a message that another receive needs; the analysis finds that, and the
units concerned are left out until the rest is legal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from fuzz import datatypes as types
from fuzz.analysis import Illegal, settle
from fuzz.program import Comm, Op, Program

if TYPE_CHECKING:
    from fuzz.plan_windows import Windows

Half = Callable[[], None]

FINAL = ["wait", "waitall", "waitany", "waitsome", "test", "testall", "testany", "testsome"]
FINAL_WAYS = [*FINAL, "status"]
POKES = ["test", "testall", "testany", "testsome", "status"]


class Planner:
    """The state of one program that is being made."""

    def __init__(
        self, seed: int, ranks: int, without: frozenset[str], most_bytes: int, strand: int = 0
    ) -> None:
        self.rng = random.Random(f"{seed}/{strand}")
        self.program = Program(seed, seed, ranks)
        self.ranks = ranks
        self.without = without
        self.most_bytes = most_bytes
        self.strand = strand
        self.in_threads = False
        self.next_unit = strand * 10_000
        self.next_message = strand * 500
        self.next_comm = 4 + strand * 30
        self.next_collective = strand * 10_000
        self.requests = [strand * 128] * ranks
        self.halves: list[Half] = []
        """What is still to be started by somebody."""
        self.open: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
        """Requests that are pending, by rank."""
        self.ready: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
        """Those of them whose counterparts have all been started."""
        self.behind: dict[int, Half] = {}
        """By communicator: starts the rest of a collective that some members have started."""
        self.retired: list[Half] = []
        """What may be done at the end: releases of persistent requests and communicators."""
        whole = Comm(strand, (tuple(range(ranks)),), 0, strand)
        self.program.comms[strand] = whole
        self.comms: list[Comm] = [whole]
        self.windows: Windows | None = None
        self.step = 0

    # --- building blocks ---------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """Return true with this probability."""
        return self.rng.random() < probability

    def unit(self, *needs: int) -> int:
        """Return a new unit that makes sense only with the units it needs."""
        self.next_unit += 1
        wanted = {need for need in needs if need}
        if wanted:
            self.program.depends[self.next_unit] = wanted
        return self.next_unit

    def request(self, rank: int) -> int:
        """Return a new request's number."""
        self.requests[rank] += 1
        return self.requests[rank] - 1

    def message(self) -> int:
        """Return a new message's number."""
        self.next_message += 1
        return self.next_message - 1

    def emit(self, *ops: Op) -> None:
        """Put operations of different ranks at the next step."""
        self.step += 1
        for op in ops:
            op.step = self.step
            op.strand = self.strand
            self.program.ops.append(op)

    def base_of(self, comm: Comm, receiver: int) -> str:
        """Return the basic type of all messages to a receiver on a communicator."""
        return "cisldfb"[types.mix(self.program.seed * 64 + comm.number * 8 + receiver) % 7]

    def has_room(self) -> bool:
        """Tell whether the tables of the interpreter have room for more."""
        return (
            max(self.requests) - self.strand * 128 < 100
            and self.next_message - self.strand * 500 < 400
        )

    # --- completion --------------------------------------------------------------------------

    def started(self, rank: int, number: int, unit: int) -> None:
        """Note a request that is pending."""
        self.open[rank].append((number, unit))

    def matched(self, rank: int, number: int, unit: int) -> None:
        """Note that nothing is missing any more for a request to complete."""
        self.ready[rank].append((number, unit))

    def ways(self, names: list[str]) -> list[str]:
        """Return the ways of completion that the host gets right."""
        return [name for name in names if name not in self.without]

    def complete(self, rank: int, everything: bool = False) -> None:
        """Complete some requests of a rank."""
        ready = self.ready[rank]
        if not ready:
            return
        some = (
            list(ready) if everything else self.rng.sample(ready, self.rng.randint(1, len(ready)))
        )
        self.rng.shuffle(some)
        self.emit(Op("done", (rank,), {"how": self.rng.choice(self.ways(FINAL_WAYS)), "q": some}))
        for entry in some:
            ready.remove(entry)
            self.open[rank].remove(entry)

    def poke(self) -> None:
        """Let some rank look at some requests, whether they can be complete or not."""
        rank = self.rng.randrange(self.ranks)
        pending = self.open[rank]
        if not pending:
            return
        some = self.rng.sample(pending, self.rng.randint(1, len(pending)))
        self.emit(Op("poke", (rank,), {"how": self.rng.choice(self.ways(POKES)), "q": some}))

    def half(self) -> None:
        """Do something that was put off."""
        if self.halves:
            self.halves.pop(self.rng.randrange(len(self.halves)))()

    def later(self, *halves: Half) -> None:
        """Do these things now or later, in this order."""
        queue = list(halves)
        while queue and self.chance(0.4):
            queue.pop(0)()
        if queue:
            self._put_off(queue)

    def _put_off(self, queue: list[Half]) -> None:
        def next_one() -> None:
            queue.pop(0)()
            if queue:
                self.halves.append(next_one)

        self.halves.append(next_one)

    def quiet(self) -> None:
        """Start and complete everything that is pending."""
        while self.halves:
            self.half()
            if self.chance(0.2):
                self.poke()
        order = list(range(self.ranks))
        self.rng.shuffle(order)
        for rank in order:
            while self.ready[rank]:
                self.complete(rank, self.chance(0.6))

    def delay(self) -> None:
        """Let a rank do something else for a while."""
        rank = self.rng.randrange(self.ranks)
        micros = self.rng.choice([1, 20, 200, 1000])
        self.emit(
            Op(
                "delay",
                (rank,),
                {"us": micros, "how": self.rng.choice(["sleep", "spin"])},
                self.unit(),
            )
        )


def repaired(program: Program, rng: random.Random) -> Program:
    """Return what is legal of a program, adjusted."""
    while True:
        try:
            settle(program)
            return program
        except Illegal as problem:
            if not problem.units:
                raise
            program = program.without([rng.choice(sorted(problem.units))])


def make(
    seed: int,
    ranks: int,
    *,
    without: frozenset[str] = frozenset(),
    actions: int = 0,
    most_bytes: int = 300_000,
    strands: int = 1,
) -> Program:
    """Return the program of a seed."""
    from fuzz import (
        plan_collectives,
        plan_comms,
        plan_host_calls,
        plan_messages,
        plan_partitioned,
        plan_windows,
    )

    whole = Program(seed, seed, ranks, strands)
    for strand in range(strands):
        planner = Planner(seed, ranks, without, most_bytes, strand)
        planner.in_threads = strands > 1
        rng = planner.rng
        choices: list[tuple[float, Callable[[Planner], None]]] = [
            *plan_messages.ACTIONS,
            *plan_collectives.ACTIONS,
            *plan_comms.ACTIONS,
            *plan_host_calls.ACTIONS,
            *plan_partitioned.ACTIONS,
            *plan_windows.ACTIONS,
            (2.0, Planner.poke),
            (4.0, Planner.half),
            (3.0, lambda p: p.complete(p.rng.randrange(p.ranks))),
            (0.5, Planner.delay),
            (0.5, Planner.quiet),
        ]
        # Each program prefers some things, so that programs differ as a whole.
        weights = [weight * rng.choice([0.2, 1, 1, 3]) for weight, _ in choices]
        for _ in range(actions or rng.choice([8, 20, 40, 80])):
            if not planner.has_room():
                break
            rng.choices(choices, weights)[0][1](planner)
        planner.quiet()
        for release in planner.retired:
            release()
        plan_comms.free_all(planner)
        part = repaired(planner.program, rng)
        for op in part.ops:
            op.step = op.step * strands + strand
        whole.ops += part.ops
        whole.comms.update(part.comms)
        whole.depends.update(part.depends)
        whole.partial |= part.partial
    whole.ops.sort(key=lambda op: op.step)
    return whole

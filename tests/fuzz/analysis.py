"""Whether a program is legal and what every receive must get: what MPI itself is never asked.

Checks that
- every wildcard leaves each receive with a message in every order of events (matching.py),
- nothing waits for what is started at a later step,
- collectives of a communicator are called in the same order by all its ranks,
and adjusts what follows from the rest: lengths of receives, ready sends whose receive might not yet
be posted, exchanges in place.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from fuzz.matching import Ambiguous, Message, Receive, match
from fuzz.program import Op, Program

FOREVER = 1 << 30

SYNCHRONISING = {"barrier", "allreduce", "allgather", "alltoall"}
"""Blocking collectives after which each rank knows that all the others have come."""


COLLECTIVE_VERBS = ("coll", "comm", "window", "file", "win", "winend")
"""What the ranks of a communicator must call in the same order."""


class Illegal(Exception):
    """A program that is not legal; names the units that could be left out."""

    def __init__(self, units: set[int], text: str) -> None:
        super().__init__(f"{text} (units {sorted(units)})")
        self.units = {unit for unit in units if unit}


@dataclass
class Send:
    """A send as the analysis sees it."""

    op: Op
    rank: int
    to: int
    comm: int
    mode: str
    message: Message
    done: int
    blocking: bool
    receives: list[Receive] = field(default_factory=list)


@dataclass
class Recv:
    """A receive as the analysis sees it."""

    op: Op
    index: int
    rank: int
    comm: int
    receive: Receive
    blocking: bool
    cancelled: bool


class Analysis:
    """Everything that follows from a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sends: list[Send] = []
        self.recvs: list[Recv] = []
        self.made: dict[tuple[int, int], Op] = {}
        self.knows: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.done = self._completions()
        self._learn()
        for op in program.ops:
            self._collect(op)
        self._match()
        self._check_order_of_collectives()
        self._check_waits()

    # --- what is where -----------------------------------------------------------------------

    def _completions(self) -> dict[tuple[int, int, int], int]:
        """Return by (rank, request, unit) the step at which it is complete for certain."""
        found: dict[tuple[int, int, int], int] = {}
        for op in self.program.ops:
            if op.verb == "done":
                for number, unit in op.args["q"]:
                    found[op.ranks[0], number, unit] = op.step
        return found

    def _done(self, op: Op, rank: int, number: int, unit: int) -> int:
        found = self.done.get((rank, number, unit))
        if found is None:
            if (rank, number) in self.freed:
                return FOREVER
            raise Illegal({unit}, f"request {number} of rank {rank} is never completed")
        return found

    def _learn(self) -> None:
        """Note which steps of others each rank knows to be over, from which step on."""
        self.freed = {(op.ranks[0], op.args["q"]) for op in self.program.ops if op.verb == "free"}
        for op in self.program.ops:
            if op.verb != "coll" or op.get("q") is not None or op.get("name") not in SYNCHRONISING:
                continue
            if op.get("name") != "barrier" and op.get("n", 0) == 0:
                continue
            members = self.program.comms[op.args["c"]].members
            before = {rank: self._known(rank, op.step) for rank in members}
            for rank in members:
                for other in range(self.program.ranks):
                    if other == rank:
                        continue
                    step = max(before[member].get(other, 0) for member in members)
                    if other in members:
                        step = max(step, op.step)
                    self.knows[rank][other].append((op.step, step))

    def _known(self, rank: int, at: int) -> dict[int, int]:
        """Return for each other rank: all its operations before this step are over."""
        result = {}
        for other, entries in self.knows[rank].items():
            known = [step for since, step in entries if since < at]
            if known:
                result[other] = max(known)
        return result

    # --- point-to-point ----------------------------------------------------------------------

    def _collect(self, op: Op) -> None:
        rank = op.ranks[0]
        if op.verb in ("sinit", "rinit"):
            self.made[rank, op.args["q"]] = op
        elif op.verb == "send":
            self._add_send(op, op, rank, op.args["m"], op.get("q"), op.unit)
        elif op.verb == "recv":
            self._add_recv(op, op, 0, rank, op.get("q"), op.unit, "")
        elif op.verb == "exch":
            self._add_send(op, op, rank, op.args["m"], None, op.unit)
            self._add_recv(op, op, 0, rank, None, op.unit, "r")
        elif op.verb == "start":
            for i, (number, unit) in enumerate(op.args["q"]):
                made = self.made.get((rank, number))
                if made is not None and made.verb == "sinit":
                    self._add_send(op, made, rank, op.args["m"][i], number, unit)
                elif made is not None:
                    self._add_recv(op, made, i, rank, number, unit, "")

    def _add_send(
        self, op: Op, made: Op, rank: int, number: int, request: int | None, unit: int
    ) -> None:
        comm = self.program.comms[made.args["c"]]
        to = comm.peers_of(rank)[made.args["to"]]
        done = op.step if request is None else self._done(op, rank, request, unit)
        message = Message(number, rank, made.args["tag"], made.args["n"], unit, op.step)
        mode = made.get("mode", "std")
        send = Send(made, rank, to, comm.number, mode, message, done, request is None)
        self.sends.append(send)

    def _add_recv(
        self,
        op: Op,
        made: Op,
        index: int,
        rank: int,
        request: int | None,
        unit: int,
        prefix: str,
    ) -> None:
        comm = self.program.comms[made.args["c"]]
        source, tag = made.args["from"], made.args[f"{prefix}tag"]
        done = op.step if request is None else self._done(op, rank, request, unit)
        receive = Receive(
            None if source == "any" else comm.peers_of(rank)[source],
            None if tag == "any" else tag,
            unit,
            op.step,
            done,
        )
        blocking = request is None or made.get("how", "plain") != "plain"
        cancelled = bool(made.get("cancelled"))
        self.recvs.append(Recv(op, index, rank, comm.number, receive, blocking, cancelled))

    def _match(self) -> None:
        channels = {(recv.comm, recv.rank) for recv in self.recvs}
        channels |= {(send.comm, send.to) for send in self.sends}
        for comm, rank in sorted(channels):
            sends = [s for s in self.sends if (s.comm, s.to) == (comm, rank)]
            recvs = [r for r in self.recvs if (r.comm, r.rank) == (comm, rank)]
            for recv in recvs:
                if recv.cancelled and any(recv.receive.accepts(s.message) for s in sends):
                    raise Illegal({recv.receive.unit}, "a receive to be cancelled could match")
            kept = [recv for recv in recvs if not recv.cancelled]

            def too_late(message: Message, receive: Receive, receiver: int = rank) -> bool:
                known = self._known(message.source, message.step).get(receiver, 0)
                return receive.done < known

            try:
                match([r.receive for r in kept], [s.message for s in sends], too_late)
            except Ambiguous as problem:
                raise Illegal(problem.units, str(problem)) from None
            by_number = {send.message.number: send for send in sends}
            for recv in kept:
                for message in recv.receive.candidates:
                    by_number[message.number].receives.append(recv.receive)

    # --- deadlocks ---------------------------------------------------------------------------

    def _check_waits(self) -> None:
        for recv in self.recvs:
            end = recv.receive.step if recv.blocking else recv.receive.done
            for message in recv.receive.candidates:
                if message.step > end:
                    units = {recv.receive.unit, message.unit}
                    raise Illegal(units, "a receive waits for a later send")
        for send in self.sends:
            if send.mode == "buf":
                continue
            for receive in send.receives:
                if receive.step > send.done:
                    units = {receive.unit, send.message.unit}
                    raise Illegal(units, "a send waits for a later receive")
        for unit, steps in self.collective_starts.items():
            for rank, number, begun in self.collective_requests[unit]:
                done = self.done.get((rank, number, unit))
                if done is None:
                    raise Illegal({unit}, f"collective request {number} is never completed")
                if done < max(steps) or done < begun:
                    raise Illegal({unit}, "a collective is completed before all have started it")

    def _check_order_of_collectives(self) -> None:
        """Note the starts of collectives; each communicator's must come in the same order."""
        self.collective_starts: dict[int, list[int]] = defaultdict(list)
        self.collective_requests: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        order: dict[tuple[int, int], list[int]] = defaultdict(list)
        for op in self.program.ops:
            if op.verb in COLLECTIVE_VERBS and op.get("parent", op.get("c")) is not None:
                number = op.get("q")
                persistent = op.get("form") == "p"
                for rank in op.ranks:
                    order[op.get("parent", op.get("c")), rank].append(op.unit)
                    if number is not None and persistent:
                        self.made[rank, number] = op
                    elif number is not None:
                        self.collective_starts[op.unit].append(op.step)
                        self.collective_requests[op.unit].append((rank, number, op.step))
            elif op.verb == "start":
                for number, unit in op.args["q"]:
                    made = self.made.get((op.ranks[0], number))
                    if made is None or made.verb != "coll":
                        continue
                    order[made.args["c"], op.ranks[0]].append(unit)
                    self.collective_starts[unit].append(op.step)
                    self.collective_requests[unit].append((op.ranks[0], number, op.step))
        partial = self.program.partial
        whole = {key: [u for u in calls if u not in partial] for key, calls in order.items()}
        for (comm, _), calls in whole.items():
            members = self.program.comms[comm].members
            first = whole.get((comm, members[0]), [])
            if calls != first:
                raise Illegal(set(calls) ^ set(first) or set(calls[:1]), "order of collectives")

    # --- what follows ------------------------------------------------------------------------

    def messages(self) -> list[str]:
        """Return the declarations of all messages."""
        lines = []
        for send in self.sends:
            comm = self.program.comms[send.comm]
            source = comm.peers_of(send.to).index(send.rank)
            base = send.op.args["type"][0]
            lines.append(
                f"0 0 * message id={send.message.number} c={send.comm} from={source} "
                f"to={send.to} tag={send.message.tag} n={send.message.n} base={base}"
                + (f" as={send.op.args['as']}" if "as" in send.op.args else "")
            )
        return lines

    def annotate(self) -> None:
        """Write the candidates into the operations and adjust what follows from them."""
        by_number = {send.message.number: send for send in self.sends}
        for recv in self.recvs:
            candidates = recv.receive.candidates
            name = f"cand{recv.index}" if recv.op.verb == "start" else "cand"
            recv.op.args[name] = [message.number for message in candidates]
            made = recv.op
            if recv.op.verb == "start":
                made = self.made[recv.rank, recv.op.args["q"][recv.index][0]]
            longest = max((message.n for message in candidates), default=0)
            room = "rn" if made.verb == "exch" else "n"
            if made.verb == "exch" and made.get("replace"):
                own, base = made.args["n"], made.args["type"][0]
                bases = {by_number[message.number].op.args["type"][0] for message in candidates}
                if bases != {base} or any(message.n != own for message in candidates):
                    made.args.pop("replace")
                else:
                    made.args["rtype"], made.args[room] = made.args["type"], own
            made.args[room] = max(made.args[room], longest)
            base = by_number[candidates[0].number].op.args["type"][0] if candidates else None
            for message in candidates:
                if by_number[message.number].op.args["type"][0] != base:
                    raise Illegal({message.unit}, "messages of different types")
        for send in self.sends:
            if send.mode == "rdy" and not self._ready(send):
                send.op.args["mode"] = "std"

    def _ready(self, send: Send) -> bool:
        """Tell whether the sender knows that its receive is posted."""
        known = self._known(send.rank, send.message.step).get(send.to, 0)
        return all(receive.step < known for receive in send.receives)


def tell_windows(program: Program) -> None:
    """Write into the ends of windows what every word must be by then."""
    holds: dict[int, list[int]] = defaultdict(list)
    sums: dict[int, list[int]] = defaultdict(list)
    for op in program.ops:
        if op.verb == "access" and op.args["how"] == "put":
            stride = op.get("stride", 1)
            where = [op.args["to"], op.args["at"], op.args["n"], op.args["id"], stride]
            holds[op.args["w"]] += where
        elif op.verb == "access" and op.args["how"] not in ("get", "read"):
            for e in range(op.args["n"]):
                value = op.args["id"] + 1
                sums[op.args["w"]] += [op.args["to"], op.args["at"] + e, value]
        elif op.verb == "winend":
            op.args |= {"holds": holds[op.args["w"]], "sums": sums[op.args["w"]]}


def settle(program: Program) -> tuple[Program, Analysis]:
    """Return the program with everything adjusted, or raise Illegal."""
    result = program.renumbered()
    tell_windows(result)
    analysis = Analysis(result)
    analysis.annotate()
    return result, analysis


def text_of(program: Program) -> str:
    """Return what the interpreter reads; raises Illegal."""
    settled, analysis = settle(program)
    return settled.text(analysis.messages())

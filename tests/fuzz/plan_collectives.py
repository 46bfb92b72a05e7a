"""Collective parts of random programs."""

from __future__ import annotations

from typing import Any

from fuzz import datatypes as types
from fuzz.plan import Planner
from fuzz.program import Comm, Op

MOVING = [
    "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv",
    "alltoall", "alltoallv", "alltoallw",
]  # fmt: skip
REDUCING = [
    "reduce", "allreduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan",
]  # fmt: skip
NEIGHBOURS = [
    "neighbor_allgather", "neighbor_allgatherv",
    "neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw",
]  # fmt: skip
ROOTED = {"bcast", "gather", "gatherv", "scatter", "scatterv", "reduce"}
NOT_BETWEEN_GROUPS = {"scan", "exscan", "reduce_scatter", "reduce_scatter_block"}
ARITHMETIC = ["max", "min", "sum", "prod"]
WHOLE = [*ARITHMETIC, "land", "band", "lor", "bor", "lxor", "bxor"]
AFTER = ["fork", "system", "popen", "file", "thread", "backwards", "realloc", "late"]
"""What a program does after a blocking collective before it looks at the result."""
OWN_TYPES = {"add": ["l"], "chain": ["l:c:2", "l:r:2:1"]}


def _shape(p: Planner, name: str, comm: Comm) -> dict[str, Any]:
    """Return datatype, length and operation."""
    most = p.most_bytes // max(2, len(comm.members))
    size = types.pick_bytes(p.rng, most)
    if name == "barrier":
        return {}
    if name in MOVING or name in NEIGHBOURS:
        kind = types.pick(p.rng, p.rng.choice("csildfb"), 0.25)
        count = size // (types.SIZES[kind.base] * kind.per)
        return {"type": kind.spec, "n": count * kind.per}
    if p.chance(0.35):
        op = p.rng.choice(["add", "chain"])
        kinds = [kind for kind in OWN_TYPES[op] if "r" not in kind or "gaps" not in p.without]
        kind = types.Type(p.rng.choice(kinds))
    else:
        base = p.rng.choice("csiluUfd")
        op = p.rng.choice(ARITHMETIC if base in "fd" else WHOLE)
        kind = types.Type(base)
    count = size // (types.SIZES[kind.base] * kind.per)
    return {"type": kind.spec, "n": count * kind.per, "op": op}


def _arguments(p: Planner, comm: Comm) -> tuple[dict[str, Any], list[tuple[tuple[int, ...], Any]]]:
    """Return the arguments of a collective, and which ranks give which root."""
    names = ["barrier", "barrier", *MOVING, *REDUCING, "allreduce", "bcast"]
    if comm.is_inter:
        names = [name for name in names if name not in NOT_BETWEEN_GROUPS]
    if comm.neighbours:
        names += NEIGHBOURS * 3
    name = p.rng.choice([name for name in names if name not in p.without])
    k = p.next_collective
    p.next_collective += 1
    args = {"k": k, "name": name, "c": comm.number, **_shape(p, name, comm)}
    no_place = comm.is_inter or name in ("bcast", "barrier", *NEIGHBOURS)
    if not no_place and p.chance(0.25):
        args["place"] = 1
    if name[-1] in "vw" and p.chance(0.5):
        args["gap"] = 1
    if name != "barrier":
        args |= {"mem": types.pick_memory(p.rng), "rmem": types.pick_memory(p.rng)}
    if name not in ROOTED:
        return args, [(comm.members, None)]
    if not comm.is_inter:
        return args, [(comm.members, p.rng.randrange(len(comm.members)))]
    side = p.rng.randrange(2)
    root = p.rng.choice(comm.sides[side])
    number = comm.sides[side].index(root)
    others = tuple(rank for rank in comm.sides[side] if rank != root)
    parts: list[tuple[tuple[int, ...], Any]] = [((root,), "root"), (comm.sides[1 - side], number)]
    return args, [*parts, (others, "null")] if others else parts


def forms_of(p: Planner, name: str, comm: Comm) -> list[str]:
    """Return the forms that a collective may have."""
    forms = ["blocking", "started", "started"]
    if comm.is_inter and "started-inter" in p.without:
        return ["blocking"]
    size = len(comm.members)
    left_out = {"persistent-collectives", "no-persistent-collectives"}
    if name in NEIGHBOURS:
        left_out.add("persistent-neighbours")
    if size == 1:
        left_out.add("persistent-alone")
    if comm.is_inter:
        left_out.add("persistent-inter")
    if not left_out & p.without:
        forms.append("persistent")
    return [form for form in forms if f"{form}-{name}" not in p.without]


def collective(p: Planner) -> None:
    """One collective in some form."""
    comm = p.rng.choice(p.comms)
    args, roots = _arguments(p, comm)
    form = p.rng.choice(forms_of(p, args["name"], comm))
    unit = p.unit(comm.unit)
    if not {f"{args['name']}-in-place", f"{form}-{args['name']}-in-place"}.isdisjoint(p.without):
        args.pop("place", None)

    def ops(members: tuple[int, ...], **more: Any) -> list[Op]:
        result = []
        for ranks, root in roots:
            chosen = tuple(rank for rank in ranks if rank in members)
            rooted = {"root": root} if root is not None else {}
            if chosen:
                result.append(Op("coll", chosen, {**args, **rooted, **more}, unit))
        return result

    if form == "persistent" and args.get("op") in OWN_TYPES and "persistent-own" in p.without:
        form = "blocking"
    if form == "blocking":
        catch_up(p, comm)
        after = some_after(p)
        p.emit(*ops(comm.members, **after))
    elif form == "started":
        if p.chance(0.3) and "early-free" not in p.without:
            args["early"] = 1
        start_apart(p, comm, unit, lambda rank, q: p.emit(*ops((rank,), q=q)))
    else:
        _persistent(p, comm, unit, ops)


def some_after(p: Planner) -> dict[str, str]:
    """Return what is done with a result, mostly nothing but looking at it."""
    if p.in_threads or not p.chance(0.15):
        return {}
    return {"after": p.rng.choice(AFTER)}


def series(p: Planner) -> None:
    """The same blocking collective many times: enough for everything that learns from calls."""
    comm = p.rng.choice(p.comms)
    catch_up(p, comm)
    most, p.most_bytes = p.most_bytes, min(p.most_bytes, 150_000)
    args, roots = _arguments(p, comm)
    p.most_bytes = most
    if {args["name"] + "-in-place", f"blocking-{args['name']}-in-place"} & p.without:
        args.pop("place", None)
    unit = p.unit(comm.unit)
    for _ in range(p.rng.choice([4, 10, 20, 40])):
        if p.chance(0.1):
            p.delay()
        after = some_after(p)
        rooted = [(ranks, {} if root is None else {"root": root}) for ranks, root in roots]
        p.emit(*(Op("coll", ranks, {**args, **more, **after}, unit) for ranks, more in rooted))
        args = {**args, "k": p.next_collective}
        p.next_collective += 1


def start_apart(
    p: Planner,
    comm: Comm,
    unit: int,
    start: Any,
    then: Any = None,
    numbers: dict[int, int] | None = None,
) -> None:
    """Let the members start a collective one after the other, whatever else they do between.

    `numbers`: requests by rank that exist already. All collectives that are put off so stay in
    order on each communicator: a member that is behind catches up before it takes part in the next.
    """
    catch_up(p, comm)
    members = list(comm.members)
    p.rng.shuffle(members)
    waiting: list[tuple[int, int]] = []

    def next_member() -> None:
        rank = members.pop()
        number = p.request(rank) if numbers is None else numbers[rank]
        start(rank, number)
        p.started(rank, number, unit)
        waiting.append((rank, number))
        if members:
            return
        p.behind.pop(comm.number, None)
        for member, request in waiting:
            p.matched(member, request, unit)
        if then is not None:
            then()

    def rest() -> None:
        while members:
            next_member()

    p.behind[comm.number] = rest

    def half() -> None:
        if members:
            next_member()
        if members:
            p.halves.append(half)

    half()


def catch_up(p: Planner, comm: Comm) -> None:
    """Let all members start what is still to be started on a communicator."""
    rest = p.behind.get(comm.number)
    if rest is not None:
        rest()


def _persistent(p: Planner, comm: Comm, unit: int, ops: Any) -> None:
    catch_up(p, comm)
    numbers = {rank: p.request(rank) for rank in comm.members}
    made = []
    for rank in comm.members:
        made += ops((rank,), q=numbers[rank], form="p")
    p.emit(*made)

    def one_round(left: int) -> None:
        started = p.unit(unit)
        k = p.next_collective
        p.next_collective += 1

        def start(rank: int, number: int) -> None:
            p.emit(Op("start", (rank,), {"q": [(number, started)], "m": [k]}))

        def all_started() -> None:
            if left > 1:
                p.halves.append(again)

        def again() -> None:
            for rank, number in numbers.items():
                entry = (number, started)
                if entry in p.ready[rank]:
                    p.ready[rank].remove(entry)
                    p.open[rank].remove(entry)
                    how = p.rng.choice(["wait", "waitall", "test"])
                    p.emit(Op("done", (rank,), {"how": how, "q": [entry]}))
            one_round(left - 1)

        start_apart(p, comm, started, start, all_started, numbers)

    one_round(p.rng.randint(1, 3))

    def release() -> None:
        for rank in comm.members:
            p.emit(Op("free", (rank,), {"q": numbers[rank]}, unit))

    p.retired.append(release)


ACTIONS = [(4.0, collective), (0.25, series)]
"""What can be planned, with weights."""

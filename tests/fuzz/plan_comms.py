"""Communicators in random programs: made in all ways, used like the others, freed."""

from __future__ import annotations

from fuzz.plan import Planner
from fuzz.plan_collectives import catch_up, start_apart
from fuzz.plan_topologies import topology
from fuzz.program import Comm, Neighbours, Op

MOST_COMMS = 8


def _register(
    p: Planner, sides: tuple[tuple[int, ...], ...], unit: int, neighbours: Neighbours = ()
) -> Comm:
    comm = Comm(p.next_comm, sides, unit, p.strand, neighbours)
    p.next_comm += 1
    p.program.comms[comm.number] = comm
    return comm


def _publish(p: Planner, comm: Comm) -> None:
    p.comms.append(comm)


def _intra(p: Planner) -> Comm:
    return p.rng.choice([comm for comm in p.comms if not comm.is_inter])


def duplicate(p: Planner) -> None:
    """MPI_Comm_dup and MPI_Comm_idup."""
    parent = p.rng.choice(p.comms)
    unit = p.unit(parent.unit)
    comm = _register(p, parent.sides, unit, parent.neighbours)
    args = {"parent": parent.number, "id": comm.number}

    def members(rank: int) -> dict[str, object]:
        side = comm.side_of(rank)
        return {"side": side, f"ranks{comm.number}": list(comm.sides[side])}

    if p.chance(0.6) or "idup" in p.without or parent.is_inter:
        catch_up(p, parent)
        p.emit(
            *(Op("comm", (r,), {"how": "dup", **args, **members(r)}, unit) for r in comm.members)
        )
        _publish(p, comm)
        return

    def start(rank: int, request: int) -> None:
        p.emit(Op("comm", (rank,), {"how": "idup", **args, **members(rank), "q": request}, unit))

    def usable() -> None:
        for rank in comm.members:
            for entry in [e for e in p.ready[rank] if e[1] == unit]:
                p.ready[rank].remove(entry)
                p.open[rank].remove(entry)
                p.emit(Op("done", (rank,), {"how": "wait", "q": [entry]}))
        _publish(p, comm)

    start_apart(p, parent, unit, start, usable)
    if "idup-overlap" in p.without:
        catch_up(p, parent)


def split(p: Planner) -> None:
    """MPI_Comm_split into up to three parts, some ranks left out."""
    parent = _intra(p)
    unit = p.unit(parent.unit)
    members = parent.members
    colors = [p.rng.choice([0, 0, 1, 1, 2, -1]) for _ in members]
    keys = [p.rng.choice([0, 0, 1, -1, 5]) for _ in members]
    ids = [-1, -1, -1]
    args: dict[str, object] = {"how": "split", "parent": parent.number, "colors": colors}
    args |= {"keys": keys, "ids": ids}
    made = []
    for color in range(3):
        inside = [i for i, c in enumerate(colors) if c == color]
        if not inside:
            continue
        inside.sort(key=lambda i: (keys[i], i))
        comm = _register(p, (tuple(members[i] for i in inside),), unit)
        ids[color] = comm.number
        args[f"ranks{comm.number}"] = list(comm.members)
        made.append(comm)
    catch_up(p, parent)
    p.emit(Op("comm", members, args, unit))
    for comm in made:
        _publish(p, comm)


def create(p: Planner) -> None:
    """MPI_Comm_create and MPI_Comm_create_group."""
    parent = _intra(p)
    unit = p.unit(parent.unit)
    chosen = p.rng.sample(range(len(parent.members)), p.rng.randint(1, len(parent.members)))
    comm = _register(p, (tuple(parent.members[i] for i in chosen),), unit)
    args = {"parent": parent.number, "id": comm.number, "members": chosen}
    args[f"ranks{comm.number}"] = list(comm.members)
    catch_up(p, parent)
    if p.chance(0.5) or "create-group" in p.without:
        p.emit(Op("comm", parent.members, {"how": "create", **args}, unit))
    else:
        p.program.partial.add(unit)
        args |= {"how": "group", "tag": p.rng.randrange(100)}
        p.emit(Op("comm", tuple(sorted(comm.members)), args, unit))
    _publish(p, comm)


def inter(p: Planner) -> None:
    """An inter-communicator between the parts of a split; sometimes merged."""
    parent = _intra(p)
    size = len(parent.members)
    most = 4 if "inter-large" in p.without else size
    if not 2 <= size <= 2 * most:
        return
    unit = p.unit(parent.unit)
    members = list(parent.members)
    cut = p.rng.randint(max(1, size - most), min(most, size - 1))
    parts = (tuple(members[:cut]), tuple(members[cut:]))
    halves = [_register(p, (part,), unit) for part in parts]
    colors = [0] * cut + [1] * (len(members) - cut)
    args: dict[str, object] = {"how": "split", "parent": parent.number, "colors": colors}
    args |= {"keys": [0] * len(members), "ids": [half.number for half in halves]}
    args |= {f"ranks{half.number}": list(half.members) for half in halves}
    catch_up(p, parent)
    p.emit(Op("comm", parent.members, args, unit))
    # Its making sends messages on the bridge, which no wildcard may take.
    bridge = _register(p, (parent.members,), unit)
    args = {"how": "dup", "parent": parent.number, "id": bridge.number}
    args[f"ranks{bridge.number}"] = list(parent.members)
    p.emit(Op("comm", parent.members, args, unit))
    comm = _register(p, parts, unit)
    tag = 100 + p.rng.randrange(100)
    ops = []
    for side in (0, 1):
        remote = parent.members.index(parts[1 - side][0])
        args = {"how": "inter", "parent": halves[side].number, "leader": 0, "remote": remote}
        args |= {"bridge": bridge.number, "tag": tag, "side": side, "id": comm.number}
        args[f"ranks{comm.number}"] = list(parts[side])
        ops.append(Op("comm", parts[side], args, unit))
    p.emit(*ops)
    p.emit(Op("commfree", parent.members, {"c": bridge.number}, unit))
    for made in (*halves, comm):
        _publish(p, made)
    if p.chance(0.3):
        merged_unit = p.unit(unit)
        high = p.rng.randrange(2)
        order = parts[0] + parts[1] if high else parts[1] + parts[0]
        merged = _register(p, (order,), merged_unit)
        ops = []
        for side in (0, 1):
            # The group that says high comes last.
            last = int(high == side)
            args = {"how": "merge", "parent": comm.number, "high": last, "id": merged.number}
            args[f"ranks{merged.number}"] = list(order)
            ops.append(Op("comm", parts[side], args, merged_unit))
        p.emit(*ops)
        _publish(p, merged)


def free(p: Planner) -> None:
    """MPI_Comm_free, also with messages under way."""
    made = [comm for comm in p.comms if comm.unit and not _is_needed(p, comm)]
    if not made:
        return
    comm = p.rng.choice(made)
    catch_up(p, comm)
    p.comms.remove(comm)
    # What was put off may still name it: its halves come first.
    while p.halves:
        p.half()
    if "free-pending" in p.without:
        p.quiet()
    p.emit(Op("commfree", comm.members, {"c": comm.number}, comm.unit))


def free_all(p: Planner) -> None:
    """Free what is left, the youngest first."""
    for comm in reversed([comm for comm in p.comms if comm.unit]):
        p.emit(Op("commfree", comm.members, {"c": comm.number}, comm.unit))


def _is_needed(p: Planner, comm: Comm) -> bool:
    return any(
        op.verb in ("sinit", "rinit", "psend", "precv", "win") or op.get("form") == "p"
        for op in p.program.ops
        if op.get("c") == comm.number
    )


def make_one(p: Planner) -> None:
    """Make a communicator, if there are not too many."""
    if p.in_threads and "comms-in-threads" in p.without:
        return
    if len(p.comms) < MOST_COMMS and p.next_comm - 4 - p.strand * 30 < 25:
        p.rng.choice([duplicate, duplicate, split, create, inter, topology, topology])(p)


ACTIONS = [(0.8, make_one), (0.3, free)]
"""What can be planned, with weights."""

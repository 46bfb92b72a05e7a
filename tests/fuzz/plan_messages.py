"""Point-to-point parts of random programs."""

from __future__ import annotations

from functools import partial
from typing import Any

from fuzz import datatypes as types
from fuzz.plan import Planner
from fuzz.program import Comm, Op

MODES = ["std", "std", "std", "sync", "buf", "rdy"]
HOWS = ["plain", "plain", "plain", "probe", "iprobe", "mprobe", "improbe"]
TAGS = [0, 1, 2, 7]
DEAD_TAG = 900
"""Nobody sends with it."""


def _send_args(p: Planner, comm: Comm, sender: int, receiver: int, tag: int) -> dict[str, Any]:
    base = p.base_of(comm, receiver)
    kind = types.pick(p.rng, base)
    size = types.pick_bytes(p.rng, p.most_bytes) // (types.SIZES[base] * kind.per)
    mode = p.rng.choice([mode for mode in MODES if mode not in p.without])
    return {
        "c": comm.number,
        "to": comm.number_of(receiver, sender),
        "tag": tag,
        "type": kind.spec,
        "n": size * kind.per,
        "mode": mode,
        "mem": types.pick_memory(p.rng),
    }


def _recv_args(
    p: Planner, comm: Comm, sender: int, receiver: int, tag: int, n: int
) -> dict[str, Any]:
    base = p.base_of(comm, receiver)
    kind = types.pick(p.rng, base)
    if "huge-runs" not in p.without and n * types.SIZES[base] > 2000 and p.chance(0.04):
        kind = types.Type(f"{base}:z:{types.HUGE_RUNS}:{p.rng.randrange(1000)}")
    room = n if p.chance(0.6) else n + p.rng.choice([1, 5, 1000])
    wild = p.rng.random()
    return {
        "c": comm.number,
        "from": "any" if wild < 0.35 else comm.number_of(sender, receiver),
        "tag": "any" if 0.25 < wild < 0.45 else tag,
        "type": kind.spec,
        "n": room,
        "rmem": types.pick_memory(p.rng),
    }


def _pair(p: Planner) -> tuple[Comm, int, int]:
    comm = p.rng.choice(p.comms)
    sender = p.rng.choice(comm.members)
    return comm, sender, p.rng.choice(comm.peers_of(sender))


def message(p: Planner) -> None:
    """Send one message, either side first, each side blocking or not."""
    comm, sender, receiver = _pair(p)
    one_message(p, comm, sender, receiver, p.rng.choice(TAGS))


def one_message(p: Planner, comm: Comm, sender: int, receiver: int, tag: int) -> None:
    """Send one message between two ranks."""
    unit = p.unit(comm.unit)
    send = {"m": p.message(), **_send_args(p, comm, sender, receiver, tag)}
    recv = _recv_args(p, comm, sender, receiver, tag, send["n"])
    to_itself = sender == receiver and "mprobe-self" in p.without
    hows = ["plain", "probe", "iprobe"] if to_itself else HOWS
    recv_first = p.chance(0.5)
    if send["mode"] == "rdy":
        recv_first = True
    if not recv_first or p.chance(0.1):
        recv["how"] = p.rng.choice(hows)
    both_block = sender != receiver and p.chance(0.15)
    if both_block:
        p.emit(Op("send", (sender,), send, unit), Op("recv", (receiver,), recv, unit))
        return
    first_is_free = not recv_first and send["mode"] == "buf" and p.chance(0.5)
    if recv_first:
        recv.pop("how", None)
    send_blocks = (recv_first and p.chance(0.4)) or first_is_free
    recv_blocks = not recv_first and p.chance(0.4)
    send_request = None if send_blocks else p.request(sender)
    recv_request = None if recv_blocks else p.request(receiver)
    forgotten = not send_blocks and p.chance(0.07)

    def do_send() -> None:
        if send_request is not None:
            send["q"] = send_request
        p.emit(Op("send", (sender,), send, unit))
        if send_request is not None and forgotten:
            p.emit(Op("free", (sender,), {"q": send_request}, unit))
        elif send_request is not None:
            p.started(sender, send_request, unit)

    def do_recv() -> None:
        if recv_request is not None:
            recv["q"] = recv_request
        p.emit(Op("recv", (receiver,), recv, unit))
        if recv_request is not None:
            p.started(receiver, recv_request, unit)

    def both() -> None:
        if send_request is not None and not forgotten:
            p.matched(sender, send_request, unit)
        if recv_request is not None:
            p.matched(receiver, recv_request, unit)

    first, second = (do_recv, do_send) if recv_first else (do_send, do_recv)
    first()
    if recv_first and send["mode"] == "rdy":
        members = comm.members
        p.emit(
            Op("coll", members, {"k": p.next_collective, "name": "barrier", "c": comm.number}, unit)
        )
        p.next_collective += 1
    p.later(lambda: (second(), both()))


def fan_in(p: Planner) -> None:
    """Several ranks send to one that takes from any source."""
    comm = p.rng.choice(p.comms)
    receiver = p.rng.choice(comm.members)
    tag = p.rng.choice(TAGS)
    for _ in range(p.rng.randint(2, 6)):
        one_message(p, comm, p.rng.choice(comm.peers_of(receiver)), receiver, tag)


def ring(p: Planner) -> None:
    """All ranks of a communicator exchange with their neighbours at the same time."""
    comm = p.rng.choice([comm for comm in p.comms if not comm.is_inter])
    members = comm.members
    tag, unit = p.rng.choice(TAGS), p.unit(comm.unit)
    shift = p.rng.randrange(len(members))
    ops = []
    for i, rank in enumerate(members):
        to, source = members[(i + shift) % len(members)], members[i - shift]
        send = {"m": p.message(), **_send_args(p, comm, rank, to, tag)}
        recv = _recv_args(p, comm, source, rank, tag, 0)
        args = {**send, "from": recv["from"], "rtag": recv["tag"], "rtype": recv["type"]}
        args |= {"rn": recv["n"], "rmem": recv["rmem"]}
        args.pop("mode")
        if p.chance(0.2):
            args["replace"] = 1
        ops.append(Op("exch", (rank,), args, unit))
    p.emit(*ops)


def persistent(p: Planner) -> None:
    """A persistent pair, or a persistent side against plain messages, started a few times."""
    comm, sender, receiver = _pair(p)
    tag = p.rng.choice(TAGS)
    unit = p.unit(comm.unit)
    send = _send_args(p, comm, sender, receiver, tag)
    if send["mode"] == "rdy" or "persistent-" + send["mode"] in p.without:
        send["mode"] = "std"
    recv = _recv_args(p, comm, sender, receiver, tag, send["n"])
    send["q"], recv["q"] = p.request(sender), p.request(receiver)
    p.emit(Op("sinit", (sender,), send, unit))
    p.emit(Op("rinit", (receiver,), recv, unit))

    def one_round(left: int) -> None:
        started = p.unit(unit)
        number = p.message()

        def start(rank: int, request: int, message_number: int) -> None:
            args = {"q": [(request, started)], "m": [message_number]}
            p.emit(Op("start", (rank,), args))
            p.started(rank, request, started)

        def start_send() -> None:
            start(sender, send["q"], number)

        def start_recv() -> None:
            start(receiver, recv["q"], -1)

        halves = [start_send, start_recv]
        p.rng.shuffle(halves)

        def matched() -> None:
            p.matched(sender, send["q"], started)
            p.matched(receiver, recv["q"], started)
            if left > 1:
                p.halves.append(again)

        def again() -> None:
            for rank, request in ((sender, send["q"]), (receiver, recv["q"])):
                entry = (request, started)
                if entry in p.ready[rank]:
                    p.ready[rank].remove(entry)
                    p.open[rank].remove(entry)
                    p.emit(Op("done", (rank,), {"how": "wait", "q": [entry]}))
            one_round(left - 1)

        p.later(halves[0], lambda: (halves[1](), matched()))

    one_round(p.rng.randint(1, 3))

    def release() -> None:
        p.emit(Op("free", (sender,), {"q": send["q"]}, unit))
        p.emit(Op("free", (receiver,), {"q": recv["q"]}, unit))

    p.retired.append(release)


def shared_buffer(p: Planner) -> None:
    """Several sends from one buffer at the same time, to one receiver or to several."""
    comm, sender, receiver = _pair(p)
    unit = p.unit(comm.unit)
    first = {"m": p.message(), **_send_args(p, comm, sender, receiver, p.rng.choice(TAGS))}
    mode = first["mode"] if first["mode"] != "rdy" else "std"
    first |= {"mode": mode, "q": p.request(sender), "lends": 1}
    base = p.base_of(comm, receiver)
    others = [peer for peer in comm.peers_of(sender) if p.base_of(comm, peer) == base]
    sends = [(unit, receiver, first)]
    for _ in range(p.rng.randint(1, 3)):
        peer, mode = p.rng.choice(others), p.rng.choice(["std", "std", "sync"])
        more = {"to": comm.number_of(peer, sender), "tag": p.rng.choice(TAGS), "mode": mode}
        args = {**first, **more, "m": p.message(), "q": p.request(sender)}
        args.pop("lends")
        args |= {"same": first["q"], "as": first["m"]}
        sends.append((p.unit(unit), peer, args))
    for own, _, args in sends:
        p.emit(Op("send", (sender,), args, own))
        p.started(sender, args["q"], own)
    for own, peer, args in sends:
        recv = _recv_args(p, comm, sender, peer, args["tag"], args["n"])
        recv["q"] = p.request(peer)
        p.later(partial(_receive, p, sender, peer, own, args["q"], recv))


def _receive(
    p: Planner, sender: int, receiver: int, unit: int, sent: int, recv: dict[str, Any]
) -> None:
    p.emit(Op("recv", (receiver,), recv, unit))
    p.started(receiver, recv["q"], unit)
    p.matched(receiver, recv["q"], unit)
    p.matched(sender, sent, unit)


def cancelled(p: Planner) -> None:
    """A receive that nothing matches, cancelled later."""
    comm = p.rng.choice(p.comms)
    rank = p.rng.choice(comm.members)
    sender = p.rng.choice(comm.peers_of(rank))
    unit = p.unit(comm.unit)
    args = _recv_args(p, comm, sender, rank, DEAD_TAG, 10)
    args |= {"tag": DEAD_TAG, "q": p.request(rank), "cancelled": 1}
    p.emit(Op("recv", (rank,), args, unit))
    p.started(rank, args["q"], unit)

    def cancel() -> None:
        p.emit(Op("cancel", (rank,), {"q": args["q"]}, unit))
        p.matched(rank, args["q"], unit)

    p.later(cancel)


def look(p: Planner) -> None:
    """Look what is there, from somebody or anybody."""
    comm, sender, receiver = _pair(p)
    args = {
        "c": comm.number,
        "from": "any" if p.chance(0.6) else comm.number_of(sender, receiver),
        "tag": "any" if p.chance(0.5) else p.rng.choice(TAGS),
    }
    p.emit(Op("look", (receiver,), args, p.unit(comm.unit)))


ACTIONS = [
    (6.0, message),
    (1.5, fan_in),
    (0.7, ring),
    (1.5, persistent),
    (0.7, shared_buffer),
    (0.4, cancelled),
    (1, look),
]
"""What can be planned, with weights."""

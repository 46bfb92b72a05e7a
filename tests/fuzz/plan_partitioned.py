"""Partitioned messages of random programs: parts become ready one after the other, in any order.

Sender and receiver may cut the same message differently. Each pair has a tag of its own, so it does
not matter in which order pairs are made.
"""

from __future__ import annotations

from fuzz import datatypes as types
from fuzz.plan import Half, Planner
from fuzz.program import Op

FIRST_TAG = 1000


def _lists(p: Planner, parts: int) -> list[tuple[str, list[int]]]:
    """Return in which pieces, and by which calls, parts are said to be ready."""
    left = list(range(parts))
    if p.chance(0.5):
        p.rng.shuffle(left)
    pieces = []
    while left:
        number = p.rng.randint(1, min(4, len(left)))
        piece, left = left[:number], left[number:]
        how = p.rng.choice(["one", "list"])
        if piece == list(range(piece[0], piece[0] + number)) and p.chance(0.5):
            how = "range"
        pieces.append((how, piece))
    return pieces


def partitioned(p: Planner) -> None:
    """A pair of partitioned requests, started a few times."""
    if "partitioned" in p.without:
        return
    comm = p.rng.choice([comm for comm in p.comms if not comm.is_inter])
    sender, receiver = p.rng.choice(comm.members), p.rng.choice(comm.members)
    if sender == receiver and "partitioned-self" in p.without:
        return
    base = p.rng.choice("csild")
    kind = types.pick(p.rng, base, 0.2)
    parts = p.rng.choice([1, 2, 3, 4, 8, 16])
    size = types.pick_bytes(p.rng, p.most_bytes) // (types.SIZES[base] * kind.per * parts)
    total = parts * size
    cuts = [n for n in (1, 2, 3, 4, 6, 8, 16) if total % n == 0]
    other = parts if p.chance(0.5) or "partitioned-differently" in p.without else p.rng.choice(cuts)
    together = "partitioned-together" not in p.without
    unit = p.unit(comm.unit)
    out, into = p.request(sender), p.request(receiver)
    whole = {"c": comm.number, "tag": FIRST_TAG + p.next_collective, "type": kind.spec}
    p.next_collective += 1
    send = {"q": out, **whole, "to": comm.number_of(receiver, sender), "parts": parts}
    recv = {"q": into, **whole, "from": comm.number_of(sender, receiver), "parts": other}
    send |= {"n": size * kind.per, "mem": types.pick_memory(p.rng)}
    recv |= {"n": total // other * kind.per, "mem": types.pick_memory(p.rng)}
    makers: list[Half] = [
        lambda: p.emit(Op("psend", (sender,), send, unit)),
        lambda: p.emit(Op("precv", (receiver,), recv, unit)),
    ]
    p.rng.shuffle(makers)
    for maker in makers:
        maker()

    def one_round(left: int) -> None:
        started = p.unit(unit)
        number = p.next_collective
        p.next_collective += 1
        missing = 2

        def start(rank: int, request: int) -> None:
            p.emit(Op("start", (rank,), {"q": [(request, started)], "m": [number]}))
            if together:
                p.started(rank, request, started)

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing:
                return
            if together:
                p.matched(sender, out, started)
                p.matched(receiver, into, started)
            if left > 1 or not together:
                p.halves.append(again)

        def ready(how: str, piece: list[int]) -> Half:
            args = {"q": out, "how": how, "list": piece}
            return lambda: p.emit(Op("pready", (sender,), args, started))

        def look() -> None:
            args = {"q": into, "part": p.rng.randrange(other)}
            p.emit(Op("parrived", (receiver,), args, started))

        def again() -> None:
            for rank, request in ((sender, out), (receiver, into)):
                entry = (request, started)
                if entry in p.ready[rank]:
                    p.ready[rank].remove(entry)
                    p.open[rank].remove(entry)
                elif together:
                    continue
                how = p.rng.choice(["wait", "test"])
                p.emit(Op("done", (rank,), {"how": how, "q": [entry]}))
            if left > 1:
                one_round(left - 1)

        looks = [look] * p.rng.choice([0, 0, 1, 3])
        sides: list[list[Half]] = [
            [
                lambda: start(sender, out),
                *(ready(how, piece) for how, piece in _lists(p, parts)),
                one_done,
            ],
            [lambda: start(receiver, into), *looks, one_done],
        ]
        p.rng.shuffle(sides)
        for side in sides:
            p.later(*side)

    one_round(p.rng.randint(1, 3))

    def release() -> None:
        p.emit(Op("free", (sender,), {"q": out}, unit))
        p.emit(Op("free", (receiver,), {"q": into}, unit))

    p.retired.append(release)


ACTIONS = [(0.8, partitioned)]
"""What can be planned, with weights."""

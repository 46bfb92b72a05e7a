"""Windows of random programs whose epochs stretch over other operations, also of several windows.

A window goes through phases, with a barrier between them: fences; posts and starts; shared locks
that ranks hold while they do other things; exclusive locks, which are held for one access only.
(Who waits for an exclusive lock waits for whoever has it, and nobody knows who comes first: so none
is held while its holder may wait for something.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuzz.plan import Planner
from fuzz.plan_collectives import catch_up
from fuzz.plan_host_calls import with_windows
from fuzz.program import Comm, Op

MOST_WINDOWS = 16
"""In a strand."""
MOST_ACCESSES = 100
SUMS = 12
HOWS = ["put", "put", "put", "get", "get", "add", "addget", "fetchadd", "swap", "read"]
PHASES = ["fence", "pscw", "shared", "exclusive"]
EVERYBODY = -1


@dataclass
class Put:
    """Words that were put."""

    to: int
    at: int
    n: int
    number: int
    stride: int
    unit: int
    epoch: int


@dataclass
class Window:
    """A window that is in use."""

    number: int
    comm: Comm
    unit: int
    read: int
    puts: int
    next_put: list[int]
    """By member: the first word that nobody has put to."""
    next_swap: list[int]
    accesses: int = 0
    phase: str = ""
    epoch: int = 0
    written: list[Put] = field(default_factory=list)
    locked: dict[int, set[int]] = field(default_factory=dict)
    """By rank of the job: the members that it has locked."""
    requests: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By rank: the requests of its accesses."""
    edges: dict[int, list[int]] = field(default_factory=dict)
    """By rank, while posts and starts are on: the members that it may access."""
    begun: set[int] = field(default_factory=set)
    """Ranks that have started."""


class Windows:
    """The windows of a program that is being made."""

    def __init__(self) -> None:
        self.open: list[Window] = []
        self.made = 0


def _windows(p: Planner) -> Windows:
    if p.windows is None:
        p.windows = Windows()
    return p.windows


def _sync(p: Planner, w: Window, ranks: tuple[int, ...], how: str, **more: object) -> None:
    p.emit(Op("sync", ranks, {"w": w.number, "how": how, **more}, w.unit))


def _barrier(p: Planner, w: Window) -> None:
    catch_up(p, w.comm)
    args = {"k": p.next_collective, "name": "barrier", "c": w.comm.number}
    p.next_collective += 1
    p.emit(Op("coll", w.comm.members, args, w.unit))


def create(p: Planner) -> None:
    """Make a window."""
    kinds = [
        kind
        for kind in ("create", "create", "allocate", "shared", "dynamic")
        if f"window-{kind}" not in p.without
    ]
    comms = with_windows(p)
    windows = _windows(p)
    if not kinds or not comms or windows.made >= MOST_WINDOWS:
        return
    if p.in_threads and "comms-in-threads" in p.without:
        return
    comm = p.rng.choice(comms)
    catch_up(p, comm)
    unit = p.unit(comm.unit)
    size = len(comm.members)
    read, puts = p.rng.choice([1, 10, 200, 3000]), p.rng.choice([50, 1000, 9000])
    number = p.strand * MOST_WINDOWS + windows.made
    windows.made += 1
    w = Window(number, comm, unit, read, puts, [read] * size, [read + puts + SUMS // 2] * size)
    args = {"w": number, "c": comm.number, "how": p.rng.choice(kinds)}
    p.emit(Op("win", comm.members, {**args, "n": read, "puts": puts, "sums": SUMS}, unit))
    windows.open.append(w)
    p.retired.append(lambda: end(p, w))


def _access(p: Planner, w: Window, rank: int, to: int, alone: bool = False) -> None:
    """Let a rank access a member."""
    if w.accesses >= MOST_ACCESSES or not p.has_room():
        return
    how = p.rng.choice([how for how in HOWS if f"window-{how}" not in p.without])
    w.accesses += 1
    unit = p.unit(w.unit)
    args: dict[str, object] = {"w": w.number, "how": how, "to": to, "id": w.accesses}
    n, stride = p.rng.choice([1, 1, 2, 16, 100, 128, 500, 2000]), 1
    if how in ("put", "get") and p.chance(0.2):
        if how == "put" or "window-strided-get" not in p.without:
            stride = 3
    if how == "put":
        left = w.read + w.puts - w.next_put[to]
        n = min(n, (left + stride - 1) // stride)
        if n < 1:
            return
        args |= {"at": w.next_put[to], "n": n, "stride": stride}
        w.written.append(Put(to, w.next_put[to], n, w.accesses, stride, unit, w.epoch))
        w.next_put[to] += (n - 1) * stride + 1
    elif how in ("get", "read"):
        old = [put for put in w.written if put.epoch < w.epoch and put.to == to and put.stride == 1]
        if old and p.chance(0.6):
            put = p.rng.choice(old)
            p.program.depends.setdefault(unit, set()).add(put.unit)
            skip = p.rng.randrange(put.n)
            n = p.rng.randint(1, put.n - skip)
            args |= {"at": put.at + skip, "n": n, "id": put.number, "skip": skip}
        else:
            at = p.rng.randrange(w.read)
            n = max(1, min(n, (w.read - at) // stride))
            args |= {"at": at, "n": n, "id": -1, "stride": stride}
    elif how == "swap":
        if w.next_swap[to] >= w.read + w.puts + SUMS:
            return
        args |= {"at": w.next_swap[to], "n": 1}
        w.next_swap[to] += 1
    else:
        place = p.rng.randrange(SUMS // 2)
        n = 1 if how == "fetchadd" else p.rng.randint(1, SUMS // 2 - place)
        args |= {"at": w.read + w.puts + place, "n": n}
    if alone:
        args["alone"] = 1
    elif w.phase == "shared" and how in ("put", "get", "add") and p.chance(0.3):
        if "window-requests" not in p.without:
            request = p.request(rank)
            args["q"] = request
            w.requests.setdefault(rank, []).append((request, unit))
    p.emit(Op("access", (rank,), args, unit))
    if "q" in args:
        p.started(rank, w.requests[rank][-1][0], unit)
        p.matched(rank, w.requests[rank][-1][0], unit)


def _finish_requests(p: Planner, w: Window, rank: int) -> None:
    for entry in w.requests.pop(rank, []):
        if entry in p.ready[rank]:
            p.ready[rank].remove(entry)
            p.open[rank].remove(entry)
            p.emit(Op("done", (rank,), {"how": p.rng.choice(["wait", "test"]), "q": [entry]}))


def _begin_phase(p: Planner, w: Window) -> None:
    phases = [phase for phase in PHASES if f"window-{phase}" not in p.without]
    if not phases:
        return
    _barrier(p, w)
    w.phase = p.rng.choice(phases)
    w.epoch += 1
    members = w.comm.members
    if w.phase == "fence":
        _sync(p, w, members, "fence")
    elif w.phase == "pscw":
        size = len(members)
        w.edges = {
            rank: sorted(p.rng.sample(range(size), p.rng.randint(1, min(3, size))))
            for rank in p.rng.sample(members, p.rng.randint(1, size))
        }
        w.begun = set()
        for to in p.rng.sample(range(size), size):
            group = [members.index(rank) for rank, targets in w.edges.items() if to in targets]
            if group:
                _sync(p, w, (members[to],), "post", group=sorted(group))


def _end_phase(p: Planner, w: Window) -> None:
    members = w.comm.members
    if w.phase == "fence":
        _sync(p, w, members, "fence", last=1)
    elif w.phase == "pscw":
        for rank in w.edges:
            _start(p, w, rank)
        for rank in w.edges:
            _sync(p, w, (rank,), "complete")
        exposed = {to for targets in w.edges.values() for to in targets}
        hows = ["wait"] if "window-test" in p.without else ["wait", "wait", "test"]
        for to in exposed:
            _sync(p, w, (members[to],), p.rng.choice(hows))
    elif w.phase == "shared":
        for rank in list(w.locked):
            _unlock(p, w, rank)
    w.phase = ""


def _start(p: Planner, w: Window, rank: int) -> None:
    if rank not in w.begun:
        w.begun.add(rank)
        _sync(p, w, (rank,), "start", group=w.edges[rank])


def _unlock(p: Planner, w: Window, rank: int) -> None:
    _finish_requests(p, w, rank)
    for to in sorted(w.locked.pop(rank)):
        if to == EVERYBODY:
            _sync(p, w, (rank,), "unlockall")
        else:
            _sync(p, w, (rank,), "unlock", to=to)


def _in_shared_phase(p: Planner, w: Window, rank: int) -> None:
    """Let a rank lock, access, flush or unlock."""
    size = len(w.comm.members)
    if rank not in w.locked:
        if p.chance(0.4):
            w.locked[rank] = {EVERYBODY}
            _sync(p, w, (rank,), "lockall")
        else:
            w.locked[rank] = set(p.rng.sample(range(size), p.rng.randint(1, min(2, size))))
            for to in sorted(w.locked[rank]):
                _sync(p, w, (rank,), "lock", to=to)
    targets = list(range(size)) if EVERYBODY in w.locked[rank] else sorted(w.locked[rank])
    for _ in range(p.rng.randint(1, 3)):
        _access(p, w, rank, p.rng.choice(targets))
    if p.chance(0.3):
        how = p.rng.choice(["flush", "flush", "flushlocal", "flushall"])
        more = {} if how == "flushall" else {"to": p.rng.choice(targets)}
        _sync(p, w, (rank,), how, **more)
    if p.chance(0.4):
        _unlock(p, w, rank)


def use(p: Planner) -> None:
    """Do something with a window."""
    windows = _windows(p)
    if not windows.open:
        return create(p)
    w = p.rng.choice(windows.open)
    if w.phase and p.chance(0.12):
        return _end_phase(p, w)
    if not w.phase:
        if p.chance(0.1):
            return end(p, w)
        return _begin_phase(p, w)
    members = w.comm.members
    rank = p.rng.choice(members)
    if w.phase == "fence":
        for _ in range(p.rng.randint(0, 4)):
            _access(p, w, p.rng.choice(members), p.rng.randrange(len(members)))
        if p.chance(0.4):
            _sync(p, w, members, "fence")
            w.epoch += 1
    elif w.phase == "pscw":
        rank = p.rng.choice(list(w.edges))
        _start(p, w, rank)
        for _ in range(p.rng.randint(0, 3)):
            _access(p, w, rank, p.rng.choice(w.edges[rank]))
    elif w.phase == "exclusive":
        _access(p, w, rank, p.rng.randrange(len(members)), alone=True)
    else:
        _in_shared_phase(p, w, rank)
    return None


def end(p: Planner, w: Window) -> None:
    """Close what is open, let every member look at its memory, and free the window."""
    windows = _windows(p)
    if w not in windows.open:
        return
    if w.phase:
        _end_phase(p, w)
    windows.open.remove(w)
    catch_up(p, w.comm)
    p.emit(Op("winend", w.comm.members, {"w": w.number, "c": w.comm.number}, w.unit))


ACTIONS = [(0.4, create), (3.0, use)]
"""What can be planned, with weights."""

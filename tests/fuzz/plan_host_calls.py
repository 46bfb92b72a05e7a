"""Windows, files and processes in random programs: calls that block while requests are pending."""

from __future__ import annotations

from fuzz.plan import Planner
from fuzz.plan_collectives import catch_up
from fuzz.program import Comm, Op

FILE_KINDS = ["all", "own", "view", "ordered", "split", "started"]
"""How members write: together, each by itself, through views, in the order of ranks, in two calls,
without waiting."""


def _of_one_group(p: Planner, least: int) -> list[Comm]:
    return [c for c in p.comms if not c.is_inter and len(c.members) >= least]


def with_windows(p: Planner) -> list[Comm]:
    """Return the communicators that may have windows: some hosts have none on a single rank."""
    return _of_one_group(p, p.ranks if "window-part" in p.without else 2)


def _host_call(p: Planner, verb: str, comms: list[Comm], **args: object) -> None:
    comm = p.rng.choice(comms)
    catch_up(p, comm)
    p.next_collective += 1
    whole = {"k": p.next_collective, "c": comm.number, **args}
    p.emit(Op(verb, comm.members, whole, p.unit(comm.unit)))


def window(p: Planner) -> None:
    """A window with one epoch of some kind."""
    kinds = [kind for kind in ("fence", "lock", "pscw", "all") if f"window-{kind}" not in p.without]
    if kinds and not (p.in_threads and "comms-in-threads" in p.without):
        alloc = 1 if p.chance(0.3) and "window-allocate" not in p.without else None
        n = p.rng.choice([1, 8, 100, 5000])
        _host_call(p, "window", with_windows(p), how=p.rng.choice(kinds), n=n, alloc=alloc)


def file(p: Planner) -> None:
    """A file that all write and read."""
    if "file" not in p.without and not (p.in_threads and "comms-in-threads" in p.without):
        if p.in_threads and "file-in-threads" in p.without:
            return
        kinds = [kind for kind in FILE_KINDS if f"file-{kind}" not in p.without]
        _host_call(
            p,
            "file",
            _of_one_group(p, 2),
            how=p.rng.choice(kinds),
            n=p.rng.choice([1, 8, 1000]),
            job=p.program.seed,
        )


def process(p: Planner) -> None:
    """A child, or a command, whatever is pending."""
    if not p.in_threads and "processes" not in p.without:
        how = p.rng.choice(["fork", "fork", "system", "popen"])
        p.emit(Op("process", (p.rng.randrange(p.ranks),), {"how": how}, p.unit()))


ACTIONS = [(0.3, process), (0.5, window), (0.3, file)]
"""What can be planned, with weights."""

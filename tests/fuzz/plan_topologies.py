"""Communicators with a topology, in random programs: grids and graphs, made in all ways.

They are used like all others, and for neighbourhood collectives. Grids of one or two periodic
places are not made: MPI has said only late what a neighbour in both directions gets, and hosts
differ. The edges of graphs go both ways where MPI_Graph_create asks for it.
"""

from __future__ import annotations

from fuzz.plan import Planner
from fuzz.plan_collectives import catch_up
from fuzz.program import NOBODY, Comm, Neighbours, Op


def _grid(p: Planner, size: int) -> tuple[list[int], list[int]]:
    """Return lengths and periods of a grid of so many ranks."""
    dims = []
    left = size
    for _ in range(p.rng.randint(1, 3) - 1):
        factor = p.rng.choice([n for n in range(1, left + 1) if left % n == 0])
        dims.append(factor)
        left //= factor
    dims.append(left)
    p.rng.shuffle(dims)
    return dims, [int(length > 2 and p.chance(0.5)) for length in dims]


def _around(dims: list[int], periods: list[int], rank: int) -> list[int]:
    """Return a rank's neighbours: by dimension, first the one below and then the one above."""
    place, strides, stride = [], [], 1
    for length in reversed(dims):
        strides.insert(0, stride)
        stride *= length
    for length, step in zip(dims, strides):
        place.append(rank // step % length)
    found = []
    for length, period, at, step in zip(dims, periods, place, strides):
        for shift in (-1, 1):
            moved = at + shift
            inside = 0 <= moved < length
            found.append(rank + (moved % length - at) * step if inside or period else NOBODY)
    return found


def _make(p: Planner, parent: Comm, size: int, neighbours: Neighbours, **args: object) -> None:
    """Make the communicator of the first ranks of a parent."""
    unit = p.unit(parent.unit)
    comm = Comm(p.next_comm, (parent.members[:size],), unit, p.strand, neighbours)
    p.next_comm += 1
    p.program.comms[comm.number] = comm
    catch_up(p, parent)
    whole = {"parent": parent.number, "id": comm.number, f"ranks{comm.number}": list(comm.members)}
    p.emit(Op("comm", parent.members, {**whole, **args}, unit))
    p.comms.append(comm)


def _of_edges(size: int, edges: list[tuple[int, int]]) -> Neighbours:
    """Return who sends to each rank, and to whom it sends, in the order of the edges."""
    return tuple(
        (
            tuple(a for a, b in edges if b == rank),
            tuple(b for a, b in edges if a == rank),
        )
        for rank in range(size)
    )


def cartesian(p: Planner, parent: Comm) -> None:
    """MPI_Cart_create, also of fewer ranks than the parent has."""
    size = len(parent.members)
    if p.chance(0.2):
        size = p.rng.randint(1, size)
    dims, periods = _grid(p, size)
    around = [tuple(_around(dims, periods, rank)) for rank in range(size)]
    neighbours = tuple((each, each) for each in around)
    _make(p, parent, size, neighbours, how="cart", dims=dims, periods=periods)


def graph(p: Planner, parent: Comm) -> None:
    """MPI_Graph_create, MPI_Dist_graph_create_adjacent and MPI_Dist_graph_create."""
    size = len(parent.members)
    hows = ["graph", "adjacent", "adjacent", "distributed"]
    if "graph-of-grid" in p.without and parent.neighbours:
        return
    how = p.rng.choice([how for how in hows if f"graph-{how}" not in p.without])
    pairs = [(a, b) for a in range(size) for b in range(size)]
    edges = p.rng.sample(pairs, min(len(pairs), p.rng.randint(0, 3 * size)))
    if how == "graph":
        edges = sorted({(a, b) for a, b in edges if a != b} | {(b, a) for a, b in edges if a != b})
        p.rng.shuffle(edges)
    if not edges and how == "graph":
        return
    flat = [end for edge in edges for end in edge]
    _make(p, parent, size, _of_edges(size, edges), how=how, edges=flat)


def topology(p: Planner) -> None:
    """Make a communicator with neighbours."""
    kinds = [make for make in (cartesian, graph) if f"topology-{make.__name__}" not in p.without]
    whole = [comm for comm in p.comms if not comm.is_inter]
    if kinds:
        p.rng.choice(kinds)(p, p.rng.choice(whole))

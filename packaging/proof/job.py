"""The small job of job.c for mpi4py: a ring of messages and collectives, every value checked."""

from __future__ import annotations

import array
import sys

from mpi4py import MPI

ROUNDS = 20
LENGTHS = (1, 100, 10_000, 200_000)


def expect(holds: bool, what: str) -> None:
    """End the job when something is not as it must be."""
    if not holds:
        print(f"FAIL {what}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


def main() -> None:
    """Run on every rank."""
    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    before = (rank - 1) % size
    for length in LENGTHS:
        for turn in range(ROUNDS):
            out = array.array("i", [rank * 1000 + turn]) * length
            found = array.array("i", [0]) * length
            world.Sendrecv(out, (rank + 1) % size, turn, found, before, turn)
            wanted = array.array("i", [before * 1000 + turn]) * length
            expect(found == wanted, "message")
            world.Allreduce(out, found)
            total = size * (size - 1) // 2 * 1000 + size * turn
            expect(found == array.array("i", [total]) * length, "sum")
    world.Barrier()
    if rank == 0:
        print(f"PASS {size} ranks {MPI.Get_library_version().split(',')[0]}")


main()

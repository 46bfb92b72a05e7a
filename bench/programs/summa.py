"""Multiplies matrices by SUMMA with numpy and mpi4py; the columns of blocks are not equally wide.

    summa.py [N] [PANEL] [PRODUCTS]

An R x Q grid of ranks, with R = 2: rank r is in row r % R, so ranks of a row are on several nodes.
In each step the owner of a panel of A broadcasts it along its row, the owner of one of B along its
column, and all add their product. Odd columns of the grid are twice as wide as even ones, as they
are where a matrix does not fit the grid, so their ranks compute twice as long. Prints the seconds
of each product, and a checksum of the last one that depends on neither grid nor MPI.
"""

from __future__ import annotations

import os
import sys

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

ROWS = 2


def widths(columns: int, size: int, unit: int) -> list[int]:
    """Return how wide each column of the grid is, in multiples of `unit`."""
    shares = [2 if column % 2 else 1 for column in range(columns)]
    ends = [size * sum(shares[: i + 1]) // sum(shares) // unit * unit for i in range(columns)]
    ends[-1] = size
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def entries(rows: range, columns: range, factor: int) -> np.ndarray:
    """Return a block of a matrix of small whole numbers, so that products are exact."""
    i = np.arange(rows.start, rows.stop)[:, None]
    j = np.arange(columns.start, columns.stop)[None, :]
    return ((i * factor + j * 3) % 7).astype(np.float64)


def main() -> None:
    """Multiply and print."""
    size, panel, products = (
        int(word) for word in (sys.argv[1:] + ["1536", "128", "6"][len(sys.argv) - 1 :])
    )
    world = MPI.COMM_WORLD
    columns = world.size // ROWS
    row, column = world.rank % ROWS, world.rank // ROWS
    along_row = world.Split(row, column)
    along_column = world.Split(column, row)
    # A is cut by columns of the grid in one direction and by rows in the other; B likewise.
    wide = widths(columns, size, panel)
    high = [size // ROWS // panel * panel, size - size // ROWS // panel * panel]
    left, top = sum(wide[:column]), sum(high[:row])
    mine_i, mine_j = range(top, top + high[row]), range(left, left + wide[column])
    a = entries(mine_i, mine_j, 5)
    b = entries(mine_i, mine_j, 11)
    times = []
    for _ in range(products):
        c = np.zeros((len(mine_i), len(mine_j)))
        world.Barrier()
        begin = MPI.Wtime()
        for k in range(0, size, panel):
            width = min(panel, size - k)
            owner = next(i for i in range(columns) if k < sum(wide[: i + 1]))
            below = next(i for i in range(ROWS) if k < sum(high[: i + 1]))
            part_a = np.empty((len(mine_i), width))
            part_b = np.empty((width, len(mine_j)))
            if column == owner:
                part_a[:] = a[:, k - left : k - left + width]
            if row == below:
                part_b[:] = b[k - top : k - top + width, :]
            along_row.Bcast(part_a, root=owner)
            along_column.Bcast(part_b, root=below)
            c += part_a @ part_b
        world.Barrier()
        times.append(MPI.Wtime() - begin)
    weights = (np.arange(mine_i.start, mine_i.stop)[:, None] % 13) + (
        np.arange(mine_j.start, mine_j.stop)[None, :] % 17
    )
    total = world.reduce(int((c * weights).sum()), root=0)
    if world.rank == 0:
        print("seconds", *(f"{time:.6f}" for time in times))
        print("checksum", total)


if __name__ == "__main__":
    main()

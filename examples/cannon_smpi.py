"""Cannon's matrix product with SMPI in Python: cannon_smpi.py [order]

Blocks of A and B change their owner and stay where they are; see cannon_smpi.c.
"""

import math
import sys

import numpy
from mpi4py import MPI
from overdrive import smpi

n = int(sys.argv[1]) if len(sys.argv) > 1 else 512
ranks = MPI.COMM_WORLD.size
q = math.isqrt(ranks)
if q * q != ranks or n % q:
    sys.exit("the number of ranks must be a square whose root divides the order")
m = n // q
grid = MPI.COMM_WORLD.Create_cart([q, q], [True, True])
row, column = grid.coords
from_right, to_left = grid.Shift(1, -1)
from_below, to_above = grid.Shift(0, -1)
comm = smpi.attach(grid)

# A(i,k) = (i+1) w(k), B(k,j) = w(k) (j+1): every element of the product is known.
weights = 1.0 / (1 + numpy.arange(n) % 7)
middle = (row + column) % q
mine = weights[middle * m : (middle + 1) * m]
rows, columns = numpy.arange(row * m, (row + 1) * m), numpy.arange(column * m, (column + 1) * m)
blocks = [smpi.Block(8 * m * m), smpi.Block(8 * m * m)]
blocks[0].array("f8", (m, m))[:] = numpy.outer(rows + 1, mine)
blocks[1].array("f8", (m, m))[:] = numpy.outer(mine, columns + 1)
c = numpy.zeros((m, m))

grid.Barrier()
begin, communication = MPI.Wtime(), 0.0
for step in range(q):
    c += blocks[0].array("f8", (m, m)) @ blocks[1].array("f8", (m, m))
    if step == q - 1:
        break
    before = MPI.Wtime()
    view_a, got_a = comm.irecv(8 * m * m, from_right, 0)
    view_b, got_b = comm.irecv(8 * m * m, from_below, 1)
    sent = [comm.ipass(blocks[0], to_left, 0), comm.ipass(blocks[1], to_above, 1)]
    MPI.Request.Waitall([got_a, got_b, *sent])
    blocks = [view_a.own(), view_b.own()]
    communication += MPI.Wtime() - before
whole = MPI.Wtime() - begin

right = numpy.outer(rows + 1, columns + 1) * (weights**2).sum()
error = abs(c / right - 1).max()
whole, communication, error = (grid.allreduce(x, MPI.MAX) for x in (whole, communication, error))
if grid.rank == 0:
    verdict = "right" if error < 1e-12 else "WRONG"
    print(
        f"cannon_smpi.py: order {n}, {ranks} ranks, {whole:.6f} s, of which communication "
        f"{communication:.6f} s, error {error:.1e}: {verdict}",
        flush=True,
    )
sys.exit(int(error >= 1e-12))

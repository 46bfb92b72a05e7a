"""A multiprocessing pool, a subprocess and os.fork after MPI_Init, with messages in between."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank = world.rank
peer = rank ^ 1
data = numpy.arange(300000, dtype="f8") + rank


def work(number: int) -> float:
    """Compute on the inherited array, and spoil the child's copy of it."""
    result = float(data[number * 1000])
    data[:] = -1
    return result


def exchange(turn: int) -> bool:
    """Exchange the array with the peer and compare."""
    into = numpy.zeros_like(data)
    world.Sendrecv(data, peer, turn, into, peer, turn)
    return bool((into == numpy.arange(300000) + peer).all())


good = exchange(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    request = world.Isend(data, peer, 77)
    results = pool.map(work, range(20), chunksize=1)
    into = numpy.zeros_like(data)
    world.Recv(into, peer, 77)
    request.Wait()
    good &= bool((into == numpy.arange(300000) + peer).all())
    good &= all(r in (n * 1000 + rank, -1.0) for n, r in enumerate(results))
    good &= exchange(1)
child = os.fork()
if child == 0:
    data[:] = -5
    os._exit(7)
good &= exchange(2)
good &= os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
good &= subprocess.run(["echo", "ok"], capture_output=True, check=True).stdout == b"ok\n"
good &= exchange(3)
good = bool(world.allreduce(int(good), MPI.MIN))
if rank == 0 and good:
    print("PASS pool.py", flush=True)
sys.exit(0 if good else 1)

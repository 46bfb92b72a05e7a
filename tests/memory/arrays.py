"""Numpy arrays lie in the reach file, forked children have their own; prints PASS on rank 0."""

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
failures: list[str] = []


def check(good: bool, what: str) -> None:
    """Remember a failure."""
    if not good:
        failures.append(what)
        print(f"FAIL arrays.py rank {rank}: {what}", file=sys.stderr, flush=True)


def reachable(array: numpy.ndarray) -> bool:
    """Tell whether the kernel maps all of the array from the reach file."""
    at = array.__array_interface__["data"][0]
    end = at + array.nbytes
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            span, access = line.split()[:2]
            low, high = (int(part, 16) for part in span.split("-"))
            if high <= at:
                continue
            if low > at or access[3] != "s" or "memfd:overdrive-reach" not in line:
                return False
            at = high
            if at >= end:
                return True
    return False


def exchanged() -> None:
    """Arrays of several sizes."""
    for length in (20_000, 500_000, 3_000_000):
        out = numpy.arange(length, dtype="f8") + rank
        into = numpy.zeros(length)
        check(reachable(out), f"arange of {length}")
        check(reachable(into), f"zeros of {length}")
        world.Sendrecv(out, peer, 1, into, peer, 1)
        check(bool((into == numpy.arange(length) + peer).all()), f"values of {length}")


def double(values: numpy.ndarray) -> float:
    """Write over the arguments in a pool's process."""
    total = float(values.sum())
    values[:] = -1
    return total


def forked() -> None:
    """What children write stays theirs."""
    array = numpy.full(400_000, float(rank))
    child = os.fork()
    if child == 0:
        good = bool((array == rank).all())
        array[:] = -1
        os._exit(0 if good else 1)
    check(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "what the child saw")
    check(bool((array == rank).all()), "what the child left")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        totals = pool.map(double, [numpy.full(100_000, 1.0 + i) for i in range(6)])
    check(totals == [100_000.0 * (1 + i) for i in range(6)], f"pool: {totals}")
    text = subprocess.run(["echo", "here"], capture_output=True, text=True, check=True).stdout
    check(text == "here\n", "subprocess")
    world.Barrier()


exchanged()
forked()
exchanged()
total = world.allreduce(len(failures))
if rank == 0 and total == 0:
    print("PASS arrays.py")

"""mpi4py and numpy over every kind of message; prints PASS on rank 0 when all data was right."""

from __future__ import annotations

import sys
import threading

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
peer = rank ^ 1
failures: list[str] = []


def check(good: bool, what: str) -> None:
    """Remember a failure."""
    if not good:
        failures.append(what)
        print(f"FAIL exchange.py rank {rank}: {what}", file=sys.stderr, flush=True)


def arrays() -> None:
    """Numpy arrays of many types, lengths and strides."""
    for kind in ("i1", "i4", "i8", "f4", "f8", "c16"):
        for length in (0, 1, 7, 1000, 9000, 70000, 600000):
            out = (numpy.arange(length) * (rank + 1) % 120).astype(kind)
            into = numpy.empty_like(out)
            world.Sendrecv(out, peer, 1, into, peer, 1)
            expected = (numpy.arange(length) * (peer + 1) % 120).astype(kind)
            check(numpy.array_equal(into, expected), f"Sendrecv {kind} x {length}")
            into[:] = 0
            requests = [world.Irecv(into, peer, 2), world.Isend(out, peer, 2)]
            MPI.Request.Waitall(requests)
            check(numpy.array_equal(into, expected), f"Irecv {kind} x {length}")


def strided() -> None:
    """Columns of a matrix through a derived datatype."""
    matrix = numpy.arange(200 * 300, dtype="f8").reshape(200, 300) + rank
    column = MPI.DOUBLE.Create_vector(200, 3, 300).Commit()
    into = numpy.zeros(600)
    world.Sendrecv([matrix, 1, column], peer, 3, into, peer, 3)
    check(numpy.array_equal(into.reshape(200, 3), matrix[:, :3] - rank + peer), "column")
    column.Free()


def objects() -> None:
    """Pickled objects; mpi4py receives them by matched probes."""
    thing = {"rank": rank, "text": "x" * 100000, "list": list(range(1000)), "none": None}
    got = world.sendrecv(thing, peer, 4, source=peer, recvtag=4)
    check(got["rank"] == peer and len(got["text"]) == 100000, "sendrecv object")
    request = world.isend(thing, peer, 5)
    check(world.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)["rank"] == peer, "recv object")
    request.wait()
    requests = [world.irecv(1 << 20, peer, 6), world.issend([rank] * 50, peer, 6)]
    results = MPI.Request.waitall(requests)
    check(results[0] == [peer] * 50, "irecv object")
    request = world.Isend(numpy.full(30000, rank, "i4"), peer, 7)
    status = MPI.Status()
    handle = world.Mprobe(peer, 7, status)
    check(status.Get_count(MPI.INT) == 30000, "Mprobe count")
    into = numpy.zeros(30000, "i4")
    handle.Recv(into)
    request.Wait()
    check(bool((into == peer).all()), "Mprobe data")


def persistent_and_buffered() -> None:
    """Persistent requests in many rounds; an attached buffer."""
    out, into = numpy.zeros(5000), numpy.zeros(5000)
    requests = [world.Recv_init(into, peer, 8), world.Send_init(out, peer, 8)]
    for turn in range(20):
        out[:] = rank * 100 + turn
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        check(bool((into == peer * 100 + turn).all()), f"persistent round {turn}")
    for request in requests:
        request.Free()
    MPI.Attach_buffer(bytearray(200000 + MPI.BSEND_OVERHEAD))
    world.Bsend(out, peer, 9)
    out[:] = -1
    world.Recv(into, peer, 9)
    check(bool((into == peer * 100 + 19).all()), "Bsend")
    MPI.Detach_buffer()


def errors() -> None:
    """Truncation becomes an exception of the right class."""
    request = world.Isend(numpy.zeros(100, "i4"), peer, 10)
    try:
        world.Recv(numpy.zeros(50, "i4"), peer, 10)
        check(False, "no exception for a truncated message")
    except MPI.Exception as error:
        check(error.Get_error_class() == MPI.ERR_TRUNCATE, f"class {error.Get_error_class()}")
    request.Wait()


def threads() -> None:
    """Threads with communicators of their own, where the host allows them."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return

    def body(comm: MPI.Comm, number: int) -> None:
        for turn in range(50):
            out = numpy.full(2000, rank * 1000 + turn + number)
            into = numpy.zeros_like(out)
            comm.Sendrecv(out, peer, turn, into, peer, turn)
            check(bool((into == peer * 1000 + turn + number).all()), f"thread {number}")

    running = [threading.Thread(target=body, args=(c, n)) for n, c in enumerate(comms)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


comms = [world.Dup() for _ in range(3)]
if peer < size:
    arrays()
    strided()
    objects()
    persistent_and_buffered()
    errors()
    threads()
for each in comms:
    each.Free()
total = world.allreduce(len(failures))
if rank == 0 and total == 0:
    print("PASS exchange.py", flush=True)
sys.exit(1 if total else 0)

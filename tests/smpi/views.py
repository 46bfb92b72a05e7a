"""The Python module: blocks, views, ownership and collectives with numpy, every answer checked."""

import sys
from collections.abc import Callable

import numpy
from mpi4py import MPI
from overdrive import smpi

comm = smpi.attach(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
after, before = (rank + 1) % size, (rank - 1) % size
checks = 0


def check(condition: object, text: object) -> None:
    """Count a check, or end the job."""
    global checks
    checks += 1
    if not condition:
        print(f"FAIL views rank {rank}: {text}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


def fails(error: int, function: Callable, *arguments: object) -> None:
    """Check that a call raises the error class."""
    try:
        function(*arguments)
    except MPI.Exception as caught:
        check(caught.Get_error_class() == error, f"{function}: {caught}")
    else:
        check(False, f"{function}: no error")


# Lending in mixed lists of requests, of blocks, parts of blocks and other memory.
for count in (0, 1, 7, 1000, 100_000):
    block = smpi.Block(8 * count)
    block.array("f8")[:] = numpy.arange(count) + rank
    view, request = comm.irecv(8 * count, before, 1)
    outside = numpy.full(3, rank, "i4")
    other, second = comm.irecv(12, before, 2)
    number = numpy.empty(1, "i4")
    requests = [
        request,
        second,
        MPI.COMM_WORLD.Irecv(number, before, 3),
        comm.isend(block, after, 1),
        comm.isend(outside, after, 2),
        MPI.COMM_WORLD.Isend(numpy.array([rank], "i4"), after, 3),
    ]
    MPI.Request.Waitall(requests)
    seen = view.array("f8")
    check(seen.shape == (count,) and (seen == numpy.arange(count) + before).all(), count)
    check(not seen.flags.writeable, "writeable")
    check((view.source, view.tag, view.size) == (before, 1, 8 * count), "status")
    check((other.array("i4") == before).all() and number[0] == before, "others")
    del seen
    view.release()
    other.release()
    block.reclaim()
    check(block.lent == 0, "lent")
    if count == 1000:
        part = comm.isend(block.array("f8")[100:200], after, 4)
        with comm.recv(before, 4) as view:
            check((view.array("f8") == numpy.arange(100, 200) + before).all(), "part")
        part.Wait()
    block.reclaim()
    block.free()

# Ownership goes round.
if rank == 0:
    token = smpi.Block(4000)
    token.array("i4")[:] = 0
    comm.pass_(token, after)
    fails(MPI.ERR_BUFFER, token.free)
for _ in range(3):
    token = comm.recv(before).own()
    token.array("i4", (10, 100))[3, 4] += 1
    if rank == 0 and _ == 2:
        check(token.array("i4").sum() == 3 * size, "token")
        token.free()
    elif _ == 1:
        comm.ipass(token, after).Wait()
    else:
        comm.pass_(token, after)

# Blocks that are too long to leave before somebody receives them.
without = not any(comm.near(i) for i in range(size) if i != rank)
for turn in range(3):
    token = smpi.Block(4 << 20)
    token.array("i4")[:] = rank + turn
    sent = comm.ipass(token, after, 8)
    # A message to another node is complete when it is received, or moved on by whoever waits.
    check(comm.near(after) or without or not sent.Test(), "complete at once")
    comm.comm.Barrier()
    view, received = comm.irecv(4 << 20, before, 8)
    MPI.Request.Waitall([received, sent])
    token = view.own()
    check((token.array("i4") == before + turn).all(), "long block")
    token.free()

# What was lent becomes a copy.
request = comm.isend(numpy.arange(50), after, 5)
copy = comm.recv(before, 5).own()
request.Wait()
check((copy.array("i8") == numpy.arange(50)).all(), "copy")

# Probe, any source, too long messages.
request = comm.isend(bytes(33), after, 6)
check(comm.probe(MPI.ANY_SOURCE, 6) == (before, 6, 33), "probe")
comm.recv(before, 6).release()
request.Wait()
request = comm.isend(bytes(100), after, 7)
fails(MPI.ERR_TRUNCATE, comm.recv, before, 7, 99)
request.Wait()
MPI.COMM_WORLD.Barrier()

# Collectives.
for root in range(size):
    data = numpy.arange(5000) * root if rank == root else None
    with comm.bcast(data, 40000, root) as view:
        check((view.array("i8") == numpy.arange(5000) * root).all(), f"bcast {root}")
views = comm.allgather(numpy.full(11, rank, "f4"))
check([view.array("f4")[10] for view in views] == list(range(size)), "allgather")
for view in views:
    view.release()

for root in range(size):
    for count in (0, 1, 3000):
        data = numpy.arange(count * size) + root if rank == root else None
        with comm.scatter(data, 8 * count, root) as view:
            own = numpy.arange(count * rank, count * (rank + 1)) + root
            check((view.array("i8") == own).all() and view.source == root, f"scatter {root}")
            check(view.size == 8 * count, "scattered")
if rank == 0:
    fails(MPI.ERR_COUNT, comm.scatter, bytes(8 * size - 1), 8)
    fails(MPI.ERR_COUNT, comm.iscatter, None, 8)

# Several of them under way at once, with a message of MPI's own.
for count in (0, 9, 5000):
    given = smpi.Block(8 * count)
    given.array("i8")[:] = numpy.arange(count) + 3
    first, one = comm.ibcast(given if rank == 0 else None, 8 * count)
    rows, two = comm.iallgather(numpy.full(count, rank, "i4"))
    data = numpy.arange(count) if rank == size - 1 else None
    last, three = comm.ibcast(data, 8 * count, size - 1)
    given_parts = numpy.arange(count * size) * 5 if rank == 0 else None
    part, six = comm.iscatter(given_parts, 8 * count)
    number = numpy.empty(1, "i4")
    four = MPI.COMM_WORLD.Irecv(number, before, 8)
    five = MPI.COMM_WORLD.Isend(numpy.array([rank], "i4"), after, 8)
    MPI.Request.Waitall([one, two, three, four, five, six])
    check((first.array("i8") == numpy.arange(count) + 3).all(), f"ibcast {count}")
    check((last.array("i8") == numpy.arange(count)).all() and last.source == size - 1, "last")
    for i in range(size):
        row = rows[(i + rank) % size]
        check((row.array("i4") == (i + rank) % size).all(), "iallgather")
        check(row.size == 4 * count and row.source == (i + rank) % size, "row")
        row.release()
    expected = numpy.arange(count * rank, count * (rank + 1)) * 5
    check((part.array("i8") == expected).all() and part.source == 0, f"iscatter {count}")
    check(part.size == 8 * count, "part")
    part.release()
    first.release()
    last.release()
    given.reclaim()
    given.free()

fails(MPI.ERR_RANK, comm.send, b"", size)
fails(MPI.ERR_TAG, comm.send, b"", 0, -3)
fails(MPI.ERR_ARG, views[0].release)
near = sum(comm.near(i) for i in range(size))
total = MPI.COMM_WORLD.allreduce(checks)
if rank == 0:
    print(f"near: {near}")
    print(f"PASS views: {total} checks", flush=True)

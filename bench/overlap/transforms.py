"""Transforms by mpi4py-fft, as programs use it: there and back, again and again.

One line, on rank 0: name, median ms of one there and back, checksum of the result.
"""

from __future__ import annotations

import hashlib
import time

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

EDGE = 64
REPETITIONS = 15


def main() -> None:
    """Transform."""
    comm = MPI.COMM_WORLD
    # By estimate, so that all runs transform in the same way.
    transform = PFFT(
        comm, [EDGE] * 3, dtype=np.complex128, slab=True, planner_effort="FFTW_ESTIMATE"
    )
    there, back = newDistArray(transform, False), newDistArray(transform, True)
    rng = np.random.default_rng(comm.rank)
    there[:] = rng.random(there.shape) + 1j * rng.random(there.shape)
    times = []
    for _ in range(REPETITIONS + 1):
        comm.Barrier()
        begin = time.perf_counter()
        transform.forward(there, back)
        transform.backward(back, there)
        mine = time.perf_counter() - begin
        times.append(comm.allreduce(mine, MPI.MAX))
    digests = comm.gather(hashlib.sha256(np.ascontiguousarray(there).tobytes()).hexdigest())
    if comm.rank == 0:
        whole = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
        print(f"mpi4py-fft-3d-{EDGE} {1e3 * sorted(times[1:])[REPETITIONS // 2]:.3f} {whole}")


main()

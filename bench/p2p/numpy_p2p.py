"""Ping-pong latency of numpy arrays through mpi4py, in the output format of od_p2p.

Run as `mpirun -n 2 python numpy_p2p.py --library libod_probe.so [--shapes LIST] [--sizes LIST]`;
the library is probe.c as a shared object: the clock, the pinning and the cache-line probe.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

PATH_BYTES = 4096
DEFAULT_SIZES = "8,256,1K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M"


class Probe:
    """The instruments of probe.c for the ranks of one communicator."""

    def __init__(self, library: str, comm: MPI.Intracomm) -> None:
        """Share the probe page among all ranks and pin them."""
        self._lib = ctypes.CDLL(library)
        for name in ("od_probe_now_ns", "od_probe_waited_ns"):
            getattr(self._lib, name).restype = ctypes.c_double
        for name in ("od_probe_share", "od_probe_max"):
            getattr(self._lib, name).restype = ctypes.c_double
            getattr(self._lib, name).argtypes = [ctypes.c_double]
        self._lib.od_probe_exchange_ns.restype = ctypes.c_double
        self._lib.od_probe_apply_niceness()
        path = ctypes.create_string_buffer(PATH_BYTES)
        if comm.rank == 0 and self._lib.od_probe_create(None, path, PATH_BYTES) != 0:
            sys.exit("numpy_p2p: cannot make the probe page")
        name = comm.bcast(path.value)
        if self._lib.od_probe_attach(name, comm.rank, comm.size) != 0:
            sys.exit("numpy_p2p: cannot map the probe page")
        comm.Barrier()
        if comm.rank == 0:
            self._lib.od_probe_unlink(name)
        self._lib.od_probe_pin(comm.rank, comm.size)

    def now_ns(self) -> float:
        """Return the monotonic clock."""
        return self._lib.od_probe_now_ns()

    def waited_ns(self) -> float:
        """Return for how long this rank has waited for its core."""
        return self._lib.od_probe_waited_ns()

    def sync(self) -> None:
        """Wait for all ranks."""
        self._lib.od_probe_sync()

    def max(self, value: float) -> float:
        """Return the largest value of all ranks."""
        return self._lib.od_probe_max(value)

    def exchange_ns(self) -> float:
        """Return the one-way cache-line exchange."""
        return self._lib.od_probe_exchange_ns(0)


def parse_size(text: str) -> int:
    """Read a number of bytes with an optional suffix K or M."""
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


class PingPong:
    """Round trips of one array; in the shape `app` it is rewritten and read each time."""

    def __init__(self, comm: MPI.Intracomm, size_bytes: int, app: bool) -> None:
        """Make the arrays; sizes are whole numbers of 8-byte words."""
        self.comm = comm
        self.app = app
        self.iota = np.arange(size_bytes // 8, dtype=np.int64)
        self.send = self.iota.copy()
        self.receive = np.zeros_like(self.iota)
        self.partner = 1 - comm.rank
        self.seed = 0
        self.error = 0

    def _send(self) -> None:
        if self.app:
            np.add(self.iota, self.seed, out=self.send)
        self.comm.Send(self.send, self.partner, 12)

    def _receive(self) -> None:
        self.comm.Recv(self.receive, self.partner, 12)
        if self.app:
            count = self.iota.size
            expected = count * self.seed + count * (count - 1) // 2
            self.error |= int(self.receive.sum()) - expected

    def run(self, iterations: int) -> None:
        """Make that many round trips."""
        for _ in range(iterations):
            self.seed += 1
            if self.comm.rank == 0:
                self._send()
                self._receive()
            else:
                self._receive()
                self._send()


def timed(probe: Probe, comm: MPI.Intracomm, body: Callable[[int], None], iterations: int) -> float:
    """Run the body on all ranks; return the ns from the first start to the last end."""
    probe.sync()
    start = probe.now_ns()
    body(iterations)
    end = probe.now_ns()
    comm.Barrier()
    return probe.max(end) + probe.max(-start)


def main() -> None:
    """Measure all sizes, round by round, and print one line per sample on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", dest="lib", required=True)
    parser.add_argument("--shapes", default="usual,app")
    parser.add_argument("--sizes", default=DEFAULT_SIZES)
    parser.add_argument("--reps", type=int, default=4)
    parser.add_argument("--sample-ms", type=float, default=3)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    probe = Probe(options.lib, comm)
    shapes = options.shapes.split(",")
    sizes = [parse_size(text) for text in options.sizes.split(",")]
    points = [
        (shape, PingPong(comm, size, shape == "app"), size) for shape in shapes for size in sizes
    ]
    counts = {}
    for shape, ping_pong, size in points:
        check = PingPong(comm, size, True)
        check.run(1)
        if check.error or not np.array_equal(check.receive, check.iota + 1):
            sys.exit(f"numpy_p2p: wrong data of {size} bytes")
        iterations = 4
        while (
            duration := timed(probe, comm, ping_pong.run, iterations)
        ) < options.sample_ms * 1e6 / 8:
            iterations *= 4
        counts[shape, size] = max(2, int(options.sample_ms * 1e6 * iterations / duration))
    for _ in range(options.reps):
        for shape, ping_pong, size in points:
            iterations = counts[shape, size]
            before = probe.exchange_ns()
            timed(probe, comm, ping_pong.run, min(4, iterations))
            waited = probe.waited_ns()
            duration = timed(probe, comm, ping_pong.run, iterations)
            waited = probe.max(probe.waited_ns() - waited) / duration
            after = probe.exchange_ns()
            if ping_pong.error:
                sys.exit(f"numpy_p2p: wrong checksum of {size} bytes")
            if comm.rank == 0:
                value = duration / iterations / 2e3
                print(
                    f"latency,{shape},blocking,numpy,{size},{comm.size},{value:.6g},us,"
                    f"{before:.1f},{after:.1f},{waited:.4f},0",
                    flush=True,
                )


if __name__ == "__main__":
    main()

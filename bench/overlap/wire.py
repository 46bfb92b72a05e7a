"""Sends bytes between two nodes by sockets that sleep: how idle the cores are while a link is busy.

wire.py serve                    on one node, until one connection has ended
wire.py send ADDRESS BYTES       on the other; prints Mbit/s and the idle share of all cores
"""

import socket
import sys
import time
from pathlib import Path

PORT = 40123
BLOCK = 1 << 17


def ticks() -> tuple[int, int]:
    """Return the idle time of all cores so far, and all of it, in ticks."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    numbers = [int(one) for one in fields]
    return numbers[3] + numbers[4], sum(numbers)


def serve() -> None:
    """Receive everything and say so."""
    with socket.create_server(("", PORT)) as server:
        connection, _ = server.accept()
        block = bytearray(BLOCK)
        while connection.recv_into(block):
            pass
        connection.sendall(b"!")


def connect(address: str) -> socket.socket:
    """Return a connection; the server may come late."""
    for _ in range(100):
        try:
            return socket.create_connection((address, PORT))
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nobody answers at {address}")


def send(address: str, count: int) -> None:
    """Send so many bytes and wait for the answer."""
    block = bytes(BLOCK)
    with connect(address) as connection:
        idle, all_ticks = ticks()
        begin = time.monotonic()
        for _ in range(0, count, BLOCK):
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        seconds = time.monotonic() - begin
        idle_after, all_after = ticks()
    share = (idle_after - idle) / max(1, all_after - all_ticks)
    print(f"{count * 8 / seconds / 1e6:.1f} {share:.3f}")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        send(sys.argv[2], int(sys.argv[3]))

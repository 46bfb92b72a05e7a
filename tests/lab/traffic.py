"""Run inside nodes: serves and measures traffic between them.

traffic.py serve                    answers datagrams, swallows streams; says "ready"
traffic.py echo HOST COUNT [SECONDS]  prints how many of COUNT datagrams came back; SECONDS is
                                    how long one is waited for, if some may be lost
traffic.py stream HOST BYTES        prints the Mbit/s of a stream
"""

from __future__ import annotations

import selectors
import socket
import sys
import time

PORT = 5201
ANSWER_SECONDS = 20.0
"""Where all come back nobody waits so long, and a busy machine changes nothing."""
LAST_SECONDS = 2.0
"""For what a busy machine has held up, at the end, where some may be lost."""
LINK_SECONDS = 60.0
"""Only a link that is broken lets nobody send for so long."""
AT_ONCE = 50
"""Datagrams on their way at once; they fit into any socket's buffer."""


def serve() -> None:
    """Serve until killed."""
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("", PORT))
    streams = socket.create_server(("", PORT))
    selector = selectors.DefaultSelector()
    selector.register(datagrams, selectors.EVENT_READ)
    selector.register(streams, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is datagrams:
                data, sender = datagrams.recvfrom(2048)
                datagrams.sendto(data, sender)
            else:
                connection, _ = streams.accept()
                with connection:
                    while connection.recv(1 << 16):
                        pass
                    connection.sendall(b"x")


def _received(own: socket.socket, seconds: float, most: int) -> int:
    """Return how many of so many datagrams come, until none has come for so long."""
    own.settimeout(seconds)
    for number in range(most):
        try:
            own.recv(2048)
        except (TimeoutError, socket.timeout):  # noqa: UP041 - two classes before Python 3.10
            return number
    return most


def echo(host: str, count: int, seconds: float) -> int:
    """Return how many datagrams came back, of a few at a time."""
    back = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.connect((host, PORT))
        for first in range(0, count, AT_ONCE):
            batch = range(first, min(first + AT_ONCE, count))
            # A link that is kept to a rate takes a datagram when it has room, however late that is.
            own.settimeout(LINK_SECONDS)
            for number in batch:
                own.send(b"%d" % number)
            back += _received(own, seconds, len(batch))
        # What came too late for its batch has been counted in the place of the next one's.
        back += _received(own, max(seconds, LAST_SECONDS), count - back)
    return back


def stream(host: str, size: int) -> float:
    """Return the Mbit/s of a stream, until the receiver has it all."""
    with socket.create_connection((host, PORT), timeout=60) as connection:
        begin = time.monotonic()
        connection.sendall(bytes(size))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        return size * 8e-6 / (time.monotonic() - begin)


def main() -> None:
    """Do what the arguments say."""
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "serve":
        serve()
    elif what == "echo":
        seconds = float(rest[2]) if len(rest) > 2 else ANSWER_SECONDS
        print(echo(rest[0], int(rest[1]), seconds))
    elif what == "stream":
        print(stream(rest[0], int(rest[1])))


if __name__ == "__main__":
    main()

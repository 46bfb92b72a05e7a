"""Turns of builds: of those that write the same folders of a checkout one runs, the others wait.

A build holds a lock on a file beside its folder. The processes that it starts inherit the lock, so
that it is free only when nothing of the build writes any more, however the build ended.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Wait until no other process builds in a folder, and keep others waiting meanwhile.

    Processes inherit the turn if they are started with `close_fds=False`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder}: waiting for another build", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        yield

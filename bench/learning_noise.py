"""Busy loops that come and go on the cores, as other programs do: noise for learning.py.

learning_noise.py CORE SEED       the loop of one core; ends with whoever has started it
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

SHORTEST_SECONDS, LONGEST_SECONDS = 1e-3, 1.0
"""Of a loop, and of a pause: from less than a block of calls to longer than a measurement."""


def lengths(seed: int) -> Iterator[float]:
    """Yield lengths in seconds, each order of magnitude as often as any other; busy comes first."""
    source = random.Random(seed)
    low, high = math.log(SHORTEST_SECONDS), math.log(LONGEST_SECONDS)
    while True:
        yield math.exp(source.uniform(low, high))


def disturb(core: int, seed: int) -> None:
    """Keep a core busy now and then until the parent is gone."""
    os.sched_setaffinity(0, {core})
    parent = os.getppid()
    each = lengths(seed)
    while os.getppid() == parent:
        end = time.monotonic() + next(each)
        while time.monotonic() < end:
            pass
        time.sleep(next(each))


@contextmanager
def noise(seed: int) -> Iterator[None]:
    """Disturb each core for the while, every time with another seed in another way."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for core in sorted(os.sched_getaffinity(0)):
            words = [sys.executable, __file__, str(core), str(1000 * seed + core)]
            loops.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    disturb(int(sys.argv[1]), int(sys.argv[2]))

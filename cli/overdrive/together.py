"""Runs several jobs at the same time, one thread each."""

from __future__ import annotations

import threading
from collections.abc import Callable


def all_at_once(count: int, run: Callable[[int], None], stop: threading.Event) -> None:
    """Call `run` with the number of each job, all at once; return when all have returned.

    `stop` is set when this is interrupted, and the jobs are expected to end soon after that: none
    of them is left behind.
    """
    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        stop.set()
        for thread in threads:
            thread.join()
        raise

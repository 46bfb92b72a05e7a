"""Runs several jobs at the same time, one thread each."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator


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


@contextlib.contextmanager
def own_session(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield the environment with which a job of Open MPI 4 does not disturb others that start.

    It keeps a user's jobs in one folder, which one that ends removes while another one makes it:
    "orte_session_dir failed". Who has named a folder keeps it.
    """
    folder = tempfile.mkdtemp(prefix="overdrive-")
    try:
        yield {"OMPI_MCA_orte_tmpdir_base": folder, **environment}
    finally:
        # What is left of a job that was ended.
        shutil.rmtree(folder, ignore_errors=True)

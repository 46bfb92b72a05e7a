"""Collectives of more than 2 GiB, in a node and between two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent
NEEDED_KIB = 14 << 20


@pytest.mark.slow
@pytest.mark.parametrize("remote", ["", "0-1"], ids=["node", "nodes"])
def test_more_than_two_gigabytes(
    remote: str, host: Host, compiled: Callable[[Path], str], overdrive: bool, seed: int
) -> None:
    """Vectors, blocks that are so long only together, places that lie so far apart."""
    free = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0])
    if free < NEEDED_KIB:
        pytest.skip(f"needs {NEEDED_KIB >> 20} GiB of free memory, {free >> 20} GiB are")
    if remote and not overdrive:
        pytest.skip("the same as in a node without Overdrive")
    arguments = [f"--seed={seed}"]
    if remote or not overdrive:
        # What the hosts' own do with so much: the root crashes, the request is never complete.
        own_faults = {"mpich4": "scatter", "impi": "ibcast"}
        if host.name in own_faults:
            arguments.append(f"--leave-out={own_faults[host.name]}")
    if host.name in ("openmpi5", "mpich5", "impi", "mpiabi"):
        arguments.append("--counts=large")
    result = jobs.run(
        host,
        2,
        [compiled(HERE / "large.c"), *arguments],
        overdrive=overdrive,
        settings={"test_remote": remote} if remote else {},
        env=sharing.environment(host),
        preload=([], sharing.libraries(host)),
        limit=600,
    )
    expect.passed(result)
    if overdrive and not remote:
        served = result.counter("collectives_served")
        assert served >= 20, f"only {served} were served\n{result.report()}"

"""Jobs that begin in other ways than by a launcher and MPI_Init."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs

HERE = Path(__file__).parent
Build = Callable[[Path], str]


@pytest.mark.quick
@pytest.mark.everywhere
def test_session_before_init(host: Host, compiled: Build, overdrive: bool) -> None:
    """Ranks that have a session find each other, however late one of them calls MPI_Init."""
    if host.name == "openmpi4":
        pytest.skip("openmpi4: has no sessions")
    if host.name == "impi":
        pytest.skip("impi: takes MPI_Init after a session for the second one")
    result = jobs.run(host, 3, [compiled(HERE / "sessions.c")], overdrive=overdrive, limit=60)
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 3 * 40)


@pytest.mark.quick
@pytest.mark.everywhere
def test_jobs_of_a_job(host: Host, compiled: Build, overdrive: bool) -> None:
    """Jobs that are started by ranks at the same time are not taken for one another."""
    if host.name in ("mpich4", "impi"):
        pytest.skip(f"{host.name}: MPI_Comm_spawn fails in the library as it is installed here")
    result = jobs.run(
        host,
        2,
        [compiled(HERE / "spawning.c")],
        overdrive=overdrive,
        settings={"verbose": "1"},
        launcher_options=[] if host.uses_hydra else ["--oversubscribe"],
        limit=60,
    )
    expect.passed(result)
    # The job itself, two of its ranks, and one of all.
    assert result.stdout.count("PASS spawning") == 4, result.report()
    if overdrive:
        expect.took_our_path(result)
        assert "could not find each other" not in result.stderr, result.report()

"""Python programs through mpi4py, which loads libmpi itself when it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs

HERE = Path(__file__).parent


@pytest.mark.quick
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.everywhere), 3])
def test_mpi4py(ranks: int, host: Host, overdrive: bool) -> None:
    """Arrays, objects, derived types, persistent requests, exceptions, threads."""
    if host.python is None:
        pytest.skip(f"{host.name}: no Python interpreter with mpi4py")
    result = jobs.run(host, ranks, [host.python, str(HERE / "exchange.py")], overdrive=overdrive)
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 100)

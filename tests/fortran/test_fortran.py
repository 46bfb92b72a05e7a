"""Fortran programs: mpif.h, `use mpi`, `use mpi_f08`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs

HERE = Path(__file__).parent


@pytest.mark.quick
@pytest.mark.parametrize("form", ["mpifh", "usempi", "usempif08"])
def test_fortran(form: str, host: Host, compiled: Callable[[Path], str], overdrive: bool) -> None:
    """Requests, statuses, COMMON blocks, sections and MPI_BOTTOM arrive as in the host alone."""
    if form == "usempif08" and host.name == "impi":
        pytest.skip("impi: its mpi_f08 module is not made for this gfortran")
    program = compiled(HERE / f"{form}.f90")
    result = jobs.run(host, 2, [program], overdrive=overdrive, settings={"call_times": "on"})
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 40)
        # Call sites lie in the program and not in the library that serves Fortran.
        for rank in result.stats.values():
            sites = {site["module"] for site in rank["call_sites"]}
            assert sites == {Path(program).name}, sites

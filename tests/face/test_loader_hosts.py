"""The preloaded loader, without any face, over the installed host MPIs: nothing may change."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import jobs

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = [pytest.mark.quick, pytest.mark.everywhere, pytest.mark.usefixtures("needs_overdrive")]

COST_LIMIT_NS = 10.0
"""What a call that is not taken over may cost more."""


def run(host: Host, ranks: int, command: list[str], face_dir: str) -> str:
    """Run a job with the loader preloaded into the ranks; it must succeed."""
    preload = {
        "LD_PRELOAD": str(jobs.overdrive_library()),
        "OVERDRIVE_FACE_DIR": face_dir,
        "OVERDRIVE_VERBOSE": "1",
    }
    result = subprocess.run(
        [*host.mpiexec(ranks, preload), *command],
        env={**os.environ, **host.env},
        capture_output=True,
        text=True,
        timeout=120 * jobs.TIME_SCALE,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    # The line that names the missing face shows that the loader was asked and found the right ABI.
    assert f"liboverdrive-{host.family}.so" in result.stderr, result.stderr
    return result.stdout


def test_python(host: Host, tmp_path: Path) -> None:
    """Python loads the MPI library by itself, after it has asked whether there is one."""
    if host.python is None:
        pytest.skip(f"no Python with mpi4py for {host.name}")
    out = run(host, 2, [host.python, "-m", "mpi4py.bench", "helloworld"], str(tmp_path))
    assert re.search(r"process 0 of 2", out) and re.search(r"process 1 of 2", out)


def test_library_loaded_by_name(host: Host, tmp_path: Path) -> None:
    """A program that is not linked with MPI at all gets our entry points from the library."""
    source = PROGRAMS / "by_name.c"
    program = tmp_path / "by_name"
    header = "mpi_abi.h" if host.family == "mpiabi" else "mpi.h"
    subprocess.run(
        [
            "gcc",
            "-w",
            "-O1",
            f"-I{host.include_dir}",
            f'-DHEADER="{header}"',
            str(source),
            "-o",
            str(program),
        ],
        check=True,
    )
    out = run(host, 2, [str(program), host.lib_path], str(tmp_path))
    lines = sorted(re.findall(r"rank \d of 2 got \d+ from \S+", out))
    loader = jobs.overdrive_library()
    assert lines == [f"rank 0 of 2 got 10 from {loader}", f"rank 1 of 2 got 0 from {loader}"]


def test_cost_of_a_call(host: Host, compiled: Callable[..., str], tmp_path: Path) -> None:
    program = compiled(PROGRAMS / "cost.c")
    best = float("inf")
    # Another program on the machine only ever makes a measurement worse: the best of a few counts.
    for _ in range(5):
        out = run(host, 1, [program, host.lib_path], str(tmp_path))
        match = re.search(r"linked ([\d.]+) host ([\d.]+) same (\d)", out)
        assert match, out
        assert match[3] == "0", "the program did not call through the loader"
        best = min(best, float(match[1]) - float(match[2]))
        if best <= COST_LIMIT_NS / 4:
            break
    print(f"{host.name}: a call costs {best:.2f} ns more")
    assert best <= COST_LIMIT_NS

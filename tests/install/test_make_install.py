"""`make install`: a prefix that jobs over every MPI use; `make uninstall` leaves nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import hosts
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROOF = ROOT / "packaging" / "proof"
UNINSTALL = ROOT / "packaging" / "uninstall.py"

pytestmark = pytest.mark.slow


def need(command: list[str], **more: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("name", hosts.NAMES)
def test_a_job_over_each_mpi(name: str, own_build: Path, scratch: Path) -> None:
    host = hosts.get(name)
    if host is None:
        pytest.skip(f"{name} is not set up")
    abi = {"mpiabi": "mpiabi"}.get(name, "openmpi" if name.startswith("openmpi") else "mpich")
    if not list(own_build.rglob(f"liboverdrive-{abi}.so")):
        pytest.skip(f"built without the face for {name}")
    job = scratch / "job"
    defines = [f"-D{word}" for word in host.defines]
    need([*host.mpicc, *defines, str(PROOF / "job.c"), "-o", str(job)], **host.env)
    command = str(own_build / "bin" / "overdrive")
    proof = [sys.executable, str(PROOF / "proof.py"), "--overdrive", command]
    said = need([*proof, *host.mpiexec(2), str(job)], **host.env)
    assert re.search(r"proof: .* messages, .* collectives", said), said


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("others", [False, True])
def test_uninstalled_without_a_trace(others: bool, release_build: Path, scratch: Path) -> None:
    """Alone in a prefix, which goes as well, and beside files of others, which stay."""
    prefix = scratch / "prefix"
    if others:
        for name in ("share/man/man1/other.1", "lib/libother.so", "share/overdrive/notes.txt"):
            (prefix / name).parent.mkdir(parents=True, exist_ok=True)
            (prefix / name).write_text("of somebody else\n")
    before = listing(scratch)
    need(["cmake", "--install", str(release_build), "--prefix", str(prefix)])
    assert len(listing(scratch)) > len(before) + 100
    # As after another version of Python has used the command.
    compiled = prefix / "share/overdrive/cli/overdrive/__pycache__/command.cpython-399.pyc"
    compiled.parent.mkdir(exist_ok=True)
    compiled.write_bytes(b"")
    need([str(prefix / "bin" / "overdrive"), "info"])
    words = [str(UNINSTALL), str(release_build), "--prefix", str(prefix)]
    assert re.search(r"uninstall: \d{3,} files removed", need([sys.executable, *words]))
    assert listing(scratch) == before
    assert "uninstall: 0 files removed" in need([sys.executable, *words])

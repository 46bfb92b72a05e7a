"""The shapes that the faces find for datatypes, against every host's own MPI_Pack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import Host
from support import jobs
from support.programs import ROOT

pytestmark = [pytest.mark.quick, pytest.mark.abis]

SOURCES = ["tests/face_types/types.cc", "src/face/type_shape.cc", "src/face/datatypes.cc"]
"""What includes mpi.h; the engine is in the build folder, compiled once for all hosts."""

RANDOM_TYPES = 1500


def build(host: Host, folder: Path) -> Path:
    """Compile the program for a host, with the face's declarations for the host's ABI."""
    face = subprocess.run(
        [sys.executable, "src/face/generate.py", "--what", "face", "--abi", host.family],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "face_entries.inc").write_text(face.stdout, encoding="utf-8")
    if host.family == "mpiabi":
        (folder / "mpi.h").write_text("#include <mpi_abi.h>\n", encoding="utf-8")
    # As one: most of the time goes into headers that they share.
    together = folder / "together.cc"
    together.write_text("".join(f'#include "{ROOT / source}"\n' for source in SOURCES))
    program = folder / "types"
    abi = host.family.upper()
    archives = jobs.overdrive_library().parents[1] / "archive"
    engine = [archives / "liboverdrive_core.a", archives / "liboverdrive_innetwork.a"]
    for archive in engine:
        assert archive.exists(), f"{archive} is missing: run `make` first"
    command = [
        *host.mpicxx,
        *(f"-D{name}" for name in host.defines),
        "-std=c++20",
        "-O1",
        f"-DOD_FACE_{abi}=1",
        f"-DOD_FACE_ABI=OD_ABI_{abi}",
        f"-I{folder}",
        f"-I{ROOT / 'src'}",
        str(together),
        "-fno-lto",
        *(str(archive) for archive in engine),
        "-lpthread",
        "-ldl",
        "-o",
        str(program),
    ]
    result = subprocess.run(
        command, env=host.environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, " ".join(command) + "\n" + result.stderr
    return program


def test_shapes(host: Host, tmp_path: Path) -> None:
    """Random nested types have the host's size, extent and packed form."""
    program = build(host, tmp_path)
    result = subprocess.run(
        [*host.mpiexec(1), str(program), str(RANDOM_TYPES)],
        env={**os.environ, **host.env},
        capture_output=True,
        text=True,
        timeout=120 * jobs.TIME_SCALE,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    print(result.stdout[-300:])

"""The reduction kernels against every host's own MPI_Reduce_local, bit by bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hosts import Host
from support import jobs
from support.programs import ROOT

HERE = Path(__file__).parent

SMALL = {
    "SIGNED_CHAR", "UNSIGNED_CHAR", "SHORT", "UNSIGNED_SHORT",
    "INT8_T", "INT16_T", "UINT8_T", "UINT16_T", "INTEGER1", "INTEGER2",
}  # fmt: skip
UNSIGNED = {
    "UNSIGNED_CHAR", "UNSIGNED_SHORT", "UNSIGNED", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG",
    "UINT8_T", "UINT16_T", "UINT32_T", "UINT64_T",
}  # fmt: skip

SATURATES = {
    "openmpi4": SMALL,
    "openmpi5": SMALL,
}
"""By host: types whose sums saturate instead of wrapping (Open MPI's AVX kernels)."""

SIGNEDNESS = {
    "openmpi4": {"UNSIGNED_LONG", "OFFSET"},
    "openmpi5": {"OFFSET"},
    "mpich4": UNSIGNED,
}
"""By host: types that its MPI_MAX and MPI_MIN compare with the wrong sign."""


def known(host: str, datatype: str, reason: str) -> bool:
    """Tell whether the host is known to differ in this way."""
    if reason == "special":
        return True  # NaNs, infinities, zeros of both signs: the standard leaves them open
    return datatype in {"saturates": SATURATES, "signedness": SIGNEDNESS}.get(reason, {}).get(
        host, set()
    )


def build(host: Host, folder: Path) -> Path:
    """Compile the program with the kernels that the library is made of."""
    archive = jobs.overdrive_library().parent.parent / "archive" / "liboverdrive_core.a"
    assert archive.exists(), f"{archive} is missing: run `make` first"
    program = folder / "reduce_local"
    command = [
        *host.mpicxx,
        *(f"-D{name}" for name in host.defines),
        "-std=c++20",
        "-O1",
        f"-I{ROOT / 'src'}",
        str(HERE / "reduce_local.cc"),
        str(archive),
        "-o",
        str(program),
    ]
    result = subprocess.run(
        command, env=host.environment(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, " ".join(command) + "\n" + result.stderr
    return program


@pytest.mark.quick
@pytest.mark.abis
def test_kernels_agree_with_host(host: Host, tmp_path: Path, seed: int) -> None:
    """Every operation on every type gives the host's bits, but for what hosts get wrong."""
    result = jobs.run(host, 1, [str(build(host, tmp_path)), str(seed)], overdrive=False)
    assert result.returncode == 0 and "PASS " in result.stdout, result.report()
    notes = [line.split() for line in result.stdout.splitlines() if line.startswith("NOTE ")]
    surprises = [
        note for note in notes if not known(host.name, note[1].removeprefix("MPI_"), note[3])
    ]
    assert not surprises, f"{surprises}\n{result.report()}"

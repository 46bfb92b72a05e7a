"""Containers: Overdrive of one system in another; what fits works, what does not says so."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import hosts
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

JOBS = (("openmpi4", "mpirun.openmpi --oversubscribe"), ("mpich4", "mpirun.mpich"))

PRELOAD = "env LD_PRELOAD=/opt/overdrive/lib/liboverdrive.so"


@pytest.fixture
def unpacked_wheel(wheel: Path, scratch: Path) -> Path:
    """Return the prefix that the wheel holds, unpacked for containers."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch)
        for entry in archive.infolist():
            (scratch / entry.filename).chmod(entry.external_attr >> 16)
    return scratch / "overdrive_mpi"


@pytest.mark.parametrize("release", ["bullseye", "bookworm", "trixie"])
def test_the_wheels_prefix_works_in_every_image(
    release: str, image, unpacked_wheel: Path, small_jobs: Path
) -> None:
    system = image(release)
    system.mount(unpacked_wheel, "/opt/overdrive")
    system.mount(small_jobs, "/mnt/jobs")
    for job, launcher in JOBS:
        system.need(
            "python3 -B /mnt/proof/proof.py --overdrive /opt/overdrive/bin/overdrive "
            f"{launcher} -n 2 /mnt/jobs/{job}"
        )


@pytest.mark.parametrize("name", ["openmpi4", "mpich4"])
def test_the_launcher_outside_and_a_container_for_each_rank(
    name: str, image, unpacked_wheel: Path, small_jobs: Path
) -> None:
    """`mpirun -n 2 apptainer exec IMAGE overdrive run ./app`: the ranks share memory."""
    host = hosts.get(name)
    if host is None:
        pytest.skip(f"{name} is not set up")
    system = image("bookworm")
    with open("/etc/os-release") as here:
        if "VERSION_CODENAME=bookworm" not in here.read():
            pytest.skip("the MPI library of the image must fit the launcher outside")
    system.mount(unpacked_wheel, "/mnt/overdrive")
    system.mount(small_jobs, "/mnt/jobs")
    inside = [*system.entry(), "/mnt/overdrive/bin/overdrive", "run", f"/mnt/jobs/{name}"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "packaging" / "proof" / "proof.py"), "--inside"]
        + [*host.mpiexec(2), *inside],
        env={**os.environ, **host.env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def glibc_here() -> tuple[int, ...]:
    said = subprocess.check_output(["getconf", "GNU_LIBC_VERSION"], text=True)
    return tuple(map(int, said.split()[1].split(".")))


@pytest.mark.parametrize("release", ["bullseye", "bookworm", "trixie"])
def test_a_build_of_a_newer_system_says_that_it_does_not_fit(
    release: str, image, own_build: Path, small_jobs: Path
) -> None:
    """Never a job that fails: it runs over the installed library, and doctor says why."""
    system = image(release)
    system.mount(own_build, "/opt/overdrive")
    system.mount(small_jobs, "/mnt/jobs")
    there = system.need("ldd --version | head -1").split()[-1]
    fits = tuple(map(int, there.split("."))) >= glibc_here()
    command = "/opt/overdrive/bin/overdrive"
    doctor = system.run(f"{command} doctor")
    for job, launcher in JOBS:
        line = f"{launcher} -n 2 /mnt/jobs/{job}"
        if fits:
            system.need(f"python3 -B /mnt/proof/proof.py --overdrive {command} {line}")
        else:
            allow = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            done = system.run(f"{command} {line}", allow)
            assert done.returncode == 0 and "PASS" in done.stdout, done.stderr
            said = [text for text in done.stderr.splitlines() if text.startswith("overdrive:")]
            assert len(said) == 1 and f"and this system has {there}" in said[0], done.stderr
            assert "install the wheel" in said[0], said
            # Started by hand nothing runs, and the linker says which version is missing.
            by_hand = system.run(f"{PRELOAD} {line}", allow)
            assert by_hand.returncode != 0 and "GLIBC_" in by_hand.stderr, by_hand.stderr
    assert doctor.returncode == (0 if fits else 1), doctor.stdout
    if not fits:
        said = " ".join(doctor.stdout.split())
        assert "needs glibc" in said and "install the wheel" in said, doctor.stdout

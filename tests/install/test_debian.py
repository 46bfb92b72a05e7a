"""The Debian packages: in a clean system, by their own tests, and purged without a trace."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from support.images import Image

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def glibc_here() -> tuple[int, ...]:
    """Return the version of this machine's C library, for which the packages are built."""
    said = subprocess.check_output(["getconf", "GNU_LIBC_VERSION"], text=True)
    return tuple(map(int, said.split()[1].split(".")))


def glibc_of(system: Image) -> tuple[int, ...]:
    """Return the version of an image's C library."""
    return tuple(map(int, system.need("ldd --version | head -1").split()[-1].split(".")))


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_a_job_over_both_mpis_and_purged_without_a_trace(
    release: str, image, debian_packages: dict[str, Path], small_jobs: Path
) -> None:
    """Of the release on which they were built, and of the next one."""
    system = image(release)
    if glibc_of(system) < glibc_here():
        pytest.skip("the packages are built for a newer release")
    system.mount(next(iter(debian_packages.values())).parent, "/mnt/debian")
    system.mount(small_jobs, "/mnt/jobs")
    before = system.files()
    system.need("dpkg -i /mnt/debian/overdrive-mpi_*.deb /mnt/debian/overdrive-mpi-doc_*.deb "
                "/mnt/debian/overdrive-mpi-dev_*.deb")  # fmt: skip
    for job, launcher in (("openmpi4", "mpirun.openmpi --oversubscribe"),
                          ("mpich4", "mpirun.mpich")):  # fmt: skip
        system.need(f"python3 -B /mnt/proof/proof.py {launcher} -n 2 /mnt/jobs/{job}")
    # Without the command, and without a path.
    by_name = "env LD_PRELOAD=liboverdrive.so OVERDRIVE_STATS=1 mpirun.mpich -n 2 /mnt/jobs/mpich4"
    assert "PASS" in system.need(by_name)
    system.need("overdrive doctor")
    system.need("test -s /usr/share/bash-completion/completions/overdrive")
    system.need("dpkg --purge overdrive-mpi overdrive-mpi-dev overdrive-mpi-doc")
    left = {name for name in system.files() - before if name != "/etc/ld.so.cache"}
    assert not left
    assert not [name for name in system.files() if "overdrive" in name]


@pytest.mark.parametrize("test", ["job-openmpi", "job-mpich", "build-system"])
def test_the_tests_of_the_packages(
    test: str, debian_packages: dict[str, Path], scratch: Path
) -> None:
    """debian/tests on the unpacked packages of this machine, which has the compilers."""
    for package in debian_packages.values():
        subprocess.run(["dpkg-deb", "-x", str(package), str(scratch / "root")], check=True)
    tree = scratch / "tree"
    folder = next(iter(debian_packages.values())).parent
    archive = next(folder.glob("*.debian.tar.xz"))
    with tarfile.open(archive) as tar:
        tar.extractall(tree)
    shutil.copytree(ROOT / "packaging" / "proof", tree / "packaging" / "proof")
    libraries = next((scratch / "root/usr/lib").glob("*-linux-gnu"))
    variables = {
        "PATH": f"{scratch}/root/usr/bin:/usr/bin:/bin",
        "AUTOPKGTEST_TMP": str(scratch / "work"),
        "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
        "CMAKE_PREFIX_PATH": str(scratch / "root/usr"),
        "HOME": str(scratch),
    }
    (scratch / "work").mkdir()
    done = subprocess.run(
        [str(tree / "debian" / "tests" / test)],
        cwd=tree,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


APT = "DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends"


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_autopkgtest_in_a_clean_system(
    release: str, image, debian_packages: dict[str, Path]
) -> None:
    """Debian's own tool installs the packages and what each test needs, and runs every test."""
    system = image(release)
    if glibc_of(system) < glibc_here():
        pytest.skip("the packages are built for a newer release")
    folder = next(iter(debian_packages.values())).parent
    system.mount(folder, "/mnt/debian")
    reached = system.run("apt-get -q update")
    if reached.returncode != 0:
        pytest.skip(f"no package archive: {reached.stderr[-500:]}")
    system.need(f"{APT} install autopkgtest")
    given = " ".join(f"/mnt/debian/{path.name}" for path in sorted(folder.glob("*.deb")))
    tool = "autopkgtest --no-built-binaries --summary-file=/root/summary"
    done = system.run(f"{tool} {given} /mnt/debian/*.dsc -- null", limit=1800)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    found = dict(line.split()[:2] for line in system.need("cat /root/summary").splitlines())
    stated = (ROOT / "packaging" / "debian" / "tests" / "control").read_text()
    names = [name for line in re.findall("^Tests:(.*)$", stated, re.MULTILINE)
             for name in re.split("[ ,]+", line.strip())]  # fmt: skip
    assert len(names) >= 3
    assert found == dict.fromkeys(names, "PASS"), done.stdout[-5000:]
    for library in ("openmpi", "mpich"):
        assert re.search(rf"proof: mpirun.{library}.* messages, .* collectives", done.stdout)


def test_a_clean_system_builds_the_sources(image, debian_packages: dict[str, Path]) -> None:
    """With the build dependencies alone every part is found: nothing that was here by chance."""
    system = image("bookworm")
    system.mount(next(iter(debian_packages.values())).parent, "/mnt/debian")
    reached = system.run("apt-get -q update")
    if reached.returncode != 0:
        pytest.skip(f"no package archive: {reached.stderr[-500:]}")
    system.need(f"{APT} install dpkg-dev && {APT} build-dep /mnt/debian/*.dsc")
    system.need("cd /root && dpkg-source -x /mnt/debian/*.dsc tree && cd tree && "
                "dpkg-checkbuilddeps && "
                "DEB_BUILD_OPTIONS=nocheck debian/rules override_dh_auto_configure")  # fmt: skip
    known = system.need("cat /root/tree/build/release/CMakeCache.txt")
    assert not [line for line in known.splitlines()
                if line.startswith("OVERDRIVE_") and line.endswith("-NOTFOUND")
                and "XPMEM" not in line]  # fmt: skip
    # A part of the whole, which still compiles a good deal.
    build = "/root/tree/build/release"
    system.need(f"cmake --build {build} --target overdrive-pinning overdrive-switch")
    # hwloc is built in, but loaded only where it is installed.
    system.need(f"grep -q libhwloc.so.15 $(find {build} -name overdrive-pinning)")
    assert "libhwloc" not in system.need(f"ldd $(find {build} -name overdrive-pinning)")

"""Spack carries out its recipe in a clean system: up to the compiler, and to the end.

Debian's compiler and libraries stand in for what Spack would build: it finds and unpacks the
sources, builds the wrapper of the compiler, and the recipe's settings reach CMake. What it
installs is loaded by Spack itself, carries a job over each MPI library, and is uninstalled without
a trace.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.images import Image
from support.recipes import demand_settings

ROOT = Path(__file__).resolve().parents[2]
PROOF = ROOT / "packaging" / "proof"
REPOSITORIES = ROOT / "packaging" / "spack"

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 3600
"""Its solver takes 90 s of a processor, on a machine that has other work."""
WHOLE_SECONDS = 3 * 3600
"""A whole compilation, optimised across files, on such a machine."""

HAS_NOT_TO_BUILD = {
    "cmake": "cmake",
    "ninja": "ninja-build",
    "python": "python3",
    "highway": "libhwy-dev",
    "tomlplusplus": "libtomlplusplus-dev",
    "nlohmann-json": "nlohmann-json3-dev",
    "cli11": "libcli11-dev",
    "hwloc": "libhwloc-dev",
    "openmpi": "libopenmpi-dev",
    "mpich": "libmpich-dev",
    "gcc": "gcc",
}
"""What the recipe depends on, and the packages of the distribution that have it."""

COMPILERS = {"compilers": {"c": "/usr/bin/gcc", "cxx": "/usr/bin/g++"}}


def named(name: str) -> Path:
    """Return the folder or program that a variable of the environment names."""
    given = os.environ.get(name)
    if not given:
        pytest.skip(f"no Spack: it is in no package registry, {name} names a part of it")
    return Path(given).absolute()


def folder_of_solver(system: Image) -> Path:
    """Return where the package clingo lies, if the system's Python can import it, too."""
    ask = "import clingo, sys; print(sys.version_info[1], clingo.__file__)"
    python = [str(named("SPACK_PYTHON")), "-c", ask]
    minor, place = subprocess.check_output(python, text=True).split()
    there = system.need("python3 -c 'import sys; print(sys.version_info[1])'").strip()
    if minor != there:
        pytest.skip(f"clingo is there for Python 3.{minor}, the system has 3.{there}")
    return Path(place).parents[1]


def outside(system: Image) -> dict[str, object]:
    """Return Spack's settings for packages that it has not to build."""
    found: dict[str, object] = {}
    for name, package in HAS_NOT_TO_BUILD.items():
        said = system.need(f"dpkg-query -W -f '${{Version}}' {package}")
        version = re.sub(r"^\d+:", "", said)
        version = re.match(r"\d+(\.\d+)*", version)[0]
        entry: dict[str, object] = {"spec": f"{name}@{version}", "prefix": "/usr"}
        if name == "gcc":
            entry |= {"spec": f"gcc@{version} languages:='c,c++'", "extra_attributes": COMPILERS}
        found[name] = {"externals": [entry], "buildable": False}
    return found


@pytest.fixture(scope="session")
def parts() -> dict[str, Path]:
    """Return the parts of Spack by where they are shown.

    Where there are none it skips before packages are built, which are made once a session, too.
    """
    named("SPACK_PYTHON")
    return {
        "/mnt/spack": named("OVERDRIVE_TEST_SPACK_COMMAND").parents[1],
        "/mnt/collection": named("OVERDRIVE_TEST_SPACK") / "repos",
        "/mnt/mirror": named("OVERDRIVE_TEST_SPACK_MIRROR"),
        "/mnt/recipe": REPOSITORIES,
    }


@pytest.fixture
def spack(parts: dict[str, Path], builder: Image, tmp_path: Path):
    """Return a function that runs Spack in the system, and returns what it prints.

    Of its own it builds the wrapper of the compiler, whose archive it takes from the mirror that
    OVERDRIVE_TEST_SPACK_MIRROR names (`spack mirror create` writes one).
    """
    system = builder
    shown = {**parts, "/mnt/solver": folder_of_solver(system), "/mnt/settings": tmp_path}
    settings = {
        "repos": {
            "builtin": "/mnt/collection/spack_repo/builtin",
            "overdrive": "/mnt/recipe/spack_repo/overdrive",
        },
        "mirrors": {"here": "file:///mnt/mirror"},
        "bootstrap": {"enable": False},
        # Nothing is written beside Spack itself, which is shown read-only.
        "config": {
            "install_tree": {"root": "/opt/spack"},
            "build_stage": ["/root/stage"],
            "source_cache": "/root/sources",
        },
        "packages": outside(system),
    }
    for name, content in settings.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps({name: content}))
    for place, folder in shown.items():
        system.mount(folder, place)
    env = {"PYTHONPATH": "/mnt/solver", "SPACK_DISABLE_LOCAL_CONFIG": "1",
           "SPACK_USER_CACHE_PATH": "/root/spack"}  # fmt: skip

    def run(words: str, limit: int = LIMIT_SECONDS) -> str:
        # Where the archive of the sources lies.
        command = f"cd /mnt/debian && /mnt/spack/bin/spack -C /mnt/settings {words}"
        return system.need(command, env, limit)

    run.system = system
    return run


def test_spack_configures(spack) -> None:
    spack("install --no-checksum --until cmake overdrive")
    demand_settings(spack.system, "/root/stage")


CACHES = ("/root/sources/", "/root/spack/")
"""What Spack itself keeps: archives that it has fetched, and what it knows of recipes."""


def traces(system: Image) -> set[str]:
    """Return the files that bear the name, but for those in Spack's caches and open builds."""
    kept = (*CACHES, "/root/stage/")
    return {name for name in system.files() if "overdrive" in name and not name.startswith(kept)}


@pytest.mark.parametrize("target", ["", "x86_64_v2"])
def test_spack_installs_what_carries_a_job_and_uninstalls_it(target: str, spack) -> None:
    """The recipe's own look at what it has installed included: the command must run.

    Spack compiles for the processor that it runs on, or for an older one that it is told.
    """
    system: Image = spack.system
    system.mount(PROOF, "/mnt/proof")
    assert not traces(system)
    wanted = f" target={target}" if target else ""
    spack(f"install --no-checksum overdrive{wanted}", WHOLE_SECONDS)
    prefix = spack("location -i overdrive").strip()
    assert prefix.startswith(f"/opt/spack/linux-{target}")
    libraries = f"{prefix}/lib/liboverdrive.so {prefix}/lib/overdrive/liboverdrive-*.so"
    marks = [line for line in system.need(f"readelf -nW {libraries}").splitlines()
             if "x86 ISA needed" in line]  # fmt: skip
    if target:
        # What each process of a job loads must run on every node, and says on which it does.
        wide = f"objdump -d {prefix}/lib/liboverdrive.so | grep -c '%[yz]mm' || true"
        assert int(system.need(wide)) == 0
        assert len(marks) == 3
        assert all("x86-64-v2" in line and "x86-64-v3" not in line for line in marks), marks
    for abi in ("openmpi", "mpich"):
        system.need(f"test -s {prefix}/lib*/overdrive/liboverdrive-{abi}.so")
    loaded = spack("load --sh overdrive")
    assert f"OVERDRIVE_ROOT={prefix};" in loaded, loaded
    lines = ["set -e", loaded, f'test "$(command -v overdrive)" = {prefix}/bin/overdrive']
    for name, launcher in (("openmpi", "mpirun.openmpi --oversubscribe"),
                           ("mpich", "mpirun.mpich")):  # fmt: skip
        system.need(f"mpicc.{name} /mnt/proof/job.c -o /root/{name}")
        lines.append(f"python3 -B /mnt/proof/proof.py {launcher} -n 2 /root/{name}")
    said = system.need("\n".join([*lines, "overdrive doctor"]))
    assert len(re.findall(r"proof: .* messages, .* collectives", said)) == 2, said
    spack("uninstall -y overdrive")
    assert not traces(system)
    spack("clean --all")
    assert not [name for name in system.files() if "overdrive" in name]

"""Spack carries out its recipe in a clean system, up to the compiler.

Debian's compiler and libraries stand in for what Spack would build: it finds and unpacks the
sources, builds the wrapper of the compiler, and the recipe's settings reach CMake.
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
REPOSITORIES = ROOT / "packaging" / "spack"

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 3600
"""Its solver takes 90 s of a processor, on a machine that has other work."""

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

    def run(words: str) -> str:
        # Where the archive of the sources lies.
        command = f"cd /mnt/debian && /mnt/spack/bin/spack -C /mnt/settings {words}"
        return system.need(command, env, LIMIT_SECONDS)

    run.system = system
    return run


def test_spack_configures(spack) -> None:
    spack("install --no-checksum --until cmake overdrive")
    demand_settings(spack.system, "/root/stage")

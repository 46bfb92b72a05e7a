"""The modulefile, with the distribution's Environment Modules and Lmod in clean systems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

INIT = {"modules": "/usr/share/modules/init/bash", "lmod": "/etc/profile.d/lmod.sh"}

VARIABLES = ("OVERDRIVE_ROOT", "PATH", "MANPATH", "CPATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH")


@pytest.fixture(params=["modules", "lmod"])
def shell(request: pytest.FixtureRequest, image, modulefiles: Path):
    """Return a function that runs lines where `module` is defined, and returns what they print."""
    system = image(request.param)
    folder = modulefiles / "overdrive"
    shutil.copy(next(folder.iterdir()), folder / "99.0")
    system.mount(modulefiles, "/mnt/modulefiles")

    def run(*lines: str) -> list[str]:
        text = "\n".join([f". {INIT[request.param]}", "module use /mnt/modulefiles", *lines])
        (system.top / "upper" / "lines.sh").write_text(text + "\n")
        return system.need("bash /lines.sh 2>&1").splitlines()

    run.system = system
    run.version = next(path.name for path in folder.iterdir() if path.name != "99.0")
    return run


def shown() -> str:
    return "; ".join(f'echo "{name}=${{{name}-unset}}"' for name in VARIABLES)


def values(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition("=") for line in lines)
    return {name: value for name, equals, value in pairs if equals}


def test_load_shows_everything_and_unload_leaves_nothing(shell) -> None:
    before = values(shell(shown()))
    loaded = values(shell(f"module load overdrive/{shell.version}", shown()))
    prefix = "/opt/overdrive"
    assert loaded["OVERDRIVE_ROOT"] == prefix
    assert loaded["PATH"].split(":")[0] == f"{prefix}/bin"
    assert loaded["CPATH"] == f"{prefix}/include"
    assert loaded["PKG_CONFIG_PATH"].startswith(f"{prefix}/lib")
    assert loaded["CMAKE_PREFIX_PATH"] == prefix
    after = values(
        shell(f"module load overdrive/{shell.version}", "module unload overdrive", shown())
    )
    assert {n: plain(v) for n, v in after.items()} == {n: plain(v) for n, v in before.items()}


def test_jobs_over_both_mpis_with_what_it_shows(
    shell, release_build: Path, small_jobs: Path, scratch: Path
) -> None:
    """An installation in the folder that the modulefile names; unloaded, and without a trace."""
    command = ["cmake", "--install", str(release_build), "--prefix", "/opt/overdrive"]
    whole = scratch / "whole"
    subprocess.run(
        command, env={**os.environ, "DESTDIR": str(whole)}, check=True, capture_output=True
    )
    system = shell.system
    here = subprocess.check_output(["getconf", "GNU_LIBC_VERSION"], text=True).split()[1]
    there = system.need("ldd --version | head -1").split()[-1]
    if tuple(map(int, there.split("."))) < tuple(map(int, here.split("."))):
        pytest.skip("this build needs a newer release")
    before = system.files()
    system.mount(whole / "opt" / "overdrive", "/opt/overdrive")
    system.mount(small_jobs, "/mnt/jobs")
    lines = [f"module load overdrive/{shell.version}"]
    for job, launcher in (("openmpi4", "mpirun.openmpi --oversubscribe"),
                          ("mpich4", "mpirun.mpich")):  # fmt: skip
        lines.append(f"python3 -B /mnt/proof/proof.py {launcher} -n 2 /mnt/jobs/{job}")
    lines += ["module unload overdrive", "command -v overdrive || echo gone"]
    said = "\n".join(shell(*lines))
    for launcher in ("openmpi", "mpich"):
        assert re.search(rf"proof: mpirun.{launcher}.* messages, .* collectives", said), said
    assert said.endswith("gone"), said
    # What was mounted is not looked at; the lines themselves lie in the image.
    assert system.files() - before <= {"/lines.sh"}


def plain(value: str) -> str:
    """Return a value without what Lmod does to it by itself.

    It keeps variables of paths that it has emptied, and doubles a colon at the end of MANPATH.
    """
    return re.sub("::$", ":", value.replace("unset", ""))


@pytest.mark.parametrize("given", ["unset MANPATH", "export MANPATH=/opt/other/man:"])
def test_pages_are_found_with_those_of_the_system(shell, given: str) -> None:
    """A MANPATH with ours alone would hide all other pages."""
    page = shell.system.top / "upper/opt/overdrive/share/man/man1/overdrive.1"
    page.parent.mkdir(parents=True)
    page.write_text(".TH OVERDRIVE 1\n.SH NAME\noverdrive\n")
    (shell.system.top / "upper/opt/overdrive/bin").mkdir()
    ask = 'echo "ours=$(man -w overdrive)"; echo "all=$(manpath -q)"; echo "set=${MANPATH-unset}"'
    found = values(shell(given, "module load overdrive/99.0", ask))
    assert found["ours"] == "/opt/overdrive/share/man/man1/overdrive.1"
    assert "/usr/share/man" in found["all"].split(":")
    after = values(shell(given, "module load overdrive/99.0", "module unload overdrive", ask))
    assert "overdrive" not in after["set"] and "/usr/share/man" in after["all"].split(":")


def test_two_versions_exclude_each_other(shell) -> None:
    """Environment Modules refuse the second one, Lmod puts it in the place of the first."""
    lines = shell(
        f"module load overdrive/{shell.version}",
        "module load overdrive/99.0 && echo second=loaded || echo second=refused",
        'echo "loaded=$LOADEDMODULES"',
        'echo "path=$(echo $PATH | tr : "\\n" | grep -c ^/opt/overdrive/bin$)"',
    )
    found = values(lines)
    assert found["path"] == "1"
    names = [name for name in found["loaded"].split(":") if name.startswith("overdrive/")]
    assert len(names) == 1, lines


def test_the_description_is_shown(shell) -> None:
    assert any("accelerates unmodified MPI" in line for line in shell("module whatis overdrive"))

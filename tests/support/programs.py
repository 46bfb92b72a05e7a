"""Compiles the test programs once per host MPI, again only when a source is newer."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from hosts import Host

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
BUILD = Path(os.environ.get("OVERDRIVE_TESTS_BUILD", ROOT / "build" / "tests"))

INCLUDE = ROOT / "include"
# More would take compilers twice as long.
FLAGS = ["-O1", "-g1", "-Wall", "-Wextra", "-I", str(SUPPORT), "-I", str(INCLUDE)]


class CannotBuild(Exception):
    """The program cannot exist on this host (no such compiler), with the reason."""


def _compiler(host: Host, source: Path) -> list[str]:
    """Return the compiler command of the host for the source's language."""
    if source.suffix == ".c":
        return [*host.mpicc, "-std=gnu11", *FLAGS]
    if source.suffix == ".cc":
        return [*host.mpicxx, "-std=c++17", *FLAGS]
    if host.mpifort is None:
        raise CannotBuild(f"{host.name} has no Fortran compiler here")
    # MPICH's mpif.h passes buffers of several types to one interface.
    return [*host.mpifort, "-O1", "-g1", "-fallow-argument-mismatch"]


def _inputs(source: Path) -> list[Path]:
    """Return everything a program is made of."""
    folders = (SUPPORT, source.parent, INCLUDE / "overdrive")
    headers = [path for folder in folders for path in folder.glob("*.h*")]
    return [source, *headers, *source.parent.glob("*.inc")]


def _run_compiler(command: list[str], env: dict[str, str]) -> None:
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")


def _build(source: Path, target: Path, command: list[str], env: dict[str, str]) -> Path:
    """Run the compiler if the target is missing or older than an input; safe among processes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        newest = max(path.stat().st_mtime for path in _inputs(source))
        if not target.exists() or target.stat().st_mtime < newest:
            partial = target.with_suffix(".partial")
            _run_compiler([*command, "-o", str(partial)], env)
            partial.rename(target)
    return target


def program(host: Host, source: Path, extra: tuple[str, ...] = ()) -> Path:
    """Return the compiled MPI program of the source for the host."""
    # Flags that change the program are part of its name; where headers and libraries lie is not.
    options = (option for option in extra if option.startswith(("-f", "-D", "-static")))
    name = source.name.replace(".", "-") + "".join(options).replace("=", "-")
    target = BUILD / host.name / source.parent.name / name
    modules = ["-J", str(target.parent)] if source.suffix.lower().startswith(".f") else []
    if modules:
        target.parent.mkdir(parents=True, exist_ok=True)
    defines = [f"-D{name}" for name in host.defines] if source.suffix != ".f90" else []
    command = [*_compiler(host, source), *modules, *defines, str(source), *extra, "-lpthread"]
    if not modules:
        command.append("-lm")
    return _build(source, target, command, host.environment())


def plain_program(source: Path, extra: tuple[str, ...] = ()) -> Path:
    """Return the compiled program of a C source that is not an MPI program."""
    target = BUILD / "plain" / source.name.replace(".", "-")
    command = ["cc", "-std=gnu11", *FLAGS, str(source), *extra]
    return _build(source, target, command, dict(os.environ))


def plain_library(source: Path, extra: tuple[str, ...] = ()) -> Path:
    """Return the shared library made of a C source that does not need mpi.h."""
    target = BUILD / "plain" / (source.name.replace(".", "-") + ".so")
    command = ["cc", "-std=gnu11", "-shared", "-fPIC", *FLAGS, str(source), *extra, "-ldl"]
    return _build(source, target, command, dict(os.environ))


def shared_object(host: Host, source: Path) -> Path:
    """Return the shared library made of a C source that includes the host's mpi.h."""
    target = BUILD / host.name / source.parent.name / (source.name.replace(".", "-") + ".so")
    command = [*_compiler(host, source), "-shared", "-fPIC", str(source), "-ldl"]
    return _build(source, target, command, host.environment())

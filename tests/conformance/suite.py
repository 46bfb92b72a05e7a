"""Gets MPICH's own test suite from Debian's source package and builds it for one host MPI.

The source package is fetched with apt through a private list of sources, so that the system's own
configuration is not touched. The suite configures stand-alone against any MPI; each host has a
build folder of its own, and only programs that the test lists name are built.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.testlist import Test

if TYPE_CHECKING:
    from hosts import Host

FALLBACK_MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE_VARIABLE = "CONFORMANCE_MPICH_SOURCE"

COMPATIBILITY_HEADER = """\
/* Lets Open MPI's mpi.h declare the functions that MPI 3.0 removed: its libraries have them. */
#define OMPI_OMIT_MPI1_COMPAT_DECLS 0
#define OMPI_REMOVED_USE_STATIC_ASSERT 0
#define __mpi_interface_removed__(func, newfunc)
"""

SUPPORT = ["util", "dtpools"]
"""Folders with libraries that the tests link."""


class SuiteError(Exception):
    """Why the suite is not available or cannot be built."""


def unpack(archive: tarfile.TarFile, folder: Path, members: list[tarfile.TarInfo]) -> None:
    """Unpack members of an archive, with Python's own safety filter where it has one."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, members, filter="data")
    else:
        archive.extractall(folder, members)


def _run(command: list[str], log: Path, directory: Path, environment: dict[str, str]) -> int:
    with log.open("ab") as sink:
        return subprocess.run(
            command, cwd=directory, env=environment, stdout=sink, stderr=sink, check=False
        ).returncode


def _codename() -> str:
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"^VERSION_CODENAME=(\S+)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _mirrors() -> list[str]:
    """Return the archives of Debian's main section that this system uses, then the public one."""
    query = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
            "Label: Debian",
            "Component: main",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line.rstrip("/") for line in query.stdout.splitlines() if line]
    return list(dict.fromkeys([*found, FALLBACK_MIRROR]))


def _fetch_archive(work: Path) -> Path:
    """Download the source package; return the archive of the original source."""
    archives = sorted(work.glob("mpich_*.orig.tar.*"))
    if archives:
        return archives[-1]
    if shutil.which("apt-get") is None or not _codename():
        raise SuiteError(f"no apt here; set {SOURCE_VARIABLE} to an unpacked MPICH source")
    log = work / "fetch.log"
    apt = work / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    options = [
        "-o",
        f"Dir::Etc::sourcelist={apt}/sources.list",
        "-o",
        "Dir::Etc::sourceparts=-",
        "-o",
        f"Dir::State::lists={apt}/lists",
        "-o",
        f"Dir::Cache={apt}/cache",
        "-o",
        f"APT::Sandbox::User={os.environ.get('USER', 'root')}",
    ]
    signed = f"[signed-by={KEYRING}] " if Path(KEYRING).exists() else ""
    for mirror in _mirrors():
        line = f"deb-src {signed}{mirror} {_codename()} main\n"
        (apt / "sources.list").write_text(line, encoding="utf-8")
        for command in (["update"], ["source", "--download-only", "mpich"]):
            if _run(["apt-get", *options, *command], log, work, dict(os.environ)) != 0:
                break
        archives = sorted(work.glob("mpich_*.orig.tar.*"))
        if archives:
            return archives[-1]
    raise SuiteError(f"the source package of mpich cannot be downloaded, see {log}")


def source(work: Path) -> Path:
    """Return the folder of the suite's source, downloaded and unpacked on the first call."""
    given = os.environ.get(SOURCE_VARIABLE)
    if given:
        folder = Path(given) / "test" / "mpi"
        if not (folder / "configure").is_file():
            raise SuiteError(f"{folder} has no configure script")
        return folder.resolve()
    work.mkdir(parents=True, exist_ok=True)
    done = work / "unpacked"
    if not done.is_file():
        archive = _fetch_archive(work)
        with tarfile.open(archive) as tar:
            unpack(tar, work, [item for item in tar.getmembers() if "/test/mpi/" in item.name])
        found = sorted(work.glob("mpich-*/test/mpi/configure"))
        if not found:
            raise SuiteError(f"{archive} has no test/mpi/configure")
        text = found[-1].read_text(encoding="utf-8")
        # Outside MPICH's own build the script skips mpi_f08 even where the host has it.
        text = text.replace(
            'test "$enable_f08" = "yes" -a "$FROM_MPICH" = "yes"', 'test "$enable_f08" = "yes"'
        )
        found[-1].write_text(text, encoding="utf-8")
        done.write_text(str(found[-1].parent), encoding="utf-8")
    return Path(done.read_text(encoding="utf-8"))


class Build:
    """The suite, configured and built for one host."""

    def __init__(self, host: Host, suite: Path, directory: Path, jobs: int, niceness: int) -> None:
        """Remember what to build; `host` is a Host of tools/hosts."""
        self.host = host
        self.source = suite
        self.directory = directory
        self.jobs = jobs
        self.prefix = ["nice", "-n", str(niceness)] if niceness else []
        self.environment = {**host.environment(), "LC_ALL": "C", "CCACHE_SLOPPINESS": "pch_defines"}
        self.environment.pop("MAKEFLAGS", None)
        self.environment.pop("MAKELEVEL", None)

    def _compiler(self, command: list[str], with_cache: bool = True) -> str:
        cache = ["ccache"] if with_cache and shutil.which("ccache") else []
        return " ".join([*cache, *command])

    def _options(self) -> list[str]:
        host = self.host
        header = self.directory / "removed.h"
        header.write_text(COMPATIBILITY_HEADER, encoding="utf-8")
        defines = " ".join(f"-D{name}" for name in host.defines)
        cflags = f"-O0 -w -include {header} {defines}".strip()
        fflags = "-O0 -w -fallow-argument-mismatch"
        mpicc = self._compiler(host.mpicc)
        options = [
            f"CC={mpicc}",
            f"MPICC={mpicc}",
            f"CFLAGS={cflags}",
            f"FFLAGS={fflags}",
            f"FCFLAGS={fflags}",
            f"MPIEXEC={host.launcher}",
            "--disable-cxx",
            "--disable-perftest",
            "--disable-dependency-tracking",
            "--enable-threads=multiple",
        ]
        if host.mpifort is None:
            options.append("--disable-fortran")
        else:
            fortran = self._compiler(host.mpifort, with_cache=False)
            options += [f"{name}={fortran}" for name in ("F77", "MPIF77", "FC", "MPIFC")]
            options.append("--enable-fortran=all")
        if host.family != "mpich":
            # Only what the standard defines: the extensions are MPICH's.
            options.append("--enable-strictmpi")
        return options

    def configure(self) -> None:
        """Configure the suite for the host, unless that was done for this version of it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        stamp = self.directory / "configured"
        state = f"{self.host.version} {self.host.lib_path} {self.source}"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == state:
            return
        shutil.rmtree(self.directory)
        self.directory.mkdir(parents=True)
        command = [*self.prefix, str(self.source / "configure"), "--config-cache", *self._options()]
        log = self.directory / "configure.log"
        if _run(command, log, self.directory, self.environment) != 0:
            raise SuiteError(f"configure failed for {self.host.name}, see {log}")
        stamp.write_text(state, encoding="utf-8")

    def _make(self, directory: str, targets: list[str], log: Path) -> None:
        command = [*self.prefix, "make", "-k", f"-j{self.jobs}", "-C", directory, *targets]
        _run(command, log, self.directory, self.environment)

    def build(self, tests: list[Test], prerequisites: list[tuple[str, str]]) -> dict[str, str]:
        """Build the programs of these tests; return "folder/program" -> reason for the missing."""
        for directory in SUPPORT:
            stamp = self.directory / f"built-{directory}"
            if not stamp.is_file():
                self._make(directory, [], self.directory / f"make-{directory}.log")
                stamp.touch()
        for directory, target in prerequisites:
            self._make(directory, [target], self.directory / "make-prerequisites.log")
        wanted: dict[str, list[str]] = {}
        for test in tests:
            programs = wanted.setdefault(test.directory, [])
            if test.program not in programs and not self.executable(test).is_file():
                programs.append(test.program)
        missing: dict[str, str] = {}
        for directory, programs in wanted.items():
            if not programs:
                continue
            log = self.directory / f"make-{directory.replace('/', '-')}.log"
            log.unlink(missing_ok=True)
            if (self.directory / directory / "Makefile").is_file():
                self._make(directory, programs, log)
            for program in programs:
                if not (self.directory / directory / program).is_file():
                    missing[f"{directory}/{program}"] = self._reason(log, program)
        return missing

    def executable(self, test: Test) -> Path:
        """Return the program of a test."""
        return self.directory / test.directory / test.program

    def _reason(self, log: Path, program: str) -> str:
        """Return what the log says about a program that could not be built."""
        if not log.is_file():
            return "not configured for this host"
        text = log.read_text(encoding="utf-8", errors="replace")
        name = re.escape(program)
        patterns = [
            rf"[/ ]{name}\.\w+:\d+:\d+: (?:fatal )?error: (.+)",
            rf"{name}\.o: .*(undefined reference to .+)",
            rf"{name}\.c:.*(undefined reference to .+)",
            rf"(No rule to make target '{name}')",
            rf"{name}\.\w+:\d+:\d+:(?:.*\n){{1,6}}(?:Fatal )?Error: (.+)",
        ]
        for pattern in patterns:
            found = re.search(pattern, text)
            if found:
                return found.group(1).strip()[:140]
        if re.search(rf"\[Makefile:\d+: (?:\S*-)?{name}(?:\.l?o)?\] Error", text):
            return "compiler or linker failed"
        return "a library or module it needs could not be built"

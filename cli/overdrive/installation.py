"""Finds the parts of Overdrive that belong to this command: a checkout's build or an installation.

In a checkout the parts lie in build/<preset>/; in an installation below the prefix, where the
library folder may be lib, lib64 or lib/<triplet>. OVERDRIVE_LIBRARY names another liboverdrive.so;
everything else is then looked for beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from overdrive.errors import CommandError

LIBRARY = "liboverdrive.so"
TOOL = "overdrive-settings"
MEASURE = "overdrive-measure"
PRESETS = ("release", "bench", "dev")
"""Builds of a checkout that are used without being named, best first."""

FACES = {
    "openmpi": "Open MPI 4.1 and 5.0",
    "mpich": "MPICH, Intel MPI, MVAPICH",
    "mpiabi": "the standard ABI of MPI 5.0",
}


@dataclass(frozen=True)
class Installation:
    """Where the parts are; a path is None when the part is missing."""

    home: Path
    loader: Path | None
    tool: Path | None
    version: str

    def face(self, name: str) -> Path | None:
        """Return the path of a face, or None when it is not there."""
        if self.loader is None:
            return None
        path = self.loader.parent / "overdrive" / f"liboverdrive-{name}.so"
        return path if path.exists() else None

    def missing_face_reason(self, name: str) -> str:
        """Return why a face is not there, from the note that the build leaves."""
        if self.loader is None:
            return "Overdrive is not built: run `make` in the checkout"
        try:
            text = (self.loader.parent / "overdrive" / "skipped-faces.txt").read_text()
        except OSError:
            return "not built, and the build has left no note why"
        for line in text.splitlines():
            skipped, _, reason = line.partition(":")
            if skipped.strip() == name:
                return f"not built: {reason.strip()}"
        return "missing although its mpi.h was found: the build is not complete, run `make` again"

    def need_library(self) -> Path:
        """Return the library's path, or raise an error that says how to get it."""
        if self.loader is None:
            raise CommandError(
                f"{LIBRARY} was not found near {self.home}: run `make` in the checkout, "
                f"or set OVERDRIVE_LIBRARY to its path"
            )
        return self.loader

    def need_measure(self) -> Path:
        """Return the path of the measuring program, or raise an error that says how to get it."""
        path = self.tool.parent / MEASURE if self.tool is not None else None
        if path is None or not path.exists():
            raise CommandError(
                f"{MEASURE} was not found near {self.home}: run `make` in the checkout, "
                f"or install Overdrive completely"
            )
        return path


def home_directory() -> Path:
    """Return the checkout or the installation prefix that this package belongs to."""
    package = Path(__file__).resolve().parent
    above = package.parent  # cli, or the folder of the installed package
    if above.name == "cli" and (above.parent / "src").is_dir():
        return above.parent
    # <prefix>/<share or lib...>/overdrive/cli/overdrive
    for parent in package.parents:
        if (parent / "bin" / "overdrive").exists():
            return parent
    return above.parent


def is_checkout(home: Path) -> bool:
    """Tell whether `home` is a source tree."""
    return (home / "CMakeLists.txt").exists() and (home / "cli" / "overdrive").is_dir()


def _library_directories(home: Path) -> list[Path]:
    if is_checkout(home):
        return [home / "build" / preset / "lib" for preset in PRESETS]
    return [home / "lib64", home / "lib", *sorted(home.glob("lib/*-linux-*"))]


def _first_existing(candidates: list[Path]) -> Path | None:
    return next((path for path in candidates if path.exists()), None)


def _version(home: Path, library: Path | None) -> str:
    candidates = [home / "VERSION"]
    if library is not None:
        candidates.append(library.parent / "overdrive" / "VERSION")
    for candidate in candidates:
        try:
            return candidate.read_text().split()[0]
        except (OSError, IndexError):
            continue
    return "unknown"


def find(environment: Mapping[str, str] | None = None, home: Path | None = None) -> Installation:
    """Find the installation; `environment` and `home` replace the real ones in tests."""
    environment = os.environ if environment is None else environment
    home = home_directory() if home is None else home
    named = environment.get("OVERDRIVE_LIBRARY", "")
    if named:
        path = Path(named).absolute()
        if not path.is_file():
            raise CommandError(f"OVERDRIVE_LIBRARY names {named}, which is not a file")
        library: Path | None = path
    else:
        library = _first_existing([folder / LIBRARY for folder in _library_directories(home)])
    tools: list[Path] = []
    if library is not None:
        tools = [
            library.parent / "overdrive" / TOOL,
            library.parent.parent / "bin" / TOOL,
            library.parent.parent / "libexec" / "overdrive" / TOOL,
        ]
    tools += [folder.parent / "bin" / TOOL for folder in _library_directories(home)]
    tools += [home / "libexec" / "overdrive" / TOOL, home / "bin" / TOOL]
    return Installation(home, library, _first_existing(tools), _version(home, library))

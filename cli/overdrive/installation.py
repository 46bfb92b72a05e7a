"""Finds the parts of Overdrive that belong to this command: a checkout's build or an installation.

In a checkout the parts lie in build/<preset>/; in an installation below the prefix, where the
library folder may be lib, lib64 or lib/<triplet>. OVERDRIVE_LIBRARY or --library names another
liboverdrive.so; everything else is then looked for beside it.

Every start of a job comes through here, so this module imports next to nothing.
"""

from __future__ import annotations

import os

from overdrive.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LIBRARY = "liboverdrive.so"
TOOL = "overdrive-settings"
MEASURE = "overdrive-measure"
SWITCH = "overdrive-switch"
PRESETS = ("release", "bench", "dev")
"""Builds of a checkout that are used without being named, best first."""

FACES = {
    "openmpi": "Open MPI 4.1 and 5.0",
    "mpich": "MPICH, Intel MPI, MVAPICH",
    "mpiabi": "the standard ABI of MPI 5.0",
}

_ELF_SHARED_OBJECT = 3
_MOST_BYTES = 64 << 20
"""Of a library that are looked through; it has less than one megabyte."""
_OWN_NAME = b"liboverdrive.so\0"
"""Stands in the library as its own name, whatever its file is called."""


def _path(text: str | None) -> Path | None:
    from pathlib import Path

    return None if text is None else Path(text)


class Installation:
    """Where the parts are; a path is None when the part is missing."""

    def __init__(
        self,
        home: str | os.PathLike[str],
        preload_path: str | os.PathLike[str] | None,
        tool_path: str | os.PathLike[str] | None,
        version: str | None = None,
    ) -> None:
        self.home_path = os.fspath(home)
        self.preload_path = None if preload_path is None else os.fspath(preload_path)
        self.tool_path = None if tool_path is None else os.fspath(tool_path)
        self._version = version

    @property
    def home(self) -> Path:
        """The checkout or the prefix."""
        found = _path(self.home_path)
        assert found is not None
        return found

    @property
    def loader(self) -> Path | None:
        """The library that is preloaded."""
        return _path(self.preload_path)

    @property
    def tool(self) -> Path | None:
        """The program that tells settings."""
        return _path(self.tool_path)

    @property
    def version(self) -> str:
        """Version of the tree or of what is installed."""
        if self._version is None:
            self._version = _version(self.home_path, self.preload_path)
        return self._version

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

    def need_library(self) -> str:
        """Return the library's path, or raise an error that says how to get it."""
        if self.preload_path is None:
            raise CommandError(
                f"{LIBRARY} was not found near {self.home_path}: run `make` in the checkout, "
                f"or name it with --library PATH"
            )
        return self.preload_path

    def need_measure(self) -> Path:
        """Return the path of the measuring program, or raise an error that says how to get it."""
        path = self.tool.parent / MEASURE if self.tool is not None else None
        if path is None or not path.exists():
            raise CommandError(
                f"{MEASURE} was not found near {self.home}: run `make` in the checkout, "
                f"or install Overdrive completely"
            )
        return path

    def need_switch(self) -> Path:
        """Return the path of the software switch, or raise an error that says how to get it."""
        folders = [self.tool.parent] if self.tool is not None else []
        folders += [self.home / "bin", *(self.home / "build" / name / "bin" for name in PRESETS)]
        for folder in folders:
            if (folder / SWITCH).exists():
                return folder / SWITCH
        raise CommandError(
            f"{SWITCH} was not found near {self.home}: install libcli11-dev and run `make` in the "
            f"checkout, or install Overdrive completely"
        )


def home_directory() -> str:
    """Return the checkout or the installation prefix that this package belongs to."""
    package = os.path.dirname(os.path.realpath(__file__))
    above = os.path.dirname(package)  # cli, or the folder of the installed package
    checkout = os.path.dirname(above)
    if os.path.basename(above) == "cli" and os.path.isdir(os.path.join(checkout, "src")):
        return checkout
    # <prefix>/<share or lib...>/overdrive/cli/overdrive
    folder = above
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, "bin", "overdrive")):
            return folder
        folder = os.path.dirname(folder)
    return above


def is_checkout(home: str | os.PathLike[str]) -> bool:
    """Tell whether `home` is a source tree."""
    return os.path.exists(os.path.join(home, "CMakeLists.txt")) and os.path.isdir(
        os.path.join(home, "cli", "overdrive")
    )


def _library_directories(home: str) -> list[str]:
    if is_checkout(home):
        return [os.path.join(home, "build", preset, "lib") for preset in PRESETS]
    folder = os.path.join(home, "lib")
    try:
        names = sorted(name for name in os.listdir(folder) if "-linux-" in name)
    except OSError:
        names = []
    return [os.path.join(home, "lib64"), folder, *(os.path.join(folder, name) for name in names)]


def _first_existing(candidates: list[str]) -> str | None:
    return next((path for path in candidates if os.path.exists(path)), None)


def _version(home: str, library: str | None) -> str:
    candidates = [os.path.join(home, "VERSION")]
    if library is not None:
        candidates.append(os.path.join(os.path.dirname(library), "overdrive", "VERSION"))
    for candidate in candidates:
        try:
            with open(candidate, encoding="utf-8") as file:
                return file.read().split()[0]
        except (OSError, IndexError, UnicodeDecodeError):
            continue
    return "unknown"


def _fault(path: str) -> str:
    """Return why the dynamic linker could not preload the file, or that it is something else.

    The linker only warns and starts the job without it.
    """
    try:
        with open(path, "rb") as file, open("/proc/self/exe", "rb") as own:
            content, known = file.read(_MOST_BYTES), own.read(20)
    except OSError as reason:
        return f"cannot be read: {reason.strerror}"
    # Class and byte order, then the type and the machine (all machines of ours agree on the order).
    if content[:4] != b"\x7fELF":
        return "is not a shared library"
    if content[4:6] != known[4:6] or content[18:20] != known[18:20]:
        return "is a library for another kind of processor"
    if int.from_bytes(content[16:18], "little") != _ELF_SHARED_OBJECT or _OWN_NAME not in content:
        return "is not Overdrive's library"
    return ""


def _named(path: str, by: str) -> str:
    """Return the absolute path of a library that the user names, if it is one."""
    if not os.path.exists(path):
        raise CommandError(f"{by} names {path}, which does not exist")
    if not os.path.isfile(path):
        raise CommandError(f"{by} names {path}, which is not a file")
    fault = _fault(path)
    if fault:
        raise CommandError(f"{by} names {path}, which {fault}; it should name a {LIBRARY}")
    return os.path.abspath(path)


def find(
    environment: Mapping[str, str] | None = None,
    home: str | os.PathLike[str] | None = None,
    library: str | None = None,
) -> Installation:
    """Find the installation; `library` is what --library names.

    `environment` and `home` replace the real ones in tests.
    """
    environment = os.environ if environment is None else environment
    where = home_directory() if home is None else os.fspath(home)
    folders = _library_directories(where)
    found: str | None
    if library is not None:
        found = _named(library, "--library")
    elif environment.get("OVERDRIVE_LIBRARY", ""):
        found = _named(environment["OVERDRIVE_LIBRARY"], "OVERDRIVE_LIBRARY")
    else:
        found = _first_existing([os.path.join(folder, LIBRARY) for folder in folders])
    tools: list[str] = []
    if found is not None:
        beside = os.path.dirname(found)
        above = os.path.dirname(beside)
        tools = [
            os.path.join(beside, "overdrive", TOOL),
            os.path.join(above, "bin", TOOL),
            os.path.join(above, "libexec", "overdrive", TOOL),
        ]
    tools += [os.path.join(os.path.dirname(folder), "bin", TOOL) for folder in folders]
    tools += [
        os.path.join(where, "libexec", "overdrive", TOOL),
        os.path.join(where, "bin", TOOL),
    ]
    return Installation(where, found, _first_existing(tools))

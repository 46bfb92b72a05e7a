"""The preloaded library needs the C library alone also where the compiler optimises nothing.

A call that an optimised build leaves out, such as the one that reports a bad position of a
`substr`, stays in an unoptimised one, and the library would not load without the C++ library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FACE = ROOT / "src" / "face"

PLACES = ("face/loader/*.cc", "memory/heap/*.cc", "memory/guard/*.cc", "config/pin_*.cc",
          "topology/pin_*.cc")  # fmt: skip
"""As in cmake/OverdriveLoader.cmake."""

OPTIONS = ["-std=c++20", "-O0", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"]
OPTIONS += ["-D_GNU_SOURCE", '-DOVERDRIVE_VERSION="1.2.3"']

CPP_LIBRARY = re.compile(r"^\s+U (_ZN?K?St\w*|_Z[nd][wal]\w*|__cxa_\w+|_Unwind_\w+|__gxx_\w+)")

CALLED_BY_THE_C_LIBRARY = {"__cxa_finalize", "__cxa_atexit"}


def compilers() -> list[str]:
    """Return the usual compiler and the newest clang that is there."""
    clangs = [f"clang++-{number}" for number in range(40, 13, -1)]
    return ["c++", *[name for name in clangs if shutil.which(name)][:1]]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the sources include and the build generates."""
    folder = tmp_path_factory.mktemp("generated")
    command = [sys.executable, str(FACE / "generate.py"), "--what", "loader"]
    command += ["--interface", str(FACE / "mpi_interface.txt")]
    subprocess.run([*command, "--output", str(folder / "loader_entries.inc")], check=True)
    return folder


@pytest.mark.parametrize("compiler", compilers())
def test_no_source_needs_the_cpp_library(compiler: str, generated: Path, tmp_path: Path) -> None:
    sources = [path for place in PLACES for path in sorted((ROOT / "src").glob(place))]
    sources = [path for path in sources if not path.name.endswith("_test.cc")]
    assert len(sources) > 20
    folders = [ROOT / "src", ROOT / "include", generated]
    command = [compiler, *OPTIONS, *[f"-I{folder}" for folder in folders], "-c"]
    found = {}
    for source in sources:
        target = tmp_path / f"{source.stem}.o"
        subprocess.run(
            [*command, str(source), "-o", str(target)],
            check=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        symbols = subprocess.check_output(["nm", "-u", str(target)], text=True)
        names = {match[1] for line in symbols.splitlines() if (match := CPP_LIBRARY.match(line))}
        if names - CALLED_BY_THE_C_LIBRARY:
            found[source.name] = names
    assert not found

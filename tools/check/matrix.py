#!/usr/bin/env python3
"""Builds the unit tests with another compiler, optimisation or processor: `matrix.py NAME`.

`make check-all` builds every configuration of MATRIX into build/matrix-NAME and runs its unit
tests. The programs for aarch64 are cross-compiled and run by qemu's user emulation: the code for
that processor runs, not only compiles. There are no faces in them, because Debian's MPI headers
are for one processor.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "setup"), str(ROOT / "packaging" / "wheel")]

from packages import SetupError, ensure, log  # noqa: E402

EMULATOR = "qemu-aarch64-static"
TRIPLET = "aarch64-linux-gnu"
LIBRARIES = f"/usr/{TRIPLET}/lib"
IN_PLACE = (
    f"-Wl,--dynamic-linker={LIBRARIES}/ld-linux-aarch64.so.1 "
    f"-Wl,--disable-new-dtags -Wl,-rpath,{LIBRARIES}"
)
"""Programs find the C library where Debian puts it for cross-compilers. The emulator's own way, a
folder that it puts before absolute paths (-L), also moves the root folder that programs open."""


@dataclass
class Configuration:
    """One way to build."""

    settings: dict[str, str] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)
    clang: bool = False
    """Whether the newest clang of the distribution compiles."""
    emulated: bool = False


GCC = "12"


def gcc() -> dict[str, str]:
    """Return the compilers of GCC 12, by the names of `make check` where these are the same.

    A compiler's cache takes another name for another compiler.
    """
    asked = subprocess.run(["c++", "-dumpversion"], capture_output=True, text=True, check=False)
    same = asked.returncode == 0 and asked.stdout.split(".")[0].strip() == GCC
    found = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=False)
    if same and "Free Software Foundation" in found.stdout:
        return {"CMAKE_C_COMPILER": "cc", "CMAKE_CXX_COMPILER": "c++"}
    return {"CMAKE_C_COMPILER": f"gcc-{GCC}", "CMAKE_CXX_COMPILER": f"g++-{GCC}"}


WARNS_OF_MORE = {"OVERDRIVE_WERROR": "OFF"}
"""Of compilers newer than the distribution: they find fault with its C++ library, too, as clang 22
does with `std::stable_sort` of GCC 12. Their warnings end no build, whatever the check was told."""

MATRIX = {
    "gcc12-O0": Configuration(
        {**gcc(), "CMAKE_BUILD_TYPE": "None",
         "CMAKE_C_FLAGS": "-O0", "CMAKE_CXX_FLAGS": "-O0",
         # Every file by itself, as it is edited: compiled together they lend each other includes.
         "OVERDRIVE_UNITY": "OFF"},
        [f"gcc-{GCC}", f"g++-{GCC}"],
    ),
    "gcc12-lto": Configuration(
        {**gcc(), "OVERDRIVE_LTO": "ON", "OVERDRIVE_LTO_TARGETS": "tests"},
        [f"gcc-{GCC}", f"g++-{GCC}"],
    ),
    "clang": Configuration(WARNS_OF_MORE, clang=True),
    "clang-O0": Configuration(
        {**WARNS_OF_MORE, "CMAKE_BUILD_TYPE": "None",
         "CMAKE_C_FLAGS": "-O0", "CMAKE_CXX_FLAGS": "-O0"},
        clang=True,
    ),
    "aarch64": Configuration(
        {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": "aarch64",
            "CMAKE_C_COMPILER": f"{TRIPLET}-gcc",
            "CMAKE_CXX_COMPILER": f"{TRIPLET}-g++",
            "CMAKE_CROSSCOMPILING_EMULATOR": EMULATOR,
            "CMAKE_EXE_LINKER_FLAGS": IN_PLACE,
            "OVERDRIVE_ABIS": "",
            # The library of this machine is for this machine; the sources are for all.
            "CMAKE_DISABLE_FIND_PACKAGE_GTest": "ON",
        },
        ["g++-aarch64-linux-gnu", "qemu-user-static", "libgtest-dev"],
        emulated=True,
    ),
}  # fmt: skip


def newest_clang() -> int:
    """Return the highest version of clang that the distribution has."""
    done = subprocess.run(
        ["apt-cache", "pkgnames", "clang-"], capture_output=True, text=True, check=False
    )
    found = [int(v) for v in re.findall(r"^clang-(\d+)$", done.stdout, re.MULTILINE)]
    if not found:
        raise SetupError("the distribution has no clang")
    return max(found)


def folder(name: str) -> Path:
    """Return where a configuration is built."""
    return ROOT / "build" / f"matrix-{name}"


def build(name: str, targets: list[str], jobs: str) -> None:
    """Install what is needed, configure and build."""
    chosen = MATRIX[name]
    packages, settings = list(chosen.packages), {"CMAKE_BUILD_TYPE": "Release", **chosen.settings}
    if chosen.clang:
        number = newest_clang()
        packages.append(f"clang-{number}")
        settings |= {"CMAKE_C_COMPILER": f"clang-{number}"}
        settings |= {"CMAKE_CXX_COMPILER": f"clang++-{number}"}
        log(f"clang {number}")
    ensure(packages)
    if chosen.emulated:
        import build_wheel

        # Beside the header-only libraries lie the headers of this machine.
        headers = folder(name) / "include"
        build_wheel.write_headers(headers)
        settings["CMAKE_CXX_FLAGS"] = f"-isystem {headers}"
        for library in ("HIGHWAY", "JSON", "CLI11", "HWLOC"):
            settings[f"OVERDRIVE_{library}_INCLUDE"] = str(headers)
    settings.setdefault("OVERDRIVE_LTO", "OFF")
    settings.setdefault("OVERDRIVE_UNITY", "ON")
    settings.setdefault("OVERDRIVE_WERROR", os.environ.get("OVERDRIVE_WERROR") or "OFF")
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder(name)), "-G", "Ninja"]
    configure += [f"-D{key}={value}" for key, value in settings.items()]
    command = ["cmake", "--build", str(folder(name)), "-j", jobs]
    for words in (configure, [*command, "--target", *(targets or ["unit_tests"])]):
        if subprocess.run(words, cwd=ROOT, check=False).returncode != 0:
            raise SetupError(f"`{' '.join(words[:3])} ...` failed")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=MATRIX)
    parser.add_argument("targets", nargs="*", help="only these; default: all unit tests")
    parser.add_argument("--jobs", default=str(len(os.sched_getaffinity(0))))
    options = parser.parse_args()
    try:
        build(options.name, options.targets, options.jobs)
    except SetupError as error:
        print(f"matrix: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Builds the wheel `overdrive-mpi`: what CMake installs, for every Linux with glibc 2.28 or newer.

The wheel holds a prefix (bin/overdrive, lib/liboverdrive.so, lib/overdrive, share/overdrive and
so on) as the package `overdrive_mpi`, and the command a second time for the environment's bin. In
a folder of its own nothing of it stays when it is uninstalled: of folders such as share/man pip
leaves empty ones.

The code is compiled by the clang of the wheel `ziglang`, which brings headers and stubs of old C
libraries along. libgcc is taken from this machine, as a shared library: exceptions that pass
through Overdrive need the unwinder of the program (cmake/OverdriveFaces.cmake). auditwheel judges
the result; two builds of the same sources are equal, byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "setup"), str(ROOT / "packaging")]

from build_turns import turn  # noqa: E402
from environments import ensure_environment  # noqa: E402
from packages import SetupError  # noqa: E402

BUILD = ROOT / "build" / "wheel"
DIST = ROOT / "dist"

GLIBC = "2.28"
"""Of the oldest systems on which clusters run today; the tag of the wheel says the same."""

TOOLS = ["ziglang==0.17.1", "auditwheel==6.8.2", "wheel==0.48.0"]
"""Pinned: the compiler decides what the wheel holds."""

HEADERS = {
    "hwy": "hwy/highway.h",
    "toml++": "toml++/toml.h",
    "nlohmann": "nlohmann/json.hpp",
    "CLI": "CLI/CLI.hpp",
    "hwloc.h": "hwloc.h",
}
"""Header-only libraries, and hwloc, which is loaded at run time where it is installed.

Alone in a folder: beside them lie the headers of this machine's glibc."""

OPTIMISED = "-O2 -g1"
"""Of a release, also in what CMake tries out: the compiler makes a C++ library of its own, which
takes minutes, for each way of optimising that a program is linked with."""

COMPONENTS = ("runtime", "development", "completions", "documentation")
"""Of cmake/OverdriveInstall.cmake; a modulefile would have to name the prefix."""

WRAPPERS = {"clang": "cc", "clang++": "c++", "ar": "ar", "ranlib": "ranlib"}


def version() -> str:
    """Return the version of the sources."""
    return (ROOT / "VERSION").read_text(encoding="utf-8").split()[0]


def epoch() -> str:
    """Return the time that files in the wheel bear: SOURCE_DATE_EPOCH, else that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given:
        return given
    show = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(show, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "315532800"  # 1980, where archives begin


def write_if_changed(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file, but leave it alone when it holds the text already (ccache looks at its age)."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def write_toolchain(folder: Path, python: Path) -> None:
    """Write compilers under names by which CMake and ccache know what they are."""
    found = sorted(python.parent.parent.glob("lib/python3*/site-packages/ziglang/zig"))
    if not found:
        raise SetupError("the wheel ziglang holds no compiler for this machine")
    for name, command in WRAPPERS.items():
        words = [str(found[0]), command]
        if name.startswith("clang"):
            words += ["-target", f"{platform.machine()}-linux-gnu.{GLIBC}"]
        text = f'#!/bin/sh\n# {TOOLS[0]}\nexec {" ".join(words)} "$@"\n'
        write_if_changed(folder / name, text, 0o755)


def include_folder(header: str) -> Path:
    """Return the folder of this machine in which a header lies."""
    for place in (Path("/usr/local/include"), Path("/usr/include")):
        if (place / header).exists():
            return place
    raise SetupError(f"{header} is missing: run `make setup-build`")


def show(target: Path, link: Path) -> None:
    """Let a link lead to a file or folder; one that does already keeps its age."""
    if not link.is_symlink() or Path(os.readlink(link)) != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def write_headers(folder: Path) -> None:
    """Make a folder that shows the libraries of HEADERS and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, header in HEADERS.items():
        show(include_folder(header) / name, folder / name)
    # Debian keeps a part of hwloc's headers in the folder of the processor.
    inner = folder / "hwloc"
    inner.mkdir(exist_ok=True)
    top = include_folder("hwloc.h")
    places = (top, *top.glob(f"{platform.machine()}-linux-gnu"))
    files = {path.name: path for place in places for path in (place / "hwloc").glob("*")}
    for name, path in files.items():
        show(path, inner / name)


def unwinder() -> str:
    """Return the shared libgcc of this machine."""
    done = subprocess.run(
        ["gcc", "-print-file-name=libgcc_s.so.1"], capture_output=True, text=True, check=True
    )
    return str(Path(done.stdout.strip()).resolve())


def run(command: list[str], **more: str) -> None:
    """Run a command; raise SetupError when it fails."""
    # A step inherits the turn.
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **more}, check=False, close_fds=False
    )
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command[:4])} ...` ended with status {done.returncode}")


def without_paths() -> str:
    """Return the options that keep the folders of this machine out of what is compiled."""
    # The last one that fits holds: the tools lie below the sources.
    places = {ROOT: ".", BUILD / "include": "include", BUILD / "tools": "tools"}
    return " ".join(f"-ffile-prefix-map={path}={name}" for path, name in places.items())


def compile_all(jobs: str) -> None:
    """Configure and build."""
    tools, headers = BUILD / "toolchain", BUILD / "include"
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD / "build"), "-G", "Ninja"]
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_C_COMPILER": tools / "clang",
        "CMAKE_CXX_COMPILER": tools / "clang++",
        "CMAKE_AR": tools / "ar",
        "CMAKE_RANLIB": tools / "ranlib",
        "CMAKE_C_COMPILER_AR": tools / "ar",
        "CMAKE_CXX_COMPILER_AR": tools / "ar",
        "CMAKE_C_FLAGS": f"{OPTIMISED} {without_paths()}",
        "CMAKE_CXX_FLAGS": f"{OPTIMISED} -isystem {headers} {without_paths()}",
        "CMAKE_INSTALL_LIBDIR": "lib",
        "OVERDRIVE_UNWINDER": unwinder(),
        "OVERDRIVE_HIGHWAY_INCLUDE": headers,
        "OVERDRIVE_JSON_INCLUDE": headers,
        "OVERDRIVE_CLI11_INCLUDE": headers,
        "OVERDRIVE_HWLOC_INCLUDE": headers,
        # A header that few machines have; the wheel is the same everywhere.
        "OVERDRIVE_XPMEM_INCLUDE": "OFF",
        # pip does that for the Python that is there.
        "OVERDRIVE_COMPILE_PYTHON": "OFF",
        "OVERDRIVE_LTO": "OFF",
        "OVERDRIVE_TESTS": "OFF",
        # As in what `make check` has tested.
        "OVERDRIVE_UNITY": "ON",
    }
    configure += [f"-D{name}={value}" for name, value in settings.items()]
    run(configure)
    run(["cmake", "--build", str(BUILD / "build"), "-j", jobs])


def stage(folder: Path) -> Path:
    """Install into the layout of a wheel; return its top folder."""
    shutil.rmtree(folder, ignore_errors=True)
    name = f"overdrive_mpi-{version()}"
    prefix = folder / "overdrive_mpi"
    for component in COMPONENTS:
        run(
            ["cmake", "--install", str(BUILD / "build"), "--strip", "--component", component]
            + ["--prefix", str(prefix)],
            DESTDIR="",
        )
    # The command finds the prefix from there (see the file itself).
    scripts = folder / f"{name}.data" / "scripts"
    scripts.mkdir(parents=True)
    shutil.copy2(prefix / "bin" / "overdrive", scripts / "overdrive")
    shutil.copy2(ROOT / "packaging" / "wheel" / "package.py", prefix / "__init__.py")
    described = folder / f"{name}.dist-info"
    template = (ROOT / "packaging" / "wheel" / "METADATA.in").read_text(encoding="utf-8")
    write_if_changed(described / "METADATA", template.replace("@VERSION@", version()))
    write_if_changed(described / "licenses" / "LICENSE", (ROOT / "LICENSE").read_text())
    tag = f"py3-none-linux_{platform.machine()}"
    lines = ["Wheel-Version: 1.0", "Generator: overdrive", "Root-Is-Purelib: false", f"Tag: {tag}"]
    write_if_changed(described / "WHEEL", "\n".join(lines) + "\n")
    for path in folder.rglob("*"):
        # The mode is part of the archive; the umask of who builds must not be.
        if path.is_file():
            path.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    return folder


def judge(wheel: Path, python: Path) -> str:
    """Return the platform tag with the oldest glibc that auditwheel grants."""
    show = [str(python), "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(show, capture_output=True, text=True, check=False)
    report = done.stdout + done.stderr
    found = re.search(r'platform tag:\s*"?([a-z]+_\d+_\d+_\w+)"?', " ".join(report.split()))
    granted = found.group(1) if found else ""
    if done.returncode != 0 or not granted.startswith("manylinux"):
        raise SetupError(f"auditwheel refuses {wheel.name}:\n{report}")
    return granted


def pack(python: Path) -> Path:
    """Make the wheel, and let auditwheel say for which systems it is."""
    time = {"SOURCE_DATE_EPOCH": epoch()}
    folder = stage(BUILD / "stage")
    plain = BUILD / "plain"
    shutil.rmtree(plain, ignore_errors=True)
    plain.mkdir(parents=True)
    run([str(python), "-m", "wheel", "pack", str(folder), "--dest-dir", str(plain)], **time)
    made = next(plain.glob("*.whl"))
    granted = judge(made, python)
    if tuple(map(int, granted.split("_")[1:3])) > tuple(map(int, GLIBC.split("."))):
        raise SetupError(f"the wheel needs a newer glibc than {GLIBC}: {granted}")
    # Older tags are not claimed: only systems from this one on are tested.
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"
    rename = [str(python), "-m", "wheel", "tags", "--remove", "--platform-tag", tag, str(made)]
    run(rename, **time)
    DIST.mkdir(exist_ok=True)
    result = next(plain.glob("*.whl"))
    target = DIST / result.name
    for old in DIST.glob("overdrive_mpi-*.whl"):
        old.unlink()
    shutil.move(result, target)
    return target


def faces_inside(wheel: Path) -> list[str]:
    """Return the MPI ABIs that the wheel serves."""
    with zipfile.ZipFile(wheel) as archive:
        found = [re.search(r"liboverdrive-(\w+)\.so$", name) for name in archive.namelist()]
    return sorted(match.group(1) for match in found if match)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=str(len(os.sched_getaffinity(0))))
    parser.add_argument("--pack-only", action="store_true", help="what has been compiled before")
    options = parser.parse_args()
    try:
        with turn(BUILD):
            python = ensure_environment(BUILD / "tools", TOOLS)
            if not options.pack_only:
                write_toolchain(BUILD / "toolchain", python)
                write_headers(BUILD / "include")
                compile_all(options.jobs)
            wheel = pack(python)
    except SetupError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    missing = {"mpich", "mpiabi", "openmpi"} - set(faces_inside(wheel))
    if missing:
        print(f"wheel: without faces for {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size} bytes  sha256 {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Builds the Debian packages, sources and binaries, into dist/debian; lintian judges them.

The packaging lies in packaging/debian and becomes debian/ of a copy of the tracked files; the
copy is what dpkg-source packs, so nothing of a build folder gets in. Unit tests are part of `make
check` and are built here only with `--check`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from build_turns import turn

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "debian"
DIST = ROOT / "dist" / "debian"

NEEDED = ("dpkg-buildpackage", "dh", "dh_python3", "cmake", "ninja")


class BuildError(RuntimeError):
    """A step failed."""


def run(command: list[str], folder: Path, **more: str) -> None:
    """Run a command; raise BuildError when it fails."""
    # A step inherits the turn.
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **more}, check=False, close_fds=False
    )
    if done.returncode != 0:
        raise BuildError(f"`{' '.join(command)}` ended with status {done.returncode}")


def commit_time() -> int:
    """Return the time that files in the archive bear."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    show = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return int(given or subprocess.check_output(show, text=True).strip())


def sources() -> list[str]:
    """Return the tracked files, without the packaging itself."""
    listing = subprocess.check_output(["git", "-C", str(ROOT), "ls-files", "-z"], text=True)
    names = [name for name in listing.split("\0") if name and (ROOT / name).is_file()]
    return sorted(name for name in names if not name.startswith("packaging/debian/"))


def unpack_sources(version: str) -> Path:
    """Write the archive of the sources and a tree made of it; return the tree."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    stem = f"overdrive-mpi-{version}"
    archive = BUILD / f"overdrive-mpi_{version}.orig.tar.xz"

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = commit_time()
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member

    with tarfile.open(archive, "w:xz", format=tarfile.GNU_FORMAT) as tar:
        for name in sources():
            tar.add(ROOT / name, f"{stem}/{name}", filter=plain)
    with tarfile.open(archive) as tar:
        tar.extractall(BUILD)  # noqa: S202 - written above
    tree = BUILD / stem
    shutil.copytree(
        ROOT / "packaging" / "debian", tree / "debian", ignore=shutil.ignore_patterns("*.py", "__*")
    )
    # Of times Debian's tools change only those after that of the packages. What was checked out
    # before keeps its own, and two builds would differ.
    for path in (tree / "debian", *(tree / "debian").rglob("*")):
        os.utime(path, (commit_time(), commit_time()))
    return tree


def build(tree: Path, options: argparse.Namespace) -> None:
    """Build source and binary packages."""
    flags = [] if options.check else ["nocheck"]
    flags.append(f"parallel={options.jobs}")
    cache = os.environ.get("CCACHE_DIR", str(Path.home() / ".cache" / "ccache"))
    run(
        ["dpkg-buildpackage", "-us", "-uc", "--no-check-builddeps"],
        tree,
        DEB_BUILD_OPTIONS=" ".join(flags),
        # The distribution's own tools, whatever else this user has.
        PATH="/usr/sbin:/usr/bin:/sbin:/bin",
        # debhelper gives the build a home of its own; a cache of the compiler should outlive it.
        CCACHE_DIR=cache,
        OVERDRIVE_LTO=options.lto,
    )


def collect() -> list[Path]:
    """Move the results to dist/debian; return them."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True)
    found = [path for path in sorted(BUILD.iterdir()) if path.is_file()]
    return [Path(shutil.move(path, DIST / path.name)) for path in found]


def judge(results: list[Path]) -> None:
    """Let lintian judge sources and binaries."""
    if shutil.which("lintian") is None:
        print("deb: lintian is not installed, the packages are not judged", file=sys.stderr)
        return
    changes = next(path for path in results if path.suffix == ".changes")
    # A package that is not for the archive closes no bug of it.
    ignored = "initial-upload-closes-no-bugs"
    run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", ignored]
        + ["--tag-display-limit", "0", str(changes)],
        DIST,
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=str(len(os.sched_getaffinity(0))))
    parser.add_argument("--check", action="store_true", help="also build and run the unit tests")
    parser.add_argument(
        "--lto",
        choices=("ON", "OFF"),
        default=os.environ.get("OVERDRIVE_LTO", "ON"),
        help="optimise across files (default: OVERDRIVE_LTO, else ON)",
    )
    options = parser.parse_args()
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        print(
            f"deb: {', '.join(missing)} missing: install debhelper, dh-python, cmake, ninja-build"
        )
        return 1
    try:
        with turn(BUILD):
            build(unpack_sources((ROOT / "VERSION").read_text().split()[0]), options)
            results = collect()
            judge(results)
    except BuildError as error:
        print(f"deb: {error}", file=sys.stderr)
        return 1
    for path in results:
        if path.suffix in (".deb", ".dsc"):
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

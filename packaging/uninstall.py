#!/usr/bin/env python3
"""Removes what `make install` has put below a prefix: `uninstall.py BUILD --prefix /where`.

What that is the build itself says, by installing into an empty folder; files of others in the same
prefix stay. Folders that are empty then go as well, but for those that a system has by itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SYSTEM = (Path("/usr"), Path("/usr/local"))
"""Prefixes in which the folders of the first level, such as `share`, belong to the system."""


def installed(build: Path, prefix: Path) -> tuple[set[Path], set[Path]]:
    """Return files and folders below the prefix, relative to it, that the build installs."""
    with tempfile.TemporaryDirectory(prefix="overdrive-uninstall-") as folder:
        subprocess.run(
            ["cmake", "--install", str(build), "--prefix", str(prefix)],
            env={**os.environ, "DESTDIR": folder}, stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        top = Path(folder + str(prefix))
        found = {path: path.is_dir() and not path.is_symlink() for path in top.rglob("*")}
        return (
            {path.relative_to(top) for path, is_folder in found.items() if not is_folder},
            {path.relative_to(top) for path, is_folder in found.items() if is_folder},
        )


def uninstall(build: Path, prefix: Path) -> int:
    """Remove all of it; return how many files there were."""
    files, folders = installed(build, prefix)
    there = [prefix / name for name in files if os.path.lexists(prefix / name)]
    for path in there:
        path.unlink()
    for name in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        # Another Python may have compiled the command's modules again.
        shutil.rmtree(prefix / name / "__pycache__", ignore_errors=True)
        if prefix in SYSTEM and len(name.parts) == 1:
            continue
        remove_if_empty(prefix / name)
    if prefix not in SYSTEM:
        remove_if_empty(prefix)
    return len(there)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder in which nobody has anything."""
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="the folder that was built")
    parser.add_argument("--prefix", type=Path, required=True, help="as of `make install`")
    options = parser.parse_args()
    prefix = Path(os.path.abspath(options.prefix))
    try:
        count = uninstall(options.build, prefix)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"uninstall: {error}", file=sys.stderr)
        return 1
    print(f"uninstall: {count} files removed from {prefix}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Makes a release: version, changelog, tag, wheel, Debian packages, bill of materials, sums.

    release.py 1.2.3             in a clean checkout, on the branch that is released
    release.py 1.2.3 --dry-run   all of it in a clone below build/

CHANGELOG.md must open with a section of this version; its heading gets the date. Nothing is
pushed or uploaded: the last lines say what to do. If a step fails the checkout is put back as it
was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools" / "setup"), str(ROOT / "packaging")]

from build_turns import turn  # noqa: E402
from environments import ensure_environment  # noqa: E402
from packages import SetupError  # noqa: E402

VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
SECTION = re.compile(r"^## (\d+\.\d+\.\d+) \(([^)]+)\)$", re.MULTILINE)
BILL_TOOLS = ["cyclonedx-python-lib[json-validation]==11.12.0"]
DRY_RUN = ROOT / "build" / "release-dry-run"
RECIPES = (
    ("packaging/easybuild/Overdrive-GCCcore-13.3.0.eb", "version = '{}'"),
    ("packaging/spack/spack_repo/overdrive/packages/overdrive/package.py", 'version("{}")'),
)
"""Files that name the version, and how."""
CHANGED = ("VERSION", "CHANGELOG.md", "packaging/debian/changelog", *(name for name, _ in RECIPES))
PARTS = ("wheel", "deb", "bill")


class ReleaseError(RuntimeError):
    """Why there is no release."""


def git(tree: Path, *words: str) -> str:
    """Run git in a tree; return its output."""
    done = subprocess.run(
        ["git", "-C", str(tree), *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ReleaseError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare."""
    if VERSION.fullmatch(version) is None:
        raise ReleaseError(f"{version} is not a version like 1.2.3")
    return tuple(map(int, version.split(".")))


def dated(changelog: str, version: str, day: str) -> str:
    """Return CHANGELOG.md with the date of this release in its first section."""
    first = SECTION.search(changelog)
    if first is None or first.group(1) != version:
        found = first.group(1) if first else "no version"
        raise ReleaseError(f"CHANGELOG.md opens with {found}: write what is new in {version} first")
    return changelog[: first.start(2)] + day + changelog[first.end(2) :]


def debian_entry(changelog: str, version: str, when: datetime) -> str:
    """Return debian/changelog with an entry for this release on top."""
    if changelog.startswith(f"overdrive-mpi ({version}-"):
        changelog = changelog.partition("\n\n -- ")[2].partition("\n")[2].lstrip("\n")
    stamp = when.strftime("%a, %d %b %Y %H:%M:%S +0000")
    entry = f"overdrive-mpi ({version}-1) unstable; urgency=medium\n\n"
    entry += "  * New version; what is new is in CHANGELOG.md.\n\n"
    entry += f" -- Overdrive developers <overdrive@overdrive-mpi.invalid>  {stamp}\n"
    return entry + ("\n" + changelog if changelog else "")


def write_version(tree: Path, version: str, when: datetime) -> None:
    """Write the version into the files that state it."""
    here = (tree / "VERSION").read_text(encoding="utf-8").strip()
    if numbers(version) < numbers(here):
        raise ReleaseError(f"{version} is older than {here}")
    if git(tree, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} is there already")
    path = tree / "CHANGELOG.md"
    text = dated(path.read_text(encoding="utf-8"), version, when.strftime("%Y-%m-%d"))
    path.write_text(text, encoding="utf-8")
    path = tree / "packaging" / "debian" / "changelog"
    path.write_text(debian_entry(path.read_text(encoding="utf-8"), version, when), encoding="utf-8")
    for name, words in RECIPES:
        path = tree / name
        text = path.read_text(encoding="utf-8")
        if words.format(here) not in text:
            raise ReleaseError(f"{name} does not say {words.format(here)}")
        path.write_text(text.replace(words.format(here), words.format(version)), encoding="utf-8")
    (tree / "VERSION").write_text(version + "\n", encoding="utf-8")


def build(tree: Path, version: str, parts: list[str], when: datetime) -> Path:
    """Build what is released; return the folder with checksums."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(int(when.timestamp()))}
    folder = tree / "dist" / version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commands = {
        "wheel": [sys.executable, "packaging/wheel/build_wheel.py"],
        "deb": [sys.executable, "packaging/build_deb.py"],
    }
    for part in parts:
        if part == "bill":
            python = ensure_environment(tree / "build" / "release-tools", BILL_TOOLS)
            target = folder / f"overdrive-mpi-{version}.cdx.json"
            command = [str(python), "packaging/sbom.py", str(target)]
        else:
            command = commands[part]
        # A part inherits the turn.
        done = subprocess.run(command, cwd=tree, env=environment, check=False, close_fds=False)
        if done.returncode != 0:
            raise ReleaseError(f"the part `{part}` failed")
    made = [*(tree / "dist").glob(f"overdrive_mpi-{version}-*.whl")]
    if "deb" in parts:
        made += [path for path in (tree / "dist" / "debian").iterdir() if path.is_file()]
    for path in made:
        shutil.copy2(path, folder)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return folder


def release(tree: Path, version: str, parts: list[str]) -> Path:
    """Release from a clean tree; put it back if a step fails."""
    if git(tree, "status", "--porcelain"):
        raise ReleaseError("the checkout has changes that are not committed")
    numbers(version)
    before = git(tree, "rev-parse", "HEAD")
    when = datetime.now(timezone.utc).replace(microsecond=0)
    try:
        write_version(tree, version, when)
        git(tree, "add", *CHANGED)
        git(tree, "commit", "-q", "-m", f"Version {version}")
        folder = build(tree, version, parts, when)
        git(tree, "tag", "-a", f"v{version}", "-m", f"Overdrive {version}")
    except BaseException:
        git(tree, "reset", "-q", "--hard", before)
        raise
    return folder


def clone(tree: Path) -> None:
    """Make a clone for a dry run in place of the last one."""
    shutil.rmtree(tree, ignore_errors=True)
    git(ROOT, "clone", "-q", "--shared", str(ROOT), str(tree))
    git(tree, "config", "user.name", "dry run")
    git(tree, "config", "user.email", "dry-run@localhost")
    os.environ.setdefault("OVERDRIVE_HOSTS_DIR", str(ROOT / "build" / "hosts"))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 1.2.3")
    parser.add_argument("--dry-run", action="store_true", help="in a clone below build/")
    parser.add_argument("--parts", default=",".join(PARTS), help="what is built, of %(default)s")
    options = parser.parse_args()
    parts = [word for word in options.parts.split(",") if word]
    if set(parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    tree = DRY_RUN if options.dry_run else ROOT
    try:
        with turn(DRY_RUN):
            if options.dry_run:
                clone(tree)
            folder = release(tree, options.version, parts)
    except (ReleaseError, SetupError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(folder.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes")
    if options.dry_run:
        print("release: this was a dry run; the checkout has not been changed")
    else:
        print(f"release: now `git push origin HEAD v{options.version}`, and upload {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What is released names no folder of its build, has no dead links, and is equal everywhere."""

from __future__ import annotations

import io
import os
import posixpath
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

SOMEBODYS = re.compile(
    # Homes, other build folders (a compiler's cache is shared by checkouts), tools of the build.
    rb"(?:/home/|/root/|/Users/)[\w.+-]+"
    rb"|/[\w.+/-]+/build/(?:release|wheel|debian|hosts|venv|dev)\b"
    rb"|/[\w.+/-]+/(?:site-packages/ziglang|\.cache/(?:zig|ccache))"
    rb"|/tmp/[\w.+-]{6,}"
)
"""Paths that only the machine of a build has."""

SPOKEN_OF = re.compile(rb"/(?:home|Users|tmp)/(?:user|you|me|name|\w*overdrive)\b")
"""Paths that text and messages name as examples."""


def places(data: bytes) -> set[str]:
    """Return the paths in some bytes that belong to the machine of a build."""
    found = {match.group(0) for match in SOMEBODYS.finditer(data)}
    own = str(ROOT).encode()
    if own in data:
        found.add(own)
    return {path.decode(errors="replace") for path in found if not SPOKEN_OF.match(path)}


def wheel_members(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            yield name, archive.read(name)


def tar_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the regular files."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()


def package_members(package: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of a Debian package, control files included."""
    for part in ("--fsys-tarfile", "--ctrl-tarfile"):
        yield from tar_members(subprocess.check_output(["dpkg-deb", part, str(package)]))


def test_paths_are_found_where_they_are() -> None:
    for text in (b"\0/home/somebody/x.cc\0", b"\0/srv/od/build/release\0", b"/tmp/overdr1ve-x/a.h",
                 str(ROOT).encode()):  # fmt: skip
        assert places(b"\x7fELF" + text), text
    for text in (
        b"/proc/self/exe",
        b"/usr/include/mpi.h",
        b"./src/engine/rank.cc",
        b"build/release",
    ):
        assert not places(text), text


def test_the_wheel_names_no_folder_of_its_build(wheel: Path) -> None:
    found = {name: places(data) for name, data in wheel_members(wheel)}
    assert len(found) > 50
    assert not {name: paths for name, paths in found.items() if paths}


def test_the_debian_packages_name_no_folder_of_their_build(
    debian_packages: dict[str, Path],
) -> None:
    """Also those with the line tables that debuggers read."""
    assert "overdrive-mpi-dbgsym" in debian_packages
    for package in debian_packages.values():
        found = {name: places(data) for name, data in package_members(package)}
        assert found
        assert not {name: paths for name, paths in found.items() if paths}, package.name


def dead_links(members: dict[str, bytes]) -> set[tuple[str, str]]:
    """Return the relative links of Markdown pages that lead to no member, with their pages."""
    return {
        (page, target.decode())
        for page, data in members.items()
        if page.endswith(".md") and "/doc/" in page
        for target in re.findall(rb"\]\(([^)\s]+)\)", data)
        if not re.match(rb"#|[a-z]+:", target)
        and posixpath.normpath(f"{posixpath.dirname(page)}/{target.decode().partition('#')[0]}")
        not in {posixpath.normpath(name) for name in members}
    }


def test_a_dead_link_is_found() -> None:
    members = {"./doc/a.md": b"[b](b/c.md#x) [n](n.md) [t](#t)", "./doc/b/c.md": b"[up](../a.md)"}
    assert dead_links(members) == {("./doc/a.md", "n.md")}


def test_the_manual_has_no_dead_links_where_it_is_installed(
    wheel: Path, debian_packages: dict[str, Path]
) -> None:
    for members in (
        dict(wheel_members(wheel)),
        dict(package_members(debian_packages["overdrive-mpi-doc"])),
    ):
        assert [name for name in members if re.search("/doc/[^/]+/manual.md$", name)]
        assert not dead_links(members)


@pytest.fixture
def elsewhere(scratch: Path) -> Path:
    """Return a clone of what is committed, in another folder."""
    if subprocess.check_output(["git", "-C", str(ROOT), "status", "--porcelain"]):
        pytest.skip("this checkout has changes that a clone would not have")
    tree = scratch / "a-rather-long-name-of-another-folder" / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(tree)], check=True)
    return tree


def build(tree: Path, script: str) -> None:
    """Build without a compiler's cache, which would only return what this checkout has compiled."""
    variables = {
        "CCACHE_DISABLE": "1",
        "OVERDRIVE_HOSTS_DIR": os.environ.get("OVERDRIVE_HOSTS_DIR", str(ROOT / "build" / "hosts")),
    }
    done = subprocess.run(
        [sys.executable, f"packaging/{script}"], cwd=tree, env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def differing(first: dict[str, bytes], second: dict[str, bytes]) -> list[str]:
    """Return the names of members that only one has or that differ."""
    return sorted(
        name for name in {*first, *second} if first.get(name) != second.get(name)
    )  # fmt: skip


def test_a_wheel_built_elsewhere_is_equal(wheel: Path, elsewhere: Path) -> None:
    if "OVERDRIVE_TEST_WHEEL" in os.environ:
        pytest.skip("the wheel is not of these sources")
    build(elsewhere, "wheel/build_wheel.py")
    again = elsewhere / "dist" / wheel.name
    assert not differing(dict(wheel_members(wheel)), dict(wheel_members(again)))
    assert again.read_bytes() == wheel.read_bytes()


def test_debian_packages_built_elsewhere_are_equal(
    debian_packages: dict[str, Path], elsewhere: Path
) -> None:
    if "OVERDRIVE_TEST_DEBS" in os.environ:
        pytest.skip("the packages are not of these sources")
    build(elsewhere, "build_deb.py")
    for package in debian_packages.values():
        again = elsewhere / "dist" / "debian" / package.name
        first, second = dict(package_members(package)), dict(package_members(again))
        assert not differing(first, second), package.name
        assert again.read_bytes() == package.read_bytes(), package.name

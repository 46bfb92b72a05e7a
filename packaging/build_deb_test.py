"""The sources of the Debian packages are the same whatever checkout they were made of."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

TIME = 1_700_000_000
FILES = {
    "VERSION": "1.2.3\n",
    "src/a.cc": "int a;\n",
    "packaging/debian/control": "Source: overdrive-mpi\n",
    "packaging/debian/source/format": "3.0 (quilt)\n",
}


@pytest.fixture
def build_deb(monkeypatch: pytest.MonkeyPatch):
    """Return the program as a module."""
    monkeypatch.setattr(sys, "path", [str(HERE), *sys.path])
    return importlib.import_module("build_deb")


def checkout(folder: Path, age: int) -> Path:
    """Make a checkout whose files are older than the time of the packages, or newer."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    for path in folder.rglob("*"):
        os.utime(path, (TIME - age, TIME - age))
    return folder


def test_the_age_of_a_checkout_does_not_show(
    build_deb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's tools change times after that of the packages, and leave older ones alone."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(TIME))
    archives = []
    for name, age in (("old", 5000), ("older", 90000), ("new", -5000)):
        root = checkout(tmp_path / name, age)
        monkeypatch.setattr(build_deb, "ROOT", root)
        monkeypatch.setattr(build_deb, "BUILD", root / "build" / "debian")
        tree = build_deb.unpack_sources("1.2.3")
        packaged = [tree / "debian", *(tree / "debian").rglob("*")]
        assert {path.name for path in packaged} == {"debian", "control", "source", "format"}
        files = [path for path in tree.rglob("*") if path.is_file()]
        assert len(files) == len(FILES)
        assert {int(path.stat().st_mtime) for path in [*packaged, *files]} == {TIME}
        archives.append((tree.parent / "overdrive-mpi_1.2.3.orig.tar.xz").read_bytes())
    assert archives[0] == archives[1] == archives[2]

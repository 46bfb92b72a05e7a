"""Tests of the check for circles of imports."""

from __future__ import annotations

from pathlib import Path

from imports import circles


def _package(folder: Path, modules: dict[str, str]) -> Path:
    package = folder / "box"
    for name, text in modules.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def test_a_package_without_circles(tmp_path: Path) -> None:
    modules = {
        "__init__.py": "",
        "top.py": "import os\nfrom box import low\nfrom box.inner.deep import word\n",
        "low.py": "from box.inner import deep\n",
        "inner/__init__.py": "",
        "inner/deep.py": "word = 1\n",
    }
    assert circles(_package(tmp_path, modules)) == []


def test_circles_are_named_also_those_inside_functions(tmp_path: Path) -> None:
    modules = {
        "__init__.py": "",
        "one.py": "from box import two\n",
        "two.py": "def later():\n    from box.one import name\n",
    }
    assert circles(_package(tmp_path, modules)) == ["box.one -> box.two -> box.one"]

"""Releases: what is written, what is refused, and what is left when a step fails."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_SPEC = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
release = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(release)

WHEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
DEBIAN = (ROOT / "packaging" / "debian" / "changelog").read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small checkout."""
    (tmp_path / "packaging" / "debian").mkdir(parents=True)
    (tmp_path / "VERSION").write_text("1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1.3.0 (not released yet)\n\n- new\n")
    (tmp_path / "packaging" / "debian" / "changelog").write_text(DEBIAN)
    for name, words in release.RECIPES:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(words.format("1.2.3") + "\n")
    for words in (
        ["init", "-q"],
        ["config", "user.name", "a"],
        ["config", "user.email", "a@b"],
        ["add", "."],
        ["commit", "-q", "-m", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def test_version_date_and_tag(tree: Path) -> None:
    folder = release.release(tree, "1.3.0", [])
    assert (tree / "VERSION").read_text() == "1.3.0\n"
    day = datetime.now(timezone.utc).strftime("%Y-")
    assert f"## 1.3.0 ({day}" in (tree / "CHANGELOG.md").read_text()
    assert (tree / "packaging/debian/changelog").read_text().startswith("overdrive-mpi (1.3.0-1)")
    for name, words in release.RECIPES:
        assert (tree / name).read_text() == words.format("1.3.0") + "\n"
    assert release.git(tree, "tag", "--list") == "v1.3.0"
    assert release.git(tree, "log", "-1", "--format=%s") == "Version 1.3.0"
    assert (folder / "SHA256SUMS").exists()


@pytest.mark.parametrize("version", ["1.2", "1.3.0rc1", "01.3.0", "1.2.0", "1.4.0"])
def test_wrong_versions_change_nothing(tree: Path, version: str) -> None:
    before = release.git(tree, "rev-parse", "HEAD")
    with pytest.raises(release.ReleaseError):
        release.release(tree, version, [])
    assert release.git(tree, "rev-parse", "HEAD") == before
    assert not release.git(tree, "status", "--porcelain")


def test_a_step_that_fails_leaves_no_commit_and_no_tag(tree: Path) -> None:
    before = release.git(tree, "rev-parse", "HEAD")
    with pytest.raises(release.ReleaseError, match="wheel"):
        release.release(tree, "1.3.0", ["wheel"])  # nothing to build is in this tree
    assert release.git(tree, "rev-parse", "HEAD") == before
    assert not release.git(tree, "tag", "--list")


def test_changes_of_the_user_are_not_swept_away(tree: Path) -> None:
    (tree / "VERSION").write_text("1.2.4\n")
    with pytest.raises(release.ReleaseError, match="not committed"):
        release.release(tree, "1.3.0", [])
    assert (tree / "VERSION").read_text() == "1.2.4\n"


def test_an_entry_for_debian_replaces_one_of_the_same_version() -> None:
    once = release.debian_entry(DEBIAN, "9.0.0", WHEN)
    assert once.count("overdrive-mpi (") == DEBIAN.count("overdrive-mpi (") + 1
    assert "Wed, 02 Jan 2030 03:04:05 +0000" in once
    assert release.debian_entry(once, "9.0.0", WHEN) == once


@pytest.mark.slow
def test_a_dry_run_writes_the_bill_and_leaves_the_checkout_alone() -> None:
    """The bill is checked against its schema while it is written."""
    if release.git(ROOT, "status", "--porcelain"):
        pytest.skip("this checkout has changes; a release begins with a clean one")
    before = release.git(ROOT, "rev-parse", "HEAD"), release.git(ROOT, "tag", "--list")
    version = (ROOT / "VERSION").read_text().strip()
    command = [sys.executable, str(ROOT / "packaging" / "release.py"), version]
    subprocess.run([*command, "--dry-run", "--parts", "bill"], check=True)
    folder = release.DRY_RUN / "dist" / version
    bill = json.loads((folder / f"overdrive-mpi-{version}.cdx.json").read_text())
    assert {"highway", "tomlplusplus", "nlohmann-json"} <= {c["name"] for c in bill["components"]}
    assert f"overdrive-mpi-{version}.cdx.json" in (folder / "SHA256SUMS").read_text()
    after = release.git(ROOT, "rev-parse", "HEAD"), release.git(ROOT, "tag", "--list")
    assert before == after


@pytest.mark.slow
def test_two_dry_runs_in_one_checkout_wait_for_each_other() -> None:
    """The second puts its clone in the place of the first one's, in which something may build."""
    version = (ROOT / "VERSION").read_text().strip()
    command = [sys.executable, str(ROOT / "packaging" / "release.py"), version, "--dry-run"]
    with release.turn(release.DRY_RUN):
        second = subprocess.Popen(
            [*command, "--parts="], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert "waiting for another build" in second.stderr.readline()
    said, _ = second.communicate(timeout=300)
    assert second.returncode == 0 and "this was a dry run" in said

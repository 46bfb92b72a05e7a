"""The settings reference: made from the library's tables, and the copy in docs/ is current."""

from __future__ import annotations

from pathlib import Path

import pytest
from overdrive import installation, manual, settings

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "manual" / "settings.md"


def test_page_in_the_tree_is_current(overdrive, real):
    run = overdrive("manual", "--check", str(PAGE), env=real)
    assert run.code == 0, run.err


def test_old_page_is_noticed(overdrive, real, tmp_path):
    page = tmp_path / "settings.md"
    page.write_text(PAGE.read_text().replace("eager_max", "eager_min"))
    run = overdrive("manual", "--check", str(page), env=real)
    assert run.code == 1
    assert "--write" in run.err


def test_page_does_not_depend_on_the_environment(overdrive, real, tmp_path):
    page = tmp_path / "settings.md"
    run = overdrive("--set", "spin=9us", "manual", "--write", str(page), env=real)
    assert run.code == 0, run.err
    assert page.read_text() == overdrive("manual", env=real).out
    assert "9us" not in page.read_text()


def test_every_group_has_a_title(tool):
    found = installation.Installation(ROOT, None, tool, "0")
    report = settings.query(found, {}, "--defaults", "--counters")
    assert {setting["group"] for setting in report["settings"]} <= set(manual.GROUP_TITLES)
    assert {counter["group"] for counter in report["counters"]} <= set(manual.COUNTER_TITLES)

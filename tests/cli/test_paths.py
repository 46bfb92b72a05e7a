"""One table of copy paths: what lists paths elsewhere lists those of the table and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conformance import jobs, selection
from fuzz import ways
from overdrive import installation, manual, measure, options, settings, thresholds
from overdrive.report import record

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def report(tool) -> dict[str, Any]:
    """What the library says of itself."""
    found = installation.Installation(ROOT, None, tool, "0")
    return settings.query(found, {}, "--defaults", "--counters")


@pytest.fixture
def forced(report) -> list[dict[str, Any]]:
    """The rows that `copy_path` can force."""
    return [path for path in report["paths"] if path["forced"]]


def names(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows}


def test_rows_are_whole(report):
    known = {one["name"] for one in report["settings"]}
    counted = {one["name"] for one in report["counters"]}
    assert len(names(report["paths"])) == len(report["paths"]) >= 8
    for path in report["paths"]:
        assert all(path[word] for word in ("name", "doc", "who", "good_for", "option")), path
        assert set(path["settings"]) <= known
        assert len(path["counters"]) == 3
        assert set(path["counters"]) <= counted


def test_setting_and_commands_know_every_path(report, forced):
    choice = next(one for one in report["settings"] if one["name"] == "copy_path")
    assert set(choice["choices"].split("|")) == {"auto"} | names(forced)
    for name in names(forced):
        assert f"`{name}`" in choice["doc"]
    assert set(measure.PATHS) == names(forced)
    # What calibration derives are the thresholds that the table names.
    derived = {f"{distance}_{name}" for distance in ("near", "far") for name in thresholds.NAMES}
    assert derived == {name for path in forced for name in path["settings"]}


def test_options_allow_every_path(report):
    assert {path["option"] for path in report["paths"]} | {"host"} == set(options.PATHS)
    for path in report["paths"]:
        if path["forced"]:
            allowed = options.path_settings(",".join({"shm", path["option"]}))
            assert allowed.get("copy_path", path["name"]) == path["name"]


def test_reports_show_what_every_path_sends(report):
    shown = {counter for _, counter, _, _ in record.WAYS}
    # What is pushed began as a stream and is among those.
    sent = {path["counters"][0] for path in report["paths"]} - {"sends_push"}
    assert sent <= shown


def test_suites_force_every_path(forced):
    for found in (ways.SETTINGS, selection.FORCED):
        assert {one["copy_path"] for one in found if "copy_path" in one} == names(forced)
    assert names(forced) <= set(jobs.WAYS)
    for path in forced:
        assert path["counters"][1] in jobs.WAYS[path["name"]]


def test_design_page_shows_the_table(report):
    page = ROOT / "docs" / "design" / "direct-copies.md"
    assert "\n".join(manual.paths(report)) in page.read_text(), (
        f"put the table that `overdrive manual` prints under 'Paths of messages' into {page}"
    )


def test_every_path_has_a_file(forced):
    folder = ROOT / "src" / "p2p" / "path"
    for name in names(forced):
        text = (folder / f"{name}.cc").read_text()
        assert re.match(rf"// Path `{name}`", text)

"""Tests of the check that includes point down only."""

from __future__ import annotations

from pathlib import Path

import includes
import pytest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in {
        "engine/rank.h": '#include "p2p/queue.h"\n#include "engine/other.h"\n#include <vector>\n',
        "p2p/queue.h": '#include "config/settings.h"\n',
        "config/settings.h": "",
        "programs/print_tool.cc": '#include "engine/rank.h"\n',
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_down_is_right(source: Path) -> None:
    assert includes.wrong_includes(source, {}) == []


@pytest.mark.parametrize(
    ("name", "included", "how"),
    [("p2p/queue.h", "engine/rank.h", "up"), ("p2p/queue.h", "coll/plan/tree.h", "sideways")],
)
def test_up_and_sideways_are_named(source: Path, name: str, included: str, how: str) -> None:
    (source / name).write_text(f'  #  include "{included}"\n')
    found = includes.wrong_includes(source, {})
    assert found == [f"src/{name}: includes {included}, which points {how}"]
    assert includes.wrong_includes(source, {(name, included): "because"}) == []


def test_an_exception_that_is_not_needed_is_named(source: Path) -> None:
    found = includes.wrong_includes(source, {("p2p/queue.h", "engine/rank.h"): "because"})
    assert len(found) == 1 and "does not include engine/rank.h any more" in found[0]


def test_unit_tests_may_use_rooms_beside_theirs(source: Path) -> None:
    (source / "p2p" / "queue_test.cc").write_text('#include "coll/shm/test_team.h"\n')
    assert includes.wrong_includes(source, {}) == []
    (source / "p2p" / "queue_test.cc").write_text('#include "engine/rank.h"\n')
    assert len(includes.wrong_includes(source, {})) == 1


def test_a_new_room_needs_a_level(source: Path) -> None:
    (source / "attic").mkdir()
    (source / "attic" / "box.h").write_text("")
    assert "attic/box.h: has no level" in includes.wrong_includes(source, {})[0]

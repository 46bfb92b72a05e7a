"""Autogroups are off while a check runs, and as they were before after it."""

from __future__ import annotations

from pathlib import Path

import autogroups
import pytest


def test_they_are_off_for_the_time_of_the_check(tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    switch.write_text("1\n")
    with pytest.raises(KeyboardInterrupt), autogroups.off(switch) as done:
        assert switch.read_text() == "0\n"
        assert "until the end" in done
        raise KeyboardInterrupt
    assert switch.read_text() == "1\n"


@pytest.mark.parametrize("content", [None, "0\n"])
def test_nothing_is_done_where_there_are_none(content: str | None, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    if content is not None:
        switch.write_text(content)
    with autogroups.off(switch) as done:
        assert done == ""
    assert (switch.read_text() if content is not None else None) == content


def test_who_may_not_switch_them_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    switch.write_text("1\n")

    def refuse(*_arguments: object, **_options: object) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    with autogroups.off(switch) as done:
        assert "sysctl -w kernel.sched_autogroup_enabled=0" in done
    assert switch.read_text() == "1\n"

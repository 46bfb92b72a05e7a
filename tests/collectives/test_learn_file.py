"""What a program has learnt is kept for its next run, and for that of the same library only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent

pytestmark = pytest.mark.quick

RANKS = 4
REMOTE = {"OVERDRIVE_TEST_REMOTE": "0-2,0-3,1-2,1-3"}
"""Ranks 0 and 1 on a node, 2 and 3 on another."""


def run(host: Host, program: str, file: Path, ranks: int = RANKS, **env: str) -> jobs.Result:
    """Run the program, on two nodes, and expect that its results are right."""
    result = jobs.run(
        host,
        ranks,
        [program],
        env={"OVERDRIVE_LEARN_FILE": str(file), **REMOTE, **env, **sharing.environment(host)},
        preload=([], sharing.libraries(host)),
    )
    expect.passed(result)
    return result


def complaints(result: jobs.Result) -> list[str]:
    """Return the lines about the file."""
    lines = (result.stdout + result.stderr).splitlines()
    return [line for line in lines if "learn_file" in line]


def rules(file: Path) -> list[dict[str, object]]:
    """Return what was learnt; the file says for what it counts."""
    content = json.loads(file.read_text())
    assert content["format"] == "overdrive-tuning"
    assert content["fingerprint"]
    assert content["host"]
    found = content["rules"]
    assert isinstance(found, list)
    return found


def calls(file: Path) -> dict[str, int]:
    """Return by how many calls each choice was found."""
    keys = ("collective", "bytes", "ranks", "nodes", "ranks_per_node", "commutative")
    return {str([rule.get(key) for key in keys]): int(str(rule["calls"])) for rule in rules(file)}


def test_the_next_run_goes_on(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    program, file = compiled(HERE / "learning.c"), tmp_path / "learnt.json"
    first = run(host, program, file)
    assert first.counter("trials") > 0, first.report()
    assert first.counter("trials_learnt") == 0, first.report()
    assert not complaints(first), first.report()
    before = calls(file)
    assert before, file.read_text()
    second = run(host, program, file)
    # On each communicator of rank 0's layout, by every rank.
    assert second.counter("trials_learnt") >= len(before) * 2, second.report()
    assert second.counter("trials") < first.counter("trials"), second.report()
    after = calls(file)
    assert set(before) <= set(after)
    assert all(after[kind] > before[kind] for kind in before), (before, after)
    # As rules they are obeyed.
    fixed = run(host, program, tmp_path / "none.json", OVERDRIVE_TUNING=str(file))
    assert fixed.counter("trials") < first.counter("trials"), fixed.report()
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".json"] == []


def test_other_layouts_stay(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    program, file = compiled(HERE / "learning.c"), tmp_path / "learnt.json"
    run(host, program, file)
    before = calls(file)
    run(host, program, file, ranks=3, OVERDRIVE_TEST_REMOTE="0-2,1-2")
    after = calls(file)
    assert set(before) < set(after)
    assert all(after[kind] == before[kind] for kind in before if "[4, 4]" in kind)


@pytest.mark.parametrize("wrong", ["damaged", "foreign", "shared"])
def test_what_cannot_count_is_neither_used_nor_changed(
    wrong: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    file = tmp_path / "learnt.json"
    content = {"format": "overdrive-tuning", "version": 1, "host": "another library", "rules": []}
    text = json.dumps(content)
    file.write_text(text[:-5] if wrong == "damaged" else text)
    if wrong == "shared":
        file.chmod(0o666)
    before = file.read_text()
    result = run(host, compiled(HERE / "learning.c"), file)
    lines = complaints(result)
    assert len(lines) == 1, result.report()
    assert "neither used nor changed" in lines[0]
    assert str(file) in lines[0]
    assert file.read_text() == before
    assert result.counter("trials") > 0, result.report()
    assert result.counter("trials_learnt") == 0, result.report()


def test_a_file_that_cannot_be_written_is_named(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    file = tmp_path / "missing" / "learnt.json"
    result = run(host, compiled(HERE / "learning.c"), file)
    lines = complaints(result)
    assert len(lines) == 1, result.report()
    assert f"{file} cannot be written: No such file or directory" in lines[0]


def test_who_does_not_learn_writes_nothing(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    file = tmp_path / "learnt.json"
    run(host, compiled(HERE / "learning.c"), file, OVERDRIVE_LEARN="off")
    assert not file.exists()

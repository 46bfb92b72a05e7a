"""`overdrive study timeline`: the simulator's time line, and what is said about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from overdrive import collectives, main, study_timeline


def _report(steps: list[tuple[int, bool, int, int]]) -> dict[str, Any]:
    return {
        "collective": "allreduce", "bytes": 8, "ranks": 2, "nodes": 1, "last_ns": 100,
        "decision": {"algorithm": "ring", "mode": "hierarchical"}, "node_of_rank": [0, 0],
        "steps": [
            {"rank": rank, "between_nodes": between, "begin_ns": begin, "end_ns": end, "segment": 0}
            for rank, between, begin, end in steps
        ],
    }  # fmt: skip


def test_what_overlaps_is_counted_once() -> None:
    """Steps of two ranks at the same time are one stretch of their node."""
    report = _report([(0, False, 0, 10), (1, False, 5, 20), (0, True, 15, 40), (1, True, 18, 30)])
    assert study_timeline.overlaps(report) == [{"inside": 20, "between": 25, "both": 5}]
    assert "0.0 us at the same time" in study_timeline.summary(report)


@pytest.mark.parametrize("inside", ["shared", "messages"])
def test_segments_overlap_in_the_picture(
    tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], inside: str
) -> None:
    """A pipelined allreduce is drawn, and its levels overlap more than those of an uncut one."""
    if not (tool.parent / collectives.TOOL).exists():
        pytest.skip(f"{collectives.TOOL} is not built beside {tool}: run `make`")
    pytest.importorskip("matplotlib")
    common = ["study", "timeline", "allreduce", "4M", "--ranks", "8", "--nodes", "4",
              "--algorithm", "ring", "--inside", inside, "--output", str(tmp_path)]  # fmt: skip
    shown = []
    for pipeline in ("512K", "1G"):
        assert main.run([*common, "--pipeline", pipeline]) == 0
        shown.append(capsys.readouterr().out)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".png", ".svg"]
    times = [float(text.split("done after ")[1].split()[0]) for text in shown]
    assert times[0] < 0.8 * times[1]
    both = [float(text.split("of these ")[1].split()[0]) for text in shown]
    assert both[0] > 2 * both[1]

"""`overdrive study timeline`: the simulator's time line, and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from overdrive import collectives, main
from overdrive.errors import CommandError
from overdrive.study import timeline


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
    assert timeline.overlaps(report) == [{"inside": 20, "between": 25, "both": 5}]
    assert "0.0 us at the same time" in timeline.summary(report)


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


def _write_ranks(folder: Path, calls: list[list[dict[str, Any]]], clock: str = "a") -> str:
    """Write the files of a job as the library does; return the value of the setting."""
    for rank, mine in enumerate(calls):
        content = {"rank": rank, "size": len(calls), "clock": clock, "forgotten": 0, "calls": mine}
        (folder / f"steps.{rank}").write_text(json.dumps(content))
    return str(folder / "steps")


def _call(rank: int, begin: int, end: int, size: int = 8, spans: bool = True) -> dict[str, Any]:
    step = {"rank": rank, "what": "receive", "peer": 1 - rank, "between_nodes": spans,
            "segment": 0, "bytes": size, "begin_ns": begin + 1, "end_ns": end - 1}  # fmt: skip
    return {"number": 0, "collective": "allreduce", "bytes": size, "rank": rank, "ranks": 2,
            "algorithm": "ring", "mode": "flat", "begin_ns": begin, "end_ns": end,
            "node_of_rank": [0, 1], "steps": [step]}  # fmt: skip


def test_measured_steps_of_all_ranks_share_one_time(tmp_path: Path) -> None:
    """Times count from the first rank's call; the last call of the job is taken."""
    setting = _write_ranks(
        tmp_path,
        [[_call(0, 100, 150), _call(0, 1000, 1100)], [_call(1, 110, 160), _call(1, 1020, 1130)]],
    )
    report = timeline.measured(setting, "", None, 1)
    assert (report["last_ns"], report["nodes"], report["ranks"]) == (130, 2, 2)
    assert [(s["begin_ns"], s["end_ns"]) for s in report["steps"]] == [(1, 99), (21, 129)]
    assert timeline.measured(setting, "allreduce", 8, 2)["last_ns"] == 60


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Missing ranks, other machines, other calls and no calls are said."""
    with pytest.raises(CommandError, match="OVERDRIVE_TIMELINE="):
        timeline.measured(str(tmp_path / "steps"), "", None, 1)
    setting = _write_ranks(tmp_path, [[_call(0, 1, 9)], [_call(1, 1, 9, size=16)]])
    with pytest.raises(CommandError, match="differ"):
        timeline.measured(setting, "", None, 1)
    with pytest.raises(CommandError, match="0 such calls"):
        timeline.measured(setting, "bcast", None, 1)
    content = json.loads((tmp_path / "steps.1").read_text())
    (tmp_path / "steps.1").write_text(json.dumps({**content, "clock": "b"}))
    with pytest.raises(CommandError, match="several machines"):
        timeline.measured(setting, "", None, 1)
    (tmp_path / "steps.1").unlink()
    with pytest.raises(CommandError, match="of a job of 2 ranks"):
        timeline.measured(setting, "", None, 1)


def test_waiting_for_the_leader_is_not_work(tmp_path: Path) -> None:
    """A broadcast inside the node begins with its leader, a reduction with the last member."""
    calls = [[_call(0, 0, 100)], [_call(1, 0, 100)]]
    for rank, mine in enumerate(calls):
        mine[0]["node_of_rank"] = [0, 0]
        common = {"rank": rank, "between_nodes": False, "segment": 0, "bytes": 8, "leader": 0}
        mine[0]["steps"] = [
            {**common, "what": "node reduce", "ordinal": 0, "begin_ns": 10 * rank, "end_ns": 20},
            {**common, "what": "node bcast", "ordinal": 1, "begin_ns": 70 - 40 * rank,
             "end_ns": 90},
        ]  # fmt: skip
    report = timeline.measured(_write_ranks(tmp_path, calls), "", None, 1)
    begun = [(s["rank"], s["what"], s["begin_ns"]) for s in report["steps"]]
    assert begun == [
        (0, "node reduce", 10),
        (0, "node bcast", 70),
        (1, "node reduce", 10),
        (1, "node bcast", 70),
    ]

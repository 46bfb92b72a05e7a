"""A job notes the times of its steps, and `overdrive study timeline --measured` reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hosts import Host
from overdrive.study import timeline
from support import expect, jobs, sharing

HERE = Path(__file__).parent
NODES = "0011"

pytestmark = pytest.mark.quick


def test_steps_of_a_real_job(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    """Steps lie within their call, have both levels, and name what the schedule did."""
    pairs = [f"{a}-{b}" for a, b in combinations(range(len(NODES)), 2) if NODES[a] != NODES[b]]
    setting = str(tmp_path / "steps")
    env = {"OVERDRIVE_TEST_REMOTE": ",".join(pairs), "OVERDRIVE_TIMELINE": setting}
    result = jobs.run(
        host,
        len(NODES),
        [compiled(HERE / "placements.c")],
        overdrive=True,
        env={**env, **sharing.environment(host)},
        preload=([], sharing.libraries(host)),
    )
    expect.passed(result)
    assert len(list(tmp_path.iterdir())) == len(NODES)
    for rank in range(len(NODES)):
        noted = json.loads(Path(f"{setting}.{rank}").read_text(encoding="utf-8"))
        assert noted["calls"], result.report()
        for call in noted["calls"]:
            for step in call["steps"]:
                assert call["begin_ns"] <= step["begin_ns"] <= step["end_ns"] <= call["end_ns"]
    report = timeline.measured(setting, "allreduce", None, 1)
    assert (report["nodes"], report["ranks"]) == (2, len(NODES))
    assert {step["between_nodes"] for step in report["steps"]} == {False, True}
    assert {step["rank"] for step in report["steps"]} == set(range(len(NODES)))
    assert all(0 <= s["begin_ns"] <= s["end_ns"] <= report["last_ns"] for s in report["steps"])

"""Real, unmodified programs of the distribution: equal results with and without Overdrive."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hosts import Host
from support import jobs, programs
from support.expect import LOCAL_SENDS

sys.path.insert(0, str(programs.ROOT / "bench"))

import real_programs  # noqa: E402


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("netpipe", marks=pytest.mark.quick),
        pytest.param("lammps", marks=pytest.mark.quick),
        "hpcc",
    ],
)
def test_equal_results(program: str, host: Host, overdrive: bool, tmp_path: Path) -> None:
    """The program's own checks pass and what it computes is the same, digit by digit."""
    reason = real_programs.why_unavailable(program, host.name)
    if reason:
        pytest.skip(reason)
    alone = real_programs.run(program, host.name, False)
    assert alone.ok, alone.problem
    if not overdrive:
        return
    settings = {"OVERDRIVE_STATS": str(tmp_path / "%r.json")}
    ours = real_programs.run(
        program, host.name, True, lib=jobs.overdrive_library(), settings=settings
    )
    assert not real_programs.differences(alone, ours)
    files = sorted(tmp_path.glob("*.json"))
    assert len(files) >= 2, "Overdrive was not active"
    sent = sum(
        value
        for path in files
        for name, value in json.loads(path.read_text())["counters"].items()
        if name in LOCAL_SENDS
    )
    assert sent > 100, f"only {sent} messages went through Overdrive"

"""Collectives over slow links: automatic mode overlaps those that gain by it, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import sharing

pytestmark = [pytest.mark.netns, pytest.mark.quick]

CALLS = 20
TRIALS = 4


@pytest.mark.one
def test_automatic_mode_finds_what_gains(lab, host, compiled, needs_overdrive, tmp_path):
    program = compiled(Path(__file__).with_name("gain.c"))
    lab.good("up", "--nodes", "2", "--rate", "100mbit", "--quiet")
    environment = {name: value for name, value in host.env.items() if value}
    libraries = sharing.libraries(host, between_nodes=True)
    if libraries:
        environment["LD_PRELOAD"] = ":".join(libraries)
    environment |= {
        "OVERDRIVE_STATS": str(tmp_path / "%r.json"),
        "OVERDRIVE_OVERLAP": "auto",
        "OVERDRIVE_OVERLAP_TRACE": "off",
    }
    done = lab(host.launcher, "-n", "2", program, f"--calls={CALLS}", env=environment)
    assert done.code == 0, done.text()
    assert "PASS gain" in done.out, done.text()
    for rank in range(2):
        statistics = json.loads((tmp_path / f"{rank}.json").read_text())
        counters = statistics["counters"]
        assert counters["overlap_turned_on"] == 1, counters
        assert counters.get("overlap_turned_off", 0) == 0, counters
        # Four by way of trial before the sixteenth call, and from there on all.
        assert counters["overlapped"] + counters.get("overlap_complete", 0) >= TRIALS + CALLS - 15
        # Rank 0's has the places of all ranks.
        for site in statistics["overlap"] if rank == 0 else []:
            assert (site["early"] > 0) == (site["bytes"] == 192 << 10), site

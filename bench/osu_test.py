"""What is read from benchmarks' output, and how samples become ratios."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import osu  # noqa: E402


def test_output_is_read() -> None:
    """Lines of two numbers, and the single number of a barrier."""
    text = "# OSU MPI Latency\n# Size   Latency (us)\n1      0.50\n1024     2.25\n"
    assert osu.samples(text) == [(1, 0.5), (1024, 2.25)]
    assert osu.samples("# Avg Latency(us)\n      3.75\n") == [(0, 3.75)]
    assert osu.samples("mpirun: 2 errors\n") == []


def test_summary_favours_the_faster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times count downwards, bandwidths upwards."""
    path = tmp_path / "samples.csv"
    path.write_text(
        "openmpi,osu_bw,2,host,0,8,10\nopenmpi,osu_bw,2,overdrive,0,8,30\n"
        "openmpi,osu_bcast,4,host,0,8,4\nopenmpi,osu_bcast,4,overdrive,0,8,1\n"
        "openmpi,osu_bcast,4,overdrive,1,8,2\nopenmpi,osu_bcast,4,overdrive,2,8,9\n",
        encoding="ascii",
    )
    osu.summary([path])
    lines = capsys.readouterr().out.splitlines()
    assert "osu_bcast" in lines[0] and "overdrive 2.00 (worst 2.00)" in lines[0]
    assert "osu_bw" in lines[1] and "overdrive 3.00 (worst 3.00)" in lines[1]

"""A job records itself, and the report has what the program did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from overdrive.report import command, html
from support import expect, jobs, sharing

HERE = Path(__file__).parent

ROUNDS = 20
SMALL, LARGE = 100, 8 * 5000
"""Bytes of the messages in traffic.c."""


@pytest.mark.quick
@pytest.mark.parametrize("ranks", [3])
def test_record_of_known_traffic(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path, ranks: int
) -> None:
    folder = tmp_path / "100% run"
    result = jobs.run(
        host,
        ranks,
        [compiled(HERE / "traffic.c")],
        env={"OVERDRIVE_RECORD": str(folder), **sharing.environment(host)},
        preload=([], sharing.libraries(host)),
    )
    expect.passed(result)
    found = command.summary(folder)
    assert found["ranks_recorded"] == ranks, result.report()
    right = [(r + 1) % ranks for r in range(ranks)]
    left = [(r - 1) % ranks for r in range(ranks)]
    for rank in range(ranks):
        row = [0] * ranks
        row[right[rank]] += ROUNDS * SMALL
        row[left[rank]] += ROUNDS * LARGE  # by world ranks the other way round
        assert found["matrix"]["bytes"][rank] == row
    sizes = {(row["function"], row["below_bytes"]): row for row in found["sizes"]}
    small, large = sizes["MPI_Send", 128], sizes["MPI_Send", 1 << 16]
    assert (small["calls"], small["bytes"]) == (ROUNDS * ranks, ROUNDS * ranks * SMALL)
    assert (large["calls"], large["bytes"]) == (ROUNDS * ranks, ROUNDS * ranks * LARGE)
    for name in ("Allreduce", "Allgather", "Gather", "Scatter"):
        row = sizes[f"MPI_{name}", 64]
        assert (row["calls"], row["bytes"]) == (ranks, ranks * 32), name
    calls: dict[str, int] = {}
    for site in found["sites"]:
        calls[site["function"]] = calls.get(site["function"], 0) + site["calls"]
    assert calls["MPI_Send"] == ranks * (2 * ROUNDS + 1)
    assert calls["MPI_Wait"] == ranks * 2 * ROUNDS
    assert "MPI_Comm_rank" not in calls
    # The time line has the time of all calls; what came before it begins is in MPI_Init.
    in_line = sum(sum(values) for values in found["timeline"]["activities"].values())
    assert in_line == sum(site["ns"] for site in found["sites"])
    assert all(row["peak_memory_bytes"] > 1 << 20 for row in found["ranks"])
    assert found["timeline"]["activities"]["send"] != found["timeline"]["activities"]["wait"]
    assert "Who talks to whom" in html.render(found)


@pytest.mark.quick
@pytest.mark.one
def test_folder_that_cannot_be_made_is_an_error_line(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    folder = tmp_path / "missing" / "run"
    program = compiled(HERE / "traffic.c")
    result = jobs.run(host, 2, [program], settings={"record": str(folder)})
    expect.passed(result)
    assert f"cannot make the folder {folder}" in result.stderr

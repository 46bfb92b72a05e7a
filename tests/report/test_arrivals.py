"""Statistics and records tell how far apart ranks came to collective calls, and who was last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from overdrive.report import arrivals, command, html, record
from support import expect, jobs, sharing

HERE = Path(__file__).parent
CALLS, PAUSE_NS = 20, 15_000_000
"""As in spread.c; a rank that says that it is about to call may be held up on a busy machine."""


def run(
    host: Host, program: str, nodes: str, record: str = "", stats: str = "0", call_times: str = "on"
) -> jobs.Result:
    """Run the program with ranks on the nodes that the letters name."""
    apart = [
        f"{a}-{b}"
        for a in range(len(nodes))
        for b in range(a + 1, len(nodes))
        if nodes[a] != nodes[b]
    ]
    result = jobs.run(
        host,
        len(nodes),
        [program],
        env={
            "OVERDRIVE_TEST_REMOTE": ",".join(apart),
            "OVERDRIVE_RECORD": record,
            **sharing.environment(host),
        },
        preload=([], sharing.libraries(host)),
        settings={"call_times": call_times},
        stats=stats,
    )
    expect.passed(result)
    return result


@pytest.mark.quick
@pytest.mark.parametrize("nodes", [pytest.param("0000", marks=pytest.mark.one), "0011"])
def test_record_tells_who_came_when(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run(host, compiled(HERE / "spread.c"), nodes, record=str(folder))
    files = record.load(folder)
    found = command.summary(folder)
    rows = {(row["function"], row["ranks"]): row for row in found["arrivals"]["places"]}
    assert set(rows) == {("MPI_Bcast", 4), ("MPI_Allreduce", 2)}
    bcast, allreduce = rows["MPI_Bcast", 4], rows["MPI_Allreduce", 2]
    assert bcast["calls"] == allreduce["calls"] == CALLS
    # The rank that waits for the others and then pauses is last, or one that is held up by more
    # than the pause.
    assert bcast["last"][0][0] == 3
    assert allreduce["last"][0][0] == 0
    assert bcast["median_ns"] > PAUSE_NS / 2
    assert bcast["on_node_ns"] > PAUSE_NS / 2
    assert "main" in bcast["place"] or "+0x" in bcast["place"]
    # Nodes of a test are one machine, whose clock all ranks read: compared, it is the same.
    assert (found["arrivals"]["clock_error_ns"] > 0) == (nodes == "0011")
    assert {rank["arrivals"]["node"] for rank in files} == {nodes.index(node) for node in nodes}
    text = html.render(found)
    assert "Arrival at collectives" in text
    delays = arrivals.delays_us(files, 4, "MPI_Bcast", 1000)
    assert len(delays) == CALLS
    assert all(len(call) == 4 and min(call) == 0 for call in delays)
    assert len(arrivals.delays_us(files, 4, "MPI_Bcast", 5)) == 5
    assert len(arrivals.delays_us(files, 2, "MPI_Allreduce", 1000)) == CALLS
    assert arrivals.delays_us(files, 3, "MPI_Bcast", 1000) == []


@pytest.mark.quick
def test_statistics_have_a_table_of_arrivals(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "spread.c"), "0011", stats="1")
    lines = result.stderr.splitlines()
    head = next(i for i, line in enumerate(lines) if "arrivals at collectives" in line)
    words = {line.split()[0]: line.split() for line in lines[head + 2 : head + 4]}
    assert set(words) == {"MPI_Bcast", "MPI_Allreduce"}
    assert words["MPI_Bcast"][1:3] == ["4", str(CALLS)]
    assert words["MPI_Bcast"][7] == "3"
    assert words["MPI_Allreduce"][1:3] == ["2", str(CALLS)]
    assert words["MPI_Allreduce"][7] == "0"


@pytest.mark.quick
@pytest.mark.one
def test_no_times_no_arrivals(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "spread.c"), "0011", stats="1", call_times="off")
    assert "statistics: 4 ranks" in result.stderr
    assert "arrivals at collectives" not in result.stderr

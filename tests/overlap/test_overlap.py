"""Blocking collectives that return before their data has arrived: nobody can tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, sharing

HERE = Path(__file__).parent

pytestmark = pytest.mark.quick

NODES = {"1+1": "01", "2+2": "0011", "2+1": "010"}
"""Node of each rank."""


def run(
    host: Host,
    program: str,
    nodes: str,
    *arguments: str,
    preload: list[str] | None = None,
    stats: str | None = None,
    limit: float = jobs.DEFAULT_LIMIT_SECONDS,
    **env: str,
) -> jobs.Result:
    placed = NODES[nodes]
    pairs = [f"{a}-{b}" for a, b in combinations(range(len(placed)), 2) if placed[a] != placed[b]]
    own = {
        "OVERDRIVE_TEST_REMOTE": ",".join(pairs),
        "OVERDRIVE_OVERLAP": "on",
        "OVERDRIVE_OVERLAP_MIN": "4K",
    }
    return jobs.run(
        host,
        len(placed),
        [program, *arguments],
        overdrive=True,
        stats=stats,
        env={**own, **sharing.environment(host), **env},
        preload=([], sharing.libraries(host)),
        limit=limit,
    )


def demand_overlap(result: jobs.Result, *counters: str) -> None:
    """Demand that the program passed, that calls overlapped, and that all of these counted."""
    expect.passed(result)
    for name in ("overlapped", *counters):
        assert result.counter(name) > 0, result.report()


@pytest.mark.parametrize("nodes", ["1+1", "2+2", pytest.param("2+1", marks=pytest.mark.one)])
def test_torture(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "torture.c"), nodes, "--rounds=120")
    demand_overlap(result, "overlap_faults")


PARTS = 20
"""Jobs of `test_a_hundred_thousand_operations` on each host, half of them on two ranks."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_hundred_thousand_operations(
    part: int, host: Host, compiled: Callable[[Path], str], needs_overdrive: None, seed: int
) -> None:
    """Collectives and what is done with the memory behind them, with other numbers in each job."""
    program = compiled(HERE / "torture.c")
    nodes = ("1+1", "2+1", "1+1", "2+2")[part % 4]
    words = [f"--rounds={100_000 // PARTS}", "--largest=262144", f"--seed={seed + part}"]
    result = run(host, program, nodes, *words, limit=600.0)
    demand_overlap(result, "overlap_faults", "overlap_system_calls")
    counts = {name: result.counter(name) for name in ("overlapped", "overlap_complete")}
    print(f"torture on {host.name}, nodes {nodes}, seed {seed + part}: {counts}")


@pytest.mark.one
@pytest.mark.parametrize("nodes", ["1+1", "2+1"])
def test_a_late_error_keeps_nobody_waiting(
    nodes: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "late_error.c"), nodes)
    demand_overlap(result)


@pytest.mark.one
def test_handlers_of_the_program(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "crash.c"), "1+1", "--what=handler")
    demand_overlap(result)


@pytest.mark.one
def test_a_crash_is_a_crash(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "crash.c"), "1+1", "--what=crash")
    assert not result.timed_out, result.report()
    assert result.returncode != 0, result.report()
    # The installed MPI may have a handler of its own, which says where.
    assert "0x10" in result.stderr, result.report()
    assert "signal 11" in result.stderr, result.report()


@pytest.mark.one
def test_off_is_off(host: Host, compiled: Callable[[Path], str], needs_overdrive: None) -> None:
    result = run(host, compiled(HERE / "torture.c"), "1+1", "--rounds=20", OVERDRIVE_OVERLAP="off")
    expect.passed(result)
    assert result.counter("overlapped") == 0, result.report()
    assert result.counter("overlap_complete") == 0, result.report()


@pytest.mark.one
def test_other_programs_are_started(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "processes.c"), "1+1")
    demand_overlap(result)


@pytest.mark.one
def test_names_of_files_have_arrived(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "names.c"), "1+1")
    demand_overlap(result, "overlap_system_calls")


@pytest.mark.one
@pytest.mark.parametrize("what", ["access", "write", "suspend"])
def test_handlers_jump_away_from_a_wait(
    what: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "jumps.c"), "1+1", f"--what={what}")
    demand_overlap(result, "overlap_system_calls" if what == "write" else "overlap_faults")


@pytest.mark.one
@pytest.mark.parametrize("how", ["mask", "attribute"])
def test_threads_with_all_signals_blocked(
    how: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "blocked.c"), "1+1", f"--how={how}")
    demand_overlap(result, "overlap_faults")


@pytest.mark.one
@pytest.mark.parametrize("mode", ["on", "trace"])
def test_nothing_is_guarded_where_a_thread_cannot_wait(
    mode: str,
    host: Host,
    compiled: Callable[[Path], str],
    tmp_path: Path,
    needs_overdrive: None,
) -> None:
    result = run(
        host,
        compiled(HERE / "blocked.c"),
        "1+1",
        "--how=kernel",
        OVERDRIVE_OVERLAP=mode,
        OVERDRIVE_OVERLAP_TRACE=str(tmp_path),
        OVERDRIVE_VERBOSE="1",
    )
    expect.passed(result)
    # The root of a broadcast sends from a copy: nothing of it is guarded.
    counters = result.stats[1]["counters"]
    assert (counters["overlap_complete"] > 0) == (mode == "on"), result.report()
    assert counters["overlapped"] == 0, result.report()
    assert counters["overlap_traced"] == 0, result.report()
    assert "has SIGSEGV blocked" in result.stderr, result.report()


def traced_file(folder: Path) -> Path:
    (path,) = folder.glob("*.json")
    return path


@pytest.mark.one
@pytest.mark.parametrize("nodes", ["1+1", "2+2"])
def test_later_runs_follow_a_trace(
    nodes: str,
    host: Host,
    compiled: Callable[[Path], str],
    tmp_path: Path,
    needs_overdrive: None,
) -> None:
    program = compiled(HERE / "order.c")
    folder = tmp_path / "traces"
    ranks = len(NODES[nodes])
    variables = {"OVERDRIVE_OVERLAP_TRACE": str(folder)}
    result = run(host, program, nodes, OVERDRIVE_OVERLAP="trace", **variables)
    expect.passed(result)
    assert result.counter("overlapped") == 0, result.report()
    assert result.counter("overlap_traced") == 8 * ranks, result.report()
    trace = json.loads(traced_file(folder).read_text())
    by_kind = {site["collective"]: site for site in trace["sites"]}
    assert set(by_kind) == {"alltoall", "bcast"}
    # Read from the back: the first rank's block last, the last part of a block first.
    blocks = by_kind["alltoall"]["block_us"]
    assert len(blocks) == ranks
    assert blocks == sorted(blocks, reverse=True)
    assert blocks[0] > blocks[-1]
    for site in by_kind.values():
        assert site["piece_us"] == sorted(site["piece_us"], reverse=True)
        assert site["calls"] == 4 * ranks
        assert "+0x" in site["place"]

    result = run(host, program, nodes, **variables)
    demand_overlap(result)
    assert result.counter("overlap_ordered") == 8 * ranks, result.report()


@pytest.mark.one
def test_nobody_waits_for_a_turn_that_is_not_given(
    host: Host, compiled: Callable[[Path], str], tmp_path: Path, needs_overdrive: None
) -> None:
    program = compiled(HERE / "turns.c")
    variables = {"OVERDRIVE_OVERLAP_TRACE": str(tmp_path)}
    expect.passed(run(host, program, "2+2", OVERDRIVE_OVERLAP="trace", **variables))
    ordered = run(host, program, "2+2", **variables)
    expect.passed(ordered)
    assert ordered.counter("overlap_ordered") > 0, ordered.report()
    for rank in (0, 1):
        result = run(host, program, "2+2", f"--shorter={rank}", **variables)
        expect.passed(result)
        assert 0 < result.counter("overlap_ordered") < ordered.counter("overlap_ordered")


@pytest.mark.one
def test_a_damaged_trace_is_left_aside(
    host: Host, compiled: Callable[[Path], str], tmp_path: Path, needs_overdrive: None
) -> None:
    program = compiled(HERE / "order.c")
    folder = tmp_path / "traces"
    variables = {"OVERDRIVE_OVERLAP_TRACE": str(folder)}
    expect.passed(run(host, program, "1+1", OVERDRIVE_OVERLAP="trace", **variables))
    path = traced_file(folder)
    text = path.read_text()
    for changed, why in (
        (text[: len(text) // 2], "it is damaged"),
        (text.replace('"overdrive_trace": 2', '"overdrive_trace": 9'), "another version"),
        (text.replace(" bytes, changed", "0 bytes, changed"), "the program has changed since"),
    ):
        assert changed != text
        path.write_text(changed)
        result = run(host, program, "1+1", OVERDRIVE_VERBOSE="1", **variables)
        expect.passed(result)
        lines = [line for line in result.stderr.splitlines() if "does not count" in line]
        assert len(lines) == 1, result.report()
        assert why in lines[0], result.report()
        assert result.counter("overlap_ordered") == 0, result.report()


@pytest.mark.one
@pytest.mark.parametrize("nodes", ["1+1", "2+2"])
def test_automatic_mode(
    nodes: str,
    host: Host,
    compiled: Callable[[Path], str],
    tmp_path: Path,
    needs_overdrive: None,
) -> None:
    ranks = len(NODES[nodes])
    variables = {"OVERDRIVE_OVERLAP": "auto", "OVERDRIVE_OVERLAP_TRACE": str(tmp_path)}
    result = run(host, compiled(HERE / "order.c"), nodes, "--calls=70", **variables)
    expect.passed(result)
    # The second call of each kind.
    assert result.counter("overlap_traced") == 2 * ranks, result.report()
    assert traced_file(tmp_path).exists()
    sites = {site["collective"]: site for site in result.stats[0]["overlap"]}
    assert sites["alltoall"]["calls"] == sites["bcast"]["calls"] == 70
    assert sites["alltoall"]["comm_ns"] > 0


@pytest.mark.one
def test_automatic_mode_under_torture(
    host: Host, compiled: Callable[[Path], str], tmp_path: Path, needs_overdrive: None
) -> None:
    variables = {"OVERDRIVE_OVERLAP": "auto", "OVERDRIVE_OVERLAP_TRACE": str(tmp_path)}
    result = run(host, compiled(HERE / "torture.c"), "2+1", "--rounds=120", **variables)
    expect.passed(result)
    assert result.counter("overlap_traced") > 0, result.report()


@pytest.mark.one
def test_statistics_show_the_model(
    host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    program = compiled(HERE / "order.c")
    result = run(host, program, "1+1", stats="1", OVERDRIVE_OVERLAP_TRACE="off")
    expect.passed(result)
    assert "calls that may overlap" in result.stderr, result.report()
    (line,) = [line for line in result.stderr.splitlines() if line.split()[:1] == ["alltoall"]
               and "+0x" in line]  # fmt: skip
    assert line.split()[3] == "8", line  # four calls of two ranks


@pytest.mark.one
@pytest.mark.parametrize("how", ["kill", "abort", "exit"])
@pytest.mark.parametrize("nodes", ["1+1", "2+2"])
def test_a_rank_that_ends_holds_nobody(
    nodes: str, how: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(host, compiled(HERE / "death.c"), nodes, f"--how={how}")
    assert not result.timed_out, result.report()
    assert result.returncode != 0, result.report()


@pytest.mark.one
@pytest.mark.parametrize("mode", ["on", "trace", "auto"])
@pytest.mark.parametrize("nodes", ["2+1", "2+2"])
def test_several_communicators_back_to_back(
    nodes: str,
    mode: str,
    host: Host,
    compiled: Callable[[Path], str],
    tmp_path: Path,
    needs_overdrive: None,
) -> None:
    variables = {"OVERDRIVE_OVERLAP": mode, "OVERDRIVE_OVERLAP_TRACE": str(tmp_path)}
    result = run(host, compiled(HERE / "several.c"), nodes, "--rounds=20", **variables)
    expect.passed(result)
    assert (result.counter("overlapped") > 0) or mode != "on", result.report()
    assert (result.counter("overlap_traced") > 0) == (mode != "on"), result.report()


@pytest.mark.one
@pytest.mark.parametrize("mode", ["on", "auto"])
def test_threads_that_call_at_once(
    mode: str, host: Host, compiled: Callable[[Path], str], needs_overdrive: None
) -> None:
    result = run(
        host,
        compiled(HERE / "several.c"),
        "1+1",
        "--level=multiple",
        OVERDRIVE_OVERLAP=mode,
        OVERDRIVE_OVERLAP_TRACE="off",
    )
    expect.passed(result)
    # Calls of another thread could not tell what they may overtake.
    assert result.counter("overlapped") == 0, result.report()
    assert result.counter("overlap_traced") == 0, result.report()

"""Ranks that differ: without Overdrive, switched off, without a face, with other settings or rules.

Such a job is never wrong and never hangs: it runs over the host alone, with one line that names the
rank, or with the settings of rank 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs
from support.nodes import Nodes

HERE = Path(__file__).parent
Build = Callable[[Path], str]

LIMIT_SECONDS = 30.0
"""Nothing may hang longer than this, whatever ranks have."""


def lines_of(result: jobs.Result) -> list[str]:
    """Return what Overdrive said on standard error."""
    return [line for line in result.stderr.splitlines() if line.startswith("overdrive")]


def run(host: Host, compiled: Build, ranks: list[list[str]], **options: object) -> jobs.Result:
    """Run the program with one prefix per rank; right and in time, or the test fails."""
    program = compiled(HERE / "unequal.c")
    result = jobs.run(
        host,
        len(ranks),
        [program],
        per_rank=[[*prefix, program] for prefix in ranks],
        limit=LIMIT_SECONDS,
        **options,  # type: ignore[arg-type]
    )
    expect.passed(result)
    return result


ABSENT = {
    "disabled": ["env", "OVERDRIVE_DISABLE=1"],
    "no-library": ["env", "-u", "LD_PRELOAD"],
    "no-face": ["env", "OVERDRIVE_FACE_DIR=/nowhere"],
}


@pytest.mark.quick
@pytest.mark.parametrize(("how", "who"), [("disabled", 0), ("no-library", 1), ("no-face", 2)])
def test_one_rank_without(
    how: str, who: int, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """One rank without Overdrive, first, in the middle or last: everybody stays passive."""
    ranks: list[list[str]] = [[], [], []]
    ranks[who] = ABSENT[how]
    result = run(host, compiled, ranks)
    expect.fell_back(result)
    said = [line for line in lines_of(result) if "installed MPI alone" in line]
    assert len(said) == 1, result.report()
    assert f"rank {who} on " in said[0], result.report()


@pytest.mark.quick
def test_settings_at_one_rank(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """Settings and rules at one rank only: rank 0's count, and who has others says so once."""
    result = run(
        host,
        compiled,
        [
            [],
            ["env", "OVERDRIVE_COLLECTIVES=off", "OVERDRIVE_INLINE_MAX=0", "OVERDRIVE_VERIFY=1"],
            ["env", "OVERDRIVE_ADJUST_ALLREDUCE=host", "OVERDRIVE_TUNING=/no/such/file"],
            ["env", "OVERDRIVE_STATS=1", "OVERDRIVE_FASTBOX_BYTES=4K"],
        ],
    )
    expect.took_our_path(result, 20)
    said = [line for line in lines_of(result) if "rank 0's counts" in line]
    assert len(said) == 3, result.report()
    for names in ("verify, inline_max, collectives", "stats, fastbox_bytes"):
        assert any(names in line for line in said), result.report()
    assert any("tuning" in line and "OVERDRIVE_ADJUST_ALLREDUCE" in line for line in said)


def test_settings_at_rank_zero(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """What only rank 0 has holds for all: the table of statistics, which all contribute to."""
    result = run(
        host, compiled, [["env", "OVERDRIVE_STATS=1", "OVERDRIVE_COLLECTIVES=off"], [], []]
    )
    assert "join_ns" in result.stderr, result.report()


@pytest.mark.quick
def test_strict_at_one_rank(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """Strict at rank 0, the mistake at another rank: that rank names it and the job ends."""
    program = compiled(HERE / "unequal.c")
    wrong = ["env", "OVERDRIVE_SPIN=soon", program]
    result = jobs.run(
        host,
        2,
        [program],
        per_rank=[["env", "OVERDRIVE_STRICT=1", program], wrong],
        limit=LIMIT_SECONDS,
    )
    assert not result.timed_out and result.returncode != 0, result.report()
    assert "OVERDRIVE_SPIN" in result.stderr and "strict" in result.stderr, result.report()


ACROSS = {
    "disabled": "export OVERDRIVE_DISABLE=1",
    "no-library": "unset LD_PRELOAD",
}


# Not quick: MPICH 4.0 itself now and then never ends in MPI_Finalize over several nodes here.
@pytest.mark.netns
@pytest.mark.parametrize(("how", "who"), [("disabled", 2), ("no-library", 3), ("nothing", -1)])
def test_one_rank_without_across_nodes(
    how: str, who: int, host: Host, two_nodes: Nodes, compiled: Build, needs_overdrive: None
) -> None:
    """Two nodes of two ranks: the first of the second node is missing, or its last, or nobody."""
    program = compiled(HERE / "unequal.c")
    change = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {who} ] && {ACROSS.get(how, "true")}'
    result = jobs.run(
        host,
        4,
        ["sh", "-c", f'{change}; exec "$0"', program],
        launcher_prefix=two_nodes.enter(two_nodes.head),
        launcher_options=two_nodes.launcher_options(host.family, 2),
        limit=60,
    )
    expect.passed(result)
    said = [line for line in lines_of(result) if "installed MPI alone" in line]
    if how == "nothing":
        expect.took_our_path(result, 20)
        assert not said, result.report()
        return
    expect.fell_back(result)
    assert said and any(f"rank {who} " in line for line in said), result.report()

"""`overdrive study collectives`: its table, and the rules that it compares with."""

from __future__ import annotations

import csv

import pytest
from overdrive import collectives, installation
from overdrive.errors import CommandError
from overdrive.study import collectives as study_collectives
from overdrive.study.collectives import Outcome

pytestmark = pytest.mark.quick


def test_rules_have_the_thresholds_of_the_libraries():
    assert study_collectives.mpich_choice("bcast", 12287, 64) == "binomial"
    assert study_collectives.mpich_choice("bcast", 12288, 7) == "binomial"
    assert study_collectives.mpich_choice("bcast", 12288, 64) == "scatter_doubling"
    assert study_collectives.mpich_choice("bcast", 12288, 65) == "scatter_ring"
    assert study_collectives.mpich_choice("allreduce", 2048, 64) == "recursive_doubling"
    assert study_collectives.mpich_choice("allreduce", 2049, 64) == "rabenseifner"
    assert study_collectives.openmpi_choice("allreduce", 9999, 64) == "recursive_doubling"
    assert study_collectives.openmpi_choice("allreduce", 10000, 64) == "ring"
    assert study_collectives.openmpi_choice("allreduce", 10000, 4096) == "reduce_bcast"


def test_summary_names_the_winner_and_what_the_rules_lose():
    found = [
        Outcome("bcast", 8, 4, 2, "binomial", "flat", 3000, True),
        Outcome("bcast", 8, 4, 2, "binomial", "hierarchical", 2000, True),
        Outcome("bcast", 8, 4, 2, "linear", "flat", 9000, False),
    ]
    (row,) = study_collectives.summary([found])
    assert (row["winner"], row["mode"], row["us"]) == ("binomial", "hierarchical", 2.0)
    assert row["MPICH's rules"] == "binomial"
    assert row["MPICH's rules: times slower"] == 1.5
    assert row["method"] == "simulated"


def test_a_small_study_writes_its_table(overdrive, tool, real, tmp_path):
    if not (tool.parent / collectives.TOOL).exists():
        pytest.skip(f"{collectives.TOOL} is not built beside {tool}: run `make`")
    run = overdrive(
        "study", "collectives", "--nodes", "2,3", "--per-node", "4", "--collectives",
        "barrier,allreduce", "--no-plots", "--output", str(tmp_path), env=real,
    )  # fmt: skip
    assert run.code == 0, run.err
    with (tmp_path / "collectives.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * (1 + len(study_collectives.SIZES))
    assert all(float(row["us"]) > 0 for row in rows if row["bytes"] != "0")
    # The winner is never slower than what the rules would choose.
    assert all(float(row["MPICH's rules: times slower"] or 1) >= 1 for row in rows)


def test_ranks_that_come_late_are_simulated(tool, real):
    here = installation.find(real)
    report, _ = collectives.query(
        here, real, "arrivals", "reduce", "1M", "--ranks", "16", "--nodes", "4",
        "--delay-us", "5000",
    )  # fmt: skip
    rows = {row["pattern"]: row for row in report["patterns"]}
    late = rows["one-late"]
    # With either the root waits for it; with the plain algorithm others do.
    assert late["plain"]["last_ns"] > 5_000_000
    assert late["first_arrival"]["last_ns"] > 5_000_000
    assert late["first_arrival"]["inside_ns"] < late["plain"]["inside_ns"]
    with pytest.raises(CommandError, match="bcast, reduce, gather or scatter"):
        collectives.query(here, real, "arrivals", "scan", "1M")

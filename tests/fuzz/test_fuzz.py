"""A fixed set of random programs on every host; `make fuzz` runs others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hosts import Host

from fuzz import search
from fuzz.runner import Setup, run_text, symptom

SETUPS = {
    "one-node": Setup(None, 3),  # type: ignore[arg-type]
    "two-nodes": Setup(None, 4, "0011"),  # type: ignore[arg-type]
    "shuffled": Setup(None, 4, "0010", (("collective_shuffle", "7"),)),  # type: ignore[arg-type]
}
SEEDS = range(29, 61)


def check(setup: Setup, seeds: range, strands: int = 1) -> None:
    """Run these programs; a failure is shown as the program and the way to run it again."""
    plans, findings = search.batch(setup, seeds, strands)
    assert sum(len(plan.ops) for plan in plans) > 20 * len(plans), "the programs are empty"
    if findings:
        first = findings[0]
        pytest.fail(
            f"seed {first.seed}: {symptom(first.outcome)}: {setup.describe()}\n"
            f"{first.outcome.text}\n\nshrink it with tests/fuzz/run.py --seed {first.seed}"
        )


@pytest.mark.quick
@pytest.mark.parametrize("name", SETUPS)
def test_random_programs(name: str, host: Host, overdrive: bool) -> None:
    setup = SETUPS[name]
    if not overdrive and name == "shuffled":
        pytest.skip("the same as two-nodes without Overdrive")
    layout, settings = (setup.layout, setup.settings) if overdrive else ("", ())
    check(Setup(host, setup.ranks, layout, settings, overdrive), SEEDS)


FOUND = sorted((Path(__file__).parent / "found").glob("*.txt"))
"""Programs that have failed once, made small: `make fuzz` has found them."""


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_before(path: Path, host: Host, overdrive: bool) -> None:
    text = path.read_text()
    ranks, layout = re.findall(r"^# ranks=(\d+) layout=(\d*)$", text, re.MULTILINE)[0]
    number = int(re.findall(r"^program (\d+)", text, re.MULTILINE)[0])
    setup = Setup(host, int(ranks), layout if overdrive else "", (), overdrive, limit=60)
    outcome = run_text(setup, text, [number])
    assert outcome.passed, outcome.text

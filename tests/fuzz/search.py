"""Looks for failures: batches of random programs, each failure judged and shrunk."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hosts import Host

from fuzz import ways
from fuzz.plan import make
from fuzz.program import Program
from fuzz.runner import Outcome, Setup, run, symptom
from fuzz.shrink import shrink
from fuzz.standalone import standalone

BATCH = 25
"""Programs in one MPI job: the start of a job is paid once."""


SHRINK_LIMIT = 2.0
"""Seconds for one program while it is made small: a hang is met often then."""


@dataclass
class Finding:
    """A failure of a program."""

    seed: int
    setup: Setup
    outcome: Outcome
    program: Program
    verdict: str = "Overdrive"
    """Whose it is: Overdrive, host, or unsteady (not seen again)."""
    small: Program | None = None
    runs: int = 0

    def record(self) -> dict[str, Any]:
        """Return what is kept."""
        return {
            "seed": self.seed,
            "ranks": self.setup.ranks,
            "setup": self.setup.describe(),
            "symptom": symptom(self.outcome),
            "verdict": self.verdict,
        }


@dataclass
class Tally:
    """What has been run."""

    programs: int = 0
    operations: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)


def fails_again(setup: Setup, program: Program, times: int) -> Outcome | None:
    """Return a failure of the program alone, or None if it passes every time."""
    for _ in range(times):
        outcome = run(setup, [program])
        if not outcome.passed:
            return outcome
    return None


def judge(finding: Finding, say: Any = print, shrinks: bool = True) -> None:
    """Find out whose failure it is, and make it small if that is wanted."""
    limit = min(finding.setup.limit, SHRINK_LIMIT) if shrinks else finding.setup.limit
    quick = replace(finding.setup, limit=limit)
    again = fails_again(quick, finding.program, 4)
    if again is None:
        finding.verdict = "unsteady"
        return
    finding.outcome = again
    if quick.overdrive and fails_again(quick.alone(), finding.program, 2) is not None:
        finding.verdict = "host"
    elif not quick.overdrive:
        finding.verdict = "host"
    if not shrinks:
        return

    # A failure that comes and goes needs several runs before a candidate counts as passing.
    repeats = 1 if all(not run(quick, [finding.program]).passed for _ in range(2)) else 4

    def fails(candidate: Program) -> bool:
        finding.runs += 1
        setup = replace(quick, ranks=candidate.ranks, layout=quick.layout[: candidate.ranks])
        return fails_again(setup, candidate, repeats) is not None

    say(f"shrinking seed {finding.seed} ({finding.verdict}: {symptom(again)})")
    small = shrink(finding.program, fails, 250)
    finding.small = small
    setup = replace(quick, ranks=small.ranks, layout=quick.layout[: small.ranks])
    last = fails_again(setup, small, 4)
    if last is not None:
        finding.outcome, finding.setup = last, setup


def batch(
    setup: Setup, seeds: Sequence[int], strands: int = 1
) -> tuple[list[Program], list[Finding]]:
    """Run the programs of these seeds; a failure is noted and the rest goes on after it."""
    without = ways.left_out(setup)
    plans = [make(seed, setup.ranks, without=without, strands=strands) for seed in seeds]
    findings = []
    left = list(plans)
    while left:
        outcome = run(setup, left)
        if outcome.passed:
            break
        if outcome.failed == -2:
            findings.append(Finding(-2, setup, outcome, left[-1], "unsteady"))
            break
        position = next(i for i, p in enumerate(left) if p.number == outcome.failed)
        findings.append(Finding(left[position].seed, setup, outcome, left[position]))
        left = left[position + 1 :]
    return plans, findings


def search(
    hosts: Sequence[Host],
    first_seed: int,
    seconds: float,
    chosen: Iterator[Setup],
    keep: Path | None = None,
    say: Any = print,
    shrinks: bool = True,
    size: int = BATCH,
) -> Tally:
    """Run batches for so long; findings are written to `keep` as they come."""
    tally = Tally()
    begin = time.monotonic()
    seed = first_seed
    for setup in chosen:
        if time.monotonic() - begin > seconds:
            break
        strands = random.Random(seed).choice([2, 3]) if setup.threads else 1
        plans, findings = batch(setup, range(seed, seed + size), strands)
        tally.programs += len(plans)
        tally.operations += sum(len(plan.ops) for plan in plans)
        for finding in findings:
            say(f"seed {finding.seed}: {symptom(finding.outcome)}: {setup.describe()}")
            if finding.seed >= 0:
                judge(finding, say, shrinks)
                say(f"seed {finding.seed}: {finding.verdict}")
            tally.findings.append(finding)
            if keep is not None:
                write(keep, finding)
        seed += size
        tally.seconds = time.monotonic() - begin
        if keep is not None:
            (keep / "next-seed").write_text(f"{seed}\n")
            with (keep / "runs.jsonl").open("a") as log:
                row = {"setup": setup.describe(), "first": seed - size, "programs": len(plans)}
                log.write(json.dumps({**row, "failures": len(findings)}) + "\n")
    return tally


def write(keep: Path, finding: Finding) -> None:
    """Write a finding down: what is needed to run it again, and a C program of its own."""
    folder = keep / f"{finding.setup.host.name}-{finding.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "finding.json").write_text(json.dumps(finding.record(), indent=1) + "\n")
    (folder / "failure.txt").write_text(finding.outcome.text)
    small = finding.small or finding.program
    from fuzz.analysis import text_of

    (folder / "program.txt").write_text(text_of(small))
    (folder / "program.c").write_text(standalone(small, finding.setup.describe()))

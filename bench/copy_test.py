"""Tests how jobs take turns and how the samples of the page on copies are judged."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import turns  # noqa: E402
from analysis import Results, notch  # noqa: E402
from campaign import OVERDRIVE, PLAIN, Sample, build_programs, parse, parse_sizes  # noqa: E402
from copy_campaign import (  # noqa: E402
    ENVELOPE_SIZES,
    MAIN_HOST,
    PARTS,
    PATHS,
    SKEW_SIZES,
    CopyCampaign,
)
from copy_goals import (  # noqa: E402
    MEMCPY,
    choice_at,
    envelope_point,
    judge,
    with_memcpy_beside,
)
from copy_report import write_page  # noqa: E402
from jobs import BUILD, BUSY_SECONDS, P2P, Watch, run_job, run_mpi, select_hosts  # noqa: E402
from page import Circumstances  # noqa: E402

NEAR_NS = 45.0
LINE = "latency,usual,blocking,heap,8192,2,1.5,us,45.0,46.0,0.0000,0.0"
ROUNDS = 8


def sample(**changes: object) -> Sample:
    return replace(parse(LINE, MAIN_HOST, OVERDRIVE, 0)[0], **changes)


def series(value: float, **changes: object) -> list[Sample]:
    """The same value in some rounds, on a machine that becomes slower from round to round."""
    return [sample(round=r, value=value * (1 + 0.2 * r), **changes) for r in range(ROUNDS)]


def paths(choice: float, **times: float) -> list[Sample]:
    samples = series(choice)
    for path in PATHS:
        samples += series(times.get(path, 9.0), variant=path)
    return samples


def empty(**parts: Results) -> dict[str, Results]:
    return {part.name: parts.get(part.name, Results([])) for part in PARTS}


def test_turns_exclude_each_other(tmp_path: Path) -> None:
    binary = tmp_path / "turns_check"
    sources = [P2P / "tools" / "turns_check.c", P2P / "turns.c", P2P / "probe.c"]
    subprocess.run(["cc", "-O2", *map(str, sources), "-o", str(binary)], check=True)
    shared = tmp_path / "turns"
    shared.touch()
    result = subprocess.run(
        [binary, shared], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_who_waits_for_a_late_rank_drives_the_library(tmp_path: Path) -> None:
    """A rank of a host that leaves messages in a queue when a call returns hung the others."""
    binary = tmp_path / "late_check"
    sources = [P2P / "tools" / "late_check.c", P2P / "probe.c"]
    subprocess.run(["cc", "-O2", *map(str, sources), "-o", str(binary)], check=True)
    result = subprocess.run([binary], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@dataclass
class Shell:
    """A host whose launcher is nothing at all."""

    name: str = MAIN_HOST
    env: dict[str, str] = field(default_factory=dict)

    def mpiexec(self, _ranks: int, env: dict[str, str]) -> list[str]:
        return ["env", *(f"{name}={value}" for name, value in env.items())]

    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin"}


def script(folder: Path, text: str) -> Path:
    path = folder / f"job{len(list(folder.iterdir()))}"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_repetitions_become_rounds(tmp_path: Path) -> None:
    other = LINE.replace("8192", "64")
    job = script(tmp_path, f"echo {LINE}; echo {other}; echo {LINE}; echo hello")
    variants = [turns.Variant(name, Shell(), job) for name in ("a", "b")]  # type: ignore[arg-type]
    samples, problems = turns.run_together(variants, [], 2, 1.0, 5)
    assert problems == []
    found = [(s.variant, s.size_bytes, s.round) for s in samples]
    assert found == [(v, *at) for v in "ab" for at in ((8192, 5), (64, 5), (8192, 6))]


def test_a_failing_job_ends_the_others(tmp_path: Path) -> None:
    good, bad = script(tmp_path, "exec sleep 60"), script(tmp_path, "echo no >&2; exit 3")
    variants = [turns.Variant("good", Shell(), good), turns.Variant("bad", Shell(), bad)]  # type: ignore[arg-type]
    samples, problems = turns.run_together(variants, [], 2, 30.0, 0)
    assert samples == []
    assert any("bad: status 3: no" in problem for problem in problems)
    assert any("good: ended with the others" in problem for problem in problems)


def test_a_watched_job_tells_that_its_processes_share_a_core() -> None:
    core = min(os.sched_getaffinity(0))
    busy = f"taskset -c {core} sh -c 'while :; do :; done' & "
    command = ["bash", "-c", f"{busy}{busy} sleep 1.5; kill %1 %2; wait"]
    result = run_job(command, dict(os.environ), 60, watched=True)
    assert not result.timed_out
    assert result.waited > 0.3


def test_only_processes_that_were_busy_count_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = int(1e9)
    watch = Watch(os.getpid())
    shortly = int(BUSY_SECONDS * seconds / 4)
    monkeypatch.setattr(watch, "_times", {1: (shortly, 2 * shortly)})
    assert watch.waited() == 0
    monkeypatch.setattr(watch, "_times", {1: (3 * seconds, seconds), 2: (seconds, 0)})
    assert watch.waited() == 0.25


def test_the_group_with_fewest_rounds_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = next(part for part in PARTS if part.name == "collectives")
    asked: list[int] = []

    def run(_variants: object, _arguments: object, ranks: int, *_: object) -> object:
        asked.append(ranks)
        return [sample(ranks=ranks, round=len(asked))], []

    monkeypatch.setattr("copy_campaign.run_together", run)
    shell = Shell()
    campaign = CopyCampaign(
        {MAIN_HOST: shell},  # type: ignore[dict-item]
        {(MAIN_HOST, "od_p2p"): tmp_path},
        tmp_path,
        folder=tmp_path,
    )
    for _ in range(4):
        campaign.measure(part, 0)
    assert sorted(asked[:2]) == sorted(asked[2:]) == [2, 4]


def test_choice_is_compared_with_the_best_path() -> None:
    results = Results(paths(1.1, cells=2.0, pull=1.0))
    choice = choice_at(results, "near", envelope_point("usual", 8192))
    assert choice is not None
    assert (choice.best, round(choice.ratio, 3)) == ("pull", 0.909)
    # Drift hits both alike: the ratio is certain although the times are not.
    assert choice.uncertainty < 1e-9
    assert notch([s.value for s in series(1.0)]) > 0.1


def test_no_verdict_while_a_path_is_missing() -> None:
    samples = [s for s in paths(1.1, pull=1.0) if s.variant != "kernel"]
    assert choice_at(Results(samples), "near", envelope_point("usual", 8192)) is None


def verdict(results: dict[str, Results], topic: str, host: str = "") -> bool | None:
    found = [
        f
        for f in judge(results, ["openmpi4"])
        if topic in f.topic and f.regime == "near" and host in f.host
    ]
    assert len(found) == 1
    return found[0].met


@pytest.mark.parametrize(("slow", "met"), [(1.04, True), (1.1, False)])
def test_one_slow_size_spoils_the_envelope(slow: float, met: bool) -> None:
    samples = []
    for size in parse_sizes(ENVELOPE_SIZES):
        times = paths(slow if size == 65536 else 1.0, cells=1.0)
        samples += [replace(s, size_bytes=size) for s in times]
    results = empty(envelope=Results(samples))
    assert verdict(results, "best single path", "unchanged") is met
    assert verdict(results, "best single path", "rewritten") is None


def test_memcpy_is_a_yardstick_of_long_messages() -> None:
    samples = []
    for size in parse_sizes("1M,2M,4M,8M"):
        samples += [replace(s, size_bytes=size) for s in series(1.05)]
        samples += [replace(s, size_bytes=size) for s in series(1.0, test=MEMCPY, mode="-")]
        # Those of other jobs are not taken.
        samples += series(0.1, test=MEMCPY, mode="-", variant="cells", size_bytes=size)
    results = empty(envelope=Results(with_memcpy_beside(samples)))
    assert verdict(results, "plain memcpy", "unchanged") is True
    slower = [replace(s, value=s.value * 1.2) if s.test != MEMCPY else s for s in samples]
    results = empty(envelope=Results(with_memcpy_beside(slower)))
    assert verdict(results, "plain memcpy", "unchanged") is False


@pytest.mark.parametrize(("call", "met"), [(0.19, True), (0.3, False)])
def test_goal_of_the_sender_s_call(call: float, met: bool) -> None:
    samples = []
    for delay in ("100 us", "1 ms"):
        for size in parse_sizes(SKEW_SIZES):
            what = {"test": "skew", "shape": f"receiver late {delay}", "size_bytes": size}
            for mode, mine in (("call", call), ("total", 1.0)):
                samples += series(mine, mode=mode, **what)
                samples += series(1.0, mode=mode, variant=PLAIN, **what)
    results = empty(skew=Results(samples))
    assert verdict(results, "the sender's call") is met
    assert verdict(results, "Receiver late by 100 us or 1 ms, 8 KiB - 1 MiB: until") is True
    assert verdict(results, "Sender late") is None


def test_page_of_what_there_is(tmp_path: Path) -> None:
    page = tmp_path / "copy.md"
    results = empty(envelope=Results(paths(1.1, cells=2.0, pull=1.0)))
    write_page(page, results, Circumstances({MAIN_HOST: "4"}, {}, "command"))
    text = page.read_text()
    assert "| unchanged buffers, near | 0.91 | 0.91 at 8K | pull 8K |" in text


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_kernels_compute_the_same_as_a_serial_run(ranks: int) -> None:
    hosts, missing = select_hosts(MAIN_HOST)
    if not hosts:
        pytest.skip(missing[MAIN_HOST])
    programs = build_programs(hosts[0])
    assert not programs.problem
    assert programs.od_kernels is not None and programs.od_kernels.is_relative_to(BUILD)
    command = [str(programs.od_kernels), "--reps", "0"]
    result = run_mpi(hosts[0], ranks, command, 300, settings={"OMPI_MCA_mpi_yield_when_idle": "1"})
    assert result.ok, result.stderr
    compared = [line for line in result.stderr.splitlines() if "as in the serial run" in line]
    assert len(compared) == 12

"""Tests how samples become figures and verdicts, with made-up samples whose answers are known."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from analysis import Point, Results, geometric_mean, regime_of, size_name  # noqa: E402
from campaign import (  # noqa: E402
    FIVE,
    LATENCY_SIZES,
    OVERDRIVE,
    PLAIN,
    Sample,
    load,
    parse,
    parse_sizes,
    save,
)
from goals import judge  # noqa: E402
from jobs import ROOT  # noqa: E402
from page import MAX_PAGE_LINES, write  # noqa: E402
from real_programs import Result, differences  # noqa: E402

NEAR_NS, FAR_NS = 45.0, 200.0
LINE = "latency,usual,blocking,heap,8192,2,1.5,us,45.0,46.0,0.0000,0.1"


def sample(**changes: object) -> Sample:
    base = parse(LINE, "openmpi4", PLAIN, 0)[0]
    return replace(base, **changes)


def probed(ns: float, **changes: object) -> Sample:
    return sample(probe_before_ns=ns, probe_after_ns=ns, **changes)


def test_lines_of_other_kinds_are_ignored() -> None:
    samples = parse(f"some greeting, with a comma\n{LINE}\n", "mpich4", OVERDRIVE, 3)
    assert [(s.host, s.variant, s.round, s.value) for s in samples] == [
        ("mpich4", OVERDRIVE, 3, 1.5)
    ]


def test_samples_survive_saving(tmp_path: Path) -> None:
    samples = [sample(), sample(host="impi", value=2.25)]
    save(samples[:1], tmp_path / "s.csv", append=True)
    save(samples[1:], tmp_path / "s.csv", append=True)
    assert load(tmp_path / "s.csv") == samples


@pytest.mark.parametrize(
    ("changes", "regime"),
    [
        ({"probe_before_ns": NEAR_NS, "probe_after_ns": NEAR_NS}, "near"),
        ({"probe_before_ns": FAR_NS, "probe_after_ns": FAR_NS}, "far"),
        ({"probe_before_ns": NEAR_NS, "probe_after_ns": FAR_NS}, "noisy"),
        ({"probe_before_ns": 900.0, "probe_after_ns": 900.0}, "noisy"),
        ({"probe_before_ns": -1.0, "probe_after_ns": -1.0}, "noisy"),
        ({"waited": 0.5}, "noisy"),
        ({"waited": 0.5, "ranks": 4}, "near"),
        ({"foreign_cores": 1.0, "ranks": 4}, "noisy"),
    ],
)
def test_regime(changes: dict[str, object], regime: str) -> None:
    assert regime_of(sample(**changes)) == regime


def pairs(plain: float, overdrive: float, **changes: object) -> list[Sample]:
    return [
        probed(NEAR_NS, variant=variant, value=value, round=number, **changes)
        for number in range(4)
        for variant, value in ((PLAIN, plain), (OVERDRIVE, overdrive))
    ]


def speedup(samples: list[Sample], regime: str = "near") -> float | None:
    point = Point("latency", "usual", "blocking", "heap", 8192, 2)
    point = replace(point, test=samples[0].test)
    return Results(samples).speedup(regime, point, "openmpi4", OVERDRIVE, "openmpi4")


def test_times_and_rates_turn_the_right_way() -> None:
    assert speedup(pairs(3.0, 1.5)) == pytest.approx(2.0)
    assert speedup(pairs(3.0, 1.5, test="bw", unit="MB/s")) == pytest.approx(0.5)


def test_regimes_are_never_mixed() -> None:
    near = [probed(NEAR_NS, value=1.0, round=r) for r in range(4)]
    far = [probed(FAR_NS, value=9.0, variant=OVERDRIVE, round=r) for r in range(4)]
    assert speedup(near + far) is None
    assert speedup(near + far, "far") is None


def test_drift_between_rounds_cancels() -> None:
    samples = []
    for number in range(5):
        drift = 1.0 + number
        samples.append(probed(NEAR_NS, value=3 * drift, round=number))
        samples.append(probed(NEAR_NS, value=2 * drift, round=number, variant=OVERDRIVE))
    assert speedup(samples) == pytest.approx(1.5)


def test_too_few_samples_are_not_judged() -> None:
    assert speedup(pairs(3.0, 1.5)[:4]) is None


def latency_samples(ratio: float, skip: int | None = None) -> list[Sample]:
    return [
        s
        for shape in ("usual", "alternating", "app")
        for mode in ("blocking", "nonblocking")
        for size in parse_sizes(LATENCY_SIZES)
        if size != skip
        for host in FIVE
        for s in pairs(ratio, 1.0, shape=shape, mode=mode, size_bytes=size, host=host)
    ]


def verdicts(samples: list[Sample], word: str) -> set[bool | None]:
    findings = judge(Results(samples), FIVE)
    found = [f for f in findings if word in f.topic and f.regime == "near"]
    assert found
    return {finding.met for finding in found}


def test_a_goal_is_reached_missed_or_unknown() -> None:
    topic = "unchanged and 16 alternating"
    assert verdicts(latency_samples(2.6), topic) == {True}
    assert verdicts(latency_samples(2.4), topic) == {False}
    assert verdicts(latency_samples(2.6, skip=8192), topic) == {None}
    assert verdicts(latency_samples(2.4, skip=8192), topic) == {False}


def test_one_slow_size_spoils_the_goal() -> None:
    slow = pairs(0.8, 1.0, size_bytes=65536, host="mpich4")
    others = [
        s
        for s in latency_samples(4.0)
        if (s.host, s.size_bytes, s.shape, s.mode) != ("mpich4", 65536, "usual", "blocking")
    ]
    findings = judge(Results(others + slow), FIVE)
    found = {f.host: f for f in findings if "16 alternating" in f.topic and f.regime == "near"}
    assert found["MPICH 4.0"].met is False
    assert found["MPICH 4.0"].smallest == "0.80 at 64K usual blocking"
    assert found["MPICH 5.0"].met is True


def test_small_things() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert [size_name(s) for s in (0, 1, 1023, 1024, 1 << 20)] == ["0", "1", "1023", "1K", "1M"]
    assert parse_sizes("0,8,4K,2M") == [0, 8, 4096, 2 << 20]


def test_results_of_programs_are_compared() -> None:
    good = Result("hpcc", "openmpi4", False, True, 1.0, "a\nb")
    assert differences(good, replace(good, overdrive=True)) == []
    assert differences(good, replace(good, comparable="a\nc")) == ["line 2: 'b' against 'c'"]
    assert differences(good, replace(good, comparable="a"))
    failed = replace(good, ok=False, overdrive=True, problem="status 1")
    assert differences(good, failed) == ["hpcc over openmpi4 with Overdrive: status 1"]


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "measurements").glob("*.md")), ids=lambda page: page.stem
)
def test_pages_keep_what_a_reader_wants_at_a_glance(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= MAX_PAGE_LINES


def test_a_page_that_has_grown_too_long_is_not_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write(page, ["line"] * MAX_PAGE_LINES)
    with pytest.raises(ValueError, match="move tables to CSV"):
        write(page, ["line"] * (MAX_PAGE_LINES + 1))
    assert len(page.read_text().splitlines()) == MAX_PAGE_LINES

"""Tests how the choice is compared with its rivals, with made-up rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from campaign import Sample  # noqa: E402
from tuned import (  # noqa: E402
    COLUMNS,
    DEFAULT,
    TUNED,
    halves_of,
    host_settings,
    promising,
    regrets,
    worth_keeping,
)

POINT = ("mpich4", "2", "bcast usual", 64)


def rows(**ways: tuple[str, str]) -> list[dict[str, str]]:
    texts = [[*map(str, POINT), way, *both, "c"] for way, both in ways.items()]
    return [dict(zip(COLUMNS, each)) for each in texts]


def test_each_half_has_the_medians_of_its_rounds():
    assert halves_of(rows(a=("1", "2"), b=("", "3"))) == {POINT: ({"a": 1.0}, {"a": 2.0, "b": 3.0})}


def test_the_best_is_found_in_one_half_and_compared_in_the_other():
    some = rows(default=("10", "10"), a=("5", "10"), b=("10", "5"))
    assert regrets(some, DEFAULT) == {POINT: pytest.approx(1.0)}


def test_only_rivals_are_compared():
    some = rows(default=("10", "10"), fast=("5", "5"), slow=("20", "20"))
    assert regrets(some, DEFAULT, "slow".__eq__) == {POINT: pytest.approx(0.5)}


def test_what_was_measured_in_one_half_only_is_no_rival():
    some = rows(default=("10", "10"), a=("5", ""))
    assert regrets(some, DEFAULT) == {POINT: pytest.approx(1.0)}
    assert regrets(some, "a") == regrets(some, TUNED) == {}


def sample(variant: str, us: float, size: int = 64) -> Sample:
    here = ("mpich4", variant, 0, "bcast", "usual", "blocking", "all", size, 2)
    return Sample(*here, us, "us", -1, -1, 1, 0)


def test_who_is_near_the_best_at_one_point_is_looked_at_again():
    some = [sample("fast", 10), sample("near", 12.9), sample("slow", 13.1)]
    assert promising(some) == {"fast", "near"}
    some += [sample("fast", 10, 128), sample("slow", 11, 128), sample("near", 50, 128)]
    assert promising(some) == {"fast", "near", "slow"}


def test_only_who_may_be_the_best_is_kept():
    some = rows(
        default=("90", "90"), plain=("99", "99"), best=("10", "30"), once=("21", "30"),
        never=("21", "61"), half=("1", ""),
    )  # fmt: skip
    assert [row["variant"] for row in worth_keeping(some)] == ["default", "plain", "best", "once"]


def test_what_may_be_the_best_of_the_host_is_kept():
    setting = next(iter(host_settings.candidates(host_settings.OPEN_MPI, "bcast")))
    some = rows(default=("10", "10"), plain=("99", "99"), **{setting: ("30", "30")})
    assert [row["variant"] for row in worth_keeping(some)] == ["default", "plain", setting]

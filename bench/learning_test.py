"""Tests what is read from jobs that learn, and how it becomes figures, with made-up samples."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import learning_page  # noqa: E402
from campaign import PLAIN, Sample  # noqa: E402
from learning_jobs import (  # noqa: E402
    FAST,
    LEARN,
    SLOW,
    Look,
    forcing,
    network_of,
    verdicts_of,
    windows_of,
    wrong_network,
)
from learning_noise import LONGEST_SECONDS, SHORTEST_SECONDS, lengths  # noqa: E402
from learning_page import FORCED, INSIDE, RATIO, bounds, is_quiet, joined, switches  # noqa: E402

VERDICT = (
    "overdrive[0]: bcast of 49153 to 65536 bytes, 8 ranks on 4 nodes: knomial/hierarchical 492.3 us"
    ", host 3195.1 us, knomial/hierarchical (segments of 65536 bytes) 61.0 us, so {} serves it\n"
)
SEGMENTED = "knomial/hierarchical (segments of 65536 bytes)"
ONE = Sample(
    "openmpi4", LEARN, 0, "bcast", "start", "400:201-400", "learning", 64, 8, 10.0, "us",
    -1, -1, 0, 0,
)  # fmt: skip
PLACE = {"host": "openmpi4", "layout": "4x2", "rate": "off"}


def complete(part: str, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"part": part, **PLACE, **row, "commit": "c"} for row in rows]


def verdict(number: int, at: int, way: str) -> dict[str, str]:
    texts = ["noise", "bcast", "64", "1000", str(number), LEARN, str(at), way, ""]
    return dict(zip(learning_page.VERDICT_COLUMNS, texts))


def test_windows_are_read_and_other_lines_are_not():
    (window,) = windows_of("hello, world\nbcast,64,201,400,37.5\nbcast,64,x,400,1\n")
    assert (window.size_bytes, window.first, window.last, window.us) == (64, 201, 400, 37.5)


@pytest.mark.parametrize("way", ["host", "knomial/flat", SEGMENTED])
def test_a_verdict_tells_the_way(way):
    (found,) = verdicts_of("something else\n" + VERDICT.format(way), "bcast")
    assert (found.way, found.least_bytes, found.most_bytes) == (way, 49153, 65536)
    assert found.times.startswith("knomial/hierarchical 492.3 us") and "61.0 us" in found.times


def test_verdicts_of_other_collectives_are_left_out():
    assert verdicts_of(VERDICT.format("host"), "reduce") == []


def test_what_a_verdict_names_can_be_forced():
    assert forcing("bcast", "host")["OVERDRIVE_ADJUST_BCAST"] == "host"
    settings = forcing("bcast", SEGMENTED)
    assert settings["OVERDRIVE_ADJUST_BCAST"] == "knomial/hierarchical"
    assert settings["OVERDRIVE_ADJUST_BCAST_SEGMENT"] == "65536"
    assert settings["OVERDRIVE_LEARN"] == "off"


def test_a_wrong_network_has_the_library_s_proportions():
    text = "overdrive[0]: between nodes a message takes 21.0 us, and 8.15 ns per byte (0.98 Gbit/s)"
    network = network_of(text)
    assert network == (21000.0, 8.15)
    far = json.loads(wrong_network(network, (0.01, 100)))["machine"]["far"]
    assert far["latency_ns"] + 2 * far["overhead_ns"] == pytest.approx(210)
    assert far["byte_ns"] == pytest.approx(815)
    assert network_of("nothing") is None


def test_a_first_look_leaves_a_handful():
    look = Look({PLAIN: {64: 90.0}, "a": {64: 10.0}, "b": {64: 29.0}, "c": {64: 31.0}}, (1.0, 2.0))
    look = Look.read(look.text())
    assert look.near(64, 3, 6) == [PLAIN, "a", "b"]
    assert look.near(64, 3, 1) == [PLAIN, "a"]
    assert look.network == (1.0, 2.0)


def test_noise_is_the_same_for_a_seed_and_within_bounds():
    some = list(itertools.islice(lengths(7), 500))
    assert some == list(itertools.islice(lengths(7), 500))
    assert some != list(itertools.islice(lengths(8), 500))
    assert SHORTEST_SECONDS <= min(some) and max(some) <= LONGEST_SECONDS


@pytest.mark.parametrize(
    ("first", "last", "quiet"),
    [(201, 400, False), (401, 800, True), (801, 1000, True), (1001, 1600, False)]
    + [(1601, 2000, True), (2001, 3200, False), (12801, 16000, True), (16001, 20000, False)],
)
def test_windows_without_a_measurement(first, last, quiet):
    assert is_quiet(first, last) is quiet


def test_switches_are_counted_within_jobs():
    rows = [verdict(0, 1, "a"), verdict(0, 0, "a"), verdict(0, 2, "b"), verdict(1, 0, "a")]
    assert switches(rows) == [("a", "b")]
    assert switches([*rows, verdict(1, 1, "b"), verdict(1, 2, "a")]) == [
        ("a", "b"),
        ("a", "b"),
        ("b", "a"),
    ]


def test_a_switch_is_wrong_if_it_leaves_what_is_faster_undisturbed():
    noisy = replace(ONE, shape="noise", mode="1000:501-1000", value=99.0)
    samples = [noisy, replace(noisy, round=1)]
    samples += [
        replace(ONE, shape="noise", variant=way, value=us) for way, us in (("a", 10.0), ("b", 10.3))
    ]
    said = [verdict(0, 0, "a"), verdict(0, 1, "b"), verdict(0, 2, "a"), verdict(1, 0, "b")]
    said += [verdict(1, 1, "never forced")]
    counts = learning_page.noise_counts(list(learning_page.noise_rows(samples, said)))
    assert counts == {
        "jobs": 2, "calls": 2000, "verdicts": 5, "switches": 3,
        "wrong": 1, "wrong by 5 %": 0, "unknown": 1, "slow ends": 0,
    }  # fmt: skip


def test_a_job_that_never_switches_may_end_at_a_slow_way():
    noisy = replace(ONE, shape="noise", mode="1000:501-1000")
    samples = [
        replace(ONE, shape="noise", variant=way, value=us) for way, us in (("a", 1.0), ("b", 2.0))
    ]
    rows = learning_page.noise_rows([noisy, *samples], [verdict(0, 0, "b"), verdict(1, 0, "a")])
    assert learning_page.noise_counts(list(rows))["slow ends"] == 1


def start_samples(
    learnt: float, ways: dict[str, tuple[float, float]], mode: str = ONE.mode
) -> list[Sample]:
    found = [replace(ONE, round=number, mode=mode, value=learnt) for number in range(4)]
    for way, both in ways.items():
        found += [
            replace(ONE, round=number, mode=mode, variant=way, value=both[number % 2])
            for number in range(4)
        ]
    return found


def test_the_best_is_found_in_one_half_and_compared_in_the_other():
    # Each is lucky in one half: by the smallest of all the learnt one would be twice as slow.
    rows = complete(
        "start",
        list(
            learning_page.start_rows(start_samples(10.0, {"a": (5.0, 10.0), "b": (10.0, 5.0)})),
        ),
    )
    assert learning_page.start_regrets(rows, "201-400", LEARN) == {("bcast", 64): 1.0}
    assert learning_page.chance(rows, "201-400") == pytest.approx(2.0)


def test_a_start_is_not_its_own_rival():
    rows = complete("start", list(learning_page.start_rows(start_samples(5.0, {"a": (10, 10)}))))
    assert learning_page.start_regrets(rows, "201-400", LEARN) == {("bcast", 64): 0.5}


def job(variant: str, number: int, windows: dict[str, float]) -> list[Sample]:
    one = replace(ONE, shape="cost", variant=variant, round=number)
    return [replace(one, mode=f"1000:{mode}", value=us) for mode, us in windows.items()]


def test_what_learning_costs():
    samples = []
    for number, speed in enumerate((1.0, 1.1, 0.9)):
        # 400 of 1,000 calls take a tenth more. Each second job is as fast as it likes.
        samples += job(LEARN, number, {"1-400": 11.0, "401-1000": 10.0})
        samples += job(FORCED, number, {"1-400": 10.0 * speed, "401-1000": 10.0 * speed})
    rows = {row["what"]: row for row in learning_page.cost_rows(samples) if row["what"] != "whole"}
    assert float(rows[RATIO]["value"]) == pytest.approx(1.04)
    assert float(rows[RATIO]["high"]) > 1.09
    assert {float(rows[INSIDE][name]) for name in ("value", "low", "high")} == {1.04}


def test_rows_of_other_places_and_their_commits_stay():
    old = complete("start", [{"what": "a"}]) + complete("cost", [{"what": "b"}])
    new = [{"part": "cost", **PLACE, "what": "c"}]
    assert [(row["what"], row["commit"]) for row in joined(old, new, "d")] == [
        ("a", "c"),
        ("c", "d"),
    ]
    assert joined(old, new, learning_page.NOT_SAID)[-1]["commit"] == "c"


def test_the_page_says_what_misses_its_goal():
    noisy = replace(ONE, shape="noise", mode="1000:501-1000")
    quiet = [
        replace(ONE, shape="noise", variant=way, value=us) for way, us in (("a", 1.0), ("b", 2.0))
    ]
    said = [verdict(0, 0, "a"), verdict(0, 1, "b")]
    starts = start_samples(11.0, {"a": (10.0, 10.0)})
    starts += [replace(s, variant=FAST) for s in starts if s.variant == LEARN]
    cost = job(LEARN, 0, {"1-400": 11.0, "401-1000": 10.0})
    cost += job(FORCED, 0, {"1-400": 10.0, "401-1000": 10.0})
    rows = complete("start", list(learning_page.start_rows(starts)))
    rows += complete("noise", list(learning_page.noise_rows([noisy, *quiet], said)))
    rows += complete("cost", list(learning_page.cost_rows(cost)))
    text = "\n".join(learning_page.figures(rows, "c"))
    assert f"| {FAST} at first: each point within 5 % of the best after 200 calls | 0 of 1" in text
    assert f"{SLOW} at first" not in text
    assert "| 1 in 1000 calls | no |" in text
    assert "| 1.040 | no |" in text
    assert "Above 1.05 in calls 201-400: 2." in text


@pytest.mark.parametrize(("calls", "verdict"), [(1000, "?"), (200_000, "yes")])
def test_too_few_calls_do_not_show_that_switches_are_rare(calls, verdict):
    noisy = replace(ONE, shape="noise", mode=f"{calls}:1-{calls}")
    rows = complete("noise", list(learning_page.noise_rows([noisy], [])))
    assert f"| 0 in {calls} calls | {verdict} |" in "\n".join(learning_page.figures(rows, "c"))


def test_where_nothing_was_measured_the_page_says_so():
    assert learning_page.figures([], "c") == ["Nothing has been measured yet.", ""]


def test_bounds_of_a_window():
    assert bounds("20000:16001-20000") == (20000, 16001, 20000)

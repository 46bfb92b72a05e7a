"""Tests the benchmark of collectives: that it notices wrong results, and how samples are judged."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import coll_campaign  # noqa: E402
from analysis import Results  # noqa: E402
from campaign import OVERDRIVE, PLAIN, Sample, parse, parse_sizes  # noqa: E402
from coll_campaign import (  # noqa: E402
    APP,
    COLL,
    DRIVER_SIZES,
    JUDGED,
    NET,
    OTHERS,
    PARTS,
    SIZES,
    WORK,
    CollCampaign,
    build,
    build_selection,
    with_net,
)
from coll_goals import judge, points  # noqa: E402
from coll_report import write_page  # noqa: E402
from jobs import BUILD, Host, run_mpi, select_hosts  # noqa: E402
from page import Circumstances, data_file, read_findings  # noqa: E402
from turns import Variant, run_together  # noqa: E402

HOST = "openmpi4"
LINE = "bcast,usual,blocking,all,8192,2,1.5,us,45.0,46.0,0.0000,0.0"
ROUNDS = 4
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}


def sample(**changes: object) -> Sample:
    return replace(parse(LINE, HOST, PLAIN, 0)[0], **changes)


def pair(plain: float, mine: float, **changes: object) -> list[Sample]:
    return [
        sample(round=r, variant=variant, value=value, **changes)
        for r in range(ROUNDS)
        for variant, value in ((PLAIN, plain), (OVERDRIVE, mine))
    ]


def results(**parts: list[Sample]) -> dict[str, Results]:
    return {part.name: Results(with_net(parts.get(part.name, []))) for part in PARTS}


def verdict(found: dict[str, Results], topic: str, who: str) -> bool | None:
    findings = [
        f
        for f in judge(found, [HOST])
        if topic in f.topic and f.regime in ("near", "any") and f.host.endswith(who)
    ]
    assert len(findings) == 1
    return findings[0].met


def all_sizes(ratio: float, shape: str = "usual", slow: int = -1) -> list[Sample]:
    samples = []
    for size in parse_sizes(SIZES):
        plain = 0.9 if size == slow else ratio
        samples += pair(plain, 1.0, size_bytes=size, shape=shape)
    return samples


@pytest.mark.parametrize(("ratio", "met"), [(2.1, True), (1.9, False)])
def test_goal_of_two_ranks(ratio: float, met: bool) -> None:
    found = results(pair=all_sizes(ratio))
    assert verdict(found, "4 KiB … 4 MiB, unchanged", "bcast") is met
    assert verdict(found, "below 4 KiB, unchanged", "bcast") is True
    assert verdict(found, "4 KiB … 4 MiB, unchanged", ", reduce") is None
    assert verdict(found, "4 KiB … 4 MiB, rewritten", "bcast") is None


def test_one_point_below_the_host_spoils_the_goal() -> None:
    found = results(pair=all_sizes(3.0, slow=65536))
    assert verdict(found, "4 KiB … 4 MiB, unchanged", "bcast") is False


def test_the_work_is_subtracted_within_the_round() -> None:
    samples = pair(10.0, 4.0, shape=APP) + pair(1.0, 2.0, shape=WORK)
    # Work measured in another regime says nothing.
    samples += [replace(s, size_bytes=64) for s in pair(10.0, 4.0, shape=APP)]
    far = {"probe_before_ns": 200.0, "probe_after_ns": 200.0}
    samples += [replace(s, size_bytes=64, **far) for s in pair(1.0, 2.0, shape=WORK)]
    net = [s for s in with_net(samples) if s.shape == NET]
    assert {(s.variant, s.size_bytes, s.value) for s in net} == {
        (PLAIN, 8192, 9.0),
        (OVERDRIVE, 8192, 2.0),
    }


def test_a_call_that_seems_to_cost_nothing_is_not_infinitely_fast() -> None:
    samples = with_net(pair(10.0, 4.0, shape=APP) + pair(1.0, 5.0, shape=WORK))
    assert {s.value for s in samples if s.shape == NET and s.variant == OVERDRIVE} == {0.08}


def test_a_barrier_has_one_point_and_one_shape() -> None:
    assert [p.size_bytes for p in points("barrier", "usual", 2, SIZES)] == [0]
    assert points("barrier", NET, 2, SIZES) == []
    assert points("barrier", "usual", 2, SIZES, low=4096) == []


def test_cost_of_first_use_and_growth() -> None:
    samples = []
    for which, value in (("first", 150.0), ("third", 1.0)):
        samples += pair(
            2.0, value, test="first", shape="allreduce", mode=which, kind="-", size_bytes=8
        )
    samples += pair(
        10.0, 100.0, test="communicators", shape="growth", mode="-", kind="-", size_bytes=0
    )
    found = results(cost=samples)
    assert verdict(found, "First use", "Open MPI 4.1") is True
    assert verdict(found, "communicators", "Open MPI 4.1") is True
    worse = [replace(s, value=s.value * 20) if s.unit == "us" else s for s in samples]
    worse = [replace(s, value=s.value * 20) for s in worse]
    found = results(cost=worse)
    assert verdict(found, "First use", "Open MPI 4.1") is False
    assert verdict(found, "communicators", "Open MPI 4.1") is False


def test_page_of_what_there_is(tmp_path: Path) -> None:
    page = tmp_path / "coll.md"
    write_page(page, results(pair=all_sizes(2.5)), Circumstances({HOST: "4"}, {}, "command"))
    text = page.read_text()
    assert "| bcast | unchanged, near | 2.50 (2.50) |" in text
    assert "faster" in text and "Where the host alone is faster" not in text
    assert "How it is measured" in page.with_name("coll-details.md").read_text()
    slow = results(pair=all_sizes(2.5, slow=65536))
    write_page(page, slow, Circumstances({HOST: "4"}, {}, "command"))
    assert "(down to 0.90)" in page.read_text()
    lost = data_file(page, "slower").read_text().splitlines()
    assert [line for line in lost if line.endswith(f"near,bcast,unchanged,{HOST},65536,0.90")]
    assert read_findings(page) == judge(slow, [HOST])


def drivers(ratio: float) -> list[Sample]:
    return [
        sample(test=test, size_bytes=size, round=number, variant=variant, value=value)
        for test in ("reduce", "allreduce")
        for size in parse_sizes(DRIVER_SIZES)
        for number in range(ROUNDS)
        for variant, value in (("generic", ratio), ("segmented", 1.0))
    ]


def test_one_part_is_renewed_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "coll.md"
    around = Circumstances({HOST: "4"}, {}, "command")
    write_page(page, results(pair=all_sizes(2.5), drivers=drivers(0.8)), around)
    details = page.with_name("coll-details.md")
    old, old_details = page.read_text(), details.read_text()
    # There are no samples of two ranks any more.
    write_page(page, results(drivers=drivers(1.5)), replace(around, only=["drivers"]))
    new, new_details = page.read_text(), details.read_text()
    assert "| bcast | unchanged, near | 2.50 (2.50) |" in new
    assert "0.8 |" in old_details and "0.8 |" not in new_details
    assert "| 1.5 | 1.5 |" in new_details
    assert "Measured apart from the rest" in new_details

    def reached(text: str) -> list[int]:
        (line,) = [line for line in text.splitlines() if "figures are reached" in line]
        return [int(word) for word in line.replace(";", " ").split() if word.isdigit()]

    met, judged, unknown = reached(old)
    assert reached(new) == [met + 2, judged, unknown]


def test_the_group_with_fewest_rounds_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = next(part for part in PARTS if part.name == "eight")
    asked: list[str] = []

    def run(_variants: object, arguments: list[str], *_: object, **__: object) -> object:
        test = arguments[1].split(",")[0]
        asked.append(test)
        return [sample(ranks=8, test=test, round=len(asked))], []

    monkeypatch.setattr(coll_campaign, "run_together", run)
    hosts, missing = select_hosts(HOST)
    if not hosts:
        pytest.skip(missing[HOST])
    campaign = CollCampaign({HOST: hosts[0]}, {HOST: tmp_path}, None, folder=tmp_path)
    for _ in range(4):
        campaign.measure(part, 0)
    assert sorted(asked[:2]) == sorted(asked[2:]) == ["allgather", "bcast"]


@pytest.fixture(scope="module")
def host() -> Host:
    hosts, missing = select_hosts(HOST)
    if not hosts:
        pytest.skip(missing[HOST])
    return hosts[0]


def program(host: Host) -> str:
    binary, problem = build(host)
    assert not problem
    return str(binary)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_collective_is_measured_and_checked(host: Host, ranks: int) -> None:
    tests = [*JUDGED, *OTHERS]
    command = [program(host), "--tests", ",".join(tests), "--sizes", "8,24,4K,48K"]
    command += ["--shapes", "usual,app", "--kinds", "all,min,avg,max", "--reps", "1"]
    done = run_mpi(host, ranks, [*command, "--sample-ms", "0.2"], 120, settings=YIELD)
    assert done.ok, done.stderr
    found = parse(done.stdout, HOST, PLAIN, 0)
    assert {s.test for s in found} == set(tests)
    for s in found:
        if s.kind == "all":
            same = [
                o
                for o in found
                if (o.test, o.shape, o.size_bytes) == (s.test, s.shape, s.size_bytes)
            ]
            by_kind = {o.kind: o.value for o in same}
            assert 0 < by_kind["min"] <= by_kind["avg"] * 1.001 <= by_kind["max"] * 1.002
            assert by_kind["max"] <= s.value * 1.001


def measured(host: Host, tmp_path: Path, order: int) -> set[tuple[str, int]]:
    """Return the points that two jobs measure which take turns for a moment."""
    binary = Path(program(host))
    variants = [Variant(PLAIN, host, binary, None, YIELD), Variant("again", host, binary)]
    arguments = ["--tests", "bcast,allreduce,alltoall", "--sizes", SIZES, "--sample-ms", "5"]
    arguments += ["--order", str(order)]
    samples, problems = run_together(variants, arguments, 2, 0.3, 0, folder=tmp_path)
    assert not problems
    by_variant = [[s for s in samples if s.variant == v.name] for v in variants]
    assert [(s.test, s.size_bytes) for s in by_variant[0]] == [
        (s.test, s.size_bytes) for s in by_variant[1]
    ]
    return {(s.test, s.size_bytes) for s in samples}


def test_too_little_time_gives_samples_of_some_points(host: Host, tmp_path: Path) -> None:
    """Some hosts take seconds for a call with more ranks than cores: no round would ever end."""
    some, others = (measured(host, tmp_path, order) for order in (1, 2))
    assert 0 < len(some) < 3 * len(parse_sizes(SIZES))
    assert some != others


def test_what_was_measured_before_the_time_limit_stays(host: Host, tmp_path: Path) -> None:
    turns = tmp_path / "turns"
    turns.touch()
    command = [program(host), "--tests", "bcast", "--sizes", "8,1K", "--seconds", "60"]
    done = run_mpi(host, 2, [*command, "--turns", f"{turns},0,1"], 4, settings=YIELD)
    assert done.timed_out
    assert {s.size_bytes for s in parse(done.stdout, HOST, PLAIN, 0)} == {8, 1024}


@pytest.mark.parametrize(
    ("spoiled", "shapes", "after", "message"),
    [
        ("allreduce", "usual", 0, "wrong result of allreduce: rank 1 of 2"),
        ("alltoall", "usual", 1, "wrong result of alltoall: rank 1 of 2"),
        # The first two calls are looked at word by word; a slow machine makes few others.
        ("alltoall", "app", 2, "wrong sum of the results of alltoall: rank 1 of 2"),
    ],
)
def test_wrong_results_end_the_benchmark(
    host: Host, tmp_path: Path, spoiled: str, shapes: str, after: int, message: str
) -> None:
    shim = tmp_path / "spoil.so"
    source = str(COLL / "tools" / "spoil.c")
    subprocess.run([*host.mpicc, "-shared", "-fPIC", source, "-o", str(shim)], check=True)
    settings = {**YIELD, "SPOIL": spoiled, "AFTER": str(after), "LD_PRELOAD": str(shim)}
    command = [program(host), "--tests", spoiled, "--sizes", "64,4K", "--shapes", shapes]
    done = run_mpi(host, 2, [*command, "--reps", "1"], 60, settings=settings)
    assert not done.ok
    assert message in done.stderr


def test_choosing_is_measured(tmp_path: Path) -> None:
    if not (BUILD / "release" / "archive" / "liboverdrive_core.a").exists():
        pytest.skip("the release build is missing: run `make`")
    binary = build_selection(tmp_path)
    assert binary is not None
    done = subprocess.run([binary], capture_output=True, text=True, check=True)
    times = {line.split(",")[0]: line.split(",")[1:] for line in done.stdout.splitlines()}
    assert set(JUDGED) <= set(times)
    assert all(float(look_up) > 0 for look_up, _, _ in times.values())
    assert any(float(schedule) > 0 for _, _, schedule in times.values())


def test_costs_are_measured(host: Host) -> None:
    command = [program(host), "--tests", "first", "--sizes", "8", "--reps", "1"]
    done = run_mpi(host, 2, command, 60, settings=YIELD)
    assert done.ok, done.stderr
    found = {(s.shape, s.mode, s.size_bytes) for s in parse(done.stdout, HOST, PLAIN, 0)}
    assert ("allreduce", "first", 65536) in found
    assert ("bcast", "third", 8) in found

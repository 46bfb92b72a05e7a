"""`overdrive tune`: what may still win, which rules follow, being killed and resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import hosts
import pytest
from overdrive import bench
from overdrive.bench_tables import Sample
from overdrive.tune import command, report, rounds, rules, statistics
from overdrive.tune.journal import Journal
from overdrive.tune.statistics import BUILT_IN, Measured

from . import pages

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "overdrive"

HOST = "openmpi4"

quick = pytest.mark.quick


def exact(us: float, spread: float = 0.01) -> Measured:
    return Measured(us, us * (1 - spread), us * (1 + spread), 9)


def table(**variants: dict[int, float]) -> dict[str, dict[int, Measured]]:
    names = {"built_in": BUILT_IN, "ring": "ring/flat", "host": "host", "knomial": "knomial/flat"}
    return {
        names[name]: {size: exact(us) for size, us in sizes.items()}
        for name, sizes in variants.items()
    }


@quick
def test_the_interval_holds_the_median_and_grows_with_the_noise():
    few = statistics.measured([1.0, 2.0])
    assert (few.low, few.high) == (1 / statistics.FEW_TIMES, 2 * statistics.FEW_TIMES)
    found = statistics.measured([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.median, found.samples) == (3.0, 5)
    assert found.low <= 3.0 <= found.high
    many = statistics.measured([float(i % 10) for i in range(1000)])
    assert many.high - many.low <= 1


@quick
def test_what_cannot_win_drops_out_and_the_built_in_choice_stays():
    found = table(
        built_in={8: 9.0, 64: 9.0}, ring={8: 2.0, 64: 5.0}, host={8: 4.0, 64: 1.0},
        knomial={8: 4.0, 64: 3.0},
    )  # fmt: skip
    assert statistics.survivors(found) == [BUILT_IN, "ring/flat", "host"]
    close = {name: {8: Measured(us, 1.0, 9.0, 5)} for name, us in
             ((BUILT_IN, 3.0), ("a", 3.1), ("b", 3.2), ("c", 3.3), ("d", 3.4))}  # fmt: skip
    assert statistics.survivors(close) == [BUILT_IN, "a", "b"], "the better half"


@quick
def test_a_rule_needs_a_sure_gain():
    found = table(built_in={8: 3.0, 64: 3.0, 512: 3.0}, ring={8: 2.95, 64: 2.0, 512: 2.0},
                  host={8: 4.0, 64: 4.0, 512: 1.5})  # fmt: skip
    assert statistics.winner(found, 8) == BUILT_IN, "2 % is too little"
    assert statistics.winner(found, 64) == "ring/flat"
    assert statistics.winner(found, 512) == "host"
    found["ring/flat"][64] = Measured(2.0, 1.5, 3.5, 5)
    assert statistics.winner(found, 64) == BUILT_IN, "it may be chance"
    assert statistics.candidate(found, 64) == "ring/flat", "but it may be looked at again"
    found["ring/flat"][64] = Measured(2.0, 1.9, 2.1, 2)
    assert statistics.winner(found, 64) == BUILT_IN, "two samples are too few"


@quick
def test_without_the_built_in_choice_there_is_nothing_to_gain_over():
    found = table(built_in={8: 9.0}, ring={8: 5.0, 4096: 5.0}, host={4096: 20.0})
    assert statistics.winner(found, 4096) == BUILT_IN
    assert statistics.candidate(found, 4096) == BUILT_IN
    assert [rule["bytes"] for rule in rules.rules_of("bcast", {2: found}, {})] == [[0, 181]]


@quick
def test_what_loses_with_one_kind_of_buffers_gets_no_rule():
    untouched, rewritten = exact(1.0), exact(100.0)
    found = {BUILT_IN: {8: statistics.combined([untouched, rewritten])}}
    both = found[BUILT_IN][8]
    assert (both.median, both.kinds) == (pytest.approx(10.0), (1.0, 100.0))
    for kinds, best in (((0.5, 101.0), "a"), ((0.5, 110.0), BUILT_IN), ((1.1, 50.0), BUILT_IN)):
        found["a"] = {8: statistics.combined([exact(us) for us in kinds])}
        assert statistics.winner(found, 8) == best, kinds
        assert statistics.candidate(found, 8) == best, kinds


@quick
def test_sizes_halfway():
    pairs = ((8, 64), (64, 512), (2048, 4096), (1, 2), (8, 10))
    assert [statistics.halfway(*pair) for pair in pairs] == [24, 184, 2896, 1, 8]


@quick
def test_ranges_meet_between_the_measured_sizes():
    found = table(built_in={64: 9.0, 1024: 9.0, 4096: 9.0, 16384: 1.0},
                  ring={64: 3.0, 1024: 3.0, 4096: 9.0, 16384: 9.0},
                  host={64: 5.0, 1024: 5.0, 4096: 5.0, 16384: 9.0})  # fmt: skip
    assert rules.ranges(found) == [
        ("ring/flat", 0, 2048, [64, 1024]), ("host", 2049, 8192, [4096]),
        (BUILT_IN, 8193, 32768, [16384]),
    ]  # fmt: skip
    alone = table(built_in={1024: 9.0}, ring={1024: 3.0})
    assert rules.ranges(alone) == [("ring/flat", 0, 2048, [1024])]
    assert rules.ranges(alone, planned=[64, 1024, 4096]) == [
        (BUILT_IN, 0, 256, [64]), ("ring/flat", 257, 2048, [1024]),
        (BUILT_IN, 2049, 8192, [4096]),
    ], "not over sizes that there was no time for"  # fmt: skip
    written = rules.rules_of("bcast", {2: found, 8: found}, {"nodes": 1})
    assert [(rule["algorithm"], rule["bytes"], rule["ranks"]) for rule in written] == [
        ("ring", [0, 2048], [2, 7]), ("host", [2049, 8192], [2, 7]),
        ("ring", [0, 2048], [8, 8]), ("host", [2049, 8192], [8, 8]),
    ]  # fmt: skip
    other = table(built_in={64: 9.0, 1024: 9.0, 4096: 9.0}, ring={64: 9.0, 1024: 3.0},
                  host={4096: 5.0})  # fmt: skip
    apart = rules.rules_of("bcast", {2: found, 8: other}, {})
    assert [(rule["algorithm"], rule["ranks"]) for rule in apart] == [
        ("ring", [2, 2]), ("host", [2, 7]), ("ring", [8, 8]), ("host", [8, 8]),
    ], "between two numbers that differ nothing is known"  # fmt: skip
    assert written[0]["mode"] == "flat"
    assert "mode" not in written[1]
    assert written[0]["evidence"]["64"] == {"ring/flat": 3.0, BUILT_IN: 9.0, "host": 5.0}
    assert written[1]["evidence"]["4096"] == {"host": 5.0, BUILT_IN: 9.0}
    text = rules.render("machine", "Open MPI v4.1.4", "2026-01-01", written)
    assert json.loads(text)["rules"] == written


@quick
def test_the_page_has_figures_and_the_regret():
    found = table(built_in={8: 3.0, 64: 3.0}, ring={8: 2.0, 64: 3.3}, host={8: 4.0, 64: 4.0})
    seen = {("bcast", 2): found, ("scan", 2): {}}
    text = report.render("here", seen, seen, ["one line"])
    checked = pages.check(text)
    assert checked.figures == 2, "what wins where, and the regret"
    assert "ring/flat" in text
    assert "50 %" in text, "the regret at 8 bytes"


def sample(us: float, size: int = 8, job: str = "host", shape: str = "usual") -> Sample:
    return Sample(job, "bcast", shape, "blocking", "all", size, 2, us, 40.0, 40.0, 0.0)


@quick
def test_the_journal_survives_being_cut_anywhere(tmp_path):
    path = tmp_path / "out.partial"
    plan = {"sizes": [8], "host": "x"}
    journal = Journal(path, plan)
    heats = {f"2/bcast/8/{number}": [sample(float(number + 1))] for number in range(3)}
    for name, samples in heats.items():
        journal.add(name, samples)
    journal.close(remove=False)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found = Journal(path, plan)
        kept = sum(end <= length for end in ends[1:])
        assert list(found.heats.items()) == list(heats.items())[:kept], length
        for name in list(heats)[kept:]:
            found.add(name, heats[name])
        found.close(remove=False)
        assert path.read_bytes() == whole, length
    assert Journal(path, {**plan, "sizes": [16]}).heats == {}, "something else is tuned"


COLLECTIVES = bench.KNOWN[:6]


@quick
@pytest.mark.parametrize(
    ("budget", "measured_heats", "decided"),
    [(1.0, 6, 1), (30.0, 20, 3), (60.0, 35, 5), (600.0, 72, 6)],
)
def test_the_budget_is_kept(tmp_path, monkeypatch, budget, measured_heats, decided):
    """A heat takes two seconds at least: what there is no time for is left to the next call."""
    now = [0.0]
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now[0])
    heats = [rounds.Heat(2, name, (size,)) for name in COLLECTIVES for size in (8, 4096, 1 << 20)]
    measured: list[str] = []

    class Tuned(rounds.Tuning):
        def variants(self, heat, number):
            return [bench.Variant(name, {}) for name in (BUILT_IN, "good")]

        def measure(self, heat, variants, seconds):
            now[0] += max(2.0, seconds)
            measured.append(heat.collective)
            return samples(heat.sizes[0], built_in=3.0, good=2.0)

    journal = Journal(tmp_path / "out.partial", {})
    tuning = Tuned(None, journal, heats, budget, 2)
    assert tuning.run()
    assert now[0] <= budget + rounds.SLACK_SECONDS + 2
    assert len(measured) == measured_heats
    assert tuning.left == [(2, name) for name in COLLECTIVES[decided:]]
    for _ in range(60):
        if not tuning.left:
            break
        tuning = Tuned(None, journal, heats, budget, 2)
        assert tuning.run()
    assert all(map(tuning.is_decided, tuning.points)), "later calls go on"
    assert list(dict.fromkeys(measured)) == list(COLLECTIVES), "one after the other"
    journal.close(remove=False)


@quick
def test_a_variant_is_compared_where_it_was_seen_with_all_kinds_of_buffers():
    found = rounds.tabulate(
        [sample(us, job=job, shape=shape) for job, shape, us in (
            ("a", "usual", 1.0), ("a", "app", 4.0), ("b", "usual", 1.0))], 2)  # fmt: skip
    assert list(found) == ["a"]
    assert (found["a"][8].median, found["a"][8].samples) == (2.0, 1)


class LastRound(rounds.Tuning):
    """Three sizes of a broadcast, in one heat each; who is measured is not looked up."""

    def every_variant(self, heat):
        return [bench.Variant(name, {}) for name in (BUILT_IN, "lucky", "good")]

    def parameters(self, heat, table):
        return []


def samples(size: int, **times: float) -> list[Sample]:
    named = {"built_in": BUILT_IN}
    return [sample(us, size, named.get(job, job)) for job, us in times.items() for _ in range(9)]


@quick
def test_calls_that_no_rule_can_tell_apart_are_kinds_of_one():
    """What gains with one size and loses with another gets no rule."""
    found = [rounds.as_ruled(replace(sample(us, size, job), collective="alltoallv", shape=shape))
             for job, size, us in ((BUILT_IN, 64, 2.0), (BUILT_IN, 4096, 9.0),
                                   ("even", 64, 1.0), ("even", 4096, 8.0),
                                   ("uneven", 64, 0.5), ("uneven", 4096, 9.9))
             for shape in rounds.KINDS for _ in range(9)]  # fmt: skip
    table = rounds.tabulate(found, 2)
    assert {size for sizes in table.values() for size in sizes} == {0}
    assert statistics.winner(table, 0) == "even"
    assert statistics.winner({name: table[name] for name in (BUILT_IN, "uneven")}, 0) == BUILT_IN
    (rule,) = rules.rules_of("alltoallv", {2: table}, {}, [8, 64])
    assert "bytes" not in rule


@quick
def test_the_last_round_alone_decides_and_measures_between(tmp_path):
    """The first of 24 variants in short rounds is partly the luckiest."""
    journal = Journal(tmp_path / "out.partial", {})
    sizes = (8, 512, 4096, 65536)
    heats = [rounds.Heat(2, "bcast", (size,)) for size in sizes]
    seen = ({"built_in": 3.0, "good": 2.0}, {"built_in": 3.0, "good": 2.0},
            {"built_in": 9.0, "lucky": 1.0}, {"built_in": 9.0})  # fmt: skip
    for heat, times in zip(heats, seen, strict=True):
        journal.add(heat.name(0), samples(heat.sizes[0], **times))
    tuning = LastRound(None, journal, heats, 10.0, 2)
    last = tuning.last_heats((2, "bcast"))
    assert [heat.sizes for heat in last] == [(8, 64, 512, 1448), (4096, 16384)]
    names = [variant.name for variant in tuning.variants(last[1], rounds.LAST)]
    assert sorted(names) == sorted([BUILT_IN, "lucky", "good"])
    assert statistics.winner(tuning.decided(2, "bcast"), 8) == BUILT_IN, "not decided yet"
    for size, good in ((8, 2.0), (64, 2.0), (512, 2.0), (1448, 4.0)):
        found = samples(size, built_in=3.0, good=good, lucky=3.0)
        journal.add(last[0].name(rounds.LAST), [
            *journal.heats.get(last[0].name(rounds.LAST), []), *found])  # fmt: skip
    journal.add(last[1].name(rounds.LAST), samples(4096, built_in=9.0, lucky=9.1))
    table = tuning.decided(2, "bcast")
    assert statistics.winner(table, 4096) == BUILT_IN, "it was not seen again"
    assert table[BUILT_IN][65536].median == 9.0
    planned = [*sizes, *(heat for one in last for heat in one.sizes)]
    assert [rule["bytes"] for rule in rules.rules_of("bcast", {2: table}, {}, planned)] == [
        [0, 861]
    ], "as far as halfway to where it is not faster"
    journal.close(remove=False)


@quick
def test_the_name_of_the_library_is_that_of_its_file():
    assert command.short_version("Open MPI v4.1.4, package: x\n more") == "Open MPI v4.1.4"
    env = {"XDG_CONFIG_HOME": "/c"}
    for version, name in (
        ("Open MPI v4.1.4", "tuning-open-mpi-v4.1.4.json"),
        ("MPICH Version:\t4.0.2", "tuning-mpich-version-4.0.2.json"),
        ("Intel(R) MPI Library 2021.18 for Linux* OS", "tuning-intel-r-mpi-library-2021.18-for-"
                                                       "linux-os.json"),
    ):  # fmt: skip
        assert command.standard_file(env, version) == Path("/c/overdrive") / name


@quick
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon"], "such as 90s, 10m or 2h"),
        (["--collectives", "bcast,dance"], "takes some of"),
        (["-n", "1"], "numbers of ranks"),
        (["--sizes", "8,big"], "is not a size"),
        (["--ppn", "2"], "belongs to --lab"),
    ],
)
def test_mistakes_are_told(overdrive, real, arguments, words):
    run = overdrive("tune", *arguments, env=real)
    assert run.code == 2
    assert words in run.err


def test_budgets():
    assert [command.budget(text) for text in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]


@pytest.fixture
def tune(real, tmp_path, request):
    host = hosts.get(HOST)
    if host is None:
        pytest.skip(f"{HOST} is not here")

    def start(*arguments: str, **keywords: object) -> subprocess.Popen[str]:
        # The first one's launcher removes what jobs of Open MPI 4 share while it is being killed.
        session = tempfile.mkdtemp(prefix="odtune-")
        request.addfinalizer(lambda: shutil.rmtree(session, ignore_errors=True))
        environment = {**os.environ, **host.env, **real, "XDG_CACHE_HOME": str(tmp_path / "cache"),
                       "XDG_CONFIG_HOME": str(tmp_path / "config"),
                       "OMPI_MCA_orte_tmpdir_base": session}  # fmt: skip
        words = ["tune", "--launcher", host.launcher, *arguments]
        return subprocess.Popen(
            [sys.executable, str(COMMAND), *words], env=environment, cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **keywords,
        )  # fmt: skip

    return start


ARGUMENTS = ("--collectives", "barrier,bcast", "--sizes", "8", "--budget", "4s")


def test_killed_and_resumed_it_writes_rules_that_jobs_load(tune, tmp_path, real):
    partial = tmp_path / "config" / "overdrive"
    first = tune(*ARGUMENTS)
    # Killed in the middle: as soon as something has been kept.
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and first.poll() is None:
        kept = list(partial.glob("*.partial"))
        if kept and kept[0].read_bytes().count(b"\n") >= 2:
            break
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    kept = next(iter(partial.glob("tuning-open-mpi-*.json.partial"))).read_text()
    second = tune(*ARGUMENTS)
    out, err = second.communicate(timeout=240)
    assert second.returncode == 0, err
    assert "of which 0 are measured" not in out
    assert not list(partial.glob("*.partial"))
    file = next(iter(partial.glob("tuning-open-mpi-*.json")))
    found = json.loads(file.read_text())
    assert (found["format"], found["version"]) == ("overdrive-tuning", 1)
    assert "bcast, 2 ranks" in out
    assert kept.startswith("{")

    # The library finds it: a rule of it shows in what a job says about its choices.
    found["rules"] = [{"collective": "bcast", "algorithm": "no such thing"}]
    file.write_text(json.dumps(found))
    host = hosts.get(HOST)
    assert host is not None
    environment = {**os.environ, **host.env, **real,
                   "XDG_CONFIG_HOME": str(tmp_path / "config")}  # fmt: skip
    source = tmp_path / "job.c"
    source.write_text(
        "#include <mpi.h>\nint main(void) { MPI_Init(0, 0); return MPI_Finalize(); }\n"
    )
    subprocess.run(
        [*host.mpicc, str(source), "-o", str(tmp_path / "job")], env=environment, check=True
    )
    job = subprocess.run(
        [sys.executable, str(COMMAND), *host.mpiexec(2), str(tmp_path / "job")],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert "the whole tuning file is ignored" in job.stderr
    assert job.returncode == 0

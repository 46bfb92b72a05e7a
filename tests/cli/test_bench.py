"""`overdrive bench coll`: what it starts, what it makes of samples, and a real run."""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import hosts
import pytest
from overdrive import bench, bench_arrival, bench_tables
from overdrive.errors import CommandError

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "overdrive"

HOST = "openmpi4"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def line(size: int, us: float, what: str = "all", shape: str = "usual", probe: float = 40.0) -> str:
    return f"bcast,{shape},blocking,{what},{size},2,{us},us,{probe},{probe},0.0,0.0\n"


def samples(job: str, us: float, **more: object) -> list[bench_tables.Sample]:
    return bench_tables.parse(line(8, us, **more) * 3, job)


def rows(text: str) -> list[list[str]]:
    return [words.split() for words in text.splitlines() if words and not words.startswith("#")]


def test_a_table_has_times_and_their_ratio():
    found = samples("host", 3.0) + samples("Overdrive", 1.5)
    found += samples("host", 2.5, what="min") + samples("Overdrive", 1.25, what="avg")
    text = bench_tables.render(found, ["host", "Overdrive"], ["bcast"], 2)
    assert rows(text) == [["8", "2.50", "-", "-", "-", "1.25", "-", "2.00"]]
    assert "2.00 times as fast" in text


def test_the_work_is_subtracted():
    found = []
    for job, us in (("host", 5.0), ("Overdrive", 3.0)):
        found += samples(job, us, shape="app") + samples(job, 1.0, shape="work")
    text = bench_tables.render(found, ["host", "Overdrive"], ["bcast"], 2)
    assert rows(text)[0][-3:] == ["1.00", "1.67", "2.00"]


def test_distances_are_not_mixed():
    found = samples("host", 3.0) + samples("Overdrive", 1.0)
    found += bench_tables.parse(line(8, 90.0, probe=200.0), "Overdrive")
    found += bench_tables.parse(line(8, 90.0, probe=700.0), "Overdrive")
    text = bench_tables.render(found, ["host", "Overdrive"], ["bcast"], 2)
    assert "near, 2 samples dropped" in text
    assert rows(text)[0][-1] == "3.00"


def test_the_best_of_many_is_named():
    found = samples("host", 3.0) + samples("ring/flat", 1.0) + samples("Overdrive", 2.0)
    text = bench_tables.render(found, ["host", "Overdrive", "ring/flat"], ["bcast"], 2)
    assert rows(text) == [["8", "3.00", "2.00", "1.00", "ring/flat"]]


@pytest.mark.parametrize(
    ("launcher", "compilers", "expected"),
    [
        ("mpirun", ["mpicc"], "mpicc"),
        ("mpirun.openmpi", ["mpicc", "mpicc.openmpi"], "mpicc.openmpi"),
        ("mpiexec.hydra", ["mpicc", "mpicc.mpich"], "mpicc.mpich"),
        ("mpiexec.hydra", ["mpicc"], "mpicc"),
    ],
)
def test_the_compiler_lies_beside_the_launcher(tmp_path, launcher, compilers, expected):
    for name in (launcher, *compilers):
        program(tmp_path / name, "#!/bin/sh\n")
    found = bench.find_compiler(str(tmp_path / launcher), None)
    assert found == str(tmp_path / expected)


def test_no_compiler_is_said_with_a_remedy(tmp_path):
    with pytest.raises(CommandError, match="--mpicc"):
        bench.find_compiler(str(program(tmp_path / "mpirun", "")), None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "bench coll --help"),
        (["coll", "neighbor"], "'neighbor' is none of bcast"),
        (["coll", "--shapes", "round"], "not 'round'"),
        (["coll", "--algorithms"], "--algorithms needs one collective"),
        (["coll", "--ppn", "2"], "--ppn belongs to --lab"),
        (["coll", "--launcher", "nompirun"], "nompirun was not found"),
    ],
)
def test_mistakes_are_said(overdrive, arguments, message):
    run = overdrive("bench", *arguments)
    assert run.code == 2
    assert message in run.err


@pytest.fixture
def real_run(real, tmp_path):
    host = hosts.get(HOST)
    if host is None:
        pytest.skip(f"{HOST} is not here")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = ["bench", "coll", *arguments, "--launcher", host.launcher, "--sizes", "8,4K"]
        words += ["--sample-ms", "0.1"]
        environment = {**os.environ, **host.env, **real, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, str(COMMAND), *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_with_and_without_overdrive(real_run, tmp_path):
    done = real_run(
        "bcast", "barrier", "--shapes", "usual,app", "--seconds", "0.2", "--csv", "s.csv"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("# bcast, 2 ranks") == 2
    assert [row[0] for row in rows(done.stdout)] == ["8", "4096", "8", "4096", "0"]
    with (tmp_path / "s.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {row["job"] for row in table} == {"host", "Overdrive"}
    assert {row["shape"] for row in table} == {"usual", "app", "work"}
    assert len(list((tmp_path / "cache").rglob("od_coll"))) == 1


def test_every_algorithm(real_run):
    done = real_run("allreduce", "--algorithms", "--seconds", "0.2")
    assert done.returncode == 0, done.stderr
    head = next(text for text in done.stdout.splitlines() if "best" in text)
    assert {"host", "Overdrive", "ring/flat"} <= set(head.split())
    assert len(rows(done.stdout)) == 2


def test_jobs_at_the_same_time_have_sessions_of_their_own():
    """Open MPI 4 ends a job whose session folder another one removes."""
    made = bench.Bench(None, None, argparse.Namespace(lab=None), {}, family="openmpi")
    name = "OMPI_MCA_orte_tmpdir_base"
    with made.session({}) as one, made.session({"A": "1"}) as other:
        assert one[name] != other[name]
        assert other["A"] == "1"
        assert Path(one[name]).is_dir()
        Path(other[name], "left").mkdir()
    assert not Path(one[name]).exists()
    assert not Path(other[name]).exists()
    with made.session({name: "/named"}) as named:
        assert named == {name: "/named"}
    made.family = "mpich"
    with made.session({}) as plain:
        assert plain == {}


def test_a_job_is_ended_when_nothing_happens_and_not_before(tmp_path):
    """Many jobs with slow calls that take turns may need minutes for one round."""
    turns = tmp_path / "turns"
    turns.touch()
    text = f"import time\nfor _ in range(8): time.sleep(0.5); open({str(turns)!r}, 'a').write('x')"
    slow = [sys.executable, "-c", text]
    stop = threading.Event()
    _, err, good = bench.run_job(slow, dict(os.environ), 2, stop, turns.read_bytes)
    assert good, err
    _, err, good = bench.run_job(["sleep", "60"], dict(os.environ), 1, stop, turns.read_bytes)
    assert not good
    assert "nothing had happened for 1 s" in err


def test_a_job_that_fails_is_an_error(real_run):
    done = real_run("bcast", "--seconds", "0.2", "--options", "--no-such-option-of-mpirun")
    assert done.returncode == 1
    assert "host failed" in done.stderr
    assert rows(done.stdout) == []


def test_the_installed_command_finds_its_sources(tmp_path):
    prefix = tmp_path / "prefix"
    assert bench.source_folder(ROOT) == ROOT / "bench"
    with pytest.raises(CommandError, match="install Overdrive completely"):
        bench.source_folder(prefix)
    for name in (*bench.SOURCES, *bench.HEADERS):
        program(prefix / "share" / "overdrive" / "bench" / name, "")
    assert bench.source_folder(prefix) == prefix / "share" / "overdrive" / "bench"


ARRIVALS = """\
clock,2500,900
arrival,linear,1024,4,3000.0,2000.0,5000.0,12.0
arrival,linear,1024,4,5000.0,4000.0,7000.0,14.0
arrival,linear,1024,4,4000.0,3000.0,6000.0,14.0
arrival,linear,1024
"""


def test_arrivals_are_tables_of_medians():
    found, clock = bench_arrival.read(ARRIVALS, "host")
    assert clock == (2.5, 0.9)
    assert len(found) == 3
    found += bench_arrival.read(ARRIVALS.replace("4000.0", "1000.0"), "first_arrival")[0]
    text = bench_arrival.render(found, ["host", "first_arrival"])
    values = ["4.00", "3.00", "3.00", "2.00", "6.00", "6.00"]
    assert rows(text) == [["linear", "1024", *values]]


def test_a_record_is_played_again(tmp_path, capsys):
    for rank in range(2):
        calls = [[0, 0, 1000 + 3000 * rank], [1, 1, 5000], [2, 0, 9000 - 500 * rank]]
        sites = [
            {"function": name, "module": "app", "offset": 1} for name in ("MPI_Bcast", "MPI_Scan")
        ]
        told = {"rank": rank, "size": 2, "counters": {}, "elapsed_ns": 1, "arrivals": {
            "node": 0, "clock_error_ns": 0, "sites": sites,
            "communicators": [{"id": "a", "ranks": 2, "calls": calls}]}}  # fmt: skip
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(told))
    assert bench_arrival.delays_of_record(tmp_path, 2, "MPI_Bcast") == "0.0,3.0\n0.5,0.0\n"
    assert "2 calls" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no calls of 3 ranks by 'MPI_Bcast'"):
        bench_arrival.delays_of_record(tmp_path, 3, "MPI_Bcast")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pattern", "sometimes"], "not 'sometimes'"),
        (["--pattern", "file"], "belong together"),
        (["--pattern", "file", "--file", "none"], "there is no such file"),
        (["--root", "2"], "there are 2 ranks"),
        (["--ppn", "2"], "--ppn belongs to --lab"),
        (["--delay", "1,2"], "one for each size (1), and not '1,2'"),
        (["--chance", "2"], "--chance belongs to --learnt"),
        (["--learnt", "9", "--chance", "1"], "a whole number from 2 to 8"),
        (["--delay", "soon"], "it takes a number from 0 to 10000"),
    ],
)
def test_mistakes_about_arrivals_are_said(overdrive, arguments, message):
    run = overdrive("bench", "arrival", *arguments, "--launcher", shutil.which("true"))
    assert run.code == 2
    assert message in run.err


def test_arrivals_are_imposed(real, tmp_path):
    host = hosts.get(HOST)
    if host is None:
        pytest.skip(f"{HOST} is not here")
    (tmp_path / "delays").write_text("0 3000\n2000, 0\n")
    words = ["bench", "arrival", "--launcher", host.launcher, "--pattern", "file,late-root"]
    words += ["--file", "delays", "--sizes", "4K,8K", "--repeats", "4", "--delay", "50,25"]
    done = subprocess.run(
        [sys.executable, str(COMMAND), *words, "--csv", "s.csv"],
        env={**os.environ, **host.env, **real, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "s.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {row["job"] for row in table} == {"host", "plain", "first_arrival"}
    assert len(table) == 3 * 4 * 2 * 2
    # Nobody has the data before the root has come, and the other rank waits for it. On a busy
    # machine it may come late itself, which `off` tells.
    late = [row for row in table if row["pattern"] == "late-root"]
    for row in late:
        delay_us = 50000 if row["bytes"] == "4096" else 25000
        assert float(row["others"]) + float(row["off"]) > 0.9 * delay_us, row

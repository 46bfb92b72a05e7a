"""`overdrive tune`: the library's own algorithms, what is written for it, and batch systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from overdrive import bench
from overdrive.tune import host_settings, rules
from overdrive.tune.statistics import BUILT_IN, Measured

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "overdrive"

quick = pytest.mark.quick


def exact(us: float) -> Measured:
    return Measured(us, us * 0.99, us * 1.01, 9)


def table(**variants: dict[int, float]) -> dict[str, dict[int, Measured]]:
    names = {"default": "host", "ring": "host: 4 ring", "linear": "host: 1 linear",
             "built_in": BUILT_IN, "ours": "ring/flat"}  # fmt: skip
    return {
        names[name]: {size: exact(us) for size, us in sizes.items()}
        for name, sizes in variants.items()
    }


FOUND = table(default={8: 4.0, 1024: 9.0, 65536: 90.0}, ring={8: 9.0, 1024: 5.0, 65536: 60.0},
              linear={8: 2.0, 1024: 9.0, 65536: 99.0}, built_in={8: 1.0, 1024: 8.0, 65536: 80.0},
              ours={8: 3.0, 1024: 7.0, 65536: 70.0})  # fmt: skip


@quick
def test_each_library_has_its_variables():
    names = {"Open MPI v4.1.4": "Open MPI", "MPICH Version:\t4.0.2": "MPICH",
             "Intel(R) MPI Library 2021.18 for Linux* OS": "Intel MPI", "Some MPI": ""}  # fmt: skip
    for version, family in names.items():
        assert host_settings.family_of(version) == family
    found = host_settings.candidates("Open MPI", "barrier")
    assert "host: 6 tree" in found, "numbers stay those of the library"
    assert not any("5" in name for name in found), "for two ranks only"
    assert found["host: 1 linear"] == {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_barrier_algorithm": "1",
    }
    assert host_settings.candidates("MPICH", "scan") == {
        "host: smp": {"MPIR_CVAR_SCAN_INTRA_ALGORITHM": "smp"},
        "host: recursive_doubling": {"MPIR_CVAR_SCAN_INTRA_ALGORITHM": "recursive_doubling"},
    }
    assert host_settings.candidates("Intel MPI", "scan")["host: 2"] == {"I_MPI_ADJUST_SCAN": "2"}
    assert host_settings.candidates("", "scan") == {}
    # They have one algorithm, or none that can be named.
    single = {"alltoallw", "gatherv", "scatterv"}
    for collective in set(bench.KNOWN) - single:
        assert host_settings.candidates("Open MPI", collective)
        assert host_settings.candidates("MPICH", collective)
        assert collective in host_settings.OPEN_MPI_NUMBERS


@quick
def test_rules_never_name_an_algorithm_of_the_library():
    written = rules.rules_of("bcast", {4: host_settings.choosable(FOUND)}, {})
    assert [rule["algorithm"] for rule in written] == ["ring"]
    assert written[0]["bytes"][0] > 8
    parameters = {**FOUND, "ring/flat segment=32K radix=4": {65536: exact(50.0)}}
    written = rules.rules_of("bcast", {4: host_settings.choosable(parameters)}, {})
    assert [(rule.get("segment"), rule.get("radix")) for rule in written] == [
        (None, None), ("32K", "4"),
    ]  # fmt: skip


@quick
def test_open_mpi_gets_a_rule_file():
    text = host_settings.open_mpi_rules({("bcast", 4): FOUND, ("allgather", 4): FOUND,
                                         ("scan", 4): table(default={8: 1.0})})  # fmt: skip
    lines = [line.split(" #")[0] for line in text.splitlines()]
    assert lines[0] == "2"
    assert lines[1:] == [
        "7", "2", "4", "3", "0 1 0 0", "91 4 0 0", "131073 0 0 0", "5", "1", "0 0 0 0",
        "0", "2", "4", "3", "0 1 0 0", "364 4 0 0", "524292 0 0 0", "5", "1", "0 0 0 0",
    ]  # fmt: skip
    assert host_settings.open_mpi_rules({("scan", 4): table(default={8: 1.0})}) == ""


@quick
def test_the_others_get_variables(tmp_path):
    output = tmp_path / "best.sh"
    tables = {("bcast", 4): FOUND, ("scan", 4): table(default={8: 1.0}, ring={8: 1.01})}
    files = host_settings.emit("Intel MPI", ["here"], tables, output)
    assert list(files) == [output]
    assert [line for line in files[output].splitlines() if line.startswith("export")] == [
        "export I_MPI_ADJUST_BCAST='1:0-90;4:91-131072'"
    ]
    # One algorithm for all sizes has to lose nowhere.
    assert "export" not in host_settings.emit("MPICH", [], tables, output)[output]
    even = {("bcast", 4): table(default={8: 4.0, 1024: 9.0}, ring={8: 4.05, 1024: 5.0},
                                linear={8: 3.0, 1024: 8.0})}  # fmt: skip
    assert (
        "export MPIR_CVAR_BCAST_INTRA_ALGORITHM=4"
        in host_settings.emit("MPICH", [], even, output)[output]
    )
    nothing = host_settings.emit("Open MPI", [], {("scan", 4): tables["scan", 4]}, output)
    assert list(nothing) == [output]
    assert "Nothing is faster" in nothing[output]


@quick
def test_the_number_of_ranks_goes_where_it_is_wanted():
    assert bench.start_words("srun -N 2 -n{ranks}", 8) == ["srun", "-N", "2", "-n8"]
    assert bench.start_words("aprun 'a b'", 8) == ["aprun", "a b", "-n", "8"]


COMPILER = """\
#!/bin/sh
# Stands for a compiler: what it makes is handed to the launcher below.
while [ $# -gt 0 ]; do
  [ "$1" = -o ] && { echo "#!/bin/sh" > "$2"; chmod 755 "$2"; }
  shift
done
"""

LAUNCHER = """\
#!/bin/sh
# Stands for a batch system. Every so many jobs it kills the command that starts them.
n=$(($(cat {folder}/jobs) + 1))
echo $n > {folder}/jobs
if [ $(($n % {apart})) = 0 ]; then kill -9 $PPID; exit; fi
exec awk -f {folder}/job.awk -- "$@"
"""

JOB = """\
# What takes how long depends on nothing but the variables, the collective and the size.
function hash(text,  i, h) {
  h = 7
  for (i = 1; i <= length(text); i++) h = (h * 31 + index(letters, substr(text, i, 1))) % 65521
  return h
}
BEGIN {
  letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_=/-"
  for (i = 1; i < ARGC; i++) {
    if (ARGV[i] == "-n") ranks = ARGV[i + 1]
    if (ARGV[i] == "--tests") test = ARGV[i + 1]
    if (ARGV[i] == "--sizes") sizes = ARGV[i + 1]
    if (ARGV[i] ~ /^(OVERDRIVE_ADJUST|OMPI_MCA_coll)/) key = key ARGV[i]
  }
  if (test == "") { print "Open MPI v9.9.9, for tests"; exit }
  if (key ~ /bcast_algorithm=2/ && key !~ /OVERDRIVE/) exit 1
  count = split(sizes, size, ",")
  for (i = 1; i <= count; i++) {
    base = (10 + size[i] / 1000) * (1 + hash(key test size[i]) / 65521)
    # Some parameters are worth something.
    if (key ~ /_(SEGMENT|RADIX|LEADERS|PIPELINE)=/) base *= 0.6
    for (j = 0; j < 5; j++) {
      us = base * (1 + hash(key size[i] j) / 65521 / 10)
      bytes = test == "barrier" ? 0 : size[i]
      print test ",usual,blocking,all," bytes "," ranks "," us ",0,-1,-1,0,0"
    }
  }
}
"""


@pytest.fixture
def batch(tmp_path, real):
    """Return a function that tunes with a launcher that kills the command now and then."""
    (tmp_path / "mpicc").write_text(COMPILER)
    (tmp_path / "job.awk").write_text(JOB)
    for name in ("mpicc", "start"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o755)

    def tune(name: str, apart: int, *more: str) -> tuple[int, Path, subprocess.CompletedProcess]:
        (tmp_path / "start").write_text(LAUNCHER.format(folder=tmp_path, apart=apart))
        (tmp_path / "jobs").write_text("0\n")
        output = tmp_path / name / "rules.json"
        output.parent.mkdir(exist_ok=True)
        environment = {**os.environ, **real, "XDG_CACHE_HOME": str(tmp_path / "cache"),
                       "XDG_CONFIG_HOME": str(tmp_path / "config")}  # fmt: skip
        words = [
            "tune", "--hosts-launcher", f"{tmp_path}/start", "--mpicc", f"{tmp_path}/mpicc",
            "--nodes", "2", "-n", "4", "--sizes", "8,4K,1M", "--budget", "90s", "--collectives",
            "bcast,allreduce,reduce,allgather,alltoall,gather", "--output", str(output), *more,
        ]  # fmt: skip
        kills = 0
        while True:
            run = subprocess.run(
                [sys.executable, str(COMMAND), *words], env=environment, capture_output=True,
                text=True, timeout=300, check=False,
            )  # fmt: skip
            if run.returncode != -9:
                return kills, output, run
            kills += 1
            assert kills < 200, "it does not get any further"

    return tune


@pytest.mark.slow
def test_killed_twenty_times_the_rules_are_the_same(batch):
    kills, whole, run = batch("whole", 1_000_000)
    assert (kills, run.returncode) == (0, 0), run.stderr
    expected = whole.read_text()
    found = json.loads(expected)
    assert found["host"] == "Open MPI v9.9.9"
    assert found["rules"], run.stdout
    assert {rule["algorithm"] for rule in found["rules"]} - {"host"}
    assert any({"radix", "segment", "leaders", "pipeline"} & set(rule) for rule in found["rules"])
    # Just enough for the largest heat: 24 variants, three times each, and the library's version.
    kills, cut, run = batch("cut", 75)
    assert run.returncode == 0, run.stderr
    assert kills >= 20
    resumed = json.loads(cut.read_text())
    assert {**resumed, "date": ""} == {**found, "date": ""}
    assert not list(cut.parent.glob("*.partial"))


def test_the_library_alone(batch):
    _, output, run = batch("host", 1_000_000, "--emit", "host")
    assert run.returncode == 0, run.stderr
    script = output.read_text()
    beside = output.with_suffix(".rules")
    assert f"OMPI_MCA_coll_tuned_dynamic_rules_filename={beside}" in script
    # An algorithm that the library refuses is left out, and the others are measured.
    assert "bcast" in beside.read_text()
    assert "chain" not in run.stdout
    page = output.with_suffix(".html").read_text()
    assert "host: 7 knomial" in page
    assert BUILT_IN not in run.stdout

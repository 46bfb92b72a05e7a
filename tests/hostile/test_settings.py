"""Settings as users meet them: switching off, checking, wrong names and values, reports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs

HERE = Path(__file__).parent
Build = Callable[[Path], str]


def lines_of(result: jobs.Result) -> list[str]:
    """Return what Overdrive said on standard error."""
    return [line for line in result.stderr.splitlines() if "overdrive" in line.lower()]


@pytest.mark.quick
@pytest.mark.everywhere
def test_disable(host: Host, compiled: Build, overdrive: bool, needs_overdrive: None) -> None:
    """OVERDRIVE_DISABLE=1: nothing is taken over and nothing is said."""
    result = jobs.run(host, 2, [compiled(HERE / "traffic.c")], settings={"disable": "1"})
    expect.passed(result)
    expect.fell_back(result)
    assert not lines_of(result), result.report()


@pytest.mark.quick
def test_silent_by_default(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """Without settings Overdrive prints nothing at all."""
    result = jobs.run(host, 2, [compiled(HERE / "traffic.c")])
    expect.passed(result)
    assert not lines_of(result), result.report()


@pytest.mark.quick
def test_verify(host: Host, compiled: Build, overdrive: bool, needs_overdrive: None) -> None:
    """OVERDRIVE_VERIFY=1 compares checksums of all local messages."""
    result = jobs.run(host, 2, [compiled(HERE / "traffic.c")], settings={"verify": "1"})
    expect.passed(result)
    expect.took_our_path(result, 50)
    assert result.counter("verified") >= 50, result.counters()


@pytest.mark.quick
def test_unknown_variable(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """A misspelt variable is reported once, with the nearest name."""
    result = jobs.run(
        host, 2, [compiled(HERE / "traffic.c")], settings={"verbos": "1", "verbose": "1"}
    )
    expect.passed(result)
    said = [line for line in lines_of(result) if "OVERDRIVE_VERBOS" in line]
    assert len(said) == 1, result.report()
    assert re.search(r"OVERDRIVE_VERBOSE\b", said[0]), said[0]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "value"),
    [("cell_bytes", "many"), ("pool_bytes", "1"), ("wait", "sometimes"), ("test_remote", "0-x")],
)
def test_bad_value(
    name: str, value: str, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """A value that cannot be used is reported once and the job goes on with the default."""
    result = jobs.run(
        host, 2, [compiled(HERE / "traffic.c")], settings={name: value, "verbose": "1"}
    )
    expect.passed(result)
    expect.took_our_path(result, 20)
    said = [line for line in lines_of(result) if f"OVERDRIVE_{name.upper()}" in line]
    assert len(said) == 1 and value in said[0], result.report()


@pytest.mark.quick
def test_strict(host: Host, compiled: Build, overdrive: bool, needs_overdrive: None) -> None:
    """OVERDRIVE_STRICT=1 ends a job with a wrong setting at its start."""
    result = jobs.run(
        host,
        2,
        [compiled(HERE / "traffic.c")],
        settings={"strict": "1", "wait": "sometimes"},
        limit=60,
    )
    assert not result.timed_out, result.report()
    assert result.returncode != 0 and "PASS" not in result.stdout, result.report()
    assert any("sometimes" in line for line in lines_of(result)), result.report()
    assert not result.leftovers, result.report()


@pytest.mark.quick
def test_stall_report(host: Host, compiled: Build, overdrive: bool, needs_overdrive: None) -> None:
    """A long wait is reported once: who waits for whom, in which call, with which tag."""
    result = jobs.run(host, 2, [compiled(HERE / "stall.c")], settings={"stall_report": "400ms"})
    expect.passed(result)
    said = [line for line in lines_of(result) if "tag 321" in line]
    assert len(said) == 1, result.report()
    assert re.search(r"rank 0\b", said[0]) and re.search(r"\b1\b", said[0]), said[0]
    assert "MPI_Recv" in said[0], said[0]
    assert result.counter("stall_reports") == 1, result.counters()


@pytest.mark.quick
def test_statistics_table(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """OVERDRIVE_STATS=1 prints one table for the whole job."""
    result = jobs.run(host, 2, [compiled(HERE / "traffic.c")], stats="1")
    expect.passed(result)
    tables = [line for line in lines_of(result) if "statistics" in line]
    assert len(tables) == 1 and "2 ranks" in tables[0], result.report()
    assert re.search(r"^ +sends_inline +[1-9]", result.stderr, re.MULTILINE), result.report()


@pytest.mark.quick
def test_time_in_mpi_and_call_sites(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """The table tells what each rank spends in MPI, and which calls take it; off leaves it out."""
    program = compiled(HERE / "traffic.c")
    result = jobs.run(host, 2, [program], stats="1", settings={"call_times": "on"})
    expect.passed(result)
    assert "\t" not in result.stderr, result.report()
    total = re.search(r"time in MPI: ([0-9.]+) s of ([0-9.]+) s of all ranks", result.stderr)
    assert total and 0 < float(total[1]) <= float(total[2]), result.report()
    assert len(re.findall(r"^  rank [01] ", result.stderr, re.MULTILINE)) == 2, result.report()
    place = re.escape(Path(program).name) + r"\+0x"
    sites = dict(re.findall(rf"^  (MPI_\w+) +(\d+) .*{place}", result.stderr, re.MULTILINE))
    # Five rounds of ten sizes, of which every other one goes each way, on two ranks.
    names = ("MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Sendrecv")
    assert [sites.get(name) for name in names] == ["50"] * 4, result.report()
    if shutil.which("addr2line"):
        assert re.search(rf"main at traffic\.c:\d+ \({place}", result.stderr), result.report()
    without = jobs.run(host, 2, [program], stats="1")
    assert "time in MPI" not in without.stderr, without.report()


@pytest.mark.quick
def test_project_file(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None, tmp_path: Path
) -> None:
    """overdrive.toml in the working directory is read; errors in it name file and line."""
    (tmp_path / "overdrive.toml").write_text('test_remote = "all"\nverbose = 1\nwait = "seldom"\n')
    program = compiled(HERE / "traffic.c")
    result = jobs.run(host, 2, ["sh", "-c", f'cd "{tmp_path}" && exec "{program}"'])
    expect.passed(result)
    expect.fell_back(result)
    assert any("overdrive.toml:3" in line for line in lines_of(result)), result.report()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "verbosity", "said"),
    [
        ("[[[", "0", True),
        ('[calibration]\nfingerprint = "Another machine"\nthresholds = 1\n', "0", False),
        ('[calibration]\nfingerprint = "Another machine"\nthresholds = 1\n', "1", True),
    ],
    ids=["damaged", "stale-quiet", "stale"],
)
def test_calibration_of_no_use(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None, tmp_path: Path,
    text: str, verbosity: str, said: bool,
) -> None:  # fmt: skip
    """A damaged calibration is reported once, one of another machine from verbosity 1 on."""
    file = tmp_path / "calibration.toml"
    file.write_text(text)
    settings = {"calibration": str(file), "verbose": verbosity, "strict": "0"}
    result = jobs.run(host, 2, [compiled(HERE / "traffic.c")], settings=settings)
    expect.passed(result)
    about = [line for line in lines_of(result) if "calibration" in line]
    assert len(about) == int(said), result.report()
    assert all("`overdrive calibrate`" in line for line in about)


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("path", ["pull", "push", "kernel"])
def test_thresholds_of_nothing(
    path: str, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """A path that is to begin at 0 bytes begins where there is something to copy."""
    settings = {f"{distance}_{path}_min": "0" for distance in ("near", "far")}
    result = jobs.run(host, 2, [compiled(HERE / "traffic.c"), "--rounds=2"], settings=settings)
    expect.passed(result)
    expect.took_our_path(result, 50)


def _extremes() -> list[tuple[str, str]]:
    tool = jobs.overdrive_library().parent / "overdrive" / "overdrive-settings"
    if not tool.exists():
        tool = jobs.overdrive_library().parent.parent / "bin" / "overdrive-settings"
    told = subprocess.run([tool, "--defaults"], capture_output=True, text=True, check=True).stdout
    return [
        (setting["name"], setting[end])
        for setting in json.loads(told)["settings"]
        if setting["type"] in ("int", "size", "duration")
        for end in ("min", "max")
    ]


@pytest.mark.slow
def test_every_number_at_its_ends(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """Whatever the range allows serves a job: nothing hangs, nothing is wrong."""
    program = compiled(HERE / "traffic.c")
    for name, value in _extremes():
        result = jobs.run(
            host, 2, [program, "--rounds=1", "--largest=100000"], settings={name: value}
        )
        assert result.returncode == 0 and not result.timed_out, f"{name}={value}\n{result.report()}"

"""Pinning: where ranks really run, by launchers and by what they say; machines made up by hwloc."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs

HERE = Path(__file__).parent
COMMAND = HERE.parents[1] / "overdrive"
USABLE = sorted(os.sched_getaffinity(0))

needs_two = pytest.mark.skipif(len(USABLE) < 2, reason="needs two processors")


def _places(text: str) -> dict[int, tuple[str, str]]:
    found = re.findall(r"rank (\d+) early ([\d,]*) late ([\d,]*)", text)
    return {int(rank): (early, late) for rank, early, late in found}


@needs_two
@pytest.mark.quick
def test_each_rank_runs_where_the_list_says(host: Host, compiled: Callable[[Path], str]):
    """Before main already, and still after the MPI library has done its own binding."""
    first, second = USABLE[:2]
    result = jobs.run(
        host, 2, [compiled(HERE / "affinity.c")], settings={"pin": f"list:{second},{first}"}
    )
    expect.passed(result)
    want = {0: (str(second),) * 2, 1: (str(first),) * 2}
    assert _places(result.stdout) == want, result.report()


@needs_two
def test_binding_on_request_stays(host: Host, compiled: Callable[[Path], str]):
    if host.family == "openmpi":
        pytest.skip("the launcher of these tests is told --bind-to none")
    program = compiled(HERE / "affinity.c")
    intel = host.name == "impi"
    result = jobs.run(
        host, 2, [program], settings={"pin": "socket"},
        launcher_options=[] if intel else ["-bind-to", "core"],
        env={"I_MPI_PIN_DOMAIN": "core"} if intel else None,
    )  # fmt: skip
    assert "pin=socket has no effect" in result.stderr, result.report()
    assert all("," not in late for _, late in _places(result.stdout).values()), result.report()


@needs_two
def test_two_ranks_on_one_core_are_reported(host: Host, compiled: Callable[[Path], str]):
    pin = f"list:{USABLE[0]},{USABLE[0]}"
    program = compiled(HERE / "affinity.c")
    result = jobs.run(host, 2, [program], settings={"pin": pin, "verbose": "1"})
    expect.passed(result)
    assert "ranks 0-1 share 1 core while" in result.stderr, result.report()


SHOW = "import os; print(sorted(os.sched_getaffinity(0)))"


def _pretend(pin: str, rank: int = 0, size: int = 1, **variables: str) -> tuple[list[int], str]:
    """Start a program as Open MPI would; return its processors and what was said."""
    library = jobs.overdrive_library()
    if not library.exists():
        pytest.skip(f"{library} is not built: run `make`")
    environment = {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": str(library),
        "OVERDRIVE_PIN": pin,
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(size),
        **variables,
    }
    environment = {name: value for name, value in environment.items() if value}
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return [int(cpu) for cpu in re.findall(r"\d+", done.stdout)], done.stderr


@pytest.mark.quick
@pytest.mark.parametrize("pin", ["none", "", "bogus", "list:"])
def test_without_a_policy_nothing_changes(pin):
    assert _pretend(pin) == (USABLE, "")


@needs_two
@pytest.mark.quick
def test_last_of_a_rank_per_processor():
    count = len(USABLE)
    assert _pretend("compact", count - 1, count)[0] == [USABLE[-1]]
    assert _pretend("COMPACT:force", 0, count)[0] == [USABLE[0]]


@needs_two
@pytest.mark.quick
def test_what_is_no_rank_is_not_pinned():
    unset = {
        "OMPI_COMM_WORLD_RANK": "",
        "OMPI_COMM_WORLD_LOCAL_RANK": "",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "",
    }
    assert _pretend(f"list:{USABLE[0]}", **unset) == (USABLE, "")
    # A batch system's script has variables of a rank, and no step.
    script = {**unset, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
              "SLURM_TASKS_PER_NODE": "2"}  # fmt: skip
    assert _pretend(f"list:{USABLE[0]}", **script) == (USABLE, "")
    assert _pretend(f"list:{USABLE[0]}", **script, SLURM_STEP_ID="0")[0] == [USABLE[0]]


@needs_two
@pytest.mark.quick
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OMPI_MCA_hwloc_base_binding_policy", "socket"),
        ("OMPI_MCA_rmaps_base_mapping_policy", "slot:PE=2"),
        ("OMPI_MCA_rmaps_rank_file_path", "ranks.txt"),
    ],
)
def test_explicit_binding_stays_unless_forced(variable, value):
    pin = f"list:{USABLE[1]}"
    cpus, said = _pretend(pin, **{variable: value})
    assert cpus == USABLE
    assert "has no effect: the launcher was told how to bind" in said
    assert ":force" in said
    assert _pretend(f"{pin}:force", **{variable: value}) == ([USABLE[1]], "")


@needs_two
@pytest.mark.quick
def test_binding_to_nothing_is_no_binding():
    cpus, said = _pretend(f"list:{USABLE[1]}", OMPI_MCA_hwloc_base_binding_policy="none")
    assert (cpus, said) == ([USABLE[1]], "")


@pytest.mark.quick
def test_list_that_does_not_fit_is_refused():
    cpus, said = _pretend("list:4095")
    assert cpus == USABLE
    assert "processors that the job may not use here; it may use" in said
    cpus, said = _pretend(f"list:{USABLE[0]}", 1, 2)
    assert cpus == USABLE
    assert "fewer places than the node has ranks" in said


@pytest.mark.quick
def test_slurm_binding_stays():
    slurm = {
        "OMPI_COMM_WORLD_RANK": "", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
        "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "1",
        "OMPI_COMM_WORLD_LOCAL_RANK": "", "SLURM_CPU_BIND_TYPE": "mask_cpu:",
    }  # fmt: skip
    cpus, said = _pretend(f"list:{USABLE[-1]}", **slurm)
    assert cpus == USABLE
    assert "--cpu-bind" in said


def _info(*arguments: str, synthetic: str = "", **variables: str) -> subprocess.CompletedProcess:
    environment = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent",
        "OVERDRIVE_LIBRARY": str(jobs.overdrive_library()), **variables,
    }  # fmt: skip
    if synthetic:
        environment["HWLOC_SYNTHETIC"] = synthetic
    return subprocess.run(
        [sys.executable, str(COMMAND), *arguments],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


EPYC = "package:2 numa:4 l3:2 core:4 pu:2"


def _with_hwloc() -> None:
    done = _info("info", "--pinning", "--json", synthetic=EPYC)
    if '"hwloc"' not in done.stdout:
        pytest.skip("overdrive-pinning is built without hwloc")


@pytest.mark.quick
def test_picture_of_a_big_node():
    _with_hwloc()
    done = _info("--pin=scatter", "info", "--pinning", "--ranks", "16", synthetic=EPYC)
    assert done.returncode == 0, done.stderr
    assert "2 sockets, 8 NUMA nodes, 16 last-level caches, 64 cores, 128 hardware threads" in (
        done.stdout
    )
    # Two neighbours are on different sockets; each cache has one rank.
    rows = [line.split() for line in done.stdout.splitlines()]
    cells = [row[2:] for row in rows if row[:1] == ["cpu"]]
    assert len(cells) == 16
    assert sorted(int(row[0]) for row in cells) == list(range(16))
    assert cells[0][0] == "0"
    assert cells[8][0] == "1"
    assert all(row[1:] == [".", ".", "."] for row in cells)


@pytest.mark.quick
def test_picture_tells_what_is_wrong():
    _with_hwloc()
    done = _info("info", "--pinning", "--pin", "list:0-1,0", "--ranks", "3", synthetic=EPYC)
    assert "ranks 0-2 share 1 core while 63 cores are idle" in done.stdout
    done = _info("info", "--pinning", "--pin", "compact", synthetic=EPYC, OMP_NUM_THREADS="4")
    assert "OMP_NUM_THREADS to 1" in done.stdout


@pytest.mark.quick
def test_hwloc_and_the_ranks_own_look_at_the_machine_agree():
    tool = jobs.overdrive_library().parent.parent / "bin" / "overdrive-pinning"
    if not tool.exists():
        pytest.skip(f"{tool} is not built: run `make`")
    seen = [
        subprocess.run([str(tool), *words], capture_output=True, text=True, check=True).stdout
        for words in ([], ["--sysfs"])
    ]
    assert seen[0].replace('"hwloc"', '"sysfs"') == seen[1]


@pytest.mark.quick
def test_without_hwloc_the_ranks_own_look_is_shown(tmp_path):
    """The program starts where hwloc is not installed; only other machines need it."""
    (tmp_path / "libhwloc.so.15").write_text("not a library\n")
    broken = {"LD_LIBRARY_PATH": str(tmp_path)}
    done = _info("info", "--pinning", "--json", **broken)
    assert '"sysfs"' in done.stdout, done.stderr
    done = _info("info", "--pinning", synthetic=EPYC, **broken)
    assert done.returncode == 2
    assert "HWLOC_SYNTHETIC is set, but hwloc 2 is not installed here" in done.stderr


@pytest.mark.quick
@pytest.mark.parametrize(
    ("pin", "words"),
    [
        ("cores", "must be none, compact, scatter"),
        ("list:", "must name processors"),
        ("list:0-", "must be a list of processors"),
    ],
)
def test_wrong_policy_is_refused_by_the_command(pin, words):
    for arguments in (["info", "--pinning", "--pin", pin], [f"--pin={pin}", "run", "true"]):
        done = _info(*arguments)
        assert done.returncode == 2
        assert words in done.stderr

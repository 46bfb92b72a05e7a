"""Processes that die, fork, load MPI late, never use it, or are watched by tools."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, programs, standby

HERE = Path(__file__).parent
Build = Callable[[Path], str]

DEATH_SECONDS = 2.0
"""How soon the others must notice."""

LAUNCHER_SECONDS = 18.0
"""What launchers take to end the rest, on a busy machine."""


def died_at(note: Path, result: jobs.Result) -> float:
    """Return the wall-clock time at which the victim died, which it has noted."""
    assert note.exists(), result.report()
    return float(note.read_text())


@pytest.mark.quick
@pytest.mark.parametrize("wait", ["recv", "wait", "waitall", "probe", "ssend", "any"])
def test_killed_rank(
    wait: str, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None, tmp_path: Path
) -> None:
    """A rank is killed while the others wait for it: the job ends soon and says who died.

    The launchers end the job themselves; a variant without a launcher's help is below.
    """
    note = tmp_path / "died"
    command = [compiled(HERE / "death.c"), "--how=kill", f"--wait={wait}", f"--note={note}"]
    result = jobs.run(host, 3, command, limit=60)
    late = time.time() - died_at(note, result)
    assert not result.timed_out, result.report()
    assert result.returncode != 0, result.report()
    assert late < DEATH_SECONDS + LAUNCHER_SECONDS, f"{late:.1f} s\n{result.report()}"
    assert "went on" not in result.stdout, result.report()
    assert not result.leftovers, result.report()


@pytest.mark.quick
@pytest.mark.parametrize("wait", ["recv", "wait", "waitall", "probe", "any"])
def test_death_is_noticed(
    wait: str, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None, tmp_path: Path
) -> None:
    """The launcher stands by: the waiting ranks must find out and end the job, naming the rank."""
    standby.needs_standby(host)
    note = tmp_path / "died"
    program = compiled(HERE / "death.c")
    for _ in range(standby.attempts(host)):
        result = standby.run(host, [program, "--how=kill", f"--wait={wait}", f"--note={note}"])
        late = time.time() - died_at(note, result)
        assert not result.timed_out, result.report()
        assert late < DEATH_SECONDS + LAUNCHER_SECONDS, f"{late:.1f} s\n{result.report()}"
        assert "went on" not in result.stdout, result.report()
        if standby.names_rank(result, 1):
            return
    pytest.fail(f"nobody named the dead rank\n{result.report()}")


@pytest.mark.quick
def test_death_of_whom_a_broadcast_starts_with(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None, tmp_path: Path
) -> None:
    """The first rank of a node has told the root that it is there, and dies before that comes."""
    standby.needs_standby(host)
    note = tmp_path / "died"
    command = [compiled(HERE / "death.c"), "--how=kill", "--wait=bcast", f"--note={note}"]
    env = {
        "OVERDRIVE_TEST_REMOTE": "0-2,0-3,1-2,1-3",
        "OVERDRIVE_ADJUST_BCAST": "first_arrival",
    }
    for _ in range(standby.attempts(host)):
        result = standby.run(host, command, ranks=4, env=env)
        late = time.time() - died_at(note, result)
        assert not result.timed_out, result.report()
        assert late < DEATH_SECONDS + LAUNCHER_SECONDS, f"{late:.1f} s\n{result.report()}"
        assert "rank 2 went on" not in result.stdout, result.report()
        if standby.names_rank(result, 3):
            return
    pytest.fail(f"nobody named the dead rank\n{result.report()}")


@pytest.mark.quick
def test_death_before_the_first_collective_between_nodes(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None, tmp_path: Path
) -> None:
    """The ranks sit in a call of the host that makes the communicator for it, where none looks."""
    standby.needs_standby(host)
    note = tmp_path / "died"
    command = [compiled(HERE / "death.c"), "--how=kill", "--wait=first", f"--note={note}"]
    env = {"OVERDRIVE_TEST_REMOTE": "0-2,0-3,1-2,1-3"}
    for _ in range(standby.attempts(host)):
        result = standby.run(host, command, ranks=4, env=env)
        late = time.time() - died_at(note, result)
        assert not result.timed_out, result.report()
        assert late < DEATH_SECONDS + LAUNCHER_SECONDS, f"{late:.1f} s\n{result.report()}"
        assert "went on" not in result.stdout, result.report()
        if standby.names_rank(result, 3):
            return
    pytest.fail(f"nobody named the dead rank\n{result.report()}")


@pytest.mark.quick
@pytest.mark.parametrize("how", ["exit", "segv", "abort"])
def test_unforeseen_end(
    how: str, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """A rank that crashes or leaves without MPI_Finalize does not leave the others waiting."""
    result = jobs.run(
        host, 2, [compiled(HERE / "death.c"), f"--how={how}", "--wait=recv"], limit=40
    )
    assert not result.timed_out, result.report()
    # Hydra calls a rank that leaves without MPI_Finalize, with code 0, a success.
    assert result.returncode != 0 or (how == "exit" and host.uses_hydra), result.report()
    assert "went on" not in result.stdout, result.report()
    assert not result.leftovers, result.report()


@pytest.mark.quick
@pytest.mark.parametrize("size", [100, 100_000])
def test_abort_in_a_crash_handler(
    size: int, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """MPI_Abort in a handler that interrupts the library ends the job."""
    result = jobs.run(host, 2, [compiled(HERE / "aborting.c"), f"--bytes={size}"], limit=40)
    assert not result.timed_out, result.report()
    assert result.returncode != 0, result.report()
    assert "went on" not in result.stdout, result.report()
    assert not result.leftovers, result.report()


@pytest.mark.quick
def test_fork(host: Host, compiled: Build, overdrive: bool) -> None:
    """fork, exec, vfork, system, popen, posix_spawn after MPI_Init."""
    result = jobs.run(
        host,
        2,
        [compiled(HERE / "forking.c")],
        overdrive=overdrive,
        env={"OMPI_MCA_mpi_warn_on_fork": "0"},
    )
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 60)


@pytest.mark.quick
def test_python_multiprocessing(host: Host, overdrive: bool) -> None:
    """A multiprocessing pool by fork after MPI_Init."""
    if host.python is None:
        pytest.skip(f"{host.name}: no Python interpreter with mpi4py")
    result = jobs.run(
        host,
        2,
        [host.python, str(HERE / "pool.py")],
        overdrive=overdrive,
        env={"OMPI_MCA_mpi_warn_on_fork": "0"},
    )
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 10)


@pytest.mark.quick
@pytest.mark.parametrize("before", [0, 1])
def test_signal_handlers(before: int, host: Host, compiled: Build, overdrive: bool) -> None:
    """The program's own handlers keep working as they do over the host alone."""
    program = [compiled(HERE / "signals.c"), f"--before={before}"]
    alone = jobs.run(host, 2, program, overdrive=False)
    expect.passed(alone)
    if overdrive:
        result = jobs.run(host, 2, program)
        expect.passed(result)
        expect.took_our_path(result, 100)

        def kept(outcome: jobs.Result) -> str:
            return next(line for line in outcome.stdout.splitlines() if "handler kept" in line)

        assert kept(result) == kept(alone), result.report()


@pytest.mark.quick
@pytest.mark.everywhere
def test_calls_outside_the_job(host: Host, compiled: Build, overdrive: bool) -> None:
    """Queries before MPI_Init and after MPI_Finalize; attributes deleted by MPI_Finalize."""
    expect.passed(jobs.run(host, 2, [compiled(HERE / "outside.c")], overdrive=overdrive))


@pytest.mark.quick
@pytest.mark.parametrize("scope", ["handle", "global"])
def test_dlopen(scope: str, host: Host, overdrive: bool) -> None:
    """A program that loads libmpi itself is served when it looks in the global scope.

    Functions taken from the library's own handle are the host's; then Overdrive must not disturb.
    """
    if host.family == "mpiabi":
        pytest.skip("mpiabi: the program knows the handles of the other ABIs only")
    program = str(programs.plain_program(HERE / "by_dlopen.c", ("-ldl",)))
    env = {"OD_GLOBAL_SCOPE": "1"} if scope == "global" else {}
    result = jobs.run(host, 2, [program, host.lib_path], overdrive=overdrive, env=env)
    expect.passed(result)
    if overdrive and scope == "global":
        expect.took_our_path(result, 20)


@pytest.mark.quick
def test_programs_without_mpi(overdrive: bool, needs_overdrive: None) -> None:
    """A preloaded program that never calls MPI is not touched."""
    program = str(programs.plain_program(HERE / "no_mpi.c"))
    plain = subprocess.run([program], capture_output=True, text=True, check=True)
    env = {"LD_PRELOAD": str(jobs.overdrive_library()), "OVERDRIVE_VERBOSE": "4"}
    loaded = subprocess.run([program], capture_output=True, text=True, check=True, env=env)
    assert loaded.stdout == plain.stdout
    assert loaded.stderr == ""
    shell = subprocess.run(
        ["sh", "-c", "echo $((6 * 7))"], capture_output=True, text=True, check=True, env=env
    )
    assert (shell.stdout, shell.stderr) == ("42\n", "")


@pytest.mark.quick
def test_scripts_without_mpi(overdrive: bool, needs_overdrive: None) -> None:
    """Python without mpi4py, preloaded: nothing happens."""
    env = {"LD_PRELOAD": str(jobs.overdrive_library())}
    loaded = subprocess.run(
        [sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).getpid() > 0)"],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    assert (loaded.stdout, loaded.stderr) == ("True\n", "")


@pytest.mark.quick
@pytest.mark.parametrize("place", ["above", "below"])
def test_profiling_tool(place: str, host: Host, compiled: Build, overdrive: bool) -> None:
    """A PMPI tool above sees every call once; below it disturbs nothing."""
    tool = [str(programs.shared_object(host, HERE / "pmpi_tool.c"))]
    result = jobs.run(
        host,
        2,
        [compiled(HERE / "counted.c")],
        overdrive=overdrive,
        preload=(tool, []) if place == "above" else ([], tool),
    )
    expect.passed(result)
    counts = re.findall(r"^tool \d+ (\d+) (\d+) (\d+)$", result.stdout, re.MULTILINE)
    if place == "above":
        assert counts == [("100", "100", "50")] * 2, result.report()
    if overdrive:
        expect.took_our_path(result, 200)


CORE_LIMIT_BYTES = 200 << 20
"""A core may hold the program's memory and Overdrive's region, not holes and not peers' memory."""


@pytest.mark.quick
def test_core_size(
    host: Host, compiled: Build, overdrive: bool, needs_overdrive: None, tmp_path: Path
) -> None:
    """A core dump does not contain the unused part of the shared memory nor that of other ranks."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb here to make a core dump with gcore")
    program = compiled(HERE / "traffic.c")
    script = tmp_path / "dump.sh"
    # gcore asks the kernel's view of the mappings (VM_DONTDUMP) as a real core dump does.
    script.write_text(
        "#!/bin/sh\n"
        f'"{program}" --rounds=2 --pause_in={tmp_path} & pid=$!\n'
        'case "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" in 0)\n'
        f"  while [ ! -e {tmp_path}/paused.0 ] && kill -0 $pid; do sleep 0.05; done\n"
        f"  gcore -o {tmp_path}/core $pid > {tmp_path}/gcore.log 2>&1\n"
        f"  : > {tmp_path}/go_on;;\n"
        "esac\n"
        "wait $pid\n"
    )
    script.chmod(0o755)
    before = resource.getrlimit(resource.RLIMIT_CORE)
    result = jobs.run(host, 2, [str(script)], limit=90)
    assert resource.getrlimit(resource.RLIMIT_CORE) == before
    expect.passed(result)
    expect.took_our_path(result, 20)
    cores = list(tmp_path.glob("core.*"))
    assert cores, (tmp_path / "gcore.log").read_text()
    stat = cores[0].stat()
    size = min(stat.st_size, stat.st_blocks * 512)
    assert size < CORE_LIMIT_BYTES, f"core of {stat.st_size >> 20} MiB, {size >> 20} on disk"
    assert stat.st_size < 2 * CORE_LIMIT_BYTES, f"core of {stat.st_size >> 20} MiB"

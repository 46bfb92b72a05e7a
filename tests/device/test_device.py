"""Buffers in the memory of accelerators, over stand-ins for their runtimes (stand_in.h).

Where there is a CUDA device, the same programs also run with its memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, programs

HERE = Path(__file__).parent
Build = Callable[[Path], str]

RUNTIMES = {
    "cuda": "libcuda.so.1",
    "rocm": "libamdhip64.so.6",
    "oneapi": "libze_loader.so.1",
}


def stand_in(runtime: str, tmp_path: Path) -> str:
    """Return a library of the name by which the runtime is recognised."""
    source = HERE / f"stand_in_{runtime}.c"
    built = programs.plain_library(source, ("-D_GNU_SOURCE", "-pthread"))
    library = tmp_path / RUNTIMES[runtime]
    library.symlink_to(built)
    tmp_path.chmod(0o755)
    return str(library)


def run(
    host: Host,
    build: Build,
    program: str,
    library: str,
    *arguments: str,
    ranks: int = 2,
    overdrive: bool = True,
    settings: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
) -> jobs.Result:
    """Run a program with the runtime and demand a clean result."""
    result = jobs.run(
        host,
        ranks,
        [build(HERE / program), f"--library={library}", *arguments],
        overdrive=overdrive,
        settings=settings,
        env=env,
    )
    expect.passed(result)
    return result


def messages(runtime: str, host: Host, build: Build, overdrive: bool, tmp_path: Path) -> None:
    """All entry points of point-to-point messages; the runtime comes after MPI_Init."""
    arguments = ["--when=after", "--questions=1"] if overdrive else ["--device=0"]
    library = stand_in(runtime, tmp_path)
    # ROCm numbered its kinds of memory anew in version 6; the other runtimes do not look.
    env = {"STAND_IN_VERSION": "50200000"}
    result = run(host, build, "messages.c", library, *arguments, overdrive=overdrive, env=env)
    if overdrive:
        expect.took_our_path(result, 500)
        assert result.counter("device_bytes") > 10_000_000, result.report()


def collectives(runtime: str, host: Host, build: Build, overdrive: bool, tmp_path: Path) -> None:
    """All collectives, in all forms; the runtime is there before MPI_Init."""
    arguments = ["--rounds=1"] if overdrive else ["--rounds=1", "--device=0"]
    library = stand_in(runtime, tmp_path)
    result = run(host, build, "collectives.c", library, *arguments, ranks=3, overdrive=overdrive)
    if overdrive:
        assert result.counter("device_bytes") > 1_000_000, result.report()
        assert result.counter("collectives_served") > 1000, result.report()


@pytest.mark.quick
@pytest.mark.abis
@pytest.mark.parametrize("what", [messages, collectives])
def test_buffers(
    what: Callable[..., None], host: Host, compiled: Build, overdrive: bool, tmp_path: Path
) -> None:
    """Buffers of one runtime over the hosts."""
    what("cuda", host, compiled, overdrive, tmp_path)


def real_device() -> str:
    """Return why there is no CUDA device here, or nothing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver is installed"
    error = driver.cuInit(0)
    return f"the CUDA driver finds no device (error {error})" if error != 0 else ""


@pytest.mark.quick
@pytest.mark.abis
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("program", "ranks"), [("messages.c", 2), ("collectives.c", 3)])
def test_real_device(
    program: str, ranks: int, when: str, host: Host, compiled: Build, needs_overdrive: None
) -> None:
    """The same with memory of a real device, of every kind that CUDA has (real_cuda.c)."""
    reason = real_device()
    if reason:
        pytest.skip(reason)
    library = str(programs.plain_library(HERE / "real_cuda.c", ("-D_GNU_SOURCE", "-pthread")))
    result = run(host, compiled, program, library, f"--when={when}", ranks=ranks)
    assert result.counter("device_bytes") > 1_000_000, result.report()


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("what", [messages, collectives])
@pytest.mark.parametrize("runtime", ["rocm", "oneapi"])
def test_other_runtimes(
    runtime: str,
    what: Callable[..., None],
    host: Host,
    compiled: Build,
    needs_overdrive: None,
    tmp_path: Path,
) -> None:
    """Buffers of the other runtimes."""
    what(runtime, host, compiled, True, tmp_path)


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("program", ["messages.c", "collectives.c"])
def test_nodes(
    program: str, host: Host, compiled: Build, needs_overdrive: None, tmp_path: Path
) -> None:
    """Collectives between nodes, and wildcards of communicators that span nodes.

    Those that do not block are the host's there, which knows no devices; so learning, which may
    give others to it, is off.
    """
    library = stand_in("cuda", tmp_path)
    few = ["--rounds=1", "--forms=1"]
    remote = {"test_remote": "0-2,0-3,1-2,1-3", "learn": "off"}
    result = run(host, compiled, program, library, *few, ranks=4, settings=remote)
    assert result.counter("device_bytes") > 1_000_000, result.report()


@pytest.mark.quick
@pytest.mark.one
def test_unknown_runtime(
    host: Host, compiled: Build, needs_overdrive: None, tmp_path: Path
) -> None:
    """A library of a runtime's name that lacks its functions is named once and ignored."""
    built = programs.plain_library(HERE / "stand_in_rocm.c", ("-D_GNU_SOURCE", "-pthread"))
    library = tmp_path / "libcuda.so.1"  # has HIP's functions
    library.symlink_to(built)
    tmp_path.chmod(0o755)
    settings = {"verbose": "1"}
    result = run(host, compiled, "messages.c", str(library), "--device=0", settings=settings)
    lacks = [line for line in result.stderr.splitlines() if "lacks functions" in line]
    assert len(lacks) == 2, result.report()

"""XPMEM in whole programs, over a stand-in for its library (tests/memory/xpmem/stand_in.c)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, programs

HERE = Path(__file__).parent
Build = Callable[..., str]

KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""The stand-in does not see memory go: the C library's allocator must not give any back."""


WITH_XPMEM = Path("tests") / "with-xpmem" / "lib" / "liboverdrive.so"
"""The library that the build makes for these tests, beside the library that users get."""


@pytest.fixture(scope="module")
def library() -> Path:
    """Return a library with XPMEM built in: the build's own for this, or the tested one."""
    tested = jobs.overdrive_library()
    beside = tested.parent.parent / WITH_XPMEM
    return beside if beside.exists() else tested


@pytest.fixture(scope="module")
def stand_in(library: Path) -> str:
    """Return the library that stands in for libxpmem."""
    command = [sys.executable, str(programs.ROOT / "overdrive"), "info", "--json"]
    environment = {**os.environ, "OVERDRIVE_LIBRARY": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [m for m in json.loads(done.stdout)["mechanisms"] if m["name"] == "XPMEM"]
    assert found and found[0]["detail"] != "not built in", f"{library} was built without xpmem.h"
    source = HERE / "xpmem" / "stand_in.c"
    return str(programs.plain_library(source, ("-D_GNU_SOURCE", "-Wl,-soname,libxpmem.so.0")))


@pytest.fixture(autouse=True)
def tested_library(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all jobs load the library with XPMEM."""
    monkeypatch.setenv("OVERDRIVE_TEST_LIBRARY", str(library))


def run(
    host: Host, ranks: int, command: list[str], stand_in: str, mode: str = "", **settings: str
) -> jobs.Result:
    """Run a job whose ranks find the stand-in as their libxpmem."""
    env = {**KEPT_MEMORY, "XPMEM_STAND_IN": mode}
    chosen = {"reach": "off", "pull_wait": "1s", **settings}
    return jobs.run(host, ranks, command, settings=chosen, env=env, preload=([], [stand_in]))


@pytest.mark.quick
@pytest.mark.parametrize("path", ["auto", "pull", "push", "cooperative"])
def test_every_kind_of_memory(
    path: str, host: Host, compiled: Build, needs_overdrive: None, stand_in: str
) -> None:
    """Stack, static data, mappings: read and written directly."""
    settings = {"copy_path": path}
    if path == "auto":
        # What is learnt, and the distance of the cores, are of the moment.
        settings |= {"learn": "off", "far_pull_rewritten_min": "128K"}
    if path == "push":
        # No message fits what can be on its way, or be kept aside, before its receiver has come.
        settings |= {"frame_bytes": "0", "cell_bytes": "4K", "buffer_limit": "0"}
    result = run(host, 2, [compiled(HERE / "everywhere.c")], stand_in, **settings)
    expect.passed(result)
    expect.took_our_path(result, 40)
    counters = result.counters()
    for rank in result.stats.values():
        assert rank["counters"]["xpmem_peers_peak"] == 1, result.report()
    assert counters["xpmem_attached"] == counters["xpmem_detached"] > 0, counters
    assert "xpmem_refused" not in counters, counters
    moved = counters.get("xpmem_reads", 0) + counters.get("xpmem_writes", 0)
    assert moved > 0 and counters["xpmem_bytes"] > 10000 * moved, counters
    if path == "pull":
        # Read-only memory is not offered.
        assert counters["xpmem_reads"] == counters["receives_pull"] > 10, counters
        assert counters["xpmem_unfit"] == 2, counters


@pytest.mark.quick
def test_foreign_allocator(
    host: Host, compiled: Build, needs_overdrive: None, stand_in: str
) -> None:
    """A program with an allocator of its own: static data lies in the reach file, blocks do not."""
    program = compiled(HERE / "everywhere_own.c", (str(HERE / "own_malloc.c"),))
    result = run(host, 2, [program], stand_in, reach="all", copy_path="pull")
    expect.passed(result)
    counters = result.counters()
    assert counters["receives_pull"] > counters["xpmem_reads"] > 20, counters


@pytest.mark.quick
def test_windows_make_room(
    host: Host, compiled: Build, needs_overdrive: None, stand_in: str
) -> None:
    """More places than windows: the oldest are given up, and attached again."""
    command = [compiled(HERE / "everywhere.c"), "--kinds=0", "--windows=20"]
    result = run(host, 2, command, stand_in, copy_path="pull")
    expect.passed(result)
    for rank in result.stats.values():
        counters = rank["counters"]
        assert counters["xpmem_attached"] > 30, result.report()
        assert counters["xpmem_attached"] == counters["xpmem_detached"], result.report()


@pytest.mark.quick
@pytest.mark.parametrize("mode", ["off", "missing", "lie", "refuse"])
def test_falls_back(
    mode: str, host: Host, compiled: Build, needs_overdrive: None, stand_in: str
) -> None:
    """Switched off, no device, a module that does not work, attaching refused: as without XPMEM."""
    settings = {"copy_path": "cooperative", "verbose": "2"}
    if mode == "off":
        settings["xpmem"] = "off"
    result = run(host, 2, [compiled(HERE / "everywhere.c")], stand_in, mode, **settings)
    expect.passed(result)
    expect.took_our_path(result, 40)
    counters = result.counters()
    assert "xpmem_bytes" not in counters, counters
    assert ("xpmem_refused" in counters) == (mode == "refuse"), counters
    said = {
        "off": "XPMEM: switched off",
        "missing": "XPMEM: no /dev/xpmem",
        "lie": "does not show its memory",
        "refuse": "memory of a local rank cannot be attached: Cannot allocate memory",
    }[mode]
    if mode != "missing" or not Path("/dev/xpmem").exists():
        assert said in result.stderr, result.report()
        assert result.stderr.count(said) <= 2, "once per rank\n" + result.report()


@pytest.mark.quick
def test_forks(host: Host, compiled: Build, needs_overdrive: None, stand_in: str) -> None:
    """A rank that forks keeps its windows; its children use and end none of them."""
    # Shared by the child here, which with the module it is not: only refusing shows nothing else.
    command = [compiled(HERE / "everywhere.c"), "--kinds=3", "--fork"]
    expect.passed(run(host, 2, command, stand_in, "refuse", copy_path="pull"))


@pytest.mark.quick
def test_four_ranks(host: Host, compiled: Build, needs_overdrive: None, stand_in: str) -> None:
    """Pairs beside each other, more ranks than cores, checksums compared."""
    command = [compiled(HERE / "everywhere.c")]
    result = run(host, 4, command, stand_in, verify="1", copy_path="pull")
    expect.passed(result)
    assert result.counter("xpmem_reads") > 40, result.report()

"""The SMPI interface: the same answers on one node, over nodes and without Overdrive."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, programs, sharing, standby
from support.nodes import Nodes
from support.programs import INCLUDE, ROOT

HERE = Path(__file__).parent
EXAMPLES = ROOT / "examples"
Build = Callable[[Path], str]

TWO_NODES = "0-2,0-3,1-2,1-3"
"""Of four ranks: pairs that are treated as on different nodes."""

SITUATIONS: dict[str, dict[str, str]] = {
    "one_node": {},
    "apart": {"test_remote": "all"},
    "two_nodes": {"test_remote": TWO_NODES},
    "crosswise": {"test_remote": "0-1,0-3,1-2,2-3"},
    "no_reach": {"reach": "off"},
    "debug": {"smpi_debug": "on"},
    "cells": {"copy_path": "cells", "collectives": "off"},
}


def answers(result: jobs.Result) -> list[str]:
    """Return what the cases have answered."""
    return re.findall(r"^case .*$", result.stdout, re.MULTILINE)


def near(result: jobs.Result) -> int:
    """Return to how many ranks rank 0 sends by address."""
    found = re.search(r"^near: (\d+)$", result.stdout, re.MULTILINE)
    assert found, result.report()
    return int(found.group(1))


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.quick), 4])
def test_same_answers(ranks: int, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """On one node by address, and by copies without Overdrive: what is seen is the same."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, ranks, [program], overdrive=False)
    expect.passed(alone)
    assert near(alone) == 1
    assert len(answers(alone)) >= 200
    result = jobs.run(host, ranks, [program])
    expect.passed(result)
    assert near(result) == ranks, result.report()
    assert answers(result) == answers(alone)
    assert result.counter("smpi_lent") > 100 and result.counter("smpi_passed") > 100
    assert result.counter("smpi_copied") == 0


@pytest.mark.parametrize(
    "situation",
    [pytest.param(name, marks=[pytest.mark.quick] * (name == "two_nodes")) for name in SITUATIONS],
)
@pytest.mark.one
def test_situations(situation: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Ranks apart, groups of ranks, nothing reachable, the debug mode, other ways of copying."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, 4, [program], overdrive=False)
    expect.passed(alone)
    result = jobs.run(host, 4, [program], settings=SITUATIONS[situation])
    expect.passed(result)
    expected = {"apart": 1, "no_reach": 1, "two_nodes": 2, "crosswise": 2}.get(situation, 4)
    assert near(result) == expected, result.report()
    assert answers(result) == answers(alone)


@pytest.mark.one
@pytest.mark.parametrize(
    ("setting", "expected"), [("REACH=off", 3), ("SMPI_DEBUG=on", 4), ("SMPI_LIMIT=64M", 4)]
)
def test_one_rank_differs(
    setting: str, expected: int, host: Host, compiled: Build, needs_overdrive: None
) -> None:
    """One rank has other settings than the rest: what is seen is the same."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, 4, [program], overdrive=False)
    expect.passed(alone)
    differs = (
        f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ] && export OVERDRIVE_{setting}; exec "$0"'
    )
    result = jobs.run(host, 4, ["sh", "-c", differs, program])
    expect.passed(result)
    assert near(result) == expected, result.report()
    assert answers(result) == answers(alone)


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize(
    ("settings", "way"), [({}, "smpi_by_copy"), ({"smpi_limit": "64M"}, "smpi_by_content")]
)
def test_far_ranks(
    settings: dict[str, str], way: str, host: Host, compiled: Build, needs_overdrive: None
) -> None:
    """Short new data never lies in place where every pair of cores counts as far."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, 4, [program], overdrive=False)
    expect.passed(alone)
    result = jobs.run(host, 4, [program], settings={"far_threshold": "1ns", **settings})
    expect.passed(result)
    assert answers(result) == answers(alone)
    assert result.counter(way) > 10
    assert result.counter("smpi_lent") > 100


@pytest.mark.quick
def test_passed_to_another_node(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Who has waited for the request of a passed block has moved it on, and the block is free."""
    program = compiled(HERE / "apart.c")
    settings = {"test_remote": "all", "smpi_limit": "30M"}
    result = jobs.run(host, 2, [program], settings=settings)
    expect.passed(result)
    assert result.counter("smpi_copied") == 36
    assert result.counter("smpi_freed_after") == 36


@pytest.mark.netns
def test_across_nodes(host: Host, two_nodes: Nodes, compiled: Build, needs_overdrive: None) -> None:
    """Two ranks on each of two nodes of a virtual cluster."""
    program = compiled(HERE / "conformance.c")
    alone = jobs.run(host, 4, [program], overdrive=False)
    result = jobs.run(
        host,
        4,
        [program],
        launcher_prefix=two_nodes.enter(two_nodes.head),
        launcher_options=two_nodes.launcher_options(host.family, 2),
        preload=([], sharing.libraries(host, between_nodes=True)),
        limit=100,
    )
    expect.passed(result)
    assert near(result) == 2, result.report()
    assert answers(result) == answers(alone)


MISUSES = {
    "write": (
        r"rank 1 writes through a view: 12345 bytes of rank 0, received at .*{seen}, byte 7",
        1,
    ),
    "use": (r"rank 1 uses a view after its release: 12345 bytes of rank 0, .*{seen}, byte 8", 1),
    "twice": (r"rank 1 releases a view twice: 12345 bytes of rank 0, received at .*{seen}", 0),
    "leak": (r"rank 1 has not released a view before MPI_Finalize: 12345 bytes .*{seen}", 0),
    "lent": (r"rank 0 writes to a block while it is lent: byte 100 of 12345, .*{made}, 1 views", 1),
}
"""What the debug mode has to say, and whether the program dies of it."""


def line_of(comment: str) -> str:
    """Return file and line of the statement with a comment."""
    lines = (HERE / "misuse.c").read_text().splitlines()
    return f"misuse.c:{next(i for i, text in enumerate(lines, 1) if comment in text)}"


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("what", [*MISUSES, "none"])
def test_debug_mode(what: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Each misuse is reported with rank, size and place; right programs are not disturbed."""
    program = compiled(HERE / "misuse.c")
    result = jobs.run(host, 2, [program, f"--what={what}"], settings={"smpi_debug": "on"}, limit=30)
    if what == "none":
        expect.passed(result)
        assert "SMPI:" not in result.stderr, result.report()
        return
    pattern, deadly = MISUSES[what]
    pattern = pattern.format(seen=line_of("// received here"), made=line_of("// allocated here"))
    assert re.search(pattern, result.stderr), result.report()
    assert (result.returncode != 0) == bool(deadly), result.report()


LIVES = {
    "many": (2, {}, ["--count=100000"]),
    "large": (2, {}, []),
    "foreign": (3, {}, []),
    "exit": (3, {}, []),
    "fork": (3, {}, []),
    "limit": (2, {"smpi_limit": "1M"}, []),
    "touch": (2, {}, []),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(name, marks=[pytest.mark.quick] * (name in ("foreign", "fork", "touch")))
        for name in LIVES
    ],
)
@pytest.mark.one
def test_life(what: str, host: Host, compiled: Build, overdrive: bool) -> None:
    """Many and large blocks, freed elsewhere, lent at the end, seen by children, limited, fresh."""
    ranks, settings, arguments = LIVES[what]
    if what in ("limit", "fork", "touch") and not overdrive:
        pytest.skip("about Overdrive")
    program = compiled(HERE / "life.c")
    result = jobs.run(
        host, ranks, [program, f"--what={what}", *arguments], overdrive=overdrive, settings=settings
    )
    expect.passed(result)
    if what == "limit":
        peaks = [rank["counters"]["smpi_peak_bytes"] for rank in result.stats.values()]
        assert len(peaks) == ranks and all(0 < peak <= 1 << 20 for peak in peaks), peaks
    if overdrive and what == "many":
        assert result.counter("smpi_passed") == 100000
        assert result.counter("smpi_blocks") >= 100000
    if overdrive and what == "foreign":
        assert result.counter("smpi_returned") == 6000


@pytest.mark.quick
def test_random_traffic(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Views and ownership at random: nobody sees anything but what was sent, nothing is left."""
    program = compiled(HERE / "traffic.c")
    for settings in ({}, {"test_remote": TWO_NODES}, {"far_threshold": "1ns"}):
        result = jobs.run(host, 4, [program, "--count=20000"], settings=settings)
        expect.passed(result)
        assert result.counter("smpi_lent") > 400 and result.counter("smpi_passed") > 600
    alone = jobs.run(host, 4, [program, "--count=5000"], overdrive=False)
    expect.passed(alone)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["one_node", "two_nodes"])
def test_a_million_operations(where: str, host: Host, compiled: Build, overdrive: bool) -> None:
    """The same for long, with eight ranks; other traffic each time."""
    program = compiled(HERE / "traffic.c")
    seed = secrets.randbelow(2**31)
    settings = {"test_remote": "0-4,0-5,1-4,1-5,2-6,3-7"} if where == "two_nodes" else {}
    command = [program, "--count=1000000", f"--seed={seed}"]
    result = jobs.run(host, 8, command, overdrive=overdrive, settings=settings, limit=600)
    expect.passed(result)


@pytest.mark.slow
def test_a_million_blocks(host: Host, compiled: Build, overdrive: bool) -> None:
    """As many messages under way at once."""
    program = compiled(HERE / "life.c")
    result = jobs.run(host, 2, [program, "--what=many"], overdrive=overdrive, limit=300)
    expect.passed(result)


DEATHS = {
    "viewer": r"rank 1 \(process \d+ on this node\) has died while rank 0 .* for its views;",
    "owner": r"rank 1 \(process \d+ on this node\) has died while rank 0 was waiting for it;",
}
"""Who dies, and what the other one says of it."""


@pytest.mark.quick
@pytest.mark.one
@pytest.mark.parametrize("who", DEATHS)
def test_killed(who: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """A rank is killed that looks at a view, or that has lent one: the job ends with its name."""
    standby.needs_standby(host)
    program = compiled(HERE / "life.c")
    for _ in range(standby.attempts(host)):
        result = standby.run(host, [program, f"--what={who}"])
        assert not result.timed_out, result.report()
        assert "WRONG" not in result.stdout and "FAIL" not in result.stderr, result.report()
        if re.search(DEATHS[who], result.stderr):
            return
    pytest.fail(f"nobody named the dead rank\n{result.report()}")


@pytest.mark.quick
@pytest.mark.one
def test_cplusplus(host: Host, needs_overdrive: None) -> None:
    """The wrapper of C++, with Overdrive, without it, and in debug mode."""
    program = str(programs.program(host, HERE / "views.cc", ("-std=c++20",)))
    for overdrive, settings in ((True, {}), (False, {}), (True, {"smpi_debug": "on"})):
        result = jobs.run(host, 3, [program], overdrive=overdrive, settings=settings)
        expect.passed(result)
        assert "SMPI:" not in result.stderr, result.report()


def right(result: jobs.Result) -> None:
    """Check that an example has found its result right."""
    assert result.returncode == 0 and ": right" in result.stdout, result.report()
    assert "WRONG" not in result.stdout, result.report()


@pytest.mark.parametrize("name", ["cannon_mpi", "cannon_smpi", "halo", "work_queue"])
def test_examples(name: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """The examples in C, by address and by copies."""
    program = compiled(EXAMPLES / f"{name}.c")
    for overdrive, settings in ((True, {}), (False, {}), (True, {"test_remote": TWO_NODES})):
        right(jobs.run(host, 4, [program], overdrive=overdrive, settings=settings))


@pytest.mark.quick
@pytest.mark.one
def test_fortran(host: Host, needs_overdrive: None, tmp_path: Path) -> None:
    """The Fortran module, by the example and by programs that call each of its procedures."""
    if host.mpifort is None:
        pytest.skip(f"{host.name} has no Fortran compiler here")
    folder = INCLUDE / "overdrive"
    sources = {"cannon": EXAMPLES / "cannon_smpi_f08.f90"}
    sources |= {name: HERE / f"{name}.f90" for name in ("views", "messages")}
    called = "".join(source.read_text() for source in sources.values())
    public = re.findall(r"\bsubroutine (SMPI_\w+)\(", (folder / "smpi_f08.f90").read_text())
    assert len(public) > 20 and all(f"call {name}(" in called for name in public)
    module = [str(folder / "smpi_f08.f90"), "smpi_fortran.o"]
    defines = [f"-D{name}" for name in host.defines]
    for command in (
        [*host.mpicc, "-O2", *defines, "-I", str(INCLUDE), "-c", str(folder / "smpi_fortran.c")],
        *([*host.mpifort, "-O2", module[0], str(sources[name]), module[1], "-o", name]
          for name in sources),
    ):  # fmt: skip
        built = subprocess.run(
            command, cwd=tmp_path, env=host.environment(), capture_output=True, text=True
        )
        if built.returncode != 0 and "mpi_f08" in built.stderr:
            pytest.skip(f"{host.name} has no module mpi_f08 for this compiler")
        assert built.returncode == 0, built.stderr
    for overdrive in (True, False):
        for name in sources:
            right(jobs.run(host, 4, [str(tmp_path / name)], overdrive=overdrive))


@pytest.mark.quick
@pytest.mark.one
def test_python(host: Host, needs_overdrive: None) -> None:
    """The Python module and its example."""
    if host.python is None:
        pytest.skip(f"{host.name}: no Python interpreter with mpi4py")
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")])}
    for overdrive, settings, expected in (
        (True, {}, 4),
        (False, {}, 1),
        (True, {"test_remote": TWO_NODES}, 2),
        (True, {"smpi_debug": "on"}, 4),
    ):
        command = [host.python, str(HERE / "views.py")]
        result = jobs.run(host, 4, command, overdrive=overdrive, settings=settings, env=env)
        expect.passed(result)
        assert near(result) == expected, result.report()
    command = [host.python, str(EXAMPLES / "cannon_smpi.py"), "128"]
    right(jobs.run(host, 4, command, env=env))


PAGES = sorted((ROOT / "docs" / "man").glob("SMPI_*.3.md"))


def example_of(page: Path) -> str:
    """Return the program that a manual page shows."""
    text = page.read_text().partition("## Example\n")[2].partition("\n## ")[0]
    return "\n".join(line[4:] for line in text.strip("\n").splitlines()) + "\n"


@pytest.mark.one
def test_manual_pages(host: Host, needs_overdrive: None, tmp_path: Path) -> None:
    """The example of every page compiles without a warning and says the same in every situation."""
    assert len(PAGES) >= 10
    for page in PAGES:
        source = tmp_path / f"{page.name.partition('.')[0]}.c"
        source.write_text(example_of(page))
        program = source.with_suffix("")
        command = [*host.mpicc, "-std=c99", "-Wall", "-Wextra", "-Werror"]
        # What MPICH declares of MPI_Waitall does not go with MPI_STATUSES_IGNORE.
        command += ["-Wno-stringop-overflow", "-I", str(INCLUDE)]
        built = subprocess.run(
            [*command, str(source), "-o", str(program)],
            env=host.environment(),
            capture_output=True,
            text=True,
        )
        assert built.returncode == 0, built.stderr
        lines = []
        for overdrive in (True, False):
            result = jobs.run(host, 3, [str(program)], overdrive=overdrive)
            assert result.returncode == 0, result.report()
            lines.append(sorted(result.stdout.splitlines()))
            assert lines[-1], result.report()
        if page.name != "SMPI_Comm_attach.3.md":
            assert lines[0] == lines[1], page


def test_every_function_has_its_page(needs_overdrive: None) -> None:
    """Header and synopses have the same functions; the example of its page calls each of them."""
    header = (INCLUDE / "overdrive" / "smpi.h").read_text()
    declared = set(re.findall(r"^int (SMPI_\w+)\(", header, re.MULTILINE))
    described = set()
    names = {page.name.removesuffix(".3.md") for page in PAGES}
    # Written by the configure step: names of functions that share a page.
    manual = jobs.overdrive_library().parents[1] / "man" / "man3"
    for page in PAGES:
        here = set(re.findall(r"^    int (SMPI_\w+)\(", page.read_text(), re.MULTILINE))
        called = set(re.findall(r"\b(SMPI_\w+)\(", example_of(page)))
        assert here and here <= called, f"{page.name} does not show {here - called}"
        for name in here - names:
            expected = f".so man3/{page.name.removesuffix('.md')}\n"
            assert (manual / f"{name}.3").read_text() == expected
        described |= here
    assert declared == described
    overview = (ROOT / "docs" / "man" / "smpi.7.md").read_text()
    assert all(name in overview for name in declared)


@pytest.mark.one
def test_installed(host: Host, needs_overdrive: None, tmp_path: Path) -> None:
    """A program is built from an installation, by pkg-config and by CMake, and runs."""
    prefix = tmp_path / "prefix"
    build = jobs.overdrive_library().parents[1]
    subprocess.run(
        ["cmake", "--install", str(build), "--prefix", str(prefix)], check=True, capture_output=True
    )
    examples = prefix / "share" / "overdrive" / "examples"
    environment = host.environment()
    environment["PKG_CONFIG_PATH"] = str(next(prefix.glob("lib*/**/pkgconfig")))
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "overdrive"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    program = tmp_path / "by_pkg_config"
    source = str(examples / "cannon_smpi.c")
    command = [*host.mpicc, source, "-o", str(program), *flags, "-lm"]
    subprocess.run(command, env=environment, check=True)
    right(jobs.run(host, 4, [str(program)]))
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(by_cmake C)\n"
        "find_package(MPI REQUIRED COMPONENTS C)\nfind_package(Overdrive REQUIRED)\n"
        f"add_executable(by_cmake {source})\n"
        "target_link_libraries(by_cmake Overdrive::smpi MPI::MPI_C m)\n"
    )
    configure = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    configure += [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMPI_C_COMPILER={host.mpicc[0]}"]
    subprocess.run(configure, env=environment, check=True, capture_output=True)
    made = ["cmake", "--build", str(tmp_path / "build")]
    subprocess.run(made, env=environment, check=True, capture_output=True)
    right(jobs.run(host, 4, [str(tmp_path / "build" / "by_cmake")]))

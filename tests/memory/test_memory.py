"""Reachable memory in whole programs: what lies in the reach file, forks, limits, tools."""

from __future__ import annotations

import os
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, programs

HERE = Path(__file__).parent
Build = Callable[..., str]

FORK_LIMIT_MS = 100.0
"""A fork with 1 MiB shared takes about 2 ms; the limit stands for "usable" on a busy machine."""

OTHER_FORKS = 31
"""What forks.c does besides: in a child that grows, in two coroutines, beside another thread."""


def shell(text: str, program: list[str]) -> list[str]:
    """Return the program behind a shell command such as a ulimit."""
    return ["sh", "-c", f'{text}; exec "$@"', "sh", *program]


def want(heap: bool, static: bool) -> list[str]:
    """Return the options that say what the program must find reachable."""
    return [f"--heap={'yes' if heap else 'no'}", f"--static={'yes' if static else 'no'}"]


@pytest.mark.quick
@pytest.mark.parametrize("reach", ["all", "heap", "static", "off"])
def test_program(reach: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """A C program: the malloc family and static data lie where the setting says."""
    heap, static = reach in ("all", "heap"), reach in ("all", "static")
    command = [compiled(HERE / "reachable.c"), *want(heap, static)]
    result = jobs.run(host, 2, command, settings={"reach": reach})
    expect.passed(result)
    expect.took_our_path(result, 4)
    for counters in (rank["counters"] for rank in result.stats.values()):
        assert (counters["reach_peers_peak"] == 1) == (reach != "off"), result.report()
        assert (counters["reach_static_peak"] > 0) == static, result.report()


@pytest.mark.quick
def test_switched_off(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """OVERDRIVE_DISABLE leaves malloc and static data alone as well."""
    command = [compiled(HERE / "reachable.c"), *want(False, False)]
    expect.passed(jobs.run(host, 2, command, settings={"disable": "1"}))


@pytest.mark.quick
def test_fortran(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """COMMON blocks, module data and allocatables."""
    program = compiled(HERE / "arrays.f90", (str(HERE / "where.c"),))
    result = jobs.run(host, 2, [program])
    assert result.returncode == 0 and "PASS arrays" in result.stdout, result.report()


@pytest.mark.quick
@pytest.mark.everywhere
def test_numpy(host: Host, needs_overdrive: None) -> None:
    """Arrays of numpy, os.fork, multiprocessing, subprocess."""
    if host.python is None:
        pytest.skip(f"{host.name}: no Python interpreter with mpi4py")
    result = jobs.run(host, 2, [host.python, str(HERE / "arrays.py")])
    expect.passed(result)
    expect.took_our_path(result, 2)


@pytest.mark.quick
@pytest.mark.alone
@pytest.mark.parametrize(
    ("forks", "size"), [pytest.param(1000, 1 << 20, marks=pytest.mark.one), (10, 64 << 20)]
)
def test_forks(forks: int, size: int, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """A program that forks a thousand times with shared memory stays usable."""
    command = [compiled(HERE / "forks.c"), f"--forks={forks}", f"--bytes={size}"]
    result = jobs.run(host, 2, command)
    expect.passed(result)
    assert result.counter("reach_forks") == 2 * (forks + OTHER_FORKS), result.report()
    for found in re.findall(r"one fork takes ([\d.]+) ms", result.stdout):
        assert float(found) < FORK_LIMIT_MS * max(1, size >> 20), result.report()


@pytest.mark.quick
@pytest.mark.parametrize("descriptor", ["open", "lost"])
def test_pages(descriptor: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """madvise, mmap, munmap, mremap and mprotect on shared memory do what they do on private."""
    lost = ["--lost=1"] if descriptor == "lost" else []
    result = jobs.run(host, 2, [compiled(HERE / "pages.c"), *lost])
    expect.passed(result)
    expect.took_our_path(result, 8)


@pytest.mark.quick
@pytest.mark.one
def test_functions_that_allocate_while_the_heap_begins(
    host: Host, compiled: Build, needs_overdrive: None
) -> None:
    """Older C libraries allocate in functions that the first allocation of a rank calls."""
    behind = programs.plain_library(HERE / "allocating_open.c")
    program = shell(f'LD_PRELOAD="$LD_PRELOAD:{behind}"', [compiled(HERE / "reachable.c")])
    result = jobs.run(host, 2, [*program, *want(True, True)])
    expect.passed(result)
    expect.took_our_path(result, 4)


@pytest.mark.quick
@pytest.mark.parametrize(("ranks", "limit_kib"), [(2, 1_500_000), (4, 1_500_000), (4, 6_000_000)])
def test_most_of_a_limited_address_space(
    ranks: int, limit_kib: int, host: Host, compiled: Build, needs_overdrive: None
) -> None:
    """A program gets nearly as much of its `ulimit -v` as without Overdrive."""
    program = shell(f"ulimit -v {limit_kib}", [compiled(HERE / "address_space.c")])
    got = []
    for overdrive in (False, True):
        result = jobs.run(host, ranks, program, overdrive=overdrive)
        if not overdrive and result.returncode != 0:
            pytest.skip(f"{host.name} itself fails with so little address space")
        expect.passed(result)
        if overdrive:
            expect.took_our_path(result, ranks)
        found = re.search(r"^got (\d+) MiB$", result.stdout, re.MULTILINE)
        assert found, result.report()
        got.append(int(found[1]))
    assert got[1] > 0.75 * got[0], f"{got[1]} MiB of {got[0]} MiB"


LIMITS = {
    # Address space for a small arena and for the region.
    "enough address space": ("ulimit -v 8000000", True),
    "little address space": ("ulimit -v 510000", False),
    "small files": ("ulimit -f 20000", False),
    "large files": ("ulimit -f 400000", True),
    "few descriptors": ("ulimit -n 40", True),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Limits of the process make the reach file smaller or refuse it; the program never notices."""
    limit, reachable = LIMITS[name]
    program = [compiled(HERE / "reachable.c"), *want(reachable, reachable)]
    if not reachable:
        program.append("--threads=0")  # the C library takes much address space for each
    result = jobs.run(host, 2, shell(limit, program))
    if result.returncode != 0:
        alone = jobs.run(
            host, 2, shell(limit, [program[0], *want(False, False), "--threads=0"]), overdrive=False
        )
        if alone.returncode != 0:
            pytest.skip(f"{host.name} alone does not start with `{limit}`")
    expect.passed(result)


@pytest.mark.quick
def test_locked(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """mlockall does not give memory to the holes of what is shared."""
    expect.passed(jobs.run(host, 2, [compiled(HERE / "locked.c")]))


def test_unequal_limits(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """One rank cannot map what the other shares."""
    program = compiled(HERE / "reachable.c")
    commands = [
        shell("ulimit -v 1500000", [program, *want(True, True)]),
        [program, *want(True, True)],
    ]
    result = jobs.run(host, 2, [program], per_rank=commands)
    if result.returncode != 0:
        plain = [[*command, *want(False, False)] for command in commands]
        if jobs.run(host, 2, [program], per_rank=plain, overdrive=False).returncode != 0:
            pytest.skip(f"{host.name} alone does not start with little address space")
    expect.passed(result)
    peers = [result.stats[rank]["counters"]["reach_peers_peak"] for rank in (0, 1)]
    assert peers == [0, 1], result.report()


ALLOCATORS = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}


@pytest.mark.quick
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_foreign_malloc(allocator: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """With another allocator blocks are its own, and the log says why."""
    found = sorted(Path("/usr/lib").glob(f"*/{ALLOCATORS[allocator]}"))
    if not found:
        pytest.skip(f"{ALLOCATORS[allocator]} is not installed")
    command = [compiled(HERE / "reachable.c"), *want(False, True)]
    for preload in (([str(found[0])], []), ([], [str(found[0])])):
        result = jobs.run(host, 2, command, preload=preload, settings={"verbose": "2"})
        expect.passed(result)
        assert "the program brings its own malloc" in result.stderr, result.report()


SANITIZERS = {
    "address": ("-fsanitize=address",),
    "address-static": ("-fsanitize=address", "-static-libasan"),
    "thread": ("-fsanitize=thread",),
    "undefined": ("-fsanitize=undefined",),
}


@pytest.mark.quick
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sanitized(sanitizer: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Programs made with a sanitizer run, and it still finds what is wrong."""
    program = compiled(HERE / "sanitized.c", SANITIZERS[sanitizer])
    quiet = {"ASAN_OPTIONS": "detect_leaks=0"}
    result = jobs.run(host, 2, [program], env=quiet, settings={"verbose": "2"})
    if result.returncode != 0:
        alone = jobs.run(host, 2, [program], env=quiet, overdrive=False)
        if alone.returncode != 0:
            pytest.skip(f"{host.name} alone does not run with this sanitizer")
    expect.passed(result)
    expect.took_our_path(result, 4)
    if sanitizer == "address":
        assert "a sanitizer watches the program's memory" in result.stderr, result.report()
        result = jobs.run(host, 2, [program, "--wrong=1"], env=quiet)
        assert result.returncode != 0 and not result.timed_out, result.report()
        assert "heap-buffer-overflow" in result.stderr, result.report()


@pytest.mark.quick
def test_own_malloc(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """A program with an allocator linked into it."""
    program = compiled(HERE / "reachable_own.c", (str(HERE / "own_malloc.c"),))
    result = jobs.run(host, 2, [program, *want(False, True)], settings={"verbose": "2"})
    if result.returncode != 0:
        alone = jobs.run(host, 2, [program, *want(False, False)], overdrive=False)
        if alone.returncode != 0:
            pytest.skip(f"{host.name} alone does not run with an allocator of the program's own")
    expect.passed(result)
    assert "the program brings its own malloc" in result.stderr, result.report()


@pytest.mark.quick
def test_small_blocks(host: Host, compiled: Build) -> None:
    """Blocks that the C library serves, with threads that come and go."""
    expect.passed(jobs.run(host, 2, [compiled(HERE / "small_blocks.c")]))


@pytest.mark.quick
def test_freed_twice(host: Host, compiled: Build) -> None:
    """A block that is freed twice ends the program, as it does without Overdrive."""
    result = jobs.run(host, 1, [compiled(HERE / "small_blocks.c"), "--twice=1"])
    assert result.returncode != 0 and not result.timed_out, result.report()
    assert "double free" in result.stderr, result.report()


@pytest.fixture
def memory_group() -> Iterator[Callable[[int], list[str]]]:
    """Return a function that makes a control group with a limit; the prefix of what runs in it."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    made: list[Path] = []

    def make(limit: int) -> list[str]:
        for controller, mount, file in (
            ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("", "/sys/fs/cgroup", "memory.max"),
        ):
            # Beside the test's own group: in version 2 a group with processes has no inner ones.
            base = Path(mount + own.get(controller, "/none"))
            group = base / f"overdrive-test-{os.getpid()}"
            try:
                group.mkdir()
                made.append(group)
                (group / file).write_text(str(limit))
            except OSError:
                continue
            return ["sh", "-c", f'echo $$ >"{group}/cgroup.procs" && exec "$@"', "sh"]
        pytest.skip("no control group with a memory limit can be made here")

    yield make
    for group in made:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:  # processes that have just ended
                time.sleep(0.1)


GROUP_BYTES = 400 << 20


def test_memory_group(
    host: Host,
    compiled: Build,
    needs_overdrive: None,
    memory_group: Callable[[int], list[str]],
) -> None:
    """Within the memory limit of a control group the program gets what it gets without us."""
    prefix = memory_group(GROUP_BYTES)
    command = [compiled(HERE / "little_memory.c"), "--mib=60"]
    alone = jobs.run(host, 2, command, launcher_prefix=prefix, overdrive=False)
    if alone.returncode != 0:
        pytest.skip(f"{host.name} alone needs more memory")
    for huge in ("auto", "eager"):
        settings = {"reach_huge": huge}
        result = jobs.run(host, 2, command, launcher_prefix=prefix, settings=settings)
        expect.passed(result)
        assert result.counter("reach_heap_peak") > 0, result.report()


@pytest.mark.quick
def test_torn(
    host: Host,
    compiled: Build,
    needs_overdrive: None,
    memory_group: Callable[[int], list[str]],
) -> None:
    """A forked child never sees what its parent does later, also where memory is short."""
    prefix = memory_group(GROUP_BYTES)
    command = [compiled(HERE / "torn.c"), f"--mib={GROUP_BYTES * 6 // 10 >> 20}"]
    result = jobs.run(host, 1, command, launcher_prefix=prefix, stats="off")
    expect.passed(result)


THP = Path("/sys/kernel/mm/transparent_hugepage")


@pytest.fixture
def kernel_pages() -> Iterator[Callable[[str, str], None]]:
    """Return a function that sets the kernel's policy for huge pages until the end of the test."""
    files = [THP / "enabled", THP / "shmem_enabled"]
    if not all(os.access(file, os.W_OK) for file in files):
        pytest.skip("the kernel's policy for huge pages cannot be set here")
    before = [re.search(r"\[(.*)\]", file.read_text()) for file in files]

    def choose(*words: str) -> None:
        for file, word in zip(files, words, strict=True):
            file.write_text(word)

    yield choose
    choose(*(found.group(1) for found in before if found))


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["never", "advise", "always"])
@pytest.mark.parametrize("enabled", ["never", "madvise", "always"])
def test_kernel_pages(
    enabled: str,
    shared: str,
    host: Host,
    compiled: Build,
    needs_overdrive: None,
    kernel_pages: Callable[[str, str], None],
) -> None:
    """Every policy of the kernel; slow because it changes the machine for everybody meanwhile."""
    kernel_pages(enabled, shared)
    expect.passed(jobs.run(host, 2, [compiled(HERE / "reachable.c"), *want(True, True)]))
    command = [compiled(HERE / "forks.c"), "--forks=20", f"--bytes={16 << 20}"]
    expect.passed(jobs.run(host, 2, command))


CORE_LIMIT_BYTES = 400 << 20
"""The program's memory and that of the host MPI, but no holes and nothing of the neighbour."""


def test_core_dump(host: Host, compiled: Build, needs_overdrive: None, tmp_path: Path) -> None:
    """A core that the kernel writes holds neither the unused arena nor the neighbour's memory."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip(f"the kernel hands cores to somebody else: {pattern}")
    program = ["sh", "-c", f'cd "{tmp_path}"; ulimit -c unlimited; exec "$@"', "sh"]
    program.append(compiled(HERE / "crash.c"))
    tmp_path.chmod(0o777)
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard != resource.RLIM_INFINITY:
        pytest.skip("core files are limited here")
    result = jobs.run(host, 2, program, limit=90)
    assert result.returncode != 0, result.report()
    cores = list(tmp_path.glob("core*"))
    assert cores, result.report()
    sizes = [core.stat().st_blocks * 512 for core in cores]
    for core in cores:
        core.unlink()
    if max(sizes) >= CORE_LIMIT_BYTES:
        jobs.run(host, 2, program, limit=90, overdrive=False)
        alone = max((core.stat().st_blocks * 512 for core in tmp_path.glob("core*")), default=0)
        # Some hosts write large cores by themselves.
        assert max(sizes) < alone + CORE_LIMIT_BYTES, f"{[size >> 20 for size in sizes]} MiB"
    assert max(sizes) > 8 << 20, "the program's own data must be in it"


@pytest.mark.parametrize("tool", ["valgrind", "gdb"])
def test_tools(tool: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Programs still run under a debugger and under valgrind."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    program = [compiled(HERE / "forks.c"), "--forks=3", "--shared=0"]
    if tool == "gdb":
        command = ["gdb", "-batch", "-ex", "run", "-ex", "bt", "--args", *program]
    else:
        # Fair: a thread that only allocates keeps the others from running for minutes otherwise.
        # Every forked child would look for leaks in all that is mapped, 2 GiB of it the region.
        options = ["--fair-sched=try", "--leak-check=no", "--error-exitcode=0", "-q"]
        command = ["valgrind", *options, *program]
    result = jobs.run(host, 2, command, limit=240)
    if "PASS forks" not in result.stdout:
        alone = jobs.run(host, 2, command, overdrive=False, limit=240)
        if "PASS forks" not in alone.stdout:
            pytest.skip(f"{host.name} alone does not run under {tool}")
    assert "PASS forks" in result.stdout, result.report()


def test_huge_pages(host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Huge pages at once change nothing but speed."""
    command = [compiled(HERE / "reachable.c"), *want(True, True)]
    expect.passed(jobs.run(host, 2, command, settings={"reach_huge": "eager"}))

"""What the check consists of: the short one of `make check` and what `make check-all` adds.

Tests are found, never listed: every `*_test.cc` that CMake finds, and whatever pytest collects. A
new folder of tests or a new host is therefore in both without a change here.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from matrix import MATRIX
from steps import ROOT, Step

CPUS = len(os.sched_getaffinity(0))
JOBS = str(max(1, min(CPUS, 8)))

ADDR2LINE = shutil.which("addr2line")
NAMES_LINES = f":external_symbolizer_path={ADDR2LINE}" if ADDR2LINE else ""
"""What names the lines of a report: the first llvm-symbolizer that clang's programs find may be of
another version, with which they name none."""

SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": f"detect_stack_use_after_return=1{NAMES_LINES}",
    # Tests fork processes that share memory; the child of a threaded parent is part of what is
    # tested.
    "TSAN_OPTIONS": f"die_after_fork=0:halt_on_error=1{NAMES_LINES}",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}

OPTIMISED = "overdrive-openmpi"
"""What the check links optimised as a whole; the same objects, linked as they are, make the rest.

`make` links the rest again, for use and for measurements."""

PYTEST_FOLDERS = ("tests", "src", "cli", "bench", "tools")


@dataclass
class Part:
    """A part of the check.

    `prepare` needs nothing from other parts (it builds); it runs beside the parts before this one,
    with the lowest priority. The numbers come from `steps`.
    """

    name: str
    limit_seconds: int
    steps: Callable[[Path], list[Step]]
    """Takes the folder for JUnit files."""
    prepare: Callable[[], list[Step]] = list
    beside: bool = True
    """Whether `prepare` runs beside other parts; the first build, which all need, does not."""
    prepare_may_fail: bool = False
    group: str = field(default="")
    """Of `make check-all`: the name by which several parts are chosen."""


def python() -> str:
    """Return the development environment's interpreter."""
    directory = Path(os.environ.get("OVERDRIVE_VENV_DIR", ROOT / "build" / "venv"))
    inside = directory / "bin" / "python"
    return str(inside) if inside.exists() else sys.executable


CLANG = range(16, 40)
"""Versions of clang that compile the sources; the first is the one that `make check` installs."""


BY_CLANG = {"asan": "address,undefined", "tsan": "thread"}
"""Presets that clang builds, and their sanitizers. `ubsan`, which only `make check-all` builds, is
GCC's: what one compiler does not notice another one may."""


def clang_for(sanitizer: str) -> int | None:
    """Return the version of clang that makes a sanitizer's build, or None: the usual compiler does.

    It takes half the time of GCC for it.
    """
    for number in CLANG:
        if shutil.which(f"clang-{number}") is None or shutil.which(f"clang++-{number}") is None:
            continue
        # The sanitizers' libraries are a package of their own.
        probe = [f"clang++-{number}", f"-fsanitize={sanitizer}", "-x", "c++", "-", "-o", os.devnull]
        done = subprocess.run(probe, input=b"int main() {}", capture_output=True, check=False)
        if done.returncode == 0:
            return number
    return None


def compiler_before(preset: str) -> str:
    """Return the name of the C++ compiler that a build was configured with, empty if none was."""
    cache = ROOT / "build" / preset / "CMakeCache.txt"
    text = cache.read_text(encoding="utf-8") if cache.is_file() else ""
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", text, re.MULTILINE)
    return Path(found[1]).name if found else ""


def sanitizer_steps(preset: str, configure: list[str]) -> list[Step]:
    """Return the commands that configure a sanitizer's build."""
    number = clang_for(BY_CLANG[preset])
    before = compiler_before(preset)
    if number is None:
        other = before.startswith("clang")
    else:
        other = before not in ("", f"clang++-{number}")
        configure = [*configure, f"-DCMAKE_C_COMPILER=clang-{number}"]
        configure.append(f"-DCMAKE_CXX_COMPILER=clang++-{number}")
    steps = [Step(configure)]
    if other:
        # What one compiler has configured another one cannot go on with.
        names = [f"build/{preset}/{name}" for name in ("CMakeCache.txt", "CMakeFiles")]
        steps.insert(0, Step(["cmake", "-E", "rm", "-rf", *names]))
    return steps


def build_steps(preset: str, target: str | None = None) -> list[Step]:
    """Return the commands that configure and build a preset."""
    configure = ["cmake", "--preset", preset, "-DOVERDRIVE_UNITY=ON"]
    if preset == "release":
        configure.append(f"-DOVERDRIVE_LTO_TARGETS={OPTIMISED}")
    if os.environ.get("OVERDRIVE_WERROR") == "1":
        configure.append("-DOVERDRIVE_WERROR=ON")
    build = ["cmake", "--build", f"build/{preset}", "-j", JOBS]
    if target is not None:
        build += ["--target", target]
    by_clang = preset in BY_CLANG
    return [*(sanitizer_steps(preset, configure) if by_clang else [Step(configure)]), Step(build)]


def fixed_addresses_work() -> bool:
    """Tell whether address randomisation can be switched off here (containers may forbid it)."""
    if shutil.which("setarch") is None:
        return False
    probe = ["setarch", platform.machine(), "-R", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def unit_steps(preset: str, logs: Path) -> list[Step]:
    """Return the command that runs a preset's unit tests."""
    junit = logs / f"unit-{preset}.xml"
    command = ["ctest", "--test-dir", f"build/{preset}", "-j", JOBS, "--output-on-failure"]
    command += ["--no-tests=error", "--output-junit", str(junit)]
    if preset == "tsan" and fixed_addresses_work():
        # The thread sanitizer's shadow memory collides with widely randomised addresses.
        command = ["setarch", platform.machine(), "-R", *command]
    env = {} if preset == "release" else SANITIZER_OPTIONS
    return [Step(command, junit, True, env)]


def unit_part(preset: str, limit_seconds: int) -> Part:
    """Return the part that builds a preset and runs its unit tests."""
    release = preset == "release"
    return Part(
        f"unit-{preset}",
        limit_seconds,
        lambda logs: unit_steps(preset, logs),
        lambda: build_steps(preset, None if release else "unit_tests"),
        beside=not release,
    )


def pytest_step(logs: Path, name: str, *arguments: str, alone: bool = False) -> Step:
    """Return a run of pytest; numbers go to a file with this name."""
    junit = logs / f"{name}.xml"
    command = [python(), "-m", "pytest", "-q", "-ra", "--durations=10", f"--junitxml={junit}"]
    return Step([*command, *arguments], junit, True, alone=alone)


def several() -> list[str]:
    """Return pytest's options for several tests at once, where that is possible."""
    probe = [python(), "-c", "import xdist"]
    known = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    # A test waits for launchers and for processes that end for half of its time.
    workers = str(min(2 * CPUS, 8))
    return ["-n", workers, "--dist", "loadgroup"] if known and CPUS > 1 else []


def pytest_steps(logs: Path) -> list[Step]:
    """Return the commands that run the Python tests.

    Tests that must run alone come last. The folder `packaging` has a run of its own: once it has
    been collected, its name hides the library `packaging`, which matplotlib needs.
    """
    folders = [name for name in PYTEST_FOLDERS if (ROOT / name).is_dir()]
    steps = [
        pytest_step(logs, "pytest", "--run=together", *several(), *folders),
        pytest_step(logs, "pytest-alone", "--run=alone", *folders, alone=True),
    ]
    if (ROOT / "packaging").is_dir():
        steps.append(pytest_step(logs, "pytest-packaging", "packaging"))
    return steps


CONFORMANCE = ["tests/conformance/run.py"]


def conformance_part() -> Part:
    """Return the representative part of the conformance suites."""
    command = [python(), *CONFORMANCE, "--representative"]
    return Part(
        "conformance",
        1800,
        lambda logs: [Step(command, counts=True)],
        lambda: [Step([*command, "--build-only"])],
        # Without a network the suite cannot be had; the run itself says so and goes on.
        prepare_may_fail=True,
    )


def lint_part() -> Part:
    """Return the part that checks style."""
    return Part("lint", 180, lambda logs: [Step([python(), "tools/lint/lint.py"], counts=True)])


# The limits are about three times what a machine with two processors of its own needs.
def short_parts() -> list[Part]:
    """Return what `make check` runs."""
    return [
        unit_part("release", 1800),
        lint_part(),
        Part("pytest", 1800, pytest_steps),
        conformance_part(),
        # This preset holds the undefined-behaviour sanitizer as well.
        unit_part("asan", 1500),
        unit_part("tsan", 1500),
    ]


def matrix_part(name: str) -> Part:
    """Return the part that builds another configuration and runs its unit tests."""
    junit = f"matrix-{name}.xml"

    def steps(logs: Path) -> list[Step]:
        command = ["ctest", "--test-dir", f"build/matrix-{name}", "-j", JOBS, "--output-on-failure"]
        command += ["--no-tests=error", "--output-junit", str(logs / junit)]
        return [Step(command, logs / junit, True)]

    return Part(
        f"matrix-{name}",
        LONG_SECONDS,
        steps,
        lambda: [Step([python(), "tools/check/matrix.py", name, "--jobs", JOBS])],
        group="matrix",
    )


LONG_SECONDS = 4 * 3600
"""Of a part of `make check-all`: hours for the longest, so only what hangs is ended."""


def ownership_part() -> Part:
    """Return the part that passes blocks of message memory on for long, under a sanitizer."""
    command = ["ctest", "--test-dir", "build/asan", "-R", "SmpiService.RandomOwnershipTraffic"]
    command += ["--output-on-failure", "--no-tests=error", "--output-junit"]
    env, junit = SANITIZER_OPTIONS | {"OVERDRIVE_TEST_OPERATIONS": "1000000"}, "ownership.xml"
    return Part(
        "ownership",
        LONG_SECONDS,
        lambda logs: [Step([*command, str(logs / junit)], logs / junit, True, env)],
        lambda: build_steps("asan", "unit_tests"),
    )


def seeds_part() -> Part:
    """Return the part that plans collectives for random cases which nobody has tried before."""

    def steps(logs: Path) -> list[Step]:
        found = []
        for _ in range(20):
            seed = secrets.randbelow(2**32)
            junit = logs / f"seeds-{seed}.xml"
            command = ["ctest", "--test-dir", "build/release", "-j", JOBS, "-R", "EveryAlgorithm"]
            command[-1] += "|EveryHierarchy|Team.Random"
            command += ["--output-on-failure", "--no-tests=error", "--output-junit", str(junit)]
            found.append(Step(command, junit, True, {"OVERDRIVE_TEST_SEED": str(seed)}))
        return found

    return Part("seeds", LONG_SECONDS, steps, lambda: build_steps("release"), beside=False)


def test_folders() -> list[str]:
    """Return the folders of Python tests below tests/."""
    found = sorted({path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")})
    return [f"tests/{name}" for name in found]


def long_pytest(name: str, *arguments: str) -> Part:
    """Return a part of `make check-all` that runs pytest with these arguments."""
    return Part(
        name,
        LONG_SECONDS,
        lambda logs: [pytest_step(logs, name, *arguments)],
        group="pytest-all",
    )


FORCED_FOLDERS = ("tests/p2p", "tests/python")
"""Messages of all kinds; other tests choose the way themselves."""


def suites_over_nodes() -> list[Part]:
    """Return the conformance suites over nodes, with settings that change what collectives do.

    The suite's collectives are begun by whoever comes first (`arrival`), and both suites run with
    collectives that return early (`overlap`): one part for each host and layout. Each goes on where
    it was interrupted, and by itself takes a few minutes: beside other work the ranks of a job wait
    for each other's processors instead.
    """
    from conformance.selection import ARRIVAL_LAYOUTS, LAB_HOSTS, OVERLAP_LAYOUTS

    def part(group: str, option: str, host: str, layout: str) -> Part:
        command = [python(), *CONFORMANCE, option, "--continue", "--patience", "3"]
        command += ["--hosts", host, "--lab", layout]
        return Part(
            f"{group}-{host}-{layout}",
            LONG_SECONDS,
            lambda logs: [Step(command, counts=True)],
            group=group,
        )

    kinds = (
        ("arrival", "--first-arrival", ARRIVAL_LAYOUTS),
        ("overlap", "--overlap", OVERLAP_LAYOUTS),
    )
    return [
        part(group, option, host, layout)
        for group, option, layouts in kinds
        for host in LAB_HOSTS
        for layout in layouts
    ]


def long_parts() -> list[Part]:
    """Return what `make check-all` runs after the parts of `make check`.

    Each part is kept by itself when the run is interrupted, so they are small.
    """
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "hosts")]
    from conformance.selection import FORCED

    parts = [long_pytest(f"all-{Path(folder).name}", "--all", folder) for folder in test_folders()]
    others = [name for name in PYTEST_FOLDERS if name != "tests" and (ROOT / name).is_dir()]
    parts.append(long_pytest("all-tools", "--all", "tests/conformance", *others))
    for settings in FORCED:
        chosen = [word for item in settings.items() for word in ("--set", "=".join(item))]
        label = settings.get("copy_path", "without-reach")
        folders = [folder for folder in FORCED_FOLDERS if (ROOT / folder).is_dir()]
        part = long_pytest(f"forced-{label}", "-m", "quick", *chosen, *folders)
        part.group = "forced"
        parts.append(part)
    command = [python(), *CONFORMANCE, "--all", "--continue"]
    whole = Part("conformance-all", 24 * 3600, lambda logs: [Step(command, counts=True)])
    whole.group = "conformance-all"
    parts += suites_over_nodes()
    command = [python(), "tests/fuzz/run.py", "--time", "1h"]
    fuzz = Part("fuzz", LONG_SECONDS, lambda logs: [Step(command, counts=True)])
    matrix = [matrix_part(name) for name in MATRIX]
    others = [seeds_part(), ownership_part(), unit_part("ubsan", LONG_SECONDS)]
    return [*parts, *others, *matrix, fuzz, whole]

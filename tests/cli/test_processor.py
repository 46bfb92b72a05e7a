"""Builds for newer processors: they say so, and where they do not fit jobs run without them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from overdrive import c_library, processor

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.quick

NONE_YET = 5
"""A level that no processor has."""


def level_by_readelf(path: Path) -> int:
    said = subprocess.check_output(["readelf", "-nW", str(path)], text=True)
    found = re.search("x86 ISA needed: (.*)", said)
    return len(found.group(1).split(",")) if found else 0


@pytest.fixture
def newer(newer_folder: Path) -> Path:
    """Return a library that needs a level which does not exist yet."""
    folder = newer_folder
    bits = (1 << NONE_YET) - 1
    (folder / "note.s").write_text(
        '.section .note.gnu.property, "a"\n.balign 8\n.long 4, 16, 5\n.asciz "GNU"\n'
        f".long 0xc0008002, 4, {bits}, 0\n"
    )
    (folder / "name.c").write_text('const char od_name[] = "liboverdrive.so";\n')
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", "name.c", "note.s", "-o", "liboverdrive.so"],
        cwd=folder, check=False,
    )  # fmt: skip
    if done.returncode != 0 or level_by_readelf(folder / "liboverdrive.so") != NONE_YET:
        pytest.skip("no x86-64, or a linker that does not keep such notes")
    return folder / "liboverdrive.so"


def test_the_dynamic_linker_refuses_such_a_library(newer: Path) -> None:
    """That is why it is asked before; older linkers load it, and the program ends by a signal."""
    done = subprocess.run(
        ["/bin/true"], env={"LD_PRELOAD": str(newer)}, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        pytest.skip("this dynamic linker does not know levels")
    assert "CPU ISA level is lower than required" in done.stderr


def test_one_line_instead_of_a_job_that_does_not_start(overdrive, newer: Path) -> None:
    run = overdrive("--library", str(newer), "mpirun", "-n", "2", "./app")
    assert run.code == 0, run.err
    assert "LD_PRELOAD" not in run.variables()
    assert len(run.err.splitlines()) == 1
    assert f"{newer} was built for processors of the level x86-64-v5, and this one has" in run.err
    assert c_library.REMEDY in run.err


def test_doctor_says_it_too(overdrive, newer: Path) -> None:
    run = overdrive("--library", str(newer), "doctor")
    assert run.code == 1
    said = " ".join(run.out.split())
    assert "processors of the level x86-64-v5" in said and "install the wheel" in said


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("fpu sse2", 1),
        ("fpu sse2 cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3", 2),
        ("fpu sse2 abm avx avx2 bmi1 bmi2 f16c fma movbe xsave", 1),
    ],
)
def test_levels_of_processors(flags: str, level: int, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"model name\t: some\nflags\t\t: {flags}\n")
    assert processor.here(str(tmp_path / "cpuinfo")) == level


def test_a_kernel_that_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd\n")
    assert processor.here(str(tmp_path / "cpuinfo")) == 0
    assert processor.here(str(tmp_path / "missing")) == 0


PROJECT = """cmake_minimum_required(VERSION 3.21)
project(small CXX)
add_library(overdrive_options INTERFACE)
include({module})
add_library(small SHARED small.cc)
target_link_libraries(small PRIVATE overdrive_options)
"""


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("march", "level"), [("x86-64", 0), ("x86-64-v2", 2), ("x86-64-v3", 3)])
def test_builds_say_what_they_need(march: str, level: int, whole: bool, tmp_path: Path) -> None:
    """Also when a function in it is for wider vectors, and when it is optimised across files."""
    if shutil.which("cmake") is None or shutil.which("g++") is None:
        pytest.skip("no cmake or no g++")
    flags = f"-march={march}{' -flto' if whole else ''}"
    accepted = ["g++", flags.split()[0], "-mneeded", "-x", "c++", "-fsyntax-only", "/dev/null"]
    if subprocess.run(accepted, capture_output=True, check=False).returncode != 0:
        pytest.skip("a compiler that does not mark what it compiles, or not for x86-64")
    module = ROOT / "cmake" / "OverdriveProcessor.cmake"
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(module=module))
    (tmp_path / "small.cc").write_text(
        '__attribute__((target("avx512f"))) int wide(int a) { return a + 1; }\n'
    )
    build = tmp_path / "build"
    for words in (["-S", str(tmp_path), "-B", str(build), f"-DCMAKE_CXX_FLAGS={flags}",
                   "-DCMAKE_CXX_COMPILER=g++"], ["--build", str(build)]):  # fmt: skip
        subprocess.run(["cmake", *words], check=True, capture_output=True)
    library = build / "libsmall.so"
    assert level_by_readelf(library) == level
    assert c_library._needs(str(library))[1] == level

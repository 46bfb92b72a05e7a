"""The preloaded loader against a library that only looks like an MPI library.

With such a library every case can be made: functions that are missing, a host that is not there,
one that comes late, a face that refuses. Real hosts are in test_loader_hosts.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import jobs
from support.programs import ROOT

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.quick


@dataclass
class Bench:
    """A folder with a fake MPI library, a face for it, and programs."""

    folder: Path
    loader: Path

    def compile(self, source: str, output: str, *options: str) -> Path:
        """Compile one of the programs."""
        path = self.folder / output
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-O1", "-w", "-I", str(ROOT / "src" / "face"), "-o", str(path)]
        subprocess.run([*command, str(PROGRAMS / source), *options], check=True)
        return path

    def shared_object(self, source: str, output: str, *options: str) -> Path:
        """Compile a shared library."""
        return self.compile(source, output, "-shared", "-fPIC", *options)

    def run(
        self, *command: Path | str, preload: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with the loader preloaded, and without faces unless a folder is given."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OVERDRIVE_")}
        environment["LD_LIBRARY_PATH"] = str(self.folder)
        environment["OVERDRIVE_FACE_DIR"] = str(self.folder / "nothing")
        environment.update(variables)
        if preload:
            environment.setdefault("LD_PRELOAD", str(self.loader))
        return subprocess.run(
            [str(c) for c in command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * jobs.TIME_SCALE,
            check=False,
        )

    def output(self, *command: Path | str, preload: bool = True, **variables: str) -> str:
        """Run a command that must succeed, and return its output."""
        result = self.run(*command, preload=preload, **variables)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


@pytest.fixture
def bench(tmp_path: Path, needs_overdrive: None) -> Bench:
    """Return a folder with a fake MPI library (libmpi.so.12) and a face that lies in faces/."""
    made = Bench(tmp_path, jobs.overdrive_library())
    made.shared_object("fake_mpi.c", "libmpi.so.12", "-Wl,-soname,libmpi.so.12")
    made.shared_object("fake_face.c", "faces/liboverdrive-mpich.so")
    return made


@pytest.fixture
def linked(bench: Bench) -> Callable[..., Path]:
    """Return a function that compiles a program linked with the fake MPI library."""

    def build(source: str, *options: str) -> Path:
        return bench.compile(source, "program", *options, str(bench.folder / "libmpi.so.12"))

    return build


@pytest.mark.parametrize("first", [0, 1, 2, 3])
@pytest.mark.parametrize("binding", ["-Wl,-z,now", "-Wl,-z,lazy"])
def test_arguments_survive(
    bench: Bench, linked: Callable[..., Path], first: int, binding: str
) -> None:
    """Integers, doubles, variable arguments and the stack, at the first call and later."""
    program = linked("arguments.c", f"-DFIRST={first}", binding)
    direct = bench.output(program, preload=False)
    assert "wtime 1234.5 1234.5" in direct
    assert bench.output(program) == direct


def test_face_takes_its_entries(bench: Bench, linked: Callable[..., Path]) -> None:
    program = linked("arguments.c")
    direct = bench.output(program, preload=False).splitlines()
    ours = bench.output(program, OVERDRIVE_FACE_DIR=str(bench.folder / "faces")).splitlines()
    assert ours[0] == "face: bound abi 2 soname libmpi.so.12 host symbol 1 rank 7"
    assert ours[-1] == "face: 2 sends"
    sums = [int(n) for n in next(d for d in direct if d.startswith("send ")).split()[1:]]
    assert f"send {1000000 + sums[0]} {1000000 + sums[1]}" in ours
    changed = [line for line in direct if line not in ours]
    assert changed == [line for line in direct if line.startswith("send ")]


@pytest.mark.parametrize("value", ["1", "true", "Yes", "on"])
def test_switched_off(bench: Bench, linked: Callable[..., Path], value: str) -> None:
    program = linked("arguments.c")
    faces = str(bench.folder / "faces")
    result = bench.run(program, OVERDRIVE_DISABLE=value, OVERDRIVE_FACE_DIR=faces)
    assert result.stdout == bench.output(program, preload=False)
    assert "face" not in result.stdout + result.stderr


def test_face_that_refuses(bench: Bench, linked: Callable[..., Path]) -> None:
    program = linked("arguments.c")
    faces = str(bench.folder / "faces")
    result = bench.run(
        program, FAKE_FACE_RESULT="3", OVERDRIVE_FACE_DIR=faces, OVERDRIVE_VERBOSE="1"
    )
    lines = [line for line in result.stdout.splitlines() if not line.startswith("face: bound")]
    assert lines == bench.output(program, preload=False).splitlines()
    assert "lacks something it needs" in result.stderr
    quiet = bench.run(program, FAKE_FACE_RESULT="3", OVERDRIVE_FACE_DIR=faces)
    assert quiet.stderr == ""


def test_face_that_is_missing(bench: Bench, linked: Callable[..., Path]) -> None:
    program = linked("arguments.c")
    loud = bench.run(program, OVERDRIVE_VERBOSE="1")
    assert loud.returncode == 0
    assert loud.stderr.count("\n") == 1 and "liboverdrive-mpich.so" in loud.stderr
    assert bench.run(program).stderr == ""


def test_faces_are_found_beside_the_loader(bench: Bench, linked: Callable[..., Path]) -> None:
    """Also when the loader was named by a relative path, and the program changes its directory."""
    program = linked("arguments.c")
    installed = bench.folder / "installed"
    shutil.copytree(bench.folder / "faces", installed / "overdrive")
    shutil.copy(bench.loader, installed / "liboverdrive.so")
    for name in (installed / "liboverdrive.so", "installed/liboverdrive.so"):
        command = f"cd {bench.folder}; LD_PRELOAD={name} exec {program}"
        result = bench.run("sh", "-c", command, preload=False, OVERDRIVE_FACE_DIR="")
        assert "face: bound" in result.stdout, result.stderr
    changer = bench.compile("changes_directory.c", "changer", str(bench.folder / "libmpi.so.12"))
    command = f"cd {bench.folder}; LD_PRELOAD=installed/liboverdrive.so exec {changer}"
    result = bench.run("sh", "-c", command, preload=False, OVERDRIVE_FACE_DIR="")
    assert "face: bound" in result.stdout, result.stderr


def test_open_mpi_is_told_by_its_symbols(bench: Bench, tmp_path: Path) -> None:
    bench.shared_object("fake_mpi.c", "libmpi.so.40", "-Wl,-soname,libmpi.so.40", "-DFAKE_OPENMPI")
    program = bench.compile("arguments.c", "program40", str(tmp_path / "libmpi.so.40"))
    result = bench.run(program, OVERDRIVE_VERBOSE="1")
    assert "liboverdrive-openmpi.so" in result.stderr


def test_standard_abi_is_told_by_its_name(bench: Bench, tmp_path: Path) -> None:
    bench.shared_object("fake_mpi.c", "libmpi_abi.so.1", "-Wl,-soname,libmpi_abi.so.1")
    program = bench.compile("arguments.c", "program1", str(tmp_path / "libmpi_abi.so.1"))
    result = bench.run(program, OVERDRIVE_VERBOSE="1")
    assert "liboverdrive-mpiabi.so" in result.stderr


def test_unknown_library_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    bench.shared_object(
        "fake_mpi.c",
        "libother.so.3",
        "-Wl,-soname,libother.so.3",
        "-DFAKE_OPENMPI",
        "-Dompi_mpi_comm_world=something_else",
    )
    program = bench.compile("arguments.c", "program3", str(tmp_path / "libother.so.3"))
    result = bench.run(program, OVERDRIVE_VERBOSE="1")
    assert result.stdout == bench.output(program, preload=False)
    assert "no MPI library that Overdrive knows" in result.stderr


def test_library_with_the_old_hash_table(bench: Bench) -> None:
    options = ("-Wl,-soname,libmpi.so.12", "-Wl,--hash-style=sysv")
    library = bench.shared_object("fake_mpi.c", "libmpi.so.12", *options)
    headers = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True)
    assert "(HASH)" in headers.stdout and "GNU_HASH" not in headers.stdout
    program = bench.compile("arguments.c", "program", str(library))
    out = bench.output(program, OVERDRIVE_FACE_DIR=str(bench.folder / "faces"))
    assert "face: bound abi 2 soname libmpi.so.12" in out and "face: 2 sends" in out


def test_first_call_by_many_threads(bench: Bench, linked: Callable[..., Path]) -> None:
    program = linked("threads.c", "-pthread")
    for _ in range(8):
        bench.output(program)
        out = bench.output(program, OVERDRIVE_FACE_DIR=str(bench.folder / "faces"))
        assert "wrong 0" in out and "face: 16 sends" in out


def test_function_that_the_host_lacks(bench: Bench) -> None:
    """Ends the process as the dynamic linker would: with 127 and the name."""
    richer = bench.shared_object(
        "fake_mpi.c",
        "richer/libmpi.so.12",
        "-Wl,-soname,libmpi.so.12",
        "-DMPI_Get_version=MPI_Session_init",
    )
    program = bench.compile("missing.c", "program", "-DINIT", "-Wl,-z,lazy", str(richer))
    direct = bench.run(program, preload=False)
    ours = bench.run(program)
    assert direct.returncode == ours.returncode == 127
    assert direct.stdout == ours.stdout == "before\n"
    for text in ("undefined symbol", "MPI_Session_init"):
        assert text in direct.stderr and text in ours.stderr


def test_no_host_at_all(bench: Bench) -> None:
    """The library that the program was linked with has become one without MPI."""
    library = bench.shared_object(
        "fake_mpi.c",
        "gone/libgone.so",
        "-Wl,-soname,libgone.so",
        "-DMPI_Get_version=MPI_Session_init",
    )
    program = bench.compile("missing.c", "program", "-Wl,-z,lazy", str(library))
    bench.shared_object("changes_directory.c", "libgone.so", "-Wl,-soname,libgone.so")
    result = bench.run(program)
    assert result.returncode == 127 and result.stdout == "before\n"
    assert "MPI_Session_init" in result.stderr and "no MPI library" in result.stderr


@pytest.mark.parametrize("options", [(), ("-Wl,-z,now",), ("-Wl,-z,lazy",)])
def test_what_stands_in_for_mpi(bench: Bench, options: tuple[str, ...]) -> None:
    """Sequential programs have a library with a few functions of MPI: it serves them."""
    library = bench.shared_object("stand_in.c", "libseq.so", "-Wl,-soname,libseq.so")
    program = bench.compile("stand_in.c", "program", "-DPROGRAM", *options, str(library))
    direct = bench.output(program, preload=False)
    assert direct == ("stand-in: 40, 0 then 1, rank 105\nstand-in: 40, 1 then 1, rank 105\n")
    faces = str(bench.folder / "faces")
    assert bench.output(program, OVERDRIVE_FACE_DIR=faces) == direct


def test_stand_in_of_a_plugin(bench: Bench) -> None:
    """The same where only a plugin has it, which is loaded for its own use."""
    library = bench.shared_object("stand_in.c", "libseq.so", "-Wl,-soname,libseq.so")
    plugin = bench.shared_object("stand_in.c", "plugin.so", "-DPLUGIN", str(library))
    program = bench.compile("load_plugin.c", "program")
    direct = bench.output(program, plugin, preload=False)
    assert direct == "stand-in: 40, 0 then 1, rank 105\n"
    assert bench.output(program, plugin) == direct


@pytest.mark.parametrize("binding", ["-Wl,-z,now", "-Wl,-z,lazy"])
def test_weak_references_of_a_program_without_mpi(bench: Bench, binding: str) -> None:
    """They are not null with the loader: whoever asks is told that MPI is not initialised."""
    program = bench.compile("asks.c", "program", binding)
    direct = bench.output(program, preload=False)
    assert direct == "rank 0, initialised 0, finalised 0\n"
    assert bench.output(program) == direct


@pytest.mark.parametrize("with_library", [False, True])
def test_questions_by_name(bench: Bench, linked: Callable[..., Path], with_library: bool) -> None:
    """dlsym answers as without the loader, before and after an MPI library is there."""
    library = bench.folder / "libmpi.so.12"
    if with_library:
        program = linked("probe.c", "-Wl,--no-as-needed")
    else:
        program = bench.compile("probe.c", "program")
    direct = bench.output(program, library, preload=False)
    assert ("before default MPI_Send: yes" in direct) == with_library
    assert "after default MPI_Send: yes" in direct
    assert "after default MPI_Send_c: no undefined symbol: MPI_Send_c" in direct
    assert bench.output(program, library) == direct


def test_weak_references_stay_null(bench: Bench) -> None:
    """A library loaded after the MPI library sees just what that offers, and calls through us."""
    plugin = bench.shared_object("plugin.c", "plugin.so")
    program = bench.compile("load_plugin.c", "program")
    library = bench.folder / "libmpi.so.12"
    direct = bench.output(program, library, plugin, preload=False).splitlines()
    assert direct[0] == "plugin: Send 1 1 Send_c 0 0 Session_init 0"
    assert bench.output(program, library, plugin).splitlines() == direct
    faced = bench.output(program, library, plugin, OVERDRIVE_FACE_DIR=str(bench.folder / "faces"))
    assert direct[0] in faced and "face: 1 sends" in faced


def test_names_follow_the_library(bench: Bench, tmp_path: Path) -> None:
    """After one MPI library is closed and another opened, the other's functions count."""
    more = bench.shared_object(
        "fake_mpi.c",
        "more/libmpi.so.12",
        "-Wl,-soname,libmpi.so.12",
        "-DMPI_Get_version=MPI_Session_init",
    )
    plugin = bench.shared_object("plugin.c", "plugin.so")
    program = bench.compile("load_plugin.c", "program")
    first = bench.folder / "libmpi.so.12"
    for order in ([first, "-", more], [more, "-", first], [first], [more]):
        direct = bench.output(program, *order, plugin, preload=False)
        assert f"Session_init {int(order[-1] == more)}" in direct
        assert bench.output(program, *order, plugin) == direct


def test_plugin_that_brings_the_library(bench: Bench) -> None:
    """An extension module linked with MPI, loaded by a program that is not: calls go through us."""
    plugin = bench.shared_object(
        "plugin.c", "plugin.so", "-Wl,--no-as-needed", str(bench.folder / "libmpi.so.12")
    )
    program = bench.compile("load_plugin.c", "program")
    out = bench.output(program, plugin, OVERDRIVE_FACE_DIR=str(bench.folder / "faces"))
    assert "face: 1 sends" in out


def test_what_loads_nothing_is_not_announced(bench: Bench, linked: Callable[..., Path]) -> None:
    """Programs that look for a function in themselves are not taken for ones that load libraries.

    Once a library may have been loaded, every buffer is judged for whether a device has it.
    """
    program = linked("loadings.c")
    faces = str(bench.folder / "faces")
    out = bench.output(program, OVERDRIVE_FACE_DIR=faces, FAKE_FACE_LISTENS="1")
    assert "face: 1 loadings" in out


def test_dlopen_sees_its_caller(bench: Bench) -> None:
    """RUNPATH and $ORIGIN of the object that calls dlopen still count."""
    bench.shared_object("plugin.c", "beside/libneighbour.so")
    source = bench.folder / "caller.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n"
        'void plugin(void) { puts(dlopen("libneighbour.so", RTLD_NOW) ? "found" : dlerror()); }\n'
    )
    caller = bench.folder / "beside" / "caller.so"
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-Wl,--enable-new-dtags",
            "-Wl,-rpath,$ORIGIN",
            str(source),
            "-o",
            str(caller),
        ],
        check=True,
    )
    program = bench.compile("load_plugin.c", "program")
    assert bench.output(program, caller, preload=False) == "found\n"
    assert bench.output(program, caller) == "found\n"


def test_program_without_mpi(bench: Bench) -> None:
    """Nothing is loaded into a process that does not call MPI, and its output is its own."""
    result = bench.run(
        "cat",
        "/proc/self/maps",
        OVERDRIVE_FACE_DIR=str(bench.folder / "faces"),
        OVERDRIVE_VERBOSE="4",
    )
    assert result.returncode == 0 and result.stderr == ""
    assert str(bench.loader) in result.stdout
    assert "liboverdrive-" not in result.stdout and "libstdc++" not in result.stdout


def test_own_table_is_left_read_only(bench: Bench, linked: Callable[..., Path]) -> None:
    """Hiding names opens the symbol table for writing only for a moment."""
    program = bench.compile("load_plugin.c", "program")
    source = bench.folder / "maps.c"
    source.write_text(
        '#include <stdio.h>\nvoid plugin(void) { FILE* f = fopen("/proc/self/maps", "r");\n'
        "  for (int c; (c = getc(f)) != EOF;) putchar(c); }\n"
    )
    maps = bench.folder / "maps.so"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(maps)], check=True)
    out = bench.output(program, bench.folder / "libmpi.so.12", maps)
    segments = [line.split() for line in out.splitlines() if str(bench.loader) in line]
    assert segments
    writable = [s for s in segments if "w" in s[1]]
    assert 1 <= len(writable) <= 2 and all("x" not in s[1] for s in writable)
    first = min(segments, key=lambda s: int(s[0].split("-")[0], 16))
    assert first[1] == "r--p"

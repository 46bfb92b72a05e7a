"""Whether a library fits the C library: what it needs, and what a job does when it does not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from overdrive import c_library, launch
from overdrive.installation import FACES

from .conftest import built_library

pytestmark = pytest.mark.quick


@pytest.fixture
def newer(newer_folder: Path) -> Path:
    """Return a library that needs a glibc which does not exist yet."""
    folder = newer_folder
    (folder / "provider.c").write_text("void wanted(void) {}\n")
    (folder / "provider.map").write_text("GLIBC_2.99 { wanted; };\n")
    (folder / "user.c").write_text("void wanted(void);\nvoid use(void) { wanted(); }\n"
                                   'const char od_name[] = "liboverdrive.so";\n')  # fmt: skip
    cc = ["cc", "-shared", "-fPIC", "-O1"]
    subprocess.run([*cc, "provider.c", "-Wl,--version-script=provider.map", "-Wl,-soname,libc.so.6",
                    "-o", "provider.so"], cwd=folder, check=True)  # fmt: skip
    library = folder / "liboverdrive.so"
    subprocess.run([*cc, "user.c", "provider.so", "-Wl,-soname,liboverdrive.so", "-o",
                    library.name], cwd=folder, check=True)  # fmt: skip
    return library


def by_readelf(path: Path) -> tuple[int, ...]:
    said = subprocess.check_output(["readelf", "-VW", str(path)], text=True)
    found = re.findall(r"Name: GLIBC_([\d.]+)\s+Flags: none", said)
    return max((tuple(map(int, text.split("."))) for text in found), default=())


def test_what_a_library_needs_is_what_readelf_says(newer: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf")
    assert c_library.needed(str(newer)) == (2, 99) == by_readelf(newer)
    library = built_library()
    if not library.exists():
        pytest.skip("run `make` first")
    for path in (library, *sorted((library.parent / "overdrive").glob("*.so"))):
        assert c_library.needed(str(path)) == by_readelf(path) != (), path


def test_what_is_built_here_fits_here() -> None:
    library = built_library()
    if not library.exists():
        pytest.skip("run `make` first")
    assert c_library.misfit(str(library), tuple(FACES)) == ""
    wanted = "needs glibc 2.3[0-9], and this system has 2.5$"
    assert re.search(wanted, c_library.misfit(str(library), tuple(FACES), (2, 5)))
    assert c_library.misfit(str(library), tuple(FACES), ()) == "", "another C library: not known"


@pytest.mark.parametrize("cut", [0, 3, 20, 64, 100, 1000])
def test_files_that_are_something_else_count_as_fitting(cut: int, tmp_path: Path, newer: Path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(newer.read_bytes()[:cut])
    assert c_library.needed(str(broken)) == ()
    assert c_library.needed(str(tmp_path / "missing.so")) == ()


def test_one_line_instead_of_a_job_that_does_not_start(overdrive, newer: Path) -> None:
    run = overdrive("--library", str(newer), "--stats", "mpirun", "-n", "2", "./app")
    assert run.code == 0, run.err
    assert run.arguments() == ["-n", "2", "./app"]
    assert "LD_PRELOAD" not in run.variables()
    assert len(run.err.splitlines()) == 1
    assert f"not used: {newer} needs glibc 2.99, and this system has" in run.err
    assert c_library.REMEDY in run.err


def test_of_a_job_only_one_rank_says_it(overdrive, newer: Path) -> None:
    for rank, lines in (("0", 1), ("1", 0)):
        run = overdrive("--library", str(newer), "run", "true", env={"PMI_RANK": rank})
        assert run.code == 0
        assert len(run.err.splitlines()) == lines


def test_doctor_says_it_too(overdrive, newer: Path) -> None:
    run = overdrive("--library", str(newer), "doctor")
    assert run.code == 1
    said = " ".join(run.out.split())
    assert "needs glibc 2.99" in said and "install the wheel" in said


def test_a_face_that_does_not_fit_counts(newer: Path, tmp_path: Path) -> None:
    library = tmp_path / "lib" / "liboverdrive.so"
    (library.parent / "overdrive").mkdir(parents=True)
    library.write_bytes(b"nothing")
    shutil.copy(newer, library.parent / "overdrive" / "liboverdrive-mpich.so")
    assert "needs glibc 2.99" in c_library.misfit(str(library), ("openmpi", "mpich"))


def test_the_environment_of_such_a_job_is_that_of_the_user(capsys) -> None:
    given = {"LD_PRELOAD": "/lib/tool.so", "OVERDRIVE_STATS": "1"}
    assert launch.plain_environment(given, "why") == given
    assert "why" in capsys.readouterr().err

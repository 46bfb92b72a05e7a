"""Starting jobs: what the launcher gets, how variables travel, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from overdrive import launch, launchers, options
from overdrive.errors import CommandError

from .conftest import COMMAND, ROOT

pytestmark = pytest.mark.quick


def test_launcher_inherits_preload_and_settings(overdrive, library):
    run = overdrive("--stats", "--verbose", "2", "mpirun", "-n", "2", "./app", "--stats")
    assert run.code == 0, run.err
    assert run.arguments() == ["-n", "2", "./app", "--stats"]
    variables = run.variables()
    assert variables["LD_PRELOAD"] == str(library)
    assert variables["OVERDRIVE_STATS"] == "1"
    assert variables["OVERDRIVE_VERBOSE"] == "2"
    assert variables["OVERDRIVE_COMMAND_LINE"] == "stats,verbose"


def test_present_preload_is_kept_in_front_of_ours(overdrive, library):
    first = overdrive("mpirun", "-n", "1", "./app", env={"LD_PRELOAD": "/lib/tool.so"})
    assert first.variables()["LD_PRELOAD"] == f"/lib/tool.so:{library}"


def test_preload_value_never_repeats_the_library(tmp_path):
    path = tmp_path / "liboverdrive.so"
    assert launch.preload_value(path, f"a.so {path}:b.so") == f"a.so:b.so:{path}"
    with pytest.raises(CommandError, match="blanks"):
        launch.preload_value(tmp_path / "with blank" / "liboverdrive.so", "")


@pytest.mark.parametrize("name", ["libmpi.so.40", "libmpich.so", "libmpi_abi.so.1", "libmpi.so"])
def test_preloaded_mpi_library_stays_behind_ours(tmp_path, name):
    path = tmp_path / "liboverdrive.so"
    value = launch.preload_value(path, f"/opt/libmpiP.so:/opt/{name}:x.so")
    assert value == f"/opt/libmpiP.so:{path}:/opt/{name}:x.so"


def test_run_starts_a_program_directly(overdrive, library):
    run = overdrive("--disable", "run", "sh", "-c", "echo LD_PRELOAD=$LD_PRELOAD; env")
    assert run.variables()["LD_PRELOAD"] == str(library)
    assert run.variables()["OVERDRIVE_DISABLE"] == "1"


def test_an_empty_name_of_a_program_is_refused(overdrive):
    run = overdrive("run", "")
    assert run.code == 2
    assert "the name of the program is empty" in run.err


def test_exit_status_is_that_of_the_program(overdrive):
    assert overdrive("run", "sh", "-c", "exit 7").code == 7


def test_open_mpi_gets_variables_for_other_nodes(overdrive):
    run = overdrive("--stats", "mpirun", "--hostfile", "hosts", "-n", "2", "./app")
    words = run.arguments()
    assert words[-5:] == ["--hostfile", "hosts", "-n", "2", "./app"]
    carried = [words[i + 1] for i, word in enumerate(words) if word == "-x"]
    assert "LD_PRELOAD" in carried
    assert "OVERDRIVE_STATS" in carried


def test_hydra_gets_variables_for_other_nodes(overdrive, library):
    run = overdrive("mpiexec.hydra", "-hosts", "a,b", "./app")
    words = run.arguments()
    place = words.index("LD_PRELOAD")
    assert words[place - 1] == "-genv"
    assert words[place + 1] == str(library)


def test_allocation_of_a_batch_system_counts_as_other_nodes(overdrive):
    assert "-x" in overdrive("mpirun", "./app", env={"SLURM_JOB_ID": "1"}).arguments()
    assert "-x" not in overdrive("mpirun", "./app").arguments()


def test_srun_export_list_is_extended(overdrive):
    listed = overdrive("srun", "--export=HOME", "-n", "2", "./app").arguments()
    assert listed[0].startswith("--export=HOME,LD_PRELOAD")
    assert overdrive("srun", "--export=ALL,X=1", "./app").arguments()[0] == "--export=ALL,X=1"
    none = overdrive("srun", "--export=NONE", "./app").arguments()[0]
    assert none.startswith("--export=LD_PRELOAD")
    assert overdrive("srun", "-n", "2", "./app").arguments() == ["-n", "2", "./app"]


def test_srun_export_list_may_be_a_word_of_its_own(overdrive):
    words = overdrive("srun", "-l", "-n", "2", "--export", "HOME", "./app").arguments()
    assert words[:4] == ["-l", "-n", "2", "--export"]
    assert words[4].startswith("HOME,LD_PRELOAD")
    assert words[5:] == ["./app"]
    kept = ["--export", "ALL", "./app"]
    assert overdrive("srun", *kept).arguments() == kept


def test_what_follows_the_program_of_srun_is_the_programs(overdrive):
    first = ["-J", "run", "--label", "-n2", "./app", "--export", "results.csv", "--export=csv"]
    words = overdrive("srun", *first, ":", "--export=NONE", "./other", "--export=X").arguments()
    assert words[: len(first)] == first
    assert words[len(first) + 1].startswith("--export=LD_PRELOAD")
    assert words[-1] == "--export=X"


def test_dry_run_shows_and_starts_nothing(overdrive, library):
    run = overdrive("--dry-run", "--stats", "mpirun", "-n", "2", "./my app")
    assert run.code == 0
    assert f"LD_PRELOAD={library}" in run.out
    assert "'./my app'" in run.out
    assert "program:" not in run.out


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("mpirun (Open MPI) 4.1.4", "openmpi"),
        ("prterun (PRRTE) 3.0", "openmpi"),
        ("HYDRA build details:\n    Version: 4.0.2", "hydra"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18", "hydra"),
        ("slurm 23.02.1", "slurm"),
        ("something else", "unknown"),
    ],
)
def test_launchers_are_told_apart(text, family):
    assert launchers.classify(text) == family


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command"),
        (["--bogus", "mpirun"], "unknown option --bogus"),
        (["frobnicate"], "neither a command nor a launcher"),
        (["--set", "stats", "mpirun", "./app"], "name=value"),
        (["--set", "stats=", "mpirun", "./app"], "no value"),
        (["--set"], "needs a value"),
        (["--verbose"], "needs a value"),
        (["run"], "needs a program"),
        (["run", "no-such-program-here"], "not found in PATH"),
        (["mpirun"], "needs the launcher's options"),
        (["prterun", "./app"], "not found in PATH"),
        (["info", "--yaml"], "does not know --yaml"),
        (["manual", "--write"], "usage"),
        (["manual", "--write", "no-folder/page.md"], "the folder must be there"),
        (["study"], "copy, collectives, timeline or overlap"),
        (["study", "cpoy"], "has no 'cpoy'"),
        (["bench", "coll", "--sizes", "abc"], "'abc' is not a size"),
        (["bench", "coll", "--sizes", "8,0"], "sizes from 1"),
        (["bench", "coll", "--sizes", "²"], "not a size"),
        (["bench", "coll", "-n", "0"], "from 1 to"),
        (["bench", "coll", "--seconds", "nan"], "from 0.1 to"),
        (["bench", "coll", "--csv", "no-folder/x.csv"], "no such folder"),
        (["bench", "coll", "--options", "'"], "quotation"),
        (["ifno"], "did you mean `overdrive info`?"),
        (["run", "--help-me"], "options stand before"),
    ],
)
def test_bad_input_is_explained(overdrive, bin_folder, arguments, message):
    run = overdrive(*arguments, env={"PATH": f"{bin_folder}:/bin"})
    assert run.code == 2
    assert run.err.startswith("overdrive: error: ")
    assert message in run.err
    assert "Traceback" not in run.err


def test_missing_library_says_how_to_get_it(overdrive, tmp_path):
    run = overdrive("mpirun", "./app", env={"OVERDRIVE_LIBRARY": str(tmp_path / "none.so")})
    assert run.code == 2
    assert "OVERDRIVE_LIBRARY names" in run.err
    assert "does not exist" in run.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a shared library"),
        (b"#!/bin/sh\n", "is not a shared library"),
        (b"\x7fELF\x01\x01" + bytes(58), "another kind of processor"),
        (Path(sys.executable).resolve().read_bytes()[:64], "is not Overdrive's library"),
    ],
)
def test_library_that_cannot_be_preloaded_is_refused(overdrive, tmp_path, content, message):
    """The dynamic linker would only warn, and the job would run without Overdrive."""
    path = tmp_path / "other.so"
    path.write_bytes(content)
    run = overdrive("--library", str(path), "run", "true")
    assert (run.code, run.out) == (2, "")
    assert f"--library names {path}, which" in run.err
    assert message in run.err
    named = overdrive("run", "true", env={"OVERDRIVE_LIBRARY": str(path)})
    assert named.code == 2
    assert f"OVERDRIVE_LIBRARY names {path}" in named.err


def test_who_named_a_missing_library_is_said(overdrive):
    run = overdrive("--library", "/nope.so", "run", "true")
    assert run.code == 2
    assert "--library names /nope.so, which does not exist" in run.err
    assert "OVERDRIVE_LIBRARY" not in run.err


COMMANDS_WITH_HELP = [
    ["run"],
    ["info"],
    ["explain"],
    ["calibrate"],
    ["bench"],
    ["bench", "coll"],
    ["study"],
    ["study", "copy"],
    ["study", "collectives"],
    ["study", "timeline"],
    ["lab"],
    ["manual"],
]


@pytest.mark.parametrize("words", COMMANDS_WITH_HELP, ids=" ".join)
def test_every_command_has_help_and_refuses_what_it_does_not_know(overdrive, words):
    run = overdrive(*words, "--help")
    assert run.code == 0, run.err
    assert run.out.lower().startswith("usage: overdrive")
    assert run.err == ""
    if len(words) == 1:
        assert overdrive("help", *words).out == run.out
    wrong = overdrive(*words, "--no-such-option")
    assert wrong.code == 2
    assert wrong.err.startswith("overdrive: error: ")
    assert "Traceback" not in wrong.err


@pytest.mark.parametrize("odd", ["/dev/zero", "fifo", ".", "large"])
def test_files_that_do_not_end_are_refused(overdrive, real, tmp_path, odd):
    os.mkfifo(tmp_path / "fifo")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 30)
    for words in (
        ["manual", "--check", odd],
        ["study", "copy", "--samples", odd, "--output", str(tmp_path / "out")],
        ["calibrate", "--samples", odd, "--output", str(tmp_path / "out.toml")],
        ["--library", odd, "run", "true"],
    ):
        run = overdrive(*words, env=real)
        assert run.code == 2, words
        assert run.err.startswith("overdrive: error: "), words
        assert len(run.err.splitlines()) == 1
    info = overdrive("info", env={**real, "OVERDRIVE_CALIBRATION": odd})
    assert "is ignored: " in " ".join(info.out.split())
    told = overdrive("explain", "bcast", "8", env={**real, "OVERDRIVE_TUNING": odd})
    assert told.code == 0, told.err
    assert f"tuning file {odd} is" in told.out


def test_study_names_all_studies(overdrive):
    text = overdrive("study", "--help").out
    assert all(name in text for name in ("copy", "collectives", "timeline"))


def test_texts_that_the_encoding_lacks_are_no_error(overdrive, real):
    ascii_only = {**real, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    run = overdrive("info", "--settings", env=ascii_only)
    assert run.code == 0, run.err
    assert run.out.isascii()
    strange = overdrive("frobnic\udcff\u00e4", env=ascii_only)
    assert strange.code == 2
    assert "Traceback" not in strange.err


def test_lost_output_is_reported_and_closed_output_is_not(library, tmp_path):
    command = [sys.executable, str(COMMAND), "--help"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "overdrive: error: No space left on device\n"
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


# What starting a job may import besides the command's own modules: what Python has loaded when it
# begins without site packages, `os`, and no more. Each of the usual ones takes milliseconds.
STARTS_WITH = "import os, sys; print(' '.join(sorted(sys.modules)))"


def test_a_job_starts_without_imports(overdrive, library, tmp_path):
    plain = subprocess.run(
        [sys.executable, "-I", "-S", "-c", STARTS_WITH], capture_output=True, text=True, check=True
    ).stdout.split()
    script = f"""
import sys
sys.argv = ["overdrive", "--library", {str(library)!r}, "--stats", "mpirun", "-n", "1", "true"]
sys.path.insert(0, {str(ROOT / "cli")!r})
import os
os.execvpe = lambda *_: (print(' '.join(sorted(sys.modules))), sys.stdout.flush(), os._exit(0))
from overdrive.main import main
main(sys.argv[1:])
"""
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "SLURM_JOB_ID": "1"}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    more = set(done.stdout.split()) - set(plain)
    assert {name for name in more if not name.startswith("overdrive")} <= {"__future__"}, more
    assert done.stderr == ""


def test_the_script_begins_without_site_packages(tmp_path):
    """Looking for them takes as long as all the rest of starting a job."""
    (tmp_path / "sitecustomize.py").write_text("print('site packages were looked for')\n")
    environment = {
        "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin",
        "PYTHONPATH": str(tmp_path),
    }
    words = [sys.executable, "-c", ""]
    looked = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert looked.stdout, "this Python does not tell"
    words = [ROOT / "overdrive", "--version"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("overdrive ")


def test_the_family_is_told_without_asking(tmp_path, bin_folder):
    assert launchers.family_of(str(bin_folder / "mpirun")) == "openmpi"
    assert launchers.family_of(str(bin_folder / "mpiexec.hydra")) == "hydra"
    assert launchers.family_of(str(bin_folder / "srun")) == "slurm"
    unnamed = tmp_path / "bin" / "mpiexec"
    unnamed.write_text("#!/bin/sh\necho 'prterun (PR''RTE) 3.0'\n")
    unnamed.chmod(0o755)
    assert launchers.family_of(str(unnamed)) == "openmpi"


def test_options_end_at_the_command():
    parsed = options.parse(["--stats=x", "--set", "Eager-Max=1K", "mpirun", "--set", "a=b"])
    assert parsed.settings == {"stats": "x", "eager_max": "1K"}
    assert parsed.command == ["mpirun", "--set", "a=b"]
    assert options.parse(["--", "mpirun"]).command == ["mpirun"]


def test_launchers_are_known_with_their_folder():
    assert launchers.is_launcher("/opt/mpi/bin/mpiexec")
    assert not launchers.is_launcher("./app")


def test_wrong_settings_of_the_command_line_are_refused(overdrive, real):
    unknown = overdrive("--set", "spni=1us", "mpirun", "./app", env=real)
    assert unknown.code == 2
    assert "did you mean spin?" in unknown.err
    bad = overdrive("--set", "spin=30", "mpirun", "./app", env=real)
    assert bad.code == 2
    assert "needs a unit" in bad.err
    good = overdrive("--set", "spin=30us", "--dry-run", "mpirun", "./app", env=real)
    assert good.code == 0, good.err


def test_interrupt_and_strange_words_leave_no_traceback(real, tmp_path):
    """Ctrl-C while a launcher is asked; no terminal, no standard input; words that are no text."""
    slow = tmp_path / "mpirun"
    asked = tmp_path / "asked"
    slow.write_text(f"#!/bin/sh\ntouch {asked}\nexec sleep 30\n")
    slow.chmod(0o755)
    environment = {**os.environ, **real, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    process = subprocess.Popen(
        [sys.executable, str(COMMAND), "info"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Jobs that a shell starts in the background ignore it, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not asked.exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    strange = subprocess.run(
        [sys.executable.encode(), os.fsencode(COMMAND), b"run", b"no-such-\xff"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert strange.returncode == 2
    assert b"no-such-\\udcff was not found" in strange.stderr


def test_pin_yields_to_what_the_launcher_is_told(overdrive):
    run = overdrive("--pin=compact", "mpirun", "-n", "2", "./app")
    assert run.variables()["OVERDRIVE_PIN"] == "compact"
    for words in (["--bind-to", "core"], ["--map-by", "slot:PE=4"], ["--cpu-list=0,1"]):
        run = overdrive("--pin=compact", "mpirun", *words, "-n", "2", "./app")
        assert run.variables()["OVERDRIVE_PIN"] == "none"
        assert f"mpirun is told how to bind, by {words[0].partition('=')[0]}" in run.err
    run = overdrive("--pin=compact", "mpirun", "--bind-to", "none", "-n", "2", "./app")
    assert run.variables()["OVERDRIVE_PIN"] == "compact"
    run = overdrive("--pin=compact:force", "mpirun", "--bind-to", "core", "-n", "2", "./app")
    assert run.variables()["OVERDRIVE_PIN"] == "compact:force"
    assert "no effect" not in run.err


@pytest.mark.parametrize(
    ("paths", "settings"),
    [
        ("shm", {"REACH": "off", "XPMEM": "off", "COPY_PATH": "cells"}),
        ("shm,kernel", {"REACH": "off", "XPMEM": "off", "COPY_PATH": "kernel"}),
        ("direct,shm", {"NEAR_KERNEL_MIN": "1T", "FAR_KERNEL_MIN": "1T"}),
        ("shm,direct,kernel,host", {"NEAR_KERNEL_MIN": "64K", "FAR_KERNEL_MIN": "64K"}),
        ("host", {"DISABLE": "1"}),
    ],
)
def test_paths_become_settings(overdrive, paths, settings):
    variables = overdrive("--paths", paths, "mpirun", "-n", "2", "./app").variables()
    found = {
        name.removeprefix("OVERDRIVE_"): value
        for name, value in variables.items()
        if name.startswith("OVERDRIVE_") and name not in ("OVERDRIVE_LIBRARY",)
    }
    found.pop("COMMAND_LINE")
    assert found == settings


def test_wrong_paths_are_refused(overdrive):
    assert (
        "such as --paths shm,direct; got 'ram'" in overdrive("--paths", "shm,ram", "run", "x").err
    )
    assert "needs shm" in overdrive("--paths=direct", "run", "x").err

"""Starting jobs: what the launcher gets, how variables travel, what is refused."""

from __future__ import annotations

import pytest
from overdrive import launch, launchers, options
from overdrive.errors import CommandError

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
    assert "not a file" in run.err


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

"""`overdrive info` and `--version`: what is found and where, as text and as JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from overdrive import installation, mechanisms
from overdrive.errors import CommandError

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]


def test_version_is_that_of_the_tree(overdrive):
    version = (ROOT / "VERSION").read_text().split()[0]
    assert overdrive("--version").out == f"overdrive {version}\n"


def test_json_holds_every_setting_with_its_source(overdrive, real, tmp_path):
    (tmp_path / "overdrive.toml").write_text('pool_bytes = "4M"\n')
    run = overdrive("--set", "spin=2us", "info", "--json", env={**real, "OVERDRIVE_WAIT": "yield"})
    assert run.code == 0, run.err
    report = json.loads(run.out)
    by_name = {setting["name"]: setting for setting in report["settings"]}
    assert (by_name["spin"]["value"], by_name["spin"]["source"]) == ("2us", "command line")
    assert (by_name["wait"]["value"], by_name["wait"]["source"]) == ("yield", "environment")
    assert (by_name["pool_bytes"]["value"], by_name["pool_bytes"]["source"]) == (
        "4M",
        "project file",
    )
    assert by_name["pool_bytes"]["place"] == "overdrive.toml:1"
    assert by_name["disable"]["source"] == "built-in"
    assert all(setting["doc"] and setting["variable"] for setting in by_name.values())
    assert report["issues"] == []
    assert report["machine"]["usable_cpus"] >= 1
    assert {face["name"] for face in report["faces"]} == {"openmpi", "mpich", "mpiabi"}
    for face in report["faces"]:
        assert face["path"] or face["reason"]


def test_short_answer_says_what_will_happen(overdrive, real):
    run = overdrive("info", env={**real, "OVERDRIVE_SPNI": "1", "OVERDRIVE_WAIT": "sleep"})
    assert run.code == 0, run.err
    assert len(run.out.splitlines()) <= 40
    for part in ("What happens here", "What does not, and why", "messages", "collectives"):
        assert part in run.out
    assert "mpirun (Open MPI) 4.1.4" in " ".join(run.out.split())
    assert "did you mean OVERDRIVE_SPIN?" in " ".join(run.out.split())
    assert "* wait = sleep  (environment, OVERDRIVE_WAIT, default auto)" in run.out
    assert "eager_max" not in run.out


@pytest.mark.parametrize(
    ("variables", "early", "words"),
    [
        ({}, False, "collectives are complete when they return"),
        ({"OVERDRIVE_OVERLAP": "on"}, True, "`on`: calls of 64K or more between nodes"),
        ({"OVERDRIVE_OVERLAP": "auto"}, True, "`auto`: calls that gain by it"),
        ({"OVERDRIVE_OVERLAP": "trace"}, False, "`trace`: no call returns early"),
        (
            {"OVERDRIVE_OVERLAP": "on", "OVERDRIVE_PROGRESS": "agent"},
            False,
            "no call returns early: `progress` lets another thread in",
        ),
        (
            {"OVERDRIVE_OVERLAP": "on", "OVERDRIVE_REACH": "off"},
            False,
            "no call returns early: `reach` is off",
        ),
    ],
)
def test_says_what_overlap_would_do(overdrive, real, variables, early, words):
    assert words in " ".join(overdrive("info", env={**real, **variables}).out.split())
    report = json.loads(overdrive("info", "--json", env={**real, **variables}).out)
    assert report["overlap"]["returns_early"] == early
    assert report["overlap"]["mode"] == variables.get("OVERDRIVE_OVERLAP", "off")


def test_short_answer_names_who_switched_off(overdrive, real):
    off = overdrive("info", env={**real, "OVERDRIVE_DISABLE": "1"}).out
    assert "switched off by `disable` (OVERDRIVE_DISABLE)" in off.replace("\n" + 17 * " ", " ")
    assert "host" not in off
    own = overdrive("--set", "collectives=off", "info", env=real).out
    assert "are the installed MPI library's (--set collectives)" in own


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], "non-blocking collectives between nodes are the installed MPI library's (`progress`"),
        (["progress=calls"], "go on inside calls of MPI only (`progress`, --set progress)"),
        (["progress=agent"], "go on by a helper thread while the program computes"),
        (["progress=agent", "host_call_progress=off"], "`host_call_progress` is off"),
        (["neighbour_collectives=off"], "a topology are the installed MPI library's"),
        (["neighbour_collectives=all"], "a topology go by messages, inside nodes and between them"),
    ],
)
def test_short_answer_says_who_serves_other_collectives(overdrive, real, settings, expected):
    chosen = [word for setting in settings for word in ("--set", setting)]
    run = overdrive(*chosen, "info", env=real)
    assert run.code == 0, run.err
    assert expected in " ".join(run.out.split())


def test_neighbours_have_nothing_to_explain(overdrive, real):
    run = overdrive("explain", "neighbor_alltoall", "64K", env=real)
    assert run.code != 0
    assert "has one algorithm" in " ".join(run.err.split())


def test_long_lists_name_the_parts(overdrive, real):
    run = overdrive("info", "--machine", "--settings", env=real)
    assert run.code == 0, run.err
    for part in ("face", "MPI launchers in PATH", "Machine", "memfd_create", "eager_max = "):
        assert part in run.out
    assert "eager_max" not in overdrive("info", "--machine", env=real).out
    assert "memfd_create" not in overdrive("info", "--settings", env=real).out


def test_single_settings_with_value_and_source(overdrive, real):
    run = overdrive("--set", "spin=2us", "info", "spin", "OVERDRIVE_Eager-Max", env=real)
    assert run.code == 0, run.err
    lines = run.out.splitlines()
    assert lines[0] == "* spin = 2us  (command line, --set spin, default 0)"
    assert "  eager_max = 16K  (built-in)" in lines
    assert any("OVERDRIVE_EAGER_MAX; accepts 0 to 1G" in line for line in lines)
    several = overdrive("info", "far_", env=real).out
    assert "far_pull_min" in several
    assert "far_threshold" in several
    after = overdrive("info", "--set", "spin=3us", "spin", env=real).out
    assert after.startswith("* spin = 3us")
    wrong = overdrive("info", "spni", env=real)
    assert (wrong.code, wrong.out) == (2, "")
    assert "no setting 'spni'" in wrong.err
    found = json.loads(overdrive("info", "--json", "spin", env=real).out)
    assert [setting["name"] for setting in found] == ["spin"]


def test_pair_shows_the_way_between_two_ranks(overdrive, real):
    run = overdrive("--set", "copy_path=pull", "info", "--pair", "0", "1", env=real)
    assert run.code == 0, run.err
    assert "Ranks 0 and 1, both on this node" in run.out
    assert "the receiver reads the sender's buffer (pull)" in run.out
    assert "512 B" in run.out
    remote = overdrive("--set", "test_remote=0-1", "info", "--pair", "1", "0", env=real).out
    assert "all messages go to the installed MPI library" in remote
    pair = json.loads(overdrive("info", "--pair", "0", "1", "--json", env=real).out)
    by_buffer = {route["buffer"]: route["from"] for route in pair["routes"]}
    assert by_buffer["unchanged"][0] == {"bytes": 0, "way": "cells"}
    assert {"bytes": 4096, "way": "pull"} in by_buffer["unchanged"]
    for ranks in (["0"], ["0", "0"], ["0", "x"], ["0", "-1"], ["0", "²"]):
        assert overdrive("info", "--pair", *ranks, env=real).code == 2


def test_info_works_with_a_library_that_has_no_faces(overdrive):
    run = overdrive("info")
    assert run.code == 0, run.err
    assert "What happens here" in run.out
    assert "What this machine permits" in overdrive("info", "--machine").out


def test_parts_of_an_installation_are_found(tmp_path):
    for place in ("lib", "lib64", "lib/x86_64-linux-gnu"):
        prefix = tmp_path / place.replace("/", "-")
        folder = prefix / place
        (folder / "overdrive").mkdir(parents=True)
        (folder / "liboverdrive.so").touch()
        (folder / "overdrive" / "overdrive-settings").touch()
        (folder / "overdrive" / "liboverdrive-mpich.so").touch()
        (folder / "overdrive" / "VERSION").write_text("9.8.7\n")
        (folder / "overdrive" / "skipped-faces.txt").write_text("openmpi: no mpi.h\n")
        found = installation.find({}, prefix)
        assert found.loader == folder / "liboverdrive.so"
        assert found.tool == folder / "overdrive" / "overdrive-settings"
        assert found.face("mpich") is not None
        assert found.face("openmpi") is None
        assert found.missing_face_reason("openmpi") == "not built: no mpi.h"
        assert "not complete" in found.missing_face_reason("mpiabi")
        assert found.version == "9.8.7"


def test_empty_prefix_has_no_library(tmp_path):
    found = installation.find({}, tmp_path)
    assert found.loader is None
    assert "make" in found.missing_face_reason("mpich")
    with pytest.raises(CommandError, match="make"):
        found.need_library()


def test_every_mechanism_gives_an_answer():
    found = mechanisms.all_mechanisms()
    assert {"memfd_create", "abstract socket", "process_vm_readv"} <= {m.name for m in found}
    for mechanism in found:
        assert mechanism.purpose
        assert mechanism.available or mechanism.detail, mechanism


def test_xpmem_says_whether_it_is_there(overdrive, real):
    run = overdrive("info", "--json", env=real)
    assert run.code == 0, run.err
    found = [m for m in json.loads(run.out)["mechanisms"] if m["name"] == "XPMEM"]
    assert len(found) == 1
    if found[0]["available"]:
        assert found[0]["detail"] == ""
    else:
        assert found[0]["detail"].startswith(("not built in", "no /dev/xpmem", "/dev/xpmem", "no "))
    built = mechanisms.xpmem("not built in")
    assert (built.available, built.detail) == (False, "not built in")
    assert mechanisms.xpmem("").available


def test_refused_memory_is_reported(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(mechanisms.os, "memfd_create", refuse)
    mechanism = mechanisms.shared_memory()
    assert not mechanism.available
    assert "not permitted" in mechanism.detail


def test_unread_output_is_no_error():
    command = f"{ROOT / 'overdrive'} --help | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage:")
    assert "Traceback" not in done.stderr

"""`overdrive doctor` and `overdrive completion`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile

import pytest
from overdrive import completion, doctor, main

from .conftest import COMMAND

pytestmark = pytest.mark.quick


def test_doctor_finds_nothing_where_there_is_nothing(overdrive, real):
    run = overdrive("doctor", "--json", env=real)
    found = {one["name"]: one for one in json.loads(run.out)}
    assert found["preload"]["state"] == "ok", found["preload"]
    assert found["memfd_create"]["state"] == "ok"
    assert all(one["remedy"] or one["state"] != "bad" for one in found.values())
    assert run.code == any(one["state"] == "bad" for one in found.values())


def test_doctor_says_what_to_do(overdrive, real):
    wrong = {**real, "OVERDRIVE_DISABLE": "1", "OVERDRIVE_SPNI": "1"}
    run = overdrive("doctor", env=wrong)
    assert run.code == 1
    what_to_do = " ".join(run.out.partition("What to do")[2].split())
    assert "! disable: unset OVERDRIVE_DISABLE" in what_to_do
    assert "did you mean OVERDRIVE_SPIN?" in " ".join(run.out.split())
    # A library that no program takes.
    without = overdrive("doctor")
    assert without.code == 1
    assert "! preload" in without.out


def test_bundle_holds_the_report_and_no_secrets(overdrive, real, tmp_path):
    bundle = tmp_path / "report.tar.gz"
    variables = {**real, "OVERDRIVE_SPIN": "2us", "OMPI_SECRET_KEY": "s3cr3t", "MY_OWN": "private"}
    run = overdrive("doctor", "--bundle", str(bundle), env=variables)
    assert run.code in (0, 1), run.err
    with tarfile.open(bundle) as archive:
        texts = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}
    assert json.loads(texts["report/info.json"])["version"]
    assert f"C library {os.confstr('CS_GNU_LIBC_VERSION')}" in texts["report/versions.txt"]
    assert os.uname().release in texts["report/versions.txt"]
    # All that the checks said, once for people and once for programs.
    checks = json.loads(texts["report/doctor.json"])
    assert {"preload", "memfd_create", "process_vm_readv", "huge pages", "container"} <= {
        one["name"] for one in checks
    }
    assert all(one["name"] in texts["report/doctor.txt"] for one in checks)
    told = json.loads(texts["report/environment.json"])
    assert told["OVERDRIVE_SPIN"] == "2us"
    assert "s3cr3t" not in "".join(texts.values())
    assert "private" not in "".join(texts.values())
    again = overdrive("doctor", "--bundle", str(bundle), env=real)
    assert again.code == 2
    assert "File exists" in again.err


def test_container_is_noticed(monkeypatch):
    monkeypatch.setenv("APPTAINER_CONTAINER", "/x.sif")
    assert doctor.container() == "apptainer"


def _candidates(overdrive, real, *words):
    run = overdrive("__complete", *words, env=real)
    assert (run.code, run.err) == (0, ""), run.err
    return [line.partition("\t")[0] for line in run.out.splitlines()]


@pytest.mark.parametrize(
    ("release", "autogroups", "noted"),
    [("6.18.44", "1", True), ("6.12.70-amd64", "1", True), ("7", "1", True),
     ("6.18.44", "0", False), ("6.18.44", "", False), ("6.1.0-40-amd64", "1", False)],
)  # fmt: skip
def test_schedulers_that_starve_others_are_noted(release, autogroups, noted):
    found = list(doctor._scheduler(release, autogroups))
    assert [one.state for one in found] == ([doctor.NOTE] if noted else [])
    assert all("sysctl" in one.remedy for one in found)


def test_completion_knows_commands_options_and_settings(overdrive, real):
    assert set(_candidates(overdrive, real, "")) >= {*main.COMMANDS, "mpirun", "srun"}
    assert _candidates(overdrive, real, "--ver") == ["--verbose", "--verify", "--version"]
    assert _candidates(overdrive, real, "--set", "eager") == ["eager_max="]
    assert _candidates(overdrive, real, "--set", "wait=s") == ["wait=spin", "wait=sleep"]
    assert _candidates(overdrive, real, "--set", "spin=2us", "inf") == ["info"]
    assert "--pair" in _candidates(overdrive, real, "info", "--")
    assert "spin" in _candidates(overdrive, real, "info", "sp")
    assert "allreduce" in _candidates(overdrive, real, "explain", "all")
    assert _candidates(overdrive, real, "study", "t") == ["timeline"]
    assert "--sizes" in _candidates(overdrive, real, "bench", "coll", "--s")
    assert _candidates(overdrive, real, "mpirun", "-n", "2", "./a") == ["FILES"]
    assert _candidates(overdrive, real, "bench", "coll", "--csv", "x") == ["FILES"]
    assert _candidates(overdrive, real, "lab", "do") == ["down"]


def test_completion_names_every_option_of_the_command(overdrive):
    """What a shell offers is what the command reads."""
    for option in completion.GLOBAL:
        assert option in main.USAGE
    assert set(completion.COMMANDS) == set(main.COMMANDS)


def test_bash_completes(overdrive, real, tmp_path):
    script = overdrive("completion", "bash").out
    name = tmp_path / "overdrive"
    name.write_text(f'#!/bin/sh\nexec {sys.executable} {COMMAND} "$@"\n')
    name.chmod(0o755)
    ask = """
compopt() { :; }
COMP_WORDS=(overdrive --set wait = sl); COMP_CWORD=4; _overdrive; echo "${COMPREPLY[@]}"
COMP_WORDS=(overdrive stu); COMP_CWORD=1; _overdrive; echo "${COMPREPLY[@]}"
"""
    environment = {**os.environ, **real, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script + ask], env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["sleep", "study"], done.stderr


@pytest.fixture
def in_path(real, tmp_path):
    """Return an environment with the command in PATH, whose shells write nothing at home."""
    (tmp_path / "bin").mkdir()
    name = tmp_path / "bin" / "overdrive"
    name.write_text(f'#!/bin/sh\nexec {sys.executable} {COMMAND} "$@"\n')
    name.chmod(0o755)
    path = f"{name.parent}:{os.environ['PATH']}"
    return {**os.environ, **real, "PATH": path, "HOME": str(tmp_path), "TERM": "dumb"}


def _shell(name):
    found = [f"{folder}/{name}" for folder in os.environ["PATH"].split(":")]
    found = [path for path in found if os.access(path, os.X_OK)]
    if not found:
        pytest.skip(f"{name} is not installed")
    return found[0]


def test_fish_completes(in_path, tmp_path):
    (tmp_path / "results.csv").touch()
    asked = ["overdrive --set wait=s", "overdrive stu", "overdrive mpirun -n 2 ./res"]
    lines = ["overdrive completion fish | source"]
    lines += [f"echo (complete -C {line!r} | string replace -r '\\t.*' '')" for line in asked]
    done = subprocess.run(
        [_shell("fish"), "--no-config", "-c", "\n".join(lines)], env=in_path, cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["wait=sleep wait=spin", "study", "./results.csv"]


ZSH = """
zmodload zsh/zpty
zpty -b shell $1 -f -i
zpty -w shell 'PS1=; autoload -Uz compinit; compinit -u -d $HOME/dump'
zpty -w shell 'eval "$(overdrive completion zsh)"'
zpty -w shell 'ask() { BUFFER=$ASK; CURSOR=$#BUFFER; zle complete-word; tell; BUFFER= }'
zpty -w shell 'tell() { print -r -- "[""[$BUFFER"]""] }'
zpty -w shell 'zle -N ask; bindkey "^X" ask'
for line in "${@[2,-1]}"; do
  zpty -w shell "ASK='$line'"
  zpty -w -n shell $'\\C-x'
  zpty -r -m shell said '*\\[\\[overdrive*\\]\\]*'
  print -r -- "${${said##*\\[\\[}%%\\]\\]*}"
done
zpty -d shell
"""


def test_zsh_completes(in_path, tmp_path):
    """An interactive shell below a terminal of its own presses the key."""
    (tmp_path / "results.csv").touch()
    (tmp_path / "ask.zsh").write_text(ZSH)
    shell = _shell("zsh")
    asked = ["overdrive --set wait=sl", "overdrive stu", "overdrive mpirun -n 2 ./res"]
    done = subprocess.run(
        [shell, "-f", "ask.zsh", shell, *asked], env=in_path, cwd=tmp_path, capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    found = [line.strip() for line in done.stdout.splitlines()]
    assert found == ["overdrive --set wait=sleep", "overdrive study",
                     "overdrive mpirun -n 2 ./results.csv"]  # fmt: skip


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(overdrive, shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(overdrive("completion", shell).out)
    assert "__complete" in script.read_text()
    subprocess.run([_shell(shell), "-n", str(script)], check=True)

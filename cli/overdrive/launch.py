"""Starts a job or a single program with the library preloaded."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from overdrive import launchers, settings
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.options import Options

_MPI_LIBRARY = re.compile(r"libmpi(ch|cxx|_abi|_cxx|_mpifh|_usempi\w*|fort|chf\d*)?\.so")
"""File names of MPI libraries; tools such as libmpiP.so or libmpitrace.so are not among them."""


def preload_value(library: Path, present: str) -> str:
    """Return LD_PRELOAD with the library added to what is there already.

    It goes behind everything else, so that a profiling tool which wraps MPI calls sees those of the
    program; only an MPI library that is preloaded itself comes after it.
    """
    path = str(library)
    if any(separator in path for separator in ": \t\n"):
        raise CommandError(
            f"the dynamic linker cannot preload {path!r}: the path must hold neither blanks nor "
            f"colons; install Overdrive elsewhere or use a symbolic link"
        )
    others = [word for word in present.replace(":", " ").split() if word != path]
    place = next(
        (i for i, word in enumerate(others) if _MPI_LIBRARY.match(Path(word).name)), len(others)
    )
    return ":".join([*others[:place], path, *others[place:]])


def check_settings(
    installation: Installation, options: Options, environment: Mapping[str, str]
) -> None:
    """Refuse wrong settings of the command line; everything else is the library's to report."""
    if not options.settings or installation.tool is None:
        return
    report = settings.query(installation, environment)
    known = {setting["name"] for setting in report["settings"]}
    for name in options.settings:
        problem = ""
        if name not in known:
            variable = settings.variable_of(name)
            message = next((i["message"] for i in report["issues"] if variable in i["message"]), "")
            _, found, hint = message.partition("did you mean OVERDRIVE_")
            problem = f"--set {name}: there is no such setting"
            problem += f"; did you mean {hint.lower()}" if found else "; see `overdrive info`"
        else:
            start = f"--set {name}: "
            problem = next(
                (i["message"] for i in report["issues"] if i["message"].startswith(start)), ""
            ).partition("; using ")[0]
        if problem:
            raise CommandError(problem)


def job_environment(
    installation: Installation, options: Options, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the environment of the job and the names of the variables that make it ours."""
    job = dict(environment)
    job.update(options.variables())
    job["LD_PRELOAD"] = preload_value(installation.need_library(), job.get("LD_PRELOAD", ""))
    ours = ["LD_PRELOAD", *sorted(name for name in job if name.startswith("OVERDRIVE_"))]
    return job, ours


def _find_program(word: str, remedy: str) -> str:
    path = shutil.which(word)
    if path is None:
        where = "is not an executable file" if "/" in word else "was not found in PATH"
        raise CommandError(f"{word} {where}: {remedy}")
    return path


def launch_command(command: list[str], job: Mapping[str, str], ours: list[str]) -> list[str]:
    """Return the launcher's command line, with what carries our variables to other nodes."""
    path = _find_program(command[0], "load or install the MPI you want to use")
    arguments = command[1:]
    if not arguments:
        raise CommandError(f"`overdrive {command[0]}` needs the launcher's options and a program")
    variables = {name: job[name] for name in ours}
    if Path(command[0]).name == "srun":
        return [path, *launchers.slurm_export(arguments, variables)]
    if not any(launchers.spans_nodes(family, arguments, job) for family in ("openmpi", "hydra")):
        return [path, *arguments]  # ranks on this node inherit the launcher's environment
    family = launchers.identify(path).family
    if launchers.spans_nodes(family, arguments, job):
        return [path, *launchers.forwarding(family, variables), *arguments]
    return [path, *arguments]


def start(command: list[str], job: dict[str, str], ours: list[str], dry_run: bool) -> int:
    """Replace this process by the command, or show it."""
    if dry_run:
        words = [f"{name}={shlex.quote(job[name])}" for name in ours]
        print(" ".join([*words, shlex.join(command)]))
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, job)
    except OSError as reason:
        raise CommandError(f"cannot start {command[0]}: {reason.strerror}") from reason


def run(installation: Installation, options: Options, environment: Mapping[str, str]) -> int:
    """Start what the command line asks for: a launcher, or a program after `run`."""
    job, ours = job_environment(installation, options, environment)
    check_settings(installation, options, job)
    command = options.command
    if command[0] == "run":
        if len(command) < 2:
            raise CommandError("`overdrive run` needs a program")
        command = [_find_program(command[1], "check the name"), *command[2:]]
    else:
        command = launch_command(command, job, ours)
    return start(command, job, ours, options.dry_run)

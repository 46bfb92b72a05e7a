"""Starts a job or a single program with the library preloaded.

Every job waits for this module, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys

from overdrive import c_library, launchers, settings
from overdrive.errors import CommandError
from overdrive.installation import FACES, Installation
from overdrive.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_MPI_LIBRARIES = frozenset(
    ["", "ch", "cxx", "_abi", "_cxx", "_mpifh", "fort", "chf"]  # libmpi<this>.so
)

_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Set by launchers for their ranks: of a whole job one says what concerns all."""

USAGE = """\
Usage: overdrive [OPTION...] run PROGRAM [ARGUMENT...]

Starts one program with Overdrive: a rank below a launcher that is not started through this command,
or a script that starts jobs itself.

Options (before `run`):
  --set NAME=VALUE   set a setting; `overdrive info --settings` lists them
  --stats[=PATH]     print statistics at the end, or write them to PATH (one file per rank)
  --record[=DIR]     record the run for `overdrive report` (default: overdrive-record)
  --pin=POLICY       bind ranks: compact, scatter, core, cache, numa, socket, list:0-3,8
  --paths=LIST       ways of messages: some of shm, direct, kernel, host
  --verbose N        0 errors, 1 fall-backs, 2 information, 3 communicators
  --disable          start the program without taking anything over
  --strict           end the job when a setting is wrong
  --library PATH     use this liboverdrive.so
  --dry-run          show the command instead of running it

Examples:
  srun -n 4 overdrive run ./app
  overdrive --stats run python script.py
"""


def _is_mpi_library(name: str) -> bool:
    """Tell MPI libraries by their file names; tools such as libmpiP.so are none."""
    stem, dot, _ = name.partition(".so")
    if not dot or not stem.startswith("libmpi"):
        return False
    kind = stem[len("libmpi") :]
    return kind.rstrip("0123456789") in _MPI_LIBRARIES or kind.startswith("_usempi")


def preload_value(library: str | os.PathLike[str], present: str) -> str:
    """Return LD_PRELOAD with the library added to what is there already.

    It goes behind everything else, so that a profiling tool which wraps MPI calls sees those of the
    program; only an MPI library that is preloaded itself comes after it.
    """
    path = os.fspath(library)
    if any(separator in path for separator in ": \t\n"):
        raise CommandError(
            f"the dynamic linker cannot preload {path!r}: the path must hold neither blanks nor "
            f"colons; install Overdrive elsewhere or use a symbolic link"
        )
    others = [word for word in present.replace(":", " ").split() if word != path]
    place = next(
        (i for i, word in enumerate(others) if _is_mpi_library(os.path.basename(word))),
        len(others),
    )
    return ":".join([*others[:place], path, *others[place:]])


def check_settings(
    installation: Installation, options: Options, environment: Mapping[str, str]
) -> None:
    """Refuse wrong settings of the command line; everything else is the library's to report."""
    if not options.settings or installation.tool_path is None:
        return
    found = settings.issues(installation, environment)
    for name in options.settings:
        unknown = f"environment variable {settings.variable_of(name)} is unknown"
        for message in found:
            problem = ""
            if message.startswith(f"--set {name}: "):
                problem = message.partition("; using ")[0]
            elif message.startswith(unknown):
                hint = message.partition("did you mean OVERDRIVE_")[2]
                problem = f"--set {name}: there is no such setting"
                problem += (
                    f"; did you mean {hint.lower()}"
                    if hint
                    else "; `overdrive info --settings` lists them"
                )
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


def plain_environment(environment: Mapping[str, str], misfit: str) -> dict[str, str]:
    """Return the environment of a job without Overdrive, after saying why that is so."""
    ranks = [environment[name] for name in _RANK_VARIABLES if name in environment]
    if not ranks or "0" in ranks:
        print(
            f"overdrive: not used: {misfit}; the job runs over the installed MPI library alone. "
            f"To have it used, {c_library.REMEDY}",
            file=sys.stderr,
        )
    return dict(environment)


def yield_to_launcher(command: list[str], job: dict[str, str]) -> None:
    """Switch pinning off where the launcher is told how to bind, and say so."""
    pin = job.get("OVERDRIVE_PIN", "")
    if pin.lower() in ("", "none") or pin.lower().endswith(":force"):
        return
    option = launchers.explicit_binding(command[1:]) if command[0] != "run" else ""
    if not option:
        return
    print(
        f"overdrive: pin={pin} has no effect: {os.path.basename(command[0])} is told how to bind, "
        f"by {option}; leave that out, or add :force to pin",
        file=sys.stderr,
    )
    job["OVERDRIVE_PIN"] = "none"


def find_in_path(word: str, path: str | None = None) -> str | None:
    """Return the path of an executable file, as a shell finds it."""
    if os.path.dirname(word):
        candidates = [word]
    else:
        path = os.environ.get("PATH", os.defpath) if path is None else path
        candidates = [os.path.join(folder or ".", word) for folder in path.split(os.pathsep)]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def _find_program(word: str, remedy: str) -> str:
    if not word:
        raise CommandError("the name of the program is empty: is a variable of the shell not set?")
    path = find_in_path(word)
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
    if os.path.basename(command[0]) == "srun":
        return [path, *launchers.slurm_export(arguments, variables)]
    if not any(launchers.spans_nodes(family, arguments, job) for family in ("openmpi", "hydra")):
        return [path, *arguments]  # ranks on this node inherit the launcher's environment
    family = launchers.family_of(path)
    if launchers.spans_nodes(family, arguments, job):
        return [path, *launchers.forwarding(family, variables), *arguments]
    return [path, *arguments]


def start(command: list[str], job: dict[str, str], ours: list[str], dry_run: bool) -> int:
    """Replace this process by the command, or show it."""
    if dry_run:
        import shlex

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
    command = options.command
    if command[0] == "run" and command[1:2] in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    if command[0] == "run" and (command[1:2] == [] or command[1].startswith("-")):
        what = f"and not {command[1]}; options stand before `run`" if command[1:] else "to start"
        raise CommandError(f"`overdrive run` needs a program {what}")
    misfit = c_library.misfit(installation.need_library(), tuple(FACES))
    if misfit:
        job, ours = plain_environment(environment, misfit), []
    else:
        job, ours = job_environment(installation, options, environment)
        yield_to_launcher(command, job)
        check_settings(installation, options, job)
    if command[0] == "run":
        command = [_find_program(command[1], "check the name"), *command[2:]]
    else:
        command = launch_command(command, job, ours)
    return start(command, job, ours, options.dry_run)

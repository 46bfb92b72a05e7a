"""Entry point of the `overdrive` command.

Starting a job imports nothing beyond the modules named here; every other command imports its own.
"""

from __future__ import annotations

import os
import sys

from overdrive import installation, launch, launchers, options
from overdrive.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from overdrive.installation import Installation

USAGE = """\
Usage: overdrive [OPTION...] COMMAND [ARGUMENT...]

Makes unmodified MPI programs run faster over the MPI library that is installed.

Commands:
  mpirun | mpiexec | srun ARGUMENT...   start a job with Overdrive
  run PROGRAM [ARGUMENT...]             start one program with Overdrive (also below a launcher)
  info [NAME...]                        what will happen here, and single settings
  explain COLLECTIVE BYTES [...]        which algorithm a call gets, and why
  doctor [--bundle FILE]                what is wrong here, and what to do
  calibrate [--quick]                   measure this node, so that the best ways are chosen on it
  tune [--budget 10m] [OPTION...]       measure which algorithms collectives should take here
  bench coll | arrival                  measure collectives with and without Overdrive
  report RECORD                         what a run with --record spent in MPI, as a page
  study NAME [OPTION...]                in depth: copy, collectives, timeline or overlap
  lab COMMAND [ARGUMENT...]             a virtual cluster on this machine
  manual [--write FILE | --check FILE]  reference of settings and statistics in Markdown
  completion bash | zsh | fish          make a shell complete this command
  help [COMMAND]                        this, or a command's own help, as COMMAND --help

Options (before the command):
  --set NAME=VALUE   set a setting; `overdrive info --settings` lists them
  --stats[=PATH]     print statistics at the end, or write them to PATH (one file per rank)
  --record[=DIR]     record the run for `overdrive report` (default: overdrive-record)
  --pin=POLICY       bind ranks: compact, scatter, core, cache, numa, socket, list:0-3,8
  --paths=LIST       ways of messages: some of shm, direct, kernel, host
  --verbose N        0 errors, 1 fall-backs, 2 information, 3 communicators
  --verify           compare a checksum of every local message
  --disable          start the job without taking anything over
  --strict           end the job when a setting is wrong
  --library PATH     use this liboverdrive.so
  --dry-run          show the command instead of running it
  --version, --help

Examples:
  overdrive mpirun -n 4 ./app
  overdrive --stats --set eager_max=4K mpiexec -n 4 ./app
  srun -n 4 overdrive run ./app

Without this command: LD_PRELOAD=/path/to/liboverdrive.so mpirun -n 4 ./app
"""

COMMANDS = (
    "run",
    "info",
    "explain",
    "doctor",
    "calibrate",
    "tune",
    "bench",
    "report",
    "study",
    "lab",
    "manual",
    "completion",
    "help",
)
_COMPLETE = "__complete"
"""Asked by shells (overdrive.completion)."""

_WITH_PACKAGES = ("study",)
"""Commands that use packages which Python finds only when it was started in the usual way."""


def _again_with_packages() -> None:
    """Start Python anew without the options that save job starts the search for packages."""
    if sys.flags.no_site and sys.flags.isolated:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.argv])


def _other(
    here: Installation, chosen: options.Options, rest: list[str], environment: dict[str, str]
) -> int:
    """Run a command that starts no job of the user."""
    command = chosen.command[0]
    if command in _WITH_PACKAGES:
        _again_with_packages()
    if command in ("info", "explain"):
        rest = options.take_settings(chosen, rest)
    environment.update(chosen.variables())
    if command == "explain":
        from overdrive import collectives

        launch.check_settings(here, chosen, environment)
        return collectives.explain(here, rest, environment)
    if command == "calibrate":
        from overdrive import calibrate

        return calibrate.run(here, rest, environment)
    if command == "study":
        from overdrive.study import command as study

        return study.run(here, rest, environment)
    if command == "tune":
        from overdrive.tune import command as tune

        return tune.run(here, chosen, rest, environment)
    if command == "bench":
        if rest[:1] == ["arrival"]:
            from overdrive import bench_arrival

            return bench_arrival.run(here, chosen, rest[1:], environment)
        from overdrive import bench

        return bench.run(here, chosen, rest, environment)
    if command == "lab":
        from overdrive.lab import command as lab

        return lab.run(here, chosen, rest, environment)
    if command == "report":
        from overdrive.report import command as report

        return report.run(rest)
    if command == "doctor":
        from overdrive import doctor

        return doctor.run(here, rest, environment)
    if command in ("completion", _COMPLETE):
        from overdrive import completion

        if command == _COMPLETE:
            return completion.answer(here, rest, environment)
        return completion.run(rest)
    if command == "manual":
        from overdrive import manual

        return manual.run(here, rest)
    from overdrive import info

    return info.run(here, rest, environment)


def run(arguments: list[str]) -> int:
    """Do what the arguments ask for; raise CommandError when that is impossible."""
    chosen = options.parse(arguments)
    if chosen.command[:1] == ["help"]:
        # `help COMMAND` is `COMMAND --help`; of a launcher it would be the launcher's.
        chosen.help = len(chosen.command) == 1
        chosen.command = [*chosen.command[1:2], "--help"]
    if chosen.help:
        print(USAGE, end="")
        return 0
    environment = dict(os.environ)
    here = installation.find(environment, library=chosen.lib)
    if chosen.lib is not None and here.preload_path is not None:
        environment["OVERDRIVE_LIBRARY"] = here.preload_path
    if chosen.version:
        print(f"overdrive {here.version}")
        return 0
    if not chosen.command:
        raise CommandError("no command given; `overdrive --help` shows the usage")
    command, rest = chosen.command[0], chosen.command[1:]
    if command == "run" or launchers.is_launcher(command):
        return launch.run(here, chosen, environment)
    if command in COMMANDS or command == _COMPLETE:
        return _other(here, chosen, rest, environment)
    near = _nearest(command)
    raise CommandError(
        f"'{command}' is neither a command nor a launcher that is known; "
        + (f"did you mean `overdrive {near}`? " if near else "")
        + f"To start a program write `overdrive run {command}`; `overdrive --help` shows the usage"
    )


def _nearest(word: str) -> str:
    import difflib

    found = difflib.get_close_matches(word, [*COMMANDS, *launchers.NAMES], 1, 0.7)
    return found[0] if found else ""


def _write_anything(stream: object) -> None:
    """Let a stream take every text: what its encoding lacks is written as an escape."""
    if stream is not None and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Keep Python from writing at its end what could not be written."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    _write_anything(sys.stdout)
    _write_anything(sys.stderr)
    try:
        status = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except CommandError as reason:
        print(f"overdrive: error: {reason}", file=sys.stderr)
        return 2
    except SystemExit as end:  # argparse, after --help
        return end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough.
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as reason:
        _discard_output()
        where = f"{reason.filename}: " if reason.filename else ""
        print(f"overdrive: error: {where}{reason.strerror or reason}", file=sys.stderr)
        return 2

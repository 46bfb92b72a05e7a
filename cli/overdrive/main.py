"""Entry point of the `overdrive` command."""

from __future__ import annotations

import os
import sys

from overdrive import (
    bench,
    calibrate,
    collectives,
    info,
    installation,
    lab,
    launch,
    launchers,
    manual,
    options,
    study,
    study_collectives,
    study_timeline,
)
from overdrive.errors import CommandError

USAGE = """\
Usage: overdrive [OPTION...] COMMAND [ARGUMENT...]

Makes unmodified MPI programs run faster over the MPI library that is installed.

Commands:
  mpirun | mpiexec | srun ARGUMENT...   start a job with Overdrive
  run PROGRAM [ARGUMENT...]             start one program with Overdrive (also below a launcher)
  calibrate [--quick]                   measure this node, so that the best ways are chosen on it
  study copy [--output DIR]             measure every way a message can take, with plots
  study collectives [--output DIR]      which algorithm wins where, by simulation, with plots
  study timeline COLLECTIVE BYTES [...] what happens when in a collective in two levels, a picture
  bench coll [COLLECTIVE...]            measure collectives with and without Overdrive
  lab COMMAND [ARGUMENT...]             a virtual cluster on this machine; `lab --help` says more
  info [--json]                         what is installed, possible and set here, and why
  info --algorithms [--json]            every algorithm of every collective
  explain COLLECTIVE BYTES [...]        which algorithm a call gets, and why
  manual [--write FILE | --check FILE]  reference of settings and statistics in Markdown

Options (before the command):
  --set NAME=VALUE   set a setting; `overdrive info` lists them
  --stats[=PATH]     print statistics at the end, or write them to PATH (one file per rank)
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


def run(arguments: list[str]) -> int:
    """Do what the arguments ask for; raise CommandError when that is impossible."""
    chosen = options.parse(arguments)
    environment = dict(os.environ)
    if chosen.lib is not None:
        environment["OVERDRIVE_LIBRARY"] = chosen.lib
    if chosen.help:
        print(USAGE, end="")
        return 0
    here = installation.find(environment)
    if chosen.version:
        print(f"overdrive {here.version}")
        return 0
    if not chosen.command:
        raise CommandError("no command given; `overdrive --help` shows the usage")
    command, rest = chosen.command[0], chosen.command[1:]
    if command == "run" or launchers.is_launcher(command):
        return launch.run(here, chosen, environment)
    environment.update(chosen.variables())
    if command == "info":
        return info.run(here, rest, environment)
    if command == "explain":
        return collectives.explain(here, rest, environment)
    if command == "calibrate":
        return calibrate.run(here, rest, environment)
    if command == "study" and rest[:1] == ["collectives"]:
        return study_collectives.run(here, rest[1:], environment)
    if command == "study" and rest[:1] == ["timeline"]:
        return study_timeline.run(here, rest[1:], environment)
    if command == "study":
        return study.run(here, rest, environment)
    if command == "bench":
        return bench.run(here, chosen, rest, environment)
    if command == "lab":
        return lab.run(here, chosen, rest, environment)
    if command == "manual":
        return manual.run(here, rest)
    if command == "help":
        print(USAGE, end="")
        return 0
    raise CommandError(
        f"'{command}' is neither a command nor a launcher that is known; to start a program "
        f"write `overdrive run {command}`, and `overdrive --help` shows the usage"
    )


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    try:
        return run(arguments)
    except CommandError as reason:
        print(f"overdrive: error: {reason}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130

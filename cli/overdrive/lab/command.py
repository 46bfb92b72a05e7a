"""`overdrive lab`: a virtual cluster on one machine, made of namespaces.

This is the command line; nodes.py makes nodes, network.py connects them, enter.py runs
commands in them, jobs.py starts MPI jobs, state.py remembers what is up.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from overdrive import launch, launchers
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.lab import enter, jobs, network, privilege
from overdrive.lab import fabric as lab_fabric
from overdrive.lab import nodes as lab_nodes
from overdrive.lab import state as lab_state
from overdrive.lab.plan import Plan
from overdrive.lab.state import Lab, Node
from overdrive.options import Options

USAGE = """\
Usage: overdrive [OPTION...] lab COMMAND [ARGUMENT...]

A virtual cluster on this machine: nodes with their own network, host name, process
numbers and shared memory, joined by a switch.

Commands:
  up [--nodes N] [--rate RATE] [--sockets S [--cores C]] [--mtu BYTES]
     [--fabric bridge|switch|tor-spine [--latency TIME] [--tors T [--spines S]]]
                            make a cluster (2 nodes); RATE such as 1gbit limits every link.
                            The usual fabric is the kernel's bridge. With `switch` it is the
                            program overdrive-switch, which adds a latency, such as 20us; with
                            `tor-spine` nodes share T switches, joined by one above them,
                            or by S, of which sums take the one with the least load
  mpirun [-n RANKS] [--ppn RANKS | --layout 3+1+2] [--order block|round-robin]
         [--without-overdrive] [-x NAME[=VALUE]]... [--options TEXT] PROGRAM [ARGUMENT...]
                            start an MPI job over its nodes; instead of mpirun any launcher of
                            Open MPI, MPICH or Intel MPI, by name or path
  exec NODE PROGRAM [ARGUMENT...]
                            run a program in a node: 0, 1 ..., its host name, head or switch
  shape RATE|off [NODE...]  change the rate of all links, or of those of some nodes
  loss PERCENT|off [NODE...]
                            lose this share of the frames that all, or some, nodes send
  status [--json]           what is up
  down [--all]              end a cluster with everything in it

Every command takes --name NAME, for several clusters at once; the usual name is `lab`.

Example:
  overdrive lab up --nodes 4 --rate 1gbit
  overdrive lab mpirun -n 8 --ppn 2 ./app
  overdrive lab down
"""

COMMANDS = ("up", "mpirun", "exec", "shape", "loss", "status", "down")

_LARGEST_MTU, _SMALLEST_MTU = 65535, 576


@dataclass
class _Given:
    """Options and operands of a command."""

    values: dict[str, list[str]]
    rest: list[str]

    def text(self, option: str) -> str | None:
        """Return the last value of an option."""
        return self.values[option][-1] if option in self.values else None

    def flag(self, option: str) -> bool:
        """Tell whether an option without value is there."""
        return option in self.values

    def number(self, option: str, lowest: int, highest: int) -> int | None:
        """Return the value of an option as a number within bounds."""
        text = self.text(option)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or not lowest <= int(text) <= highest:
            raise CommandError(
                f"{option} needs a number from {lowest} to {highest}, and not '{text}'"
            )
        return int(text)


def _read(
    command: str,
    arguments: list[str],
    with_value: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    operands: bool = False,
) -> _Given:
    """Split options from operands; options end at the first operand."""
    given = _Given({}, list(arguments))
    with_value = (*with_value, "--name")
    while given.rest and given.rest[0].startswith("-") and given.rest[0] != "-":
        word = given.rest.pop(0)
        if word == "--":
            break
        option, equals, attached = word.partition("=")
        option = "-n" if option == "-np" else option
        if option in flags and not equals:
            given.values.setdefault(option, [])
        elif option in with_value:
            if not equals and not given.rest:
                raise CommandError(f"{option} needs a value; see `overdrive lab --help`")
            given.values.setdefault(option, []).append(attached if equals else given.rest.pop(0))
        else:
            hint = ""
            if "--options" in with_value:
                hint = f"; if it is meant for the launcher write --options '{word} ...'"
            raise CommandError(f"`overdrive lab {command}` does not know {word}{hint}")
    if given.rest and not operands:
        raise CommandError(f"`overdrive lab {command}` does not know '{given.rest[0]}'")
    return given


def _up(arguments: list[str], installation: Installation) -> int:
    given = _read(
        "up",
        arguments,
        (
            *("--nodes", "--rate", "--sockets", "--cores", "--mtu", "--fabric", "--latency"),
            *("--tors", "--spines"),
        ),
        flags=("--quiet",),
    )
    sockets = given.number("--sockets", 1, 64) or 0
    cores = given.number("--cores", 1, 1024)
    if cores is not None and not sockets:
        raise CommandError("--cores says how many cores a socket has: give --sockets as well")
    if cores is None:
        cores = max(1, len(os.sched_getaffinity(0)) // max(1, sockets))
    fabric = given.text("--fabric") or lab_fabric.BRIDGE
    if fabric not in lab_fabric.FABRICS:
        known = ", ".join(lab_fabric.FABRICS)
        raise CommandError(f"--fabric is one of {known}, and not '{fabric}'")
    if fabric == lab_fabric.BRIDGE and given.flag("--latency"):
        raise CommandError("the kernel's bridge adds no latency: give --fabric switch as well")
    for option in ("--tors", "--spines"):
        if fabric != lab_fabric.TOR_SPINE and given.flag(option):
            raise CommandError(f"{option} is for --fabric tor-spine")
    nodes = given.number("--nodes", 1, network.MOST_NODES) or 2
    plan = Plan(
        name=lab_state.check_name(given.text("--name") or lab_state.DEFAULT_NAME),
        nodes=nodes,
        rate=network.parse_rate(given.text("--rate") or "off"),
        sockets=sockets,
        cores=cores,
        mtu=given.number("--mtu", _SMALLEST_MTU, _LARGEST_MTU) or 1500,
        fabric=fabric,
        tors=(given.number("--tors", 1, nodes) or min(2, nodes))
        if fabric == lab_fabric.TOR_SPINE
        else 0,
        spines=(given.number("--spines", 1, 16) or 1) if fabric == lab_fabric.TOR_SPINE else 0,
        latency_ns=lab_fabric.parse_latency(given.text("--latency") or "0"),
        program="" if fabric == lab_fabric.BRIDGE else str(installation.need_switch()),
    )
    lab = lab_nodes.up(plan)
    if not given.flag("--quiet"):
        named = "" if lab.name == lab_state.DEFAULT_NAME else f" --name {lab.name}"
        _show(lab)
        print(f"\n  overdrive lab mpirun{named} -n {2 * plan.nodes} --ppn 2 ./app")
        print(f"  overdrive lab down{named}")
    return 0


def _show(lab: Lab) -> None:
    sockets = f", {lab.sockets} sockets of {lab.cores} cores" if lab.sockets else ""
    nodes = "1 node" if len(lab.nodes) == 1 else f"{len(lab.nodes)} nodes"
    rights = ", in a user namespace" if lab.privilege == privilege.USER_NAMESPACE else ""
    fabric = lab_fabric.describe(lab.fabric, lab.tors, lab.spines, lab.latency_ns)
    print(f"lab '{lab.name}': {nodes}{sockets}, MTU {lab.mtu}{fabric}{rights}")
    width = max(len(machine.name) for machine in lab.everyone())
    for machine in [*lab.nodes, *([lab.head] if lab.head else [])]:
        state = "" if machine.alive() else ", DEAD"
        if machine is lab.head:
            state += ", launchers start here"
        else:
            loss = "" if machine.loss == "off" else f", loses {machine.loss}"
            state = f", {network.rate_text(machine.rate)}{loss}{state}"
        print(f"  {machine.name:{width}}  {machine.address}{state}")
    if lab.fabric != lab_fabric.BRIDGE:
        alive = lab_fabric.ask(lab, "status json") is not None
        path = lab_fabric.socket_path(lab.folder)
        print(f"  switch: {f'overdrive-switch --status --control {path}' if alive else 'DEAD'}")


def _status(arguments: list[str]) -> int:
    given = _read("status", arguments, flags=("--json",))
    name = given.text("--name")
    found = [lab_state.select(name)] if name is not None else lab_state.labs()
    if given.flag("--json"):
        print(json.dumps([asdict(lab) for lab in found], indent=2))
    elif not found:
        print("no lab is up; `overdrive lab up --nodes 2` makes one")
    else:
        for lab in found:
            _show(lab)
    return 0


def _down(arguments: list[str]) -> int:
    given = _read("down", arguments, flags=("--all",))
    if given.flag("--all"):
        if given.text("--name") is not None:
            raise CommandError("--all and --name exclude each other")
        for lab in lab_state.labs():
            lab_nodes.down(lab)
        return 0
    lab_nodes.down(lab_state.select(given.text("--name")))
    return 0


def _exec(arguments: list[str], environment: Mapping[str, str]) -> int:
    given = _read("exec", arguments, operands=True)
    if len(given.rest) < 2:
        raise CommandError("`overdrive lab exec` needs a node and a program")
    lab = lab_state.select(given.text("--name"))
    node = lab.find(given.rest[0])
    variables = dict(environment)
    if node is lab.head:
        variables.update(jobs.launch_environment(lab, variables))
    return enter.run(lab, node, given.rest[1:], variables)


def _chosen(lab: Lab, words: list[str]) -> list[tuple[int, Node]]:
    """Return the nodes of these names with their numbers, or all."""
    chosen = [lab.find(word) for word in words]
    if lab.head in chosen or lab.switch in chosen:
        raise CommandError("head and switch have no rate and no loss, only nodes have")
    pairs = list(enumerate(lab.nodes))
    return [(index, node) for index, node in pairs if not words or node in chosen]


def _change(command: str, arguments: list[str]) -> int:
    given = _read(command, arguments, operands=True)
    what = "a rate" if command == "shape" else "a share of frames in per cent"
    if not given.rest:
        raise CommandError(f"`overdrive lab {command}` needs {what}, or off")
    parse = network.parse_rate if command == "shape" else network.parse_loss
    value = parse(given.rest[0])
    name = lab_state.select(given.text("--name")).name
    with lab_state.changing():  # two changes at once would lose one
        lab = lab_state.reread(name)
        pairs = _chosen(lab, given.rest[1:])
        assert lab.switch is not None
        bridge = lab.fabric == lab_fabric.BRIDGE
        if command == "shape":
            network.shape(lab.switch.pid, pairs, value, lab.mtu, bridge)
        elif bridge:
            network.lose(lab.switch.pid, pairs, value)
        else:
            network.cut_streams(pairs, value != "off")
        for _, node in pairs:
            if command == "shape":
                node.rate = value
            else:
                node.loss = value
        if not bridge:
            lab_fabric.change(lab)
        lab.write()
    return 0


def _variables(words: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of -x options, as NAME=VALUE or NAME for its present value."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in environment:
            raise CommandError(f"-x {name}: there is no such variable in the environment")
        found[name] = value if equals else environment[name]
    return found


def _start(
    word: str,
    arguments: list[str],
    installation: Installation,
    options: Options,
    environment: Mapping[str, str],
) -> int:
    given = _read(
        word,
        arguments,
        ("-n", "--ppn", "--layout", "--order", "-x", "--options"),
        ("--without-overdrive",),
        operands=True,
    )
    if not given.rest:
        raise CommandError(f"`overdrive lab {word}` needs a program")
    order = given.text("--order") or jobs.BLOCK
    if order not in (jobs.BLOCK, jobs.ROUND_ROBIN):
        raise CommandError(f"--order is block or round-robin, and not '{order}'")
    layout = given.text("--layout")
    lab = lab_state.select(given.text("--name"))
    placement = jobs.place(
        len(lab.nodes),
        given.number("-n", 1, 1 << 20),
        given.number("--ppn", 1, 1 << 16),
        None if layout is None else jobs.parse_layout(layout),
        order,
    )
    launcher = jobs.find_launcher(word)
    carried = {}
    job = dict(environment)
    if not given.flag("--without-overdrive"):
        job, ours = launch.job_environment(installation, options, environment)
        launch.check_settings(installation, options, job)
        carried = {name: job[name] for name in ours}
        carried.update(jobs.waiting(placement, job))
        carried.update(jobs.switch(lab, job))
        job.update(carried)
    elif "LD_PRELOAD" in job:
        carried = {"LD_PRELOAD": job["LD_PRELOAD"]}
    carried.update(_variables(given.values.get("-x", []), environment))
    try:
        extra = shlex.split(given.text("--options") or "")
    except ValueError as reason:
        raise CommandError(f"--options: {reason}") from reason
    job.update(jobs.launch_environment(lab, job))
    command = jobs.command_line(lab, launcher, placement, carried, job, extra, given.rest)
    if options.dry_run:
        print(shlex.join(command))
        return 0
    assert lab.head is not None
    return enter.run(lab, lab.head, command, job, job=True)


def _asks_for_help(arguments: list[str]) -> bool:
    """Tell whether the first word after a command asks how to use it."""
    return arguments[:1] in (["--help"], ["-h"])


def run(
    installation: Installation,
    options: Options,
    arguments: list[str],
    environment: Mapping[str, str],
) -> int:
    """Do what the words after `overdrive lab` ask for."""
    if not arguments:
        raise CommandError("`overdrive lab` needs a command; `overdrive lab --help` names them")
    command, rest = arguments[0], arguments[1:]
    if command in ("--help", "-h", "help") or (command in COMMANDS and _asks_for_help(rest)):
        print(USAGE, end="")
        return 0
    if command == "up":
        return _up(rest, installation)
    if command == "down":
        return _down(rest)
    if command == "status":
        return _status(rest)
    if command == "exec":
        return _exec(rest, environment)
    if command in ("shape", "loss"):
        return _change(command, rest)
    if launchers.is_launcher(command):
        return _start(command, rest, installation, options, environment)
    raise CommandError(
        f"`overdrive lab` has no command '{command}'; `overdrive lab --help` shows the usage"
    )

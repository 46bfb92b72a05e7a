"""Reads the command's own options: those that stand before the launcher's or subcommand's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from overdrive.errors import CommandError
from overdrive.settings import variable_of

SWITCHES = {"--disable": "disable", "--strict": "strict", "--verify": "verify"}
"""Options that set a truth value."""


@dataclass
class Options:
    """What stands before the command's name, and the rest."""

    settings: dict[str, str] = field(default_factory=dict)
    lib: str | None = None
    dry_run: bool = False
    help: bool = False
    version: bool = False
    command: list[str] = field(default_factory=list)

    def variables(self) -> dict[str, str]:
        """Return the environment variables that hand the settings on to the library."""
        found = {variable_of(name): value for name, value in self.settings.items()}
        if found:
            # Tells the library that these values come from the command line.
            found["OVERDRIVE_COMMAND_LINE"] = ",".join(self.settings)
        return found


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip().lower().replace("-", "_")
    if not equals or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise CommandError(f"--set needs name=value, such as --set eager_max=4K; got '{text}'")
    if not value:
        raise CommandError(f"--set {name}= has no value; leave the option out to use the default")
    return name, value


def parse(arguments: list[str]) -> Options:
    """Split the arguments into the command's options and what it shall run."""
    options = Options()
    rest = list(arguments)

    def operand(option: str, attached: str | None) -> str:
        if attached is not None:
            return attached
        if not rest:
            raise CommandError(f"{option} needs a value; `overdrive --help` shows the usage")
        return rest.pop(0)

    while rest and rest[0].startswith("-"):
        argument = rest.pop(0)
        if argument == "--":
            break
        option, equals, text = argument.partition("=")
        attached = text if equals else None
        if option == "--set":
            name, value = _assignment(operand(option, attached))
            options.settings[name] = value
        elif option == "--stats":
            # The value only with "=": the next word is the launcher.
            options.settings["stats"] = attached or "1"
        elif option in ("--verbose", "-v"):
            options.settings["verbose"] = operand(option, attached)
        elif option == "--library":
            options.lib = operand(option, attached)
        elif attached is None and option in SWITCHES:
            options.settings[SWITCHES[option]] = "1"
        elif attached is None and option == "--dry-run":
            options.dry_run = True
        elif attached is None and option in ("--help", "-h"):
            options.help = True
        elif attached is None and option == "--version":
            options.version = True
        else:
            raise CommandError(f"unknown option {argument}; `overdrive --help` shows the usage")
    options.command = rest
    return options

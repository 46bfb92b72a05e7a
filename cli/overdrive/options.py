"""Reads the command's own options: those that stand before the launcher's or subcommand's name.

Every start of a job comes through here, so this module imports next to nothing.
"""

from __future__ import annotations

from overdrive.errors import CommandError

SWITCHES = {"--disable": "disable", "--strict": "strict", "--verify": "verify"}
"""Options that set a truth value."""

PATHS = ("shm", "direct", "kernel", "host")
"""What --paths takes."""

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_NAME_CHARACTERS = _LETTERS | frozenset("0123456789_")


class Options:
    """What stands before the command's name, and the rest."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.lib: str | None = None
        self.dry_run = False
        self.help = False
        self.version = False
        self.command: list[str] = []

    def variables(self) -> dict[str, str]:
        """Return the environment variables that hand the settings on to the library."""
        found = {variable_of(name): value for name, value in self.settings.items()}
        if found:
            # Tells the library that these values come from the command line.
            found["OVERDRIVE_COMMAND_LINE"] = ",".join(self.settings)
        return found


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return "OVERDRIVE_" + name.upper()


def assignment(text: str) -> tuple[str, str]:
    """Split what follows --set into the setting's name and its value."""
    name, equals, value = text.partition("=")
    name = name.strip().lower().replace("-", "_")
    if not equals or name[:1] not in _LETTERS or not _NAME_CHARACTERS.issuperset(name):
        raise CommandError(f"--set needs name=value, such as --set eager_max=4K; got '{text}'")
    if not value:
        raise CommandError(f"--set {name}= has no value; leave the option out to use the default")
    return name, value


def path_settings(text: str) -> dict[str, str]:
    """Return the settings that leave messages and collectives only these ways.

    shm: copied through shared cells; direct: from buffer to buffer in memory that ranks share;
    kernel: read through the operating system; host: the installed MPI library, which always takes
    what goes to other nodes, and all where nothing else is named.
    """
    names = text.lower().split(",")
    wrong = next((name for name in names if name not in PATHS), None)
    if wrong is not None:
        raise CommandError(
            f"--paths takes some of {', '.join(PATHS)}, such as --paths shm,direct; "
            f"got '{wrong or text}'"
        )
    if set(names) == {"host"}:
        return {"disable": "1"}
    if "shm" not in names:
        raise CommandError(
            "--paths needs shm beside direct and kernel: short messages go through shared memory"
        )
    if "direct" not in names:
        found = {"reach": "off", "xpmem": "off"}
        found["copy_path"] = "kernel" if "kernel" in names else "cells"
        return found
    if "kernel" in names:
        # From where the second copy costs more than the system call, also without a calibration.
        return {"near_kernel_min": "64K", "far_kernel_min": "64K"}
    return {"near_kernel_min": "1T", "far_kernel_min": "1T"}


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
            name, value = assignment(operand(option, attached))
            options.settings[name] = value
        elif option == "--stats":
            # The value only with "=": the next word is the launcher.
            options.settings["stats"] = attached or "1"
        elif option == "--record":
            options.settings["record"] = attached or "overdrive-record"
        elif option == "--pin":
            options.settings["pin"] = operand(option, attached)
        elif option == "--paths":
            options.settings.update(path_settings(operand(option, attached)))
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
        elif attached is None and option in ("--version", "-V"):
            options.version = True
        else:
            raise CommandError(f"unknown option {argument}; `overdrive --help` shows the usage")
    options.command = rest
    return options


def take_settings(options: Options, arguments: list[str]) -> list[str]:
    """Return what is left of a subcommand's arguments without --set NAME=VALUE, and set those."""
    left: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--set" and not rest:
            raise CommandError("--set needs a value, such as --set eager_max=4K")
        if argument == "--set" or argument.startswith("--set="):
            name, value = assignment(rest.pop(0) if argument == "--set" else argument[6:])
            options.settings[name] = value
        else:
            left.append(argument)
    return left

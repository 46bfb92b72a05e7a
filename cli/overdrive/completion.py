"""`overdrive completion`: shells ask the command itself what may stand where the cursor is.

The scripts are thin: they call `overdrive __complete WORD...`, whose last word is the one that is
being written, and get a candidate per line, after a tab what it means. Nothing has to be installed
anew when an option is added: options come from the commands' own parsers, settings from the
library. A line that says FILES lets the shell complete names of files as it does otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from overdrive import (
    bench,
    bench_arrival,
    calibrate,
    collectives,
    info,
    launchers,
)
from overdrive import settings as library_settings
from overdrive.errors import CommandError
from overdrive.installation import Installation
from overdrive.lab import command as lab
from overdrive.options import PATHS
from overdrive.report import command as report
from overdrive.study import collectives as study_collectives
from overdrive.study import copy_paths, overlap, timeline
from overdrive.tune import command as tune

if TYPE_CHECKING:
    from overdrive.arguments import Parser

USAGE = """\
Usage: overdrive completion bash | zsh | fish

Prints what makes a shell complete this command:
  bash   echo 'eval "$(overdrive completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(overdrive completion zsh)"' >> ~/.zshrc   (after compinit)
  fish   overdrive completion fish > ~/.config/fish/completions/overdrive.fish
"""

FILES = "FILES"

SCRIPTS = {
    "bash": """\
_overdrive() {
    local line
    COMPREPLY=()
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    # Bash takes `name=value` apart.
    if [[ ${#words[@]} -ge 3 && ${words[-2]} == "=" ]]; then
        words=("${words[@]:0:${#words[@]}-3}" "${words[-3]}=${words[-1]}")
    elif [[ ${#words[@]} -ge 2 && ${words[-1]} == "=" ]]; then
        words=("${words[@]:0:${#words[@]}-2}" "${words[-2]}=")
    fi
    while IFS= read -r line; do
        if [[ $line == FILES ]]; then
            compopt -o default
            continue
        fi
        line=${line%%$'\\t'*}
        [[ ${words[-1]} == *=* ]] && line=${line#*=}
        [[ $line == *= ]] && compopt -o nospace
        COMPREPLY+=("$line")
    done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}
complete -F _overdrive overdrive
""",
    "zsh": """\
#compdef overdrive
_overdrive() {
    local line
    local -a found
    for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == FILES ]]; then
            _files
        elif [[ -n $line ]]; then
            found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
        fi
    done
    (( ${#found} )) && _describe overdrive found
}
# Loaded from a folder of completions this file is the function itself, at its first call.
if [[ ${funcstack[1]} == _overdrive ]]; then
    _overdrive "$@"
else
    compdef _overdrive overdrive
fi
""",
    "fish": """\
function __overdrive_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (command $words[1] __complete $words[2..-1] 2>/dev/null)
        if test "$line" = FILES
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c overdrive -f -a '(__overdrive_complete)'
""",
}

GLOBAL = {
    "--set": "set a setting",
    "--stats": "print statistics at the end",
    "--record": "record the run for a report",
    "--pin": "bind ranks to processors",
    "--paths": "ways of messages",
    "--verbose": "what is reported",
    "--verify": "compare checksums of local messages",
    "--disable": "take nothing over",
    "--strict": "end the job when a setting is wrong",
    "--library": "use this liboverdrive.so",
    "--dry-run": "show the command instead of running it",
    "--version": "show the version",
    "--help": "show the usage",
}

COMMANDS = {
    "run": "start one program",
    "info": "what will happen here",
    "explain": "which algorithm a call gets, and why",
    "calibrate": "measure this node",
    "tune": "measure algorithms of collectives",
    "bench": "measure collectives",
    "report": "what a recorded run spent in MPI",
    "study": "measure or simulate in depth",
    "lab": "a virtual cluster",
    "doctor": "what is wrong here, and what to do",
    "manual": "reference of settings and statistics",
    "completion": "make a shell complete this command",
    "help": "show the usage",
}

PARSERS = {
    ("info",): info.parser,
    ("calibrate",): calibrate.parser,
    ("tune",): tune.parser,
    ("bench", "coll"): bench.parser,
    ("bench", "arrival"): bench_arrival.parser,
    ("report",): report.parser,
    ("study", "copy"): copy_paths.parser,
    ("study", "collectives"): study_collectives.parser,
    ("study", "timeline"): timeline.parser,
    ("study", "overlap"): overlap.parser,
}

WORDS = {
    ("bench",): ("coll", "arrival"),
    ("study",): ("copy", "collectives", "timeline", "overlap"),
    ("lab",): lab.COMMANDS,
    ("manual",): ("--write", "--check", "--help"),
    ("completion",): tuple(SCRIPTS),
    ("doctor",): ("--bundle", "--json", "--help"),
    ("explain",): ("--ranks", "--nodes", "--no-commute", "--json", "--set", "--help"),
}

POLICIES = {
    "none": "as the launcher binds",
    "compact": "a core each, next to each other",
    "scatter": "a core each, far apart",
    "core": "a core each, spread evenly",
    "cache": "cores that share a last-level cache",
    "numa": "a NUMA node",
    "socket": "a socket",
    "list:": "processors in turn",
}

_TAKE_VALUE = ("--set", "--verbose", "-v", "--library", "--pin", "--paths")

TAKES_SETTINGS = ("info", "explain", "bench", "tune")


def _options_of(parser: Parser) -> dict[str, str]:
    """Return the options of a parser and what they mean."""
    found: dict[str, str] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        for option in action.option_strings:
            if option.startswith("--") or len(action.option_strings) == 1:
                found[option] = action.help or ""
    return found


def _takes_value(parser: Parser, option: str) -> str | None:
    """Return what the value of an option is called, or None if it takes none."""
    for action in parser._actions:  # noqa: SLF001
        if option in action.option_strings and action.nargs != 0:
            return str(action.metavar or "")
    return None


class _Completion:
    """One question of a shell."""

    def __init__(self, installation: Installation, environment: Mapping[str, str]) -> None:
        self._installation = installation
        self._environment = environment

    def _settings(self) -> list[dict[str, str]]:
        try:
            known = library_settings.query(self._installation, self._environment, "--defaults")
        except CommandError:
            return []
        return known["settings"]

    def _assignments(self, word: str) -> dict[str, str]:
        name, equals, _ = word.partition("=")
        if not equals:
            return {f"{s['name']}=": s["doc"].partition(". ")[0] for s in self._settings()}
        for setting in self._settings():
            if setting["name"] == name.lower().replace("-", "_"):
                values = setting["choices"].split("|") if setting["choices"] else []
                values = ["on", "off"] if setting["type"] == "bool" else values
                return {f"{name}={value}": "" for value in values if value}
        return {}

    def candidates(self, words: list[str]) -> dict[str, str]:
        """Return what may stand in the place of the last word, and what it means."""
        rest, word = words[:-1], words[-1]
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option in _TAKE_VALUE and not rest:
                return self._value_of(option, word)
            if option in _TAKE_VALUE:
                rest.pop(0)
        if not rest:
            return {**GLOBAL, **COMMANDS, **{name: "start a job" for name in launchers.NAMES}}
        return self._of_command(rest, word)

    def _value_of(self, option: str, word: str) -> dict[str, str]:
        if option == "--set":
            return self._assignments(word)
        if option == "--library":
            return {FILES: ""}
        if option == "--pin":
            return POLICIES
        if option == "--paths":
            return {name: "" for name in PATHS}
        return {"0": "errors", "1": "fall-backs", "2": "information", "3": "communicators"}

    def _of_command(self, rest: list[str], word: str) -> dict[str, str]:
        command = rest[0]
        if command == "run" or launchers.is_launcher(command):
            return {FILES: ""}
        if command == "help" and len(rest) == 1:
            return COMMANDS
        if command in TAKES_SETTINGS and rest[-1] == "--set":
            return self._assignments(word)
        path = tuple(rest[:2]) if tuple(rest[:2]) in PARSERS else (command,)
        found = {name: "" for name in WORDS.get(path, ())} if len(rest) == len(path) else {}
        if path == ("explain",):
            found = {name: "" for name in WORDS[path]}
            if len(rest) == 1:
                found.update({name: "" for name in self._collectives()})
        if path in PARSERS:
            parser = PARSERS[path]()
            value = _takes_value(parser, rest[-1])
            if value is not None and rest[-1].startswith("-"):
                return {FILES: ""} if value in ("FILE", "DIR") else {}
            found.update(_options_of(parser))
        if path == ("info",):
            found.update({s["name"]: s["doc"].partition(". ")[0] for s in self._settings()})
        if path == ("bench", "coll"):
            found.update({name: "" for name in bench.KNOWN})
        if path == ("report",):
            found[FILES] = ""
        if path in (("manual",), ("doctor",)) and rest[-1] in ("--write", "--check", "--bundle"):
            return {FILES: ""}
        return found

    def _collectives(self) -> list[str]:
        try:
            report, _ = collectives.query(self._installation, self._environment, "list")
        except CommandError:
            return []
        return [family["collective"] for family in report]


def complete(
    installation: Installation, words: list[str], environment: Mapping[str, str]
) -> Iterable[str]:
    """Return the lines of the answer to a shell."""
    words = words or [""]
    found = _Completion(installation, environment).candidates(words)
    for name, meaning in found.items():
        if name == FILES:
            yield FILES
        elif name.startswith(words[-1]) and (words[-1] or not name.startswith("-")):
            yield f"{name}\t{' '.join(meaning.split())}" if meaning else name


def answer(installation: Installation, words: list[str], environment: Mapping[str, str]) -> int:
    """Print the answer to a shell; return the exit status."""
    for line in complete(installation, words, environment):
        print(line)
    return 0


def run(arguments: list[str]) -> int:
    """Print the script of a shell; return the exit status."""
    if arguments[:1] in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    if len(arguments) != 1 or arguments[0] not in SCRIPTS:
        raise CommandError(f"`overdrive completion` needs a shell: {', '.join(SCRIPTS)}")
    print(SCRIPTS[arguments[0]], end="")
    return 0

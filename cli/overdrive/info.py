"""`overdrive info`: what will happen here, what will not and why; single settings; everything."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from overdrive import (
    collectives,
    info_overlap,
    info_pair,
    info_pinning,
    info_text,
    launchers,
    mechanisms,
    settings,
)
from overdrive import options as command_options
from overdrive.arguments import Parser, number
from overdrive.errors import CommandError
from overdrive.installation import FACES, Installation

EPILOG = """\
Without names and options: what will happen to a job that starts here, what will not and why.
A NAME is that of a setting; its beginning or a part of it shows all that have it.

Examples:
  overdrive info
  overdrive info eager_max wait
  overdrive --set copy_path=pull info --pair 0 1
  overdrive --pin=compact info --pinning --ranks 8
"""


def _faces(installation: Installation) -> list[dict[str, Any]]:
    found = []
    for name, serves in FACES.items():
        path = installation.face(name)
        reason = installation.missing_face_reason(name) if path is None else ""
        found.append(
            {"name": name, "serves": serves, "path": str(path) if path else None, "reason": reason}
        )
    return found


def gather(installation: Installation, environment: Mapping[str, str]) -> dict[str, Any]:
    """Collect everything `info` shows, in the form of its JSON output."""
    report: dict[str, Any] = {
        "version": installation.version,
        "home": installation.home_path,
        "library": installation.preload_path,
        "faces": _faces(installation),
        "launchers": [
            {"path": found.path, "family": found.family, "title": found.title}
            for found in launchers.in_path(environment.get("PATH"))
        ],
        "system": {
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "c_library": " ".join(platform.libc_ver()).strip(),
        },
        "mechanisms": [mechanism.as_dict() for mechanism in mechanisms.all_mechanisms()],
        "machine": None,
        "settings": None,
        "issues": [],
        "files": [],
        "calibration": None,
        "fingerprint": None,
        "routes": None,
        "paths": None,
        "overlap": None,
    }
    try:
        known = settings.query(installation, environment, "--machine")
    except CommandError as reason:
        report["issues"] = [{"kind": "incomplete", "message": str(reason)}]
        return report
    for key in (
        "machine", "settings", "issues", "files", "calibration", "fingerprint", "routes", "paths",
    ):  # fmt: skip
        report[key] = known[key]
    report["mechanisms"].append(mechanisms.xpmem(known["xpmem"]).as_dict())
    report["overlap"] = info_overlap.describe(info_text.values(report))
    return report


def _named(report: Mapping[str, Any], names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the settings with these names, or with these parts of names."""
    found: dict[str, Mapping[str, Any]] = {}
    for word in names:
        name = word.lower().removeprefix("overdrive_").replace("-", "_")
        exact = [one for one in report["settings"] if one["name"] == name]
        some = exact or [one for one in report["settings"] if name and name in one["name"]]
        if not some:
            raise CommandError(
                f"there is no setting '{word}'; `overdrive info --settings` lists all"
            )
        found.update({one["name"]: one for one in some})
    return list(found.values())


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive info",
        description="Tells what Overdrive will do here, and how it is set.",
        epilog=EPILOG,
        usage="overdrive info [NAME...] [--settings] [--machine] [--pair A B] [--algorithms] "
        "[--pinning [--ranks N] [--pin POLICY]] [--set NAME=VALUE] [--json]",
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="settings to show")
    made.add_argument("--settings", action="store_true", help="all settings, with their sources")
    made.add_argument(
        "--machine",
        action="store_true",
        help="what is installed, the processors, and what the machine permits",
    )
    made.add_argument(
        "--pair", nargs=2, metavar=("A", "B"), help="the way of messages between two ranks"
    )
    made.add_argument(
        "--algorithms", action="store_true", help="every algorithm of every collective"
    )
    made.add_argument(
        "--pinning",
        action="store_true",
        help="the node as a picture, and where --pin puts ranks; HWLOC_SYNTHETIC or HWLOC_XMLFILE "
        "name another machine",
    )
    made.add_argument(
        "--ranks",
        type=number(1, 1 << 20),
        metavar="N",
        help="ranks on the node, for --pinning (default: one for each core)",
    )
    made.add_argument("--pin", metavar="POLICY", help="another policy, for --pinning")
    made.add_argument("--json", action="store_true", help="everything, for programs")
    return made


def _parse(arguments: Sequence[str]) -> Any:
    made = parser()
    chosen = made.parse_args(list(arguments))
    parts = [chosen.names, chosen.settings or chosen.machine, chosen.pair, chosen.algorithms,
             chosen.pinning]  # fmt: skip
    if sum(bool(part) for part in parts) > 1:
        made.error(
            "names, --settings or --machine, --pair, --algorithms and --pinning exclude each other"
        )
    if (chosen.ranks or chosen.pin) and not chosen.pinning:
        made.error("--ranks and --pin belong to --pinning")
    for rank in chosen.pair or []:
        if not (rank.isascii() and rank.isdigit() and len(rank) < 9):
            made.error(f"--pair takes two ranks, and not '{rank}'")
    if chosen.pair and int(chosen.pair[0]) == int(chosen.pair[1]):
        made.error("--pair takes two different ranks")
    return chosen


def _show_pinning(installation: Installation, environment: Mapping[str, str], chosen: Any) -> int:
    variable = command_options.variable_of("pin")
    policy = chosen.pin or environment.get(variable) or "none"
    named = "pin" in environment.get("OVERDRIVE_COMMAND_LINE", "").split(",")
    source = "--pin" if chosen.pin or named else f"environment variable {variable}"
    found = info_pinning.query(installation, environment, policy, chosen.ranks)
    if chosen.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(info_pinning.lines(found, source)))
    return 0


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Print what is asked for; return the exit status."""
    chosen = _parse(arguments)
    # Launchers that are asked must not have the library loaded.
    os.environ.pop("LD_PRELOAD", None)
    if chosen.algorithms:
        return collectives.show_algorithms(installation, environment, chosen.json)
    if chosen.pinning:
        return _show_pinning(installation, environment, chosen)
    if chosen.names:
        known = settings.query(installation, environment)
        found = _named(known, chosen.names)
        if chosen.json:
            print(json.dumps(found, indent=2))
        else:
            print("\n".join(info_text.setting_lines(found, detailed=True)))
        return 0
    report = gather(installation, environment)
    if chosen.pair:
        pair = info_pair.describe(report, int(chosen.pair[0]), int(chosen.pair[1]))
        print(json.dumps(pair, indent=2) if chosen.json else "\n".join(info_pair.lines(pair)))
    elif chosen.json:
        print(json.dumps(report, indent=2))
    elif chosen.settings or chosen.machine:
        print(info_text.parts(report, chosen.machine, chosen.settings), end="")
    else:
        print(info_text.short(report), end="")
    return 0

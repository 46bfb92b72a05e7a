"""`overdrive info`: what is installed, what the machine permits, every setting and its source."""

from __future__ import annotations

import json
import os
import platform
import textwrap
from collections.abc import Mapping
from typing import Any

from overdrive import collectives, launchers, mechanisms, settings
from overdrive.errors import CommandError
from overdrive.installation import FACES, Installation

WIDTH = 100


def gather(installation: Installation, environment: Mapping[str, str]) -> dict[str, Any]:
    """Collect everything `info` shows, in the form of its JSON output."""
    faces = []
    for name, serves in FACES.items():
        path = installation.face(name)
        reason = ""
        if path is None:
            reason = installation.missing_face_reason(name)
        faces.append(
            {"name": name, "serves": serves, "path": str(path) if path else None, "reason": reason}
        )
    report: dict[str, Any] = {
        "version": installation.version,
        "home": str(installation.home),
        "library": str(installation.loader) if installation.loader else None,
        "faces": faces,
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
    }
    try:
        known = settings.query(installation, environment, "--machine")
    except CommandError as reason:
        report["issues"] = [{"kind": "incomplete", "message": str(reason)}]
        return report
    for key in ("machine", "settings", "issues", "files", "calibration", "fingerprint"):
        report[key] = known[key]
    report["mechanisms"].append(mechanisms.xpmem(known["xpmem"]).as_dict())
    return report


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _size(bytes_: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= factor and bytes_ % factor == 0:
            return f"{bytes_ // factor} {unit}"
    return f"{bytes_} B"


def _installation_lines(report: Mapping[str, Any]) -> list[str]:
    lines = [f"Overdrive {report['version']}"]
    lines.append(f"  library   {report['library'] or 'not found: run `make` in the checkout'}")
    for face in report["faces"]:
        state = face["path"] or face["reason"]
        lines.append(f"  face      {face['name']:8} for {face['serves']}: {state}")
    lines += ["", "MPI launchers in PATH"]
    for found in report["launchers"]:
        lines.append(f"  {found['path']}: {found['title']}")
    if not report["launchers"]:
        lines.append("  none: load or install an MPI library")
    return lines


def _machine_lines(report: Mapping[str, Any]) -> list[str]:
    system = report["system"]
    lines = ["", "Machine"]
    c_library = system["c_library"] or "unknown C library"
    lines.append(f"  Linux {system['kernel']} on {system['architecture']}, {c_library}")
    machine = report["machine"]
    if machine is None:
        return lines
    quota = machine["quota_milli_cpus"]
    limit = f", quota of the control group {quota / 1000:g} processors" if quota else ""
    lines.append(
        f"  processors online {machine['online_cpus']}, usable here {machine['affinity']}{limit}: "
        f"{machine['usable_cpus']} ranks can run without sharing a processor"
    )
    packages = {cpu["package"] for cpu in machine["cpus"]}
    nodes = {cpu["numa_node"] for cpu in machine["cpus"] if cpu["numa_node"] >= 0}
    cores = {(cpu["package"], cpu["core"]) for cpu in machine["cpus"]}
    lines.append(f"  packages {len(packages)}, cores {len(cores)}, NUMA nodes {max(1, len(nodes))}")
    for cache in machine["caches"]:
        lines.append(
            f"  L{cache['level']} {_size(cache['size_bytes'])} of processors {cache['shared_by']}"
        )
    return lines


def _mechanism_lines(report: Mapping[str, Any]) -> list[str]:
    lines = ["", "What this machine permits"]
    for mechanism in report["mechanisms"]:
        state = "yes" if mechanism["available"] else "no"
        detail = f" ({mechanism['detail']})" if mechanism["detail"] else ""
        lines.append(f"  {mechanism['name']:17} {state:4} {mechanism['purpose']}{detail}")
    return lines


def _calibration_lines(report: Mapping[str, Any]) -> list[str]:
    calibration = report["calibration"]
    state = {
        "none": "not there; `overdrive calibrate` measures this machine",
        "used": f"used, measured {calibration['date'] or 'at an unknown date'}",
        "off": "switched off",
        "ignored": f"not used: {calibration['why']}",
    }[calibration["state"]]
    lines = ["Calibration"]
    if calibration["path"]:
        lines.append(_wrapped(f"{calibration['path']}: {state}", 2))
    else:
        lines.append("  neither HOME nor XDG_CONFIG_HOME tells where it could be")
    lines.append(_wrapped(f"this machine: {report['fingerprint']}", 2))
    return lines


def _setting_lines(report: Mapping[str, Any]) -> list[str]:
    lines = ["", "Settings files"]
    for file in report["files"]:
        lines.append(f"  {file['path']}: {'read' if file['exists'] else 'not there'}")
    lines += ["", *_calibration_lines(report)]
    lines += ["", "Settings (* = not the built-in value)"]
    for setting in report["settings"] or []:
        mark = " " if setting["source"] == "built-in" else "*"
        value = setting["value"] or "none"
        place = f", {setting['place']}" if setting["place"] else ""
        default = "" if mark == " " else f", default {setting['default'] or 'none'}"
        lines.append(f"{mark} {setting['name']} = {value}  ({setting['source']}{place}{default})")
        lines.append(_wrapped(setting["doc"], 6))
    return lines


def render(report: Mapping[str, Any]) -> str:
    """Return the report as text for people."""
    lines = _installation_lines(report) + _machine_lines(report) + _mechanism_lines(report)
    if report["settings"] is not None:
        lines += _setting_lines(report)
    if report["issues"]:
        lines += ["", "Problems"]
        lines += [_wrapped(issue["message"], 2) for issue in report["issues"]]
    return "\n".join(lines) + "\n"


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Print the report; return the exit status."""
    unknown = [argument for argument in arguments if argument not in ("--json", "--algorithms")]
    if unknown:
        raise CommandError(
            f"`overdrive info` does not know {unknown[0]}; it takes --json and --algorithms"
        )
    # Programs started for the report must not have the library loaded themselves.
    os.environ.pop("LD_PRELOAD", None)
    if "--algorithms" in arguments:
        return collectives.show_algorithms(installation, environment, "--json" in arguments)
    report = gather(installation, environment)
    if arguments:
        print(json.dumps(report, indent=2))
    else:
        print(render(report), end="")
    return 0

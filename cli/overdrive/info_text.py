"""What `overdrive info` prints for people."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from overdrive import info_overlap

WIDTH = 100

MORE = """\
More: `overdrive info NAME...` single settings, --settings all of them, --machine what is installed
and permitted, --pair A B the way of messages between two ranks, --algorithms, --json; `--help`.
"""

FACE_OF_FAMILY = {"openmpi": ("openmpi",), "hydra": ("mpich", "mpiabi")}
"""Which faces the programs of a launcher may need; srun starts programs of all."""

_UNUSED = ("process_vm_readv", "huge pages", "resource limits", "XPMEM")
"""Mechanisms whose absence changes nothing that works without being asked for."""


def wrapped(text: str, indent: int) -> str:
    """Return text in lines that fit the terminal."""
    return textwrap.fill(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def item(name: str, text: str, mark: str = " ", column: int = 17) -> str:
    """Return a line of a list: a name, and from `column` on what is to be said about it."""
    return textwrap.fill(
        text, WIDTH, initial_indent=f"{mark} {name:{column - 3}} ",
        subsequent_indent=" " * column, break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def size(bytes_: int) -> str:
    """Return a number of bytes with its unit."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= factor and bytes_ % factor == 0:
            return f"{bytes_ // factor} {unit}"
    return f"{bytes_} B"


def values(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the settings by name."""
    return {setting["name"]: setting["value"] for setting in report["settings"] or []}


def source(report: Mapping[str, Any], name: str) -> str:
    """Return where the value of a setting comes from."""
    setting = next(one for one in report["settings"] if one["name"] == name)
    return setting["place"] or setting["source"]


def mechanism(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return one thing that the machine may or may not permit."""
    return next(
        (one for one in report["mechanisms"] if one["name"] == name),
        {"available": False, "detail": "not known: overdrive-settings is missing"},
    )


def shares_memory(report: Mapping[str, Any]) -> str:
    """Return why ranks of this node cannot share memory, or nothing if they can."""
    memory = mechanism(report, "memfd_create")
    if not memory["available"]:
        return f"memfd_create: {memory['detail']}"
    ways = [mechanism(report, name) for name in ("abstract socket", "/proc/PID/fd")]
    if not any(way["available"] for way in ways):
        return f"memory cannot be handed over: {ways[0]['detail']}"
    return ""


def _jobs(report: Mapping[str, Any]) -> list[str]:
    missing = {face["name"]: face["reason"] for face in report["faces"] if not face["path"]}
    lines = []
    for found in report["launchers"]:
        faces = FACE_OF_FAMILY.get(found["family"], ())
        text = f"{found['path']}: {found['title']}"
        if faces and all(face in missing for face in faces):
            lines.append(item("not over", f"{text} ({missing[faces[0]]})"))
        else:
            lines.append(item("over", text))
    if not lines:
        lines.append(item("over", "no MPI library: none has a launcher in PATH; load or install "
                           "one"))  # fmt: skip
    return lines


def _large(report: Mapping[str, Any], known: Mapping[str, str]) -> str:
    if known["copy_path"] != "auto":
        return f"always `{known['copy_path']}` ({source(report, 'copy_path')})"
    if known["reach"] == "off":
        return f"copied through shared cells; reach is off ({source(report, 'reach')})"
    places = {"heap": "on the heap", "static": "in static data", "all": "on the heap and in static "
              "data"}[known["reach"]]  # fmt: skip
    if not mechanism(report, "XPMEM")["available"]:
        return f"copied once, from buffer to buffer, where the buffers lie {places}"
    return f"copied once, from buffer to buffer: {places}, elsewhere through XPMEM"


def _collectives(known: Mapping[str, str]) -> str:
    """Return how blocking collectives are served."""
    where = "in shared memory inside a node; blocking ones between nodes in two levels"
    if known["learn"] != "off":
        where += ", where the job measures that to be faster than the installed MPI library"
    if known["tuning"] not in ("off", "auto"):
        where += "; rules of a tuning file first"
    return where


def _later(report: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Return who makes collectives that do not block go on between nodes."""
    what = "collectives between nodes"
    set_by = f"(`progress`, {source(report, 'progress')})"
    if known["progress"] == "off":
        return f"{what} are the installed MPI library's {set_by}"
    how = (
        "by a helper thread while the program computes"
        if known["progress"] == "agent"
        else "inside calls of MPI only"
    )
    if known["host_call_progress"] != "true":
        return f"{what} are the installed MPI library's: `host_call_progress` is off"
    return (
        f"{what} go on {how} {set_by}, where the installed MPI library grants "
        f"MPI_THREAD_MULTIPLE; else they are its own. A job says which with `verbose=2`"
    )


def _neighbours(report: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """Return who serves collectives among the neighbours of a topology."""
    texts = {
        "off": "are the installed MPI library's",
        "node": "inside a node go by messages on grids, where blocks are equal and of 2 KiB or "
        "more; others are the installed MPI library's",
        "all": "go by messages, inside nodes and between them",
    }
    return (
        f"collectives of a topology {texts[known['neighbour_collectives']]} "
        f"(`neighbour_collectives`, {source(report, 'neighbour_collectives')})"
    )


def _happens(report: Mapping[str, Any]) -> list[str]:
    known = values(report)
    if report["library"] is None:
        return [item("nothing", "liboverdrive.so was not found: run `make` in the checkout, or "
                      "name it with --library PATH")]  # fmt: skip
    if report["settings"] is None:
        return [item("jobs", "start with the library; overdrive-settings, which knows more, is "
                      "not there"), *_jobs(report)]  # fmt: skip
    if known["disable"] == "true":
        return [item("nothing", f"Overdrive is switched off by `disable` "
                      f"({source(report, 'disable')}); every call goes to the installed MPI "
                      f"library")]  # fmt: skip
    lines = _jobs(report)
    why = shares_memory(report)
    if why:
        return [*lines, item("messages", f"all go to the installed MPI library: {why}")]
    lines.append(item("messages", "between ranks of this node through shared memory; to other "
                       "nodes by the installed MPI library"))  # fmt: skip
    lines.append(item("large ones", _large(report, known)))
    if known["collectives"] == "true":
        lines.append(item("collectives", _collectives(known)))
    else:
        lines.append(item("collectives", f"are the installed MPI library's "
                           f"({source(report, 'collectives')})"))  # fmt: skip
    if known["collectives"] == "true":
        lines.append(item("non-blocking", _later(report, known)))
        lines.append(item("neighbours", _neighbours(report, known)))
    lines.append(item("overlap", info_overlap.line(known)))
    count = report["machine"]["usable_cpus"]
    if known["wait"] == "auto":
        text = f"ranks spin while at most {count} run here, and give their core away with more"
    else:
        text = f"`{known['wait']}` ({source(report, 'wait')})"
    lines.append(item("waiting", text))
    return lines


def _happens_not(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for one in report["mechanisms"]:
        if not one["available"] and one["name"] not in _UNUSED:
            lines.append(item(one["name"], f"{one['purpose']}: not here; {one['detail']}"))
    limits = mechanism(report, "resource limits")
    if not limits["available"] and report["settings"] is not None:
        lines.append(item("limits", limits["detail"]))
    xpmem = mechanism(report, "XPMEM")
    if report["settings"] is not None and not xpmem["available"]:
        lines.append(item("XPMEM", f"buffers on stacks and of other allocators are copied twice: "
                           f"{xpmem['detail']}"))  # fmt: skip
    if report["calibration"] is not None and report["calibration"]["state"] != "used":
        lines.append(item("calibration", _calibration_state(report["calibration"])))
    return lines


def short(report: Mapping[str, Any]) -> str:
    """Return the answer to the usual question."""
    lines = [f"Overdrive {report['version']}, {report['library'] or 'library not found'}"]
    lines += ["", "What happens here", *_happens(report)]
    absent = _happens_not(report)
    if absent:
        lines += ["", "What does not, and why", *absent]
    changed = [s for s in report["settings"] or [] if s["source"] not in ("built-in",)]
    calibrated = [s for s in changed if s["source"] == "calibration"]
    changed = [s for s in changed if s["source"] != "calibration"]
    if changed:
        lines += ["", "Settings that somebody has changed", *setting_lines(changed, detailed=False)]
    if calibrated:
        lines += ["", f"{len(calibrated)} thresholds come from the calibration"]
    lines += _problems(report)
    return "\n".join(lines) + "\n\n" + MORE


def _problems(report: Mapping[str, Any]) -> list[str]:
    if not report["issues"]:
        return []
    return ["", "Problems", *(wrapped(issue["message"], 2) for issue in report["issues"])]


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
            f"  L{cache['level']} {size(cache['size_bytes'])} of processors {cache['shared_by']}"
        )
    return lines


def _mechanism_lines(report: Mapping[str, Any]) -> list[str]:
    lines = ["", "What this machine permits"]
    for one in report["mechanisms"]:
        state = "yes" if one["available"] else "no"
        detail = f" ({one['detail']})" if one["detail"] else ""
        lines.append(f"  {one['name']:17} {state:4} {one['purpose']}{detail}")
    return lines


def _calibration_state(calibration: Mapping[str, Any]) -> str:
    return {
        "none": "not there; `overdrive calibrate` measures this machine",
        "used": f"used, measured {calibration['date'] or 'at an unknown date'}",
        "off": "switched off",
        "ignored": f"not used: {calibration['why']}",
    }[calibration["state"]]


def _calibration_lines(report: Mapping[str, Any]) -> list[str]:
    calibration = report["calibration"]
    lines = ["Calibration"]
    if calibration["path"]:
        lines.append(wrapped(f"{calibration['path']}: {_calibration_state(calibration)}", 2))
    else:
        lines.append("  neither HOME nor XDG_CONFIG_HOME tells where it could be")
    lines.append(wrapped(f"this machine: {report['fingerprint']}", 2))
    return lines


def setting_lines(found: Sequence[Mapping[str, Any]], detailed: bool) -> list[str]:
    """Return settings with value and source, and with what they mean if `detailed`."""
    lines = []
    for setting in found:
        built_in = setting["source"] == "built-in"
        mark = " " if built_in else "*"
        value = setting["value"] or "none"
        place = f", {setting['place']}" if setting["place"] else ""
        default = "" if built_in else f", default {setting['default'] or 'none'}"
        lines.append(f"{mark} {setting['name']} = {value}  ({setting['source']}{place}{default})")
        if detailed:
            agreed = " Rank 0's value counts for the whole job." if setting["agreed"] else ""
            lines.append(wrapped(setting["doc"] + agreed, 6))
            accepts = setting["choices"].replace("|", ", ") or (
                f"{setting['min']} to {setting['max']}"
                if setting["type"] in ("int", "size", "duration")
                else ""
            )
            accepted = f"; accepts {accepts}" if accepts else ""
            lines.append(wrapped(f"Variable {setting['variable']}{accepted}.", 6))
    return lines


def parts(report: Mapping[str, Any], machine: bool, settings: bool) -> str:
    """Return the long lists: what is there, what is set, or both."""
    lines: list[str] = []
    if machine:
        lines += _installation_lines(report) + _machine_lines(report) + _mechanism_lines(report)
    if settings and report["settings"] is not None:
        lines += [*([""] if lines else []), "Settings files"]
        for file in report["files"]:
            lines.append(f"  {file['path']}: {'read' if file['exists'] else 'not there'}")
        lines += ["", *_calibration_lines(report)]
        lines += ["", "Settings (* = not the built-in value)"]
        lines += setting_lines(report["settings"], detailed=True)
    lines += _problems(report)
    return "\n".join(lines) + "\n"

"""`overdrive doctor`: tries everything that a job needs here, says what is wrong and what to do.

`--bundle` puts the answers and what belongs to a bug report into one archive, without secrets: of
the environment only variables of Overdrive, MPI libraries and batch systems.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from overdrive import c_library, info, info_text
from overdrive.arguments import Parser
from overdrive.errors import CommandError
from overdrive.installation import FACES, Installation

GOOD, NOTE, BAD = "ok", "note", "bad"
"""A note costs speed or is worth knowing; what is bad keeps Overdrive from doing anything."""

_MARKS = {GOOD: " ", NOTE: "-", BAD: "!"}
_SECONDS = 20

_REPORTED = re.compile(
    r"(OVERDRIVE|OMPI|PRTE|PMIX|OPAL|MPICH|MPIR|HYDRA|I_MPI|FI|UCX|MV2|SLURM|PBS|LSB|OMP)_\w+"
    r"|LD_PRELOAD|LD_LIBRARY_PATH|PATH|LANG|LC_ALL|XDG_CONFIG_HOME"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|COOKIE|JWT", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    name: str
    state: str
    text: str
    remedy: str = ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _preload(installation: Installation) -> Finding:
    """Whether the dynamic linker takes the library into a program."""
    name = "preload"
    if installation.preload_path is None:
        return Finding(name, BAD, "liboverdrive.so was not found",
                       "run `make` in the checkout, or name it with --library PATH")  # fmt: skip
    misfit = c_library.misfit(installation.preload_path, tuple(FACES))
    if misfit:
        text = f"{misfit}: jobs of this command run without it, others would not start"
        return Finding(name, BAD, text, c_library.REMEDY)
    environment = {"LD_PRELOAD": installation.preload_path, "PATH": os.environ.get("PATH", "")}
    path = os.path.realpath(installation.preload_path)
    code = f"import sys; sys.exit({path!r} not in open('/proc/self/maps').read())"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code], env=environment, capture_output=True,
            text=True, errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as reason:
        return Finding(name, BAD, f"a program with it does not start: {reason}")
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or "the program runs without it"
        return Finding(name, BAD, f"{installation.preload_path}: {said}",
                       "the C library here may be older than the one it was built for; build it "
                       "here")  # fmt: skip
    return Finding(name, GOOD, installation.preload_path)


def _faces(report: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the parts for each binary interface are there and load."""
    needed = {
        face
        for found in report["launchers"]
        for face in info_text.FACE_OF_FAMILY.get(found["family"], ())[:1]
    }
    for face in report["faces"]:
        name = f"face {face['name']}"
        if face["path"] is None:
            state = BAD if face["name"] in needed else NOTE
            yield Finding(name, state, face["reason"],
                          "install that MPI's headers and build again" if state == BAD else
                          "")  # fmt: skip
            continue
        code = f"import ctypes; ctypes.CDLL({face['path']!r})"
        done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True,
                              text=True, errors="replace", check=False)  # fmt: skip
        if done.returncode == 0:
            yield Finding(name, GOOD, f"loads; for {face['serves']}")
        else:
            said = done.stderr.strip().splitlines()[-1:] or ["it ends the process"]
            older = c_library.misfit(face["path"], ())
            yield Finding(name, BAD, f"does not load: {said[0]}",
                          c_library.REMEDY if older else "install it again")  # fmt: skip


def _launchers(report: Mapping[str, Any]) -> Iterator[Finding]:
    if not report["launchers"]:
        yield Finding("launchers", BAD, "none in PATH", "load or install an MPI library")
    for found in report["launchers"]:
        state = NOTE if found["family"] == "unknown" else GOOD
        remedy = "variables are not carried to other nodes by it" if state == NOTE else ""
        yield Finding("launcher", state, f"{found['path']}: {found['title']}", remedy)


_REMEDIES = {
    "memfd_create": "ask for the system call memfd_create, which a sandbox or a limit (ulimit -f, "
    "-v) refuses",
    "abstract socket": "ranks of one node must share a network namespace; memory is handed over "
    "through /proc otherwise",
    "/proc/PID/fd": "",
    "pidfd_open": "",
    "membarrier": "",
    "resource limits": "raise ulimit -v and ulimit -n",
    "process_vm_readv": "",
    "huge pages": "",
    "XPMEM": "",
}


def _mechanisms(report: Mapping[str, Any]) -> Iterator[Finding]:
    shared = info_text.shares_memory(report)
    for one in report["mechanisms"]:
        needed = one["name"] in ("memfd_create",) or (
            shared and one["name"] in ("abstract socket", "/proc/PID/fd")
        )
        state = GOOD if one["available"] else (BAD if needed else NOTE)
        text = one["detail"] or one["purpose"]
        yield Finding(one["name"], state, text, "" if one["available"] else
                      _REMEDIES.get(one["name"], ""))  # fmt: skip


def _limits() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY and soft < 64 << 20:
        yield Finding(
            "ulimit -l",
            NOTE,
            f"{info_text.size(soft)} of locked memory",
            "some networks of MPI libraries need it unlimited; Overdrive does not",
        )
    core = _read("/proc/sys/kernel/core_pattern")
    if core.startswith("|"):
        yield Finding("core dumps", NOTE, f"go to {core[1:].split()[0]}")


def container() -> str:
    """Return what this process is contained in, as far as it shows; empty if in nothing."""
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    for path, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if os.path.exists(path):
            return name
    named = _read("/run/systemd/container") or os.environ.get("container", "")
    if named:
        return named
    groups = _read("/proc/1/cgroup")
    for word in ("docker", "kubepods", "libpod", "containerd", "lxc"):
        if word in groups:
            return word
    return ""


def _surroundings(report: Mapping[str, Any]) -> Iterator[Finding]:
    inside = container()
    status = dict(
        line.split(":\t", 1) for line in _read("/proc/self/status").splitlines() if ":\t" in line
    )
    filtered = status.get("Seccomp", "0") != "0"
    text = f"in {inside}" if inside else "none to be seen"
    if filtered:
        text += ", system calls are filtered (seccomp)"
    remedy = "ranks share memory only inside the same container" if inside else ""
    yield Finding("container", NOTE if inside else GOOD, text, remedy)
    machine = report["machine"]
    if machine is None:
        return
    count = machine["usable_cpus"]
    text = f"{count} ranks can run without sharing a processor"
    if machine["quota_milli_cpus"]:
        text += f" (quota {machine['quota_milli_cpus'] / 1000:g})"
    yield Finding("processors", GOOD if count > 1 else NOTE, text,
                  "" if count > 1 else "more ranks than processors yield and sleep")  # fmt: skip
    switch = _read(f"/proc/sys/{_AUTOGROUPS.replace('.', '/')}")
    yield from _scheduler(os.uname().release, switch)


_AUTOGROUPS = "kernel.sched_autogroup_enabled"
_YIELD_STARVES = (6, 12)
"""Since 6.12.63 and 6.18 a yield gives up the rest of a time slice (commit 79104becf42b); of the
stable series all are named, as distributions carry such changes under older numbers. Seen on
6.18.44."""


def _scheduler(release: str, autogroups: str) -> Iterator[Finding]:
    """Whether a rank that yields while it waits can keep others from its processor."""
    version = tuple(int(word) for word in re.findall(r"\d+", release)[:2])
    if version < _YIELD_STARVES or autogroups != "1":
        return
    yield Finding(
        "scheduler",
        NOTE,
        f"Linux {release} with autogroups: ranks that share cores and yield while they wait can "
        "keep other programs from a processor for seconds (manual, known open points)",
        f"sysctl -w {_AUTOGROUPS}=0",
    )


def _settings(report: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[Finding]:
    if report["settings"] is None:
        yield Finding("settings", BAD, report["issues"][0]["message"])
        return
    for issue in report["issues"]:
        state = NOTE if issue["kind"] in ("stale", "adjusted") else BAD
        yield Finding("settings", state, issue["message"], "put it right, or leave it out")
    known = info_text.values(report)
    if known["disable"] == "true":
        yield Finding(
            "disable",
            BAD,
            "Overdrive is switched off",
            f"unset {info_text.source(report, 'disable')}",
        )
    if known["collectives"] != "true":
        yield Finding(
            "collectives",
            NOTE,
            "are the installed MPI library's",
            f"unset {info_text.source(report, 'collectives')}",
        )
    calibration = report["calibration"]
    if calibration["state"] == "used":
        yield Finding("calibration", GOOD, f"measured {calibration['date']}")
    elif calibration["state"] == "none":
        yield Finding("calibration", NOTE, "built-in thresholds", "run `overdrive calibrate`")
    preload = environment.get("LD_PRELOAD", "")
    others = [word for word in preload.replace(":", " ").split() if "liboverdrive" not in word]
    if others:
        yield Finding(
            "LD_PRELOAD",
            NOTE,
            f"also holds {' '.join(others)}",
            "if something is strange, try without",
        )


def examine(
    installation: Installation, environment: Mapping[str, str]
) -> tuple[list[Finding], dict[str, Any]]:
    """Make all checks; return what was found, and the report of `info`."""
    report = info.gather(installation, environment)
    findings = [_preload(installation), *_faces(report), *_launchers(report)]
    findings += [*_mechanisms(report), *_limits(), *_surroundings(report)]
    findings += _settings(report, environment)
    return findings, report


def lines(findings: list[Finding]) -> list[str]:
    """Return the findings as text for people; at the end what to do."""
    found = []
    for one in findings:
        found.append(info_text.item(one.name, one.text, _MARKS[one.state], 21))
    wrong = [one for one in findings if one.state == BAD]
    found += ["", "What to do" if wrong else "Nothing keeps Overdrive from working here."]
    for one in wrong:
        found.append(info_text.wrapped(f"! {one.name}: {one.remedy or one.text}", 2))
    advice = [one for one in findings if one.state == NOTE and one.remedy]
    if advice:
        found += ["", "Worth knowing"]
        found += [info_text.wrapped(f"- {one.name}: {one.remedy}", 2) for one in advice]
    return found


def reported_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that belong into a report; values that look secret are left out."""
    return {
        name: "(left out)" if _SECRET.search(name) else value
        for name, value in sorted(environment.items())
        if _REPORTED.fullmatch(name)
    }


def _versions() -> str:
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        library = None
    kernel = os.uname()
    return (
        f"python {sys.version}\nC library {library or 'not glibc'}\n"
        f"{kernel.sysname} {kernel.release} {kernel.version} {kernel.machine}\n"
    )


def _bundle(path: Path, findings: list[Finding], report: Mapping[str, Any],
            environment: Mapping[str, str]) -> None:  # fmt: skip
    contents = {
        "doctor.txt": "\n".join(lines(findings)) + "\n",
        "doctor.json": json.dumps([asdict(one) for one in findings], indent=2),
        "info.json": json.dumps(report, indent=2),
        "environment.json": json.dumps(reported_variables(environment), indent=2),
        "cpuinfo.txt": _read("/proc/cpuinfo"),
        "limits.txt": _read("/proc/self/limits"),
        "cgroup.txt": _read("/proc/self/cgroup"),
        "os-release.txt": _read("/etc/os-release"),
        "versions.txt": _versions(),
    }
    stem = path.name.partition(".")[0]
    with tarfile.open(path, "x:gz") as archive:
        for name, text in contents.items():
            data = text.encode("utf-8", "backslashreplace")
            member = tarfile.TarInfo(f"{stem}/{name}")
            member.size = len(data)
            member.mtime = int(time.time())
            archive.addfile(member, io.BytesIO(data))


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive doctor",
        description="Tries what a job needs here, and says what is wrong and what to do.\n"
        "Status 0: nothing keeps Overdrive from working; 1: something does.",
    )
    made.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="also write an archive for a bug report (.tar.gz)",
    )
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Examine; return the exit status."""
    chosen = parser().parse_args(arguments)
    os.environ.pop("LD_PRELOAD", None)
    findings, report = examine(installation, environment)
    if chosen.json:
        print(json.dumps([asdict(one) for one in findings], indent=2))
    else:
        print("\n".join(lines(findings)))
    if chosen.bundle is not None:
        try:
            _bundle(chosen.bundle, findings, report, environment)
        except OSError as reason:
            raise CommandError(f"{chosen.bundle}: {reason.strerror}") from reason
        print(f"written: {chosen.bundle}", file=sys.stderr)
    return 1 if any(one.state == BAD for one in findings) else 0

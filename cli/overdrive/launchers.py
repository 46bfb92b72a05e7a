"""Knows the programs that start MPI jobs and how each hands variables on to other nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NAMES = (
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun.openmpi",
    "mpiexec.openmpi",
    "mpirun.mpich",
    "mpiexec.mpich",
    "orterun",
    "prterun",
    "srun",
)
"""Launchers that `overdrive` starts by name."""

SECONDS_FOR_VERSION = 10.0

_OPENMPI_HOSTS = (
    "-H",
    "-host",
    "--host",
    "-hostfile",
    "--hostfile",
    "-machinefile",
    "--machinefile",
    "--default-hostfile",
    "-default-hostfile",
)
_HYDRA_HOSTS = (
    "-f",
    "-host",
    "--host",
    "-hosts",
    "--hosts",
    "-hostfile",
    "-machinefile",
    "--machinefile",
    "--hostfile",
    "-machine",
)
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID")


def is_launcher(word: str) -> bool:
    """Tell whether a command word names a launcher, with or without a folder."""
    return Path(word).name in NAMES


@dataclass(frozen=True)
class Launcher:
    """A launcher on this machine."""

    path: str
    family: str  # openmpi, hydra, slurm or unknown
    title: str  # first line of what it says about its version


def classify(version_text: str) -> str:
    """Return the family of a launcher from its version text."""
    text = version_text.lower()
    if "open mpi" in text or "openrte" in text or "prrte" in text or "open-rte" in text:
        return "openmpi"
    if "hydra" in text or "intel(r) mpi" in text or "mpich" in text or "mvapich" in text:
        return "hydra"
    if text.startswith("slurm"):
        return "slurm"
    return "unknown"


def _title(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "says nothing about its version"
    version = next((line for line in lines if line.lower().startswith("version:")), "")
    if lines[0].lower().startswith("hydra") and version:
        return f"MPICH (Hydra) {version.split(':', 1)[1].strip()}"
    return lines[0]


def identify(path: str) -> Launcher:
    """Ask a launcher who it is."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_FOR_VERSION,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        text = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as reason:
        return Launcher(path, "unknown", f"does not answer: {reason}")
    return Launcher(path, classify(text), _title(text))


def in_path(search: str | None = None) -> list[Launcher]:
    """Return the launchers in PATH, each once even if it has several names."""
    found: dict[str, str] = {}
    for name in NAMES:
        path = shutil.which(name, path=search)
        if path is not None:
            found.setdefault(os.path.realpath(path), path)
    return [identify(path) for path in found.values()]


def _before_program(arguments: list[str], options: tuple[str, ...]) -> bool:
    """Tell whether one of the options is used, also as --option=value."""
    return any(argument.split("=", 1)[0] in options for argument in arguments)


def spans_nodes(family: str, arguments: list[str], environment: Mapping[str, str]) -> bool:
    """Tell whether the job may have ranks on other nodes, as far as one can see from here."""
    if any(name in environment for name in _ALLOCATIONS):
        return True
    return _before_program(arguments, _OPENMPI_HOSTS if family == "openmpi" else _HYDRA_HOSTS)


def forwarding(family: str, variables: Mapping[str, str]) -> list[str]:
    """Return the options that carry variables to other nodes."""
    options: list[str] = []
    for name, value in variables.items():
        if family == "openmpi":
            options += ["-x", name]
        elif family == "hydra":
            options += ["-genv", name, value]
    return options


def slurm_export(arguments: list[str], variables: Mapping[str, str]) -> list[str]:
    """Extend an --export list of srun, which otherwise would keep the variables from the job."""
    extended = list(arguments)
    for index, argument in enumerate(extended):
        if not argument.startswith("--export="):
            continue
        names = argument.split("=", 1)[1]
        words = [word for word in names.split(",") if word]
        if "ALL" in words:
            continue  # the whole environment goes along
        words = [word for word in words if word != "NONE"]
        words += [name for name in variables if name not in words]
        extended[index] = "--export=" + ",".join(words)
    return extended

"""Knows the programs that start MPI jobs and how each hands variables on to other nodes.

Every job waits for this module, so it imports next to nothing, and asks a launcher who it is only
where that cannot be seen otherwise.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

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
_BINDINGS = (
    "--bind-to",
    "-bind-to",
    "--rankfile",
    "-rankfile",
    "-rf",
    "--cpu-set",
    "--cpu-list",
    "--cpu-bind",
    "--cpus-bind",
)
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID")


def is_launcher(word: str) -> bool:
    """Tell whether a command word names a launcher, with or without a folder."""
    return os.path.basename(word) in NAMES


class Launcher:
    """A launcher on this machine."""

    def __init__(self, path: str, family: str, title: str) -> None:
        self.path = path
        self.family = family  # openmpi, hydra, slurm or unknown
        self.title = title  # first line of what it says about its version


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
    # MPICH separates words by tabs.
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if not lines:
        return "says nothing about its version"
    version = next((line for line in lines if line.lower().startswith("version:")), "")
    if lines[0].lower().startswith("hydra") and version:
        return f"MPICH (Hydra) {version.split(':', 1)[1].strip()}"
    return lines[0]


def identify(path: str) -> Launcher:
    """Ask a launcher who it is."""
    import subprocess

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


_FAMILY_OF_NAME = {
    "orterun": "openmpi",
    "prterun": "openmpi",
    "mpirun.openmpi": "openmpi",
    "mpiexec.openmpi": "openmpi",
    "mpiexec.hydra": "hydra",
    "mpirun.mpich": "hydra",
    "mpiexec.mpich": "hydra",
    "srun": "slurm",
}
_MARKS = (
    ("openmpi", (b"open-rte", b"libprrte", b"prterun", b"Open MPI")),
    ("hydra", (b"HYDRA", b"I_MPI_ROOT", b"hydra_")),
)
_MOST_BYTES = 4 << 20
"""Of a launcher that are looked through; they have one megabyte."""


def family_of(path: str) -> str:
    """Tell the family of a launcher by its name or its contents, else by asking it."""
    real = os.path.realpath(path)
    for name in (os.path.basename(real), os.path.basename(path)):
        if name in _FAMILY_OF_NAME:
            return _FAMILY_OF_NAME[name]
    try:
        with open(real, "rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError:
        content = b""
    found = [family for family, marks in _MARKS if any(mark in content for mark in marks)]
    return found[0] if len(found) == 1 else identify(path).family


def in_path(search: str | None = None) -> list[Launcher]:
    """Return the launchers in PATH, each once even if it has several names."""
    import shutil

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


def explicit_binding(arguments: list[str]) -> str:
    """Return the option by which a launcher is told how to bind ranks, or nothing."""
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        value = value if equals else "".join(arguments[index + 1 : index + 2])
        if option in _BINDINGS and not value.lower().split(":")[0] == "none":
            return option
        if option in ("--map-by", "-map-by") and ":pe=" in value.lower():
            return f"{option} {value}"
    return ""


def forwarding(family: str, variables: Mapping[str, str]) -> list[str]:
    """Return the options that carry variables to other nodes."""
    options: list[str] = []
    for name, value in variables.items():
        if family == "openmpi":
            options += ["-x", name]
        elif family == "hydra":
            options += ["-genv", name, value]
    return options


_SLURM_ALONE = frozenset(
    "-E -h -H -I -k -K -l -O -Q -s -u -v -V -X -Z --bcast --compress --contiguous "
    "--disable-status --exact --exclusive --external --help --hold --immediate "
    "--interactive --kill-on-bad-exit --label --multi-prog --nice --no-allocate --no-kill "
    "--no-requeue --overcommit --overlap --oversubscribe --preserve-env --propagate --pty "
    "--quiet --quit-on-interrupt --reboot --resv-ports --send-libs --spread-job --test- "
    "only --unbuffered --usage --use-min-nodes --verbose --version --x11".split()
)
"""Options of srun after which no word follows that belongs to them; all others have one, in the
same word or in the next."""


def _slurm_lists(arguments: list[str]) -> list[int]:
    """Return the words that hold --export lists of srun itself, not of the program it starts."""
    found: list[int] = []
    index, program = 0, False
    while index < len(arguments):
        word = arguments[index]
        if word == ":":
            program = False  # another component of the job, with options of its own
        elif word == "--" or not word.startswith("-"):
            program = True
        elif not program:
            attached = "=" in word if word.startswith("--") else len(word) > 2
            if not attached and word not in _SLURM_ALONE:
                index += 1
            if word.partition("=")[0] == "--export" and index < len(arguments):
                found.append(index)
        index += 1
    return found


def slurm_export(arguments: list[str], variables: Mapping[str, str]) -> list[str]:
    """Extend an --export list of srun, which otherwise would keep the variables from the job."""
    extended = list(arguments)
    for index in _slurm_lists(extended):
        option, equals, names = extended[index].partition("=")
        if option != "--export":  # the list is a word of its own
            option, equals, names = "", "", extended[index]
        words = [word for word in names.split(",") if word]
        if "ALL" in words:
            continue  # the whole environment goes along
        words = [word for word in words if word != "NONE"]
        words += [name for name in variables if name not in words]
        extended[index] = option + equals + ",".join(words)
    return extended

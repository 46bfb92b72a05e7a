"""Runs MPI jobs with or without Overdrive, with a time limit, and collects what they left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from hosts import Host

from support import processes
from support.programs import ROOT

TIME_SCALE = float(os.environ.get("OVERDRIVE_TEST_TIME_SCALE", "1"))
"""Multiplies every time limit; for slow or busy machines."""

DEFAULT_LIMIT_SECONDS = 120.0
"""Far above what any quick program takes, even beside other work on two cores."""

OUTPUT_TAIL = 6000
"""Characters of each output stream that a failure message shows."""


def overdrive_library() -> Path:
    """Return the library that is preloaded."""
    default = ROOT / "build" / "release" / "lib" / "liboverdrive.so"
    return Path(os.environ.get("OVERDRIVE_TEST_LIBRARY", default))


COMMON_SETTINGS: dict[str, str] = {}
"""Overdrive's settings of every job that does not choose them itself (pytest --set)."""


@dataclass
class Result:
    """What a job did."""

    command: list[str]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    leftovers: list[str]
    stats: dict[int, dict] = field(default_factory=dict)
    stacks: str = ""
    late: str = ""
    """Of a job that was ended at its time limit: what it had of the machine, and where it stood."""

    def report(self) -> str:
        """Return everything a reader of a failure needs."""
        parts = [
            f"command: {' '.join(self.command)}",
            f"exit code {self.returncode} after {self.seconds:.1f} s"
            + (" (time limit)" if self.timed_out else ""),
            f"stdout:\n{self.stdout[-OUTPUT_TAIL:]}",
            f"stderr:\n{self.stderr[-OUTPUT_TAIL:]}",
        ]
        if self.leftovers:
            parts.append("still alive at the end: " + "; ".join(self.leftovers))
        if self.stacks:
            parts.append(f"stacks:\n{self.stacks}")
        return "\n".join(parts)

    def counter(self, name: str) -> int:
        """Return the sum of a counter over all ranks; fails the test when no rank has it."""
        found = [rank["counters"][name] for rank in self.stats.values() if name in rank["counters"]]
        assert found, f"no rank reported the counter {name!r}: {self.stats}\n{self.report()}"
        return sum(found)

    def counters(self) -> dict[str, int]:
        """Return the sums of all counters that are not zero."""
        sums: dict[str, int] = {}
        for rank in self.stats.values():
            for name, value in rank["counters"].items():
                sums[name] = sums.get(name, 0) + value
        return {name: value for name, value in sums.items() if value}


def _read_stats(directory: Path) -> dict[int, dict]:
    stats = {}
    for path in directory.glob("*.json"):
        if path.stem.isdigit():
            stats[int(path.stem)] = json.loads(path.read_text())
    return stats


LONGEST_STEP_SECONDS = 1.0
"""The clock of a time limit advances at most so much between two looks, so that a machine (or a
harness) that was suspended for a while does not make jobs late. What the machine under a virtual
one gave to others does not count either."""


def _await(
    process: subprocess.Popen, job: str, program: str, limit: float
) -> tuple[bool, str, str]:
    """Wait for the launcher; at the limit collect stacks and kill the job."""
    spent, last = 0.0, time.monotonic()
    times = processes.MachineTimes()
    while spent < limit:
        try:
            process.wait(timeout=0.2)
            return False, "", ""
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            share = times.step()
            if not processes.suspended(process.pid):
                spent += min(now - last, LONGEST_STEP_SECONDS) * share
            last = now
    seconds, held = processes.processor_seconds(job), processes.held(job)
    stacks = processes.stacks(job, program)
    late = (
        f"after {limit:.0f} s, {seconds:.1f} s of processors, {times}; {held}; "
        f"{processes.places(stacks)}"
    )
    processes.end(job)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return True, stacks, late


def run(
    host: Host,
    ranks: int,
    argv: list[str],
    *,
    overdrive: bool = True,
    settings: dict[str, str] | None = None,
    stats: str | None = None,
    env: dict[str, str] | None = None,
    preload: tuple[list[str], list[str]] = ([], []),
    launcher_env: dict[str, str] | None = None,
    launcher_prefix: list[str] | None = None,
    launcher_options: list[str] | None = None,
    limit: float = DEFAULT_LIMIT_SECONDS,
    grace: float = 20.0,
    per_rank: list[list[str]] | None = None,
) -> Result:
    """Run a program on `ranks` ranks and return what happened.

    `settings` are Overdrive's (without the prefix, lower case); `stats` replaces the setting by
    which the counters are collected; `env` goes to the ranks only, `launcher_env` also to the
    launcher. `preload` names libraries before and after Overdrive's. `per_rank`, if given, starts
    rank i with the command per_rank[i] instead of argv.
    """
    job = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="odtest-") as name:
        directory = Path(name)
        directory.chmod(0o777)  # ranks of another user write their statistics here
        variables = dict(env or {})
        libraries = [*preload[0], *preload[1]]
        if overdrive:
            libraries = [*preload[0], str(overdrive_library()), *preload[1]]
            variables["OVERDRIVE_STATS"] = stats or str(directory / "%r.json")
            # The clock that statistics put before each entry has tests of its own.
            variables["OVERDRIVE_CALL_TIMES"] = "off"
            for key, value in {**COMMON_SETTINGS, **(settings or {})}.items():
                variables[f"OVERDRIVE_{key.upper()}"] = value
        if libraries:
            variables["LD_PRELOAD"] = ":".join(libraries)
        if per_rank is None:
            command = [*host.mpiexec(ranks, variables), *argv]
        else:
            command = _mpmd(host, per_rank, variables)
        if launcher_options:
            command[1:1] = launcher_options
        command = [*(launcher_prefix or []), *command]
        environment = {**host.environment(), **(launcher_env or {}), processes.MARKER: job}
        if host.family == "openmpi" and host.version.startswith("4."):
            # Its jobs of one user share a folder below /tmp, which one that ends removes while the
            # next one makes it: "orte_session_dir failed".
            environment.setdefault("OMPI_MCA_orte_tmpdir_base", name)
        out_path, err_path = directory / "stdout", directory / "stderr"
        begin = time.monotonic()
        with open(out_path, "wb") as out, open(err_path, "wb") as err:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=directory,
                start_new_session=True,
            )
            try:
                program = Path(argv[0]).name if argv else ""
                timed_out, stacks, late = _await(process, job, program, limit * TIME_SCALE)
                seconds = time.monotonic() - begin
                leftovers = [] if timed_out else processes.wait_until_gone(job, grace)
            finally:
                processes.end(job)
        return Result(
            command=command,
            returncode=process.returncode,
            stdout=out_path.read_text(errors="replace"),
            stderr=err_path.read_text(errors="replace"),
            seconds=seconds,
            timed_out=timed_out,
            leftovers=leftovers,
            stats=_read_stats(directory) if not timed_out else {},
            stacks=stacks,
            late=late,
        )


def _mpmd(host: Host, commands: list[list[str]], variables: dict[str, str]) -> list[str]:
    """Return one launcher command that starts each rank with a command of its own."""
    whole = host.mpiexec(len(commands), variables)
    prefix = whole[:-2]  # without -n N
    result = [*prefix, "-n", "1", *commands[0]]
    repeated = prefix[1:] if host.family == "openmpi" else []
    for command in commands[1:]:
        result += [":", *_application_options(repeated), "-n", "1", *command]
    return result


def _application_options(options: list[str]) -> list[str]:
    """Keep the options that Open MPI wants once per application context (-x)."""
    kept: list[str] = []
    for position, option in enumerate(options):
        if option == "-x":
            kept += [option, options[position + 1]]
    return kept

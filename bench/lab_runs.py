"""Jobs of a campaign over the nodes of a virtual cluster (`overdrive lab`)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jobs import BUILD, ROOT, Host, JobResult, end_jobs_on_termination, is_current, run_job
from turns import Variant

COMMAND = [sys.executable, str(ROOT / "overdrive"), "lab"]
HELP = {"mpich4": ["idle.c", "disconnect.c"], "mpich5": ["idle.c"], "mpiabi": ["idle.c"]}
"""What is preloaded, with and without Overdrive alike: MPICH polls without giving its core away,
and over several nodes MPICH 4.0 hangs at its end now and then (the files say why)."""


class NoLab(Exception):
    """Why there can be no virtual cluster here."""


def nodes_and_ranks(layout: str) -> tuple[int, int]:
    """Return the nodes of a layout such as 4x2, and the ranks on each."""
    nodes, per_node = (int(number) for number in layout.split("x"))
    return nodes, per_node


def libraries_for(host: Host) -> list[str]:
    """Return what has to be preloaded."""
    folder = BUILD / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in HELP.get(host.name, []):
        source = ROOT / "tests" / "support" / name
        target = folder / f"lib{source.stem}.so"
        if not is_current(target, [source]):
            command = ["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(target), "-ldl"]
            subprocess.run(command, check=True)
        found.append(str(target))
    return found


@dataclass
class LabRuns:
    """A cluster that is up; `start` runs a job of a group over it."""

    name: str
    per_node: int

    def start(
        self,
        variant: Variant,
        ranks: int,
        command: list[str],
        seconds: float,
        niceness: int,
        abandon: threading.Event,
    ) -> JobResult:
        """Run a job over the nodes, `per_node` consecutive ranks on each."""
        environment = variant.host.environment()
        preloads = libraries_for(variant.host)
        if preloads:
            environment["LD_PRELOAD"] = ":".join(preloads)
        words = [*COMMAND, variant.host.launcher, "--name", self.name]
        words += ["-n", str(ranks), "--ppn", str(self.per_node)]
        if variant.lib is None:
            words.append("--without-overdrive")
        else:
            environment["OVERDRIVE_LIBRARY"] = str(variant.lib)
        for name, value in variant.settings.items():
            words += ["-x", f"{name}={value}"]
        return run_job([*words, *command], environment, seconds, niceness, abandon=abandon)


@contextmanager
def up(nodes: int, per_node: int, rate: str, options: Sequence[str] = ()) -> Iterator[LabRuns]:
    """Make a cluster and take it down again; raises NoLab where that is not permitted.

    Who ends the program by SIGTERM ends the cluster as well.
    """
    name = f"bench{os.getpid()}"
    words = ["up", "--name", name, "--nodes", str(nodes), "--quiet", *options]
    words += ["--rate", rate] if rate else []
    made = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise NoLab(made.stderr.strip())
    end_jobs_on_termination()
    try:
        yield LabRuns(name, per_node)
    finally:
        subprocess.run([*COMMAND, "down", "--name", name], check=False)

"""How an MPI job is started for a test: without or with Overdrive, many ranks on few processors,
on this machine or over the nodes of a lab.

Both runs of a test differ in nothing but Overdrive: same launcher options, same yielding, same
temporary folder. The counters that Overdrive writes per rank are added up here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support import programs
from support.expect import LOCAL_SENDS

if TYPE_CHECKING:
    from hosts import Host

    from conformance.lab import Lab

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEFAULT_LIBRARY = ROOT / "build" / "release" / "lib" / "liboverdrive.so"

OWN_PATH = LOCAL_SENDS
"""Counters of messages between different ranks that took Overdrive's path."""
SELF_PATH = ["sends_self"]
HOST_PATH = ["sends_host"]
COLLECTIVES = ["collectives_served"]
"""Counters of collective calls that Overdrive made itself, once per rank."""
ARRIVALS = ["arrival_calls"]
"""Those that began with whoever came first to a node, or ended with whoever came last."""
OVERLAPPED = ["overlapped"]
"""Those that returned before their data had arrived."""

WAYS = {
    "cells": ["receives_frame", "receives_cell", "receives_stream"],
    "pull": ["receives_pull"],
    "push": ["receives_push"],
    "cooperative": ["receives_cooperative"],
    "kernel": ["receives_kernel"],
    "buffered": ["receives_buffered"],
}
"""Counters of received messages by the way their data took; what fits a fast box takes none."""

SHARING: dict[str, dict[str, str]] = {
    "openmpi4": {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        # Without a network device UCX creates no windows, and nothing else is tried.
        "OMPI_MCA_osc": "^ucx",
    },
    "openmpi5": {
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        # The wheel has no UCX one-sided component; the attempt to load it prints a warning.
        "OMPI_MCA_osc": "^ucx",
    },
    "impi": {"I_MPI_THREAD_YIELD": "2", "I_MPI_PIN": "0"},
}
"""Each host's own settings for more ranks than processors; see also yield.c."""


@dataclass
class Traffic:
    """Messages sent and collective calls made by the ranks of one job, or of many."""

    own: int = 0
    to_self: int = 0
    host: int = 0
    collectives: int = 0
    arrivals: int = 0
    overlapped: int = 0
    ranks: int = 0
    ways: dict[str, int] = field(default_factory=dict)

    def add(self, other: Traffic) -> None:
        """Add the counts of another job."""
        self.own += other.own
        self.to_self += other.to_self
        self.host += other.host
        self.collectives += other.collectives
        self.arrivals += other.arrivals
        self.overlapped += other.overlapped
        self.ranks += other.ranks
        for way, number in other.ways.items():
            self.ways[way] = self.ways.get(way, 0) + number


@dataclass
class Launcher:
    """Builds command lines and environments for the jobs of one host."""

    host: Host
    work: Path
    temporary: Path
    helpers: list[Path] = field(default_factory=list)
    """Libraries that are preloaded without Overdrive and with it alike."""
    lib: Path = DEFAULT_LIBRARY
    settings: dict[str, str] = field(default_factory=dict)
    lab: Lab | None = None

    @staticmethod
    def create(
        host: Host,
        work: Path,
        lib: Path = DEFAULT_LIBRARY,
        settings: dict[str, str] | None = None,
        lab: Lab | None = None,
    ) -> Launcher:
        """Prepare the folders, and the libraries that make the host yield, and end over nodes."""
        work.mkdir(parents=True, exist_ok=True)
        # Short: Open MPI's session folders hold sockets, whose paths are limited to 108 bytes.
        temporary = Path(tempfile.mkdtemp(prefix=f"odc-{host.name}-"))
        launcher = Launcher(host, work, temporary, lib=lib, settings=dict(settings or {}), lab=lab)
        if host.name != "impi":
            launcher.helpers.append(programs.plain_library(HERE / "yield.c"))
        if lab is not None and host.name == "mpich4":
            launcher.helpers.append(programs.plain_library(programs.SUPPORT / "disconnect.c"))
        return launcher

    def close(self) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def environment(
        self, overdrive: bool, variables: dict[str, str], statistics: str = ""
    ) -> dict[str, str]:
        """Return the whole environment of a job."""
        result = {
            name: value
            for name, value in self.host.environment().items()
            if not name.startswith("OVERDRIVE_") or name == "OVERDRIVE_HOSTS_DIR"
        }
        result.pop("LD_PRELOAD", None)
        result.pop("OVERDRIVE_HOSTS_DIR", None)
        result.update(SHARING.get(self.host.name, {}))
        result["TMPDIR"] = str(self.temporary)
        result["LC_ALL"] = "C.UTF-8"
        preload = []
        if overdrive:
            if self.lab is None:
                preload.append(str(self.lib))
            else:
                result["OVERDRIVE_LIBRARY"] = str(self.lib)  # `overdrive lab` preloads it
            if statistics:
                result["OVERDRIVE_STATS"] = statistics
            for name, value in self.settings.items():
                result[f"OVERDRIVE_{name.upper()}"] = value
        preload += [str(helper) for helper in self.helpers]
        if preload:
            result["LD_PRELOAD"] = ":".join(preload)
        result.update(variables)
        return result

    def command(
        self,
        ranks: int,
        overdrive: bool,
        program: Sequence[str],
        *,
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the command line of a job; `variables`, which its environment has, reach ranks."""
        if self.lab is None:
            return [*self.host.mpiexec(ranks), *options, *program]
        return self.lab.command(
            self.host.launcher, ranks, overdrive, program, options=options, variables=variables
        )


def read_traffic(folder: Path) -> Traffic:
    """Add up the counters that the ranks of a job wrote into a folder."""
    traffic = Traffic()
    for path in folder.iterdir() if folder.is_dir() else []:
        with contextlib.suppress(OSError, ValueError, KeyError):
            counters = json.loads(path.read_text(encoding="utf-8"))["counters"]
            traffic.own += sum(counters.get(name, 0) for name in OWN_PATH)
            traffic.to_self += sum(counters.get(name, 0) for name in SELF_PATH)
            traffic.host += sum(counters.get(name, 0) for name in HOST_PATH)
            traffic.collectives += sum(counters.get(name, 0) for name in COLLECTIVES)
            traffic.arrivals += sum(counters.get(name, 0) for name in ARRIVALS)
            traffic.overlapped += sum(counters.get(name, 0) for name in OVERLAPPED)
            traffic.ranks += 1
            for way, names in WAYS.items():
                number = sum(counters.get(name, 0) for name in names)
                traffic.ways[way] = traffic.ways.get(way, 0) + number
    return traffic


def layout_label(lab: Lab | None) -> str:
    """Return the layout of a lab's nodes; empty for jobs on this machine itself."""
    return "" if lab is None else lab.layout.text


def settings_label(settings: dict[str, str]) -> str:
    """Return settings in the notation of the command line."""
    return ",".join(f"{name}={value}" for name, value in settings.items())


def baseline_path(work: Path, name: str, layout: str) -> Path:
    """Return the file of the results without Overdrive of a host, or of a host's mpi4py."""
    place = f"@{layout.replace(':', '-')}" if layout else ""
    return work / f"baseline-{name}{place}.json"


def tested_version() -> str:
    """Return which Overdrive this checkout holds: its version and the last commit of src."""
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    query = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "src", "CMakeLists.txt", "cmake"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    commit = query.stdout.strip()
    return f"{version} ({commit})" if commit else version


def describe(host: Host) -> str:
    """Return a text that changes when the host MPI changes."""
    status = os.stat(host.lib_path)
    return f"{host.name} {host.version} {status.st_size}"

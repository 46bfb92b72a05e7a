"""How an MPI job is started for a test: without or with Overdrive, many ranks on few processors.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support.expect import LOCAL_SENDS

if TYPE_CHECKING:
    from hosts import Host

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEFAULT_LIBRARY = ROOT / "build" / "release" / "lib" / "liboverdrive.so"

OWN_PATH = LOCAL_SENDS
"""Counters of messages between different ranks that took Overdrive's path."""
SELF_PATH = ["sends_self"]
HOST_PATH = ["sends_host"]

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
    """Messages sent by the ranks of one job, or of many."""

    own: int = 0
    to_self: int = 0
    host: int = 0
    ranks: int = 0
    ways: dict[str, int] = field(default_factory=dict)

    def add(self, other: Traffic) -> None:
        """Add the counts of another job."""
        self.own += other.own
        self.to_self += other.to_self
        self.host += other.host
        self.ranks += other.ranks
        for way, number in other.ways.items():
            self.ways[way] = self.ways.get(way, 0) + number


@dataclass
class Launcher:
    """Builds command lines and environments for the jobs of one host."""

    host: Host
    work: Path
    temporary: Path
    yield_library: Path | None = None
    lib: Path = DEFAULT_LIBRARY
    settings: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def create(
        host: Host,
        work: Path,
        lib: Path = DEFAULT_LIBRARY,
        settings: dict[str, str] | None = None,
    ) -> Launcher:
        """Prepare the folders, and the library that makes the host yield."""
        work.mkdir(parents=True, exist_ok=True)
        # Short: Open MPI's session folders hold sockets, whose paths are limited to 108 bytes.
        temporary = Path(tempfile.mkdtemp(prefix=f"odc-{host.name}-"))
        launcher = Launcher(host, work, temporary, lib=lib, settings=dict(settings or {}))
        if host.name != "impi":
            library = work / "yield.so"
            partial = work / f"yield-{os.getpid()}.so"
            command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(partial), str(HERE / "yield.c")]
            subprocess.run([*command, "-ldl"], check=True)
            partial.replace(library)  # never changes under a job that has it loaded
            launcher.yield_library = library
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
            preload.append(str(self.lib))
            if statistics:
                result["OVERDRIVE_STATS"] = statistics
            for name, value in self.settings.items():
                result[f"OVERDRIVE_{name.upper()}"] = value
        if self.yield_library is not None:
            preload.append(str(self.yield_library))
        if preload:
            result["LD_PRELOAD"] = ":".join(preload)
        result.update(variables)
        return result


def read_traffic(folder: Path) -> Traffic:
    """Add up the counters that the ranks of a job wrote into a folder."""
    traffic = Traffic()
    for path in folder.iterdir() if folder.is_dir() else []:
        with contextlib.suppress(OSError, ValueError, KeyError):
            counters = json.loads(path.read_text(encoding="utf-8"))["counters"]
            traffic.own += sum(counters.get(name, 0) for name in OWN_PATH)
            traffic.to_self += sum(counters.get(name, 0) for name in SELF_PATH)
            traffic.host += sum(counters.get(name, 0) for name in HOST_PATH)
            traffic.ranks += 1
            for way, names in WAYS.items():
                number = sum(counters.get(name, 0) for name in names)
                traffic.ways[way] = traffic.ways.get(way, 0) + number
    return traffic


def settings_label(settings: dict[str, str]) -> str:
    """Return settings in the notation of the command line."""
    return ",".join(f"{name}={value}" for name, value in settings.items())


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

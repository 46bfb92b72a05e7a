"""Runs the measuring program and reads its samples; chooses which processors it uses.

The program prints one line per sample. A sample counts as near or far by the time a cache line took
right before and right after it; when the two disagree (virtual machines move their processors) it
counts as neither.
"""

from __future__ import annotations

import csv
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from overdrive import settings, trusted
from overdrive.errors import CommandError
from overdrive.installation import Installation

TOOL = "overdrive-measure"

COLUMNS = (
    "test", "cpu_a", "cpu_b", "path", "shape", "bytes", "parameter", "probe_before_ns",
    "probe_after_ns", "ns", "second_ns",
)  # fmt: skip

PATHS = ("cells", "pull", "push", "cooperative", "kernel")
"""Every way that can be forced; `auto` lets the engine choose."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

DRAIN_SECONDS = 15
"""How long the program may take to finish its round after Ctrl-C."""


@dataclass(frozen=True)
class Sample:
    """One line of the measuring program; what the two times mean depends on the test."""

    test: str
    cpus: tuple[int, int]
    path: str
    shape: str
    bytes: int
    parameter: int
    probe_before_ns: float
    probe_after_ns: float
    ns: float
    second_ns: float

    def distance(self, far_threshold_ns: float) -> str | None:
        """Return `near`, `far`, or None when it changed or something else used the cores."""
        low = min(self.probe_before_ns, self.probe_after_ns)
        high = max(self.probe_before_ns, self.probe_after_ns)
        if low <= 0 or high > 1.5 * low + 20:
            return None
        if high < far_threshold_ns:
            return "near"
        return "far" if low >= far_threshold_ns else None


def parse(line: str) -> Sample | None:
    """Return the sample of a line; None for headers, comments and lines that were cut off."""
    words = line.rstrip("\n").split(",")
    if len(words) != len(COLUMNS) or not line.endswith("\n") or words[0] == COLUMNS[0]:
        return None
    try:
        return Sample(
            words[0], (int(words[1]), int(words[2])), words[3], words[4], int(words[5]),
            int(words[6]), *(float(word) for word in words[7:]),
        )  # fmt: skip
    except ValueError:
        return None


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Write samples in the form in which the program prints them."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for s in samples:
            writer.writerow(
                (s.test, *s.cpus, s.path, s.shape, s.bytes, s.parameter, s.probe_before_ns,
                 s.probe_after_ns, s.ns, s.second_ns)
            )  # fmt: skip


def read_samples(path: Path) -> list[Sample]:
    """Return the samples of a file."""
    try:
        lines = trusted.read_text(path).splitlines(keepends=True)
    except OSError as reason:
        raise CommandError(f"{path}: {reason.strerror}") from reason
    return [sample for line in lines if (sample := parse(line)) is not None]


def nanoseconds(text: str) -> float:
    """Return the value of a duration as settings write it."""
    for unit, factor in (("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9)):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    return float(text)


@dataclass(frozen=True)
class Pair:
    """Two processors and what the kernel says about their distance."""

    cpus: tuple[int, int]
    kind: str


def _cpu_list(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _kind(a: Mapping[str, Any], b: Mapping[str, Any], shared: Iterable[set[int]]) -> str:
    if a["package"] == b["package"] and a["core"] == b["core"] and a["core"] >= 0:
        return "same core"
    if any(a["id"] in cpus and b["id"] in cpus for cpus in shared):
        return "shared cache"
    return "same package" if a["package"] == b["package"] else "apart"


def all_pairs(machine: Mapping[str, Any]) -> list[Pair]:
    """Return every pair of usable processors."""
    usable = set(_cpu_list(machine["affinity"]))
    cpus = [cpu for cpu in machine["cpus"] if cpu["id"] in usable]
    shared = [set(_cpu_list(cache["shared_by"])) for cache in machine["caches"]]
    return [
        Pair((a["id"], b["id"]), _kind(a, b, shared))
        for i, a in enumerate(cpus)
        for b in cpus[i + 1 :]
    ]


def pairs_of_each_kind(machine: Mapping[str, Any]) -> list[Pair]:
    """Return one pair for each distance that this machine has, nearest first.

    Threads of one core are left out where there are other pairs: nobody puts two ranks there.
    """
    found: dict[str, Pair] = {}
    for pair in all_pairs(machine):
        found.setdefault(pair.kind, pair)
    if len(found) > 1:
        found.pop("same core", None)
    order = ("same core", "shared cache", "same package", "apart")
    return [found[kind] for kind in order if kind in found]


class Stopped(Exception):
    """Ctrl-C, or a signal that asks to end."""


class Measuring:
    """The measuring program on one node, which `launcher` (a prefix of the command) may reach."""

    def __init__(
        self,
        installation: Installation,
        environment: Mapping[str, str],
        launcher: Sequence[str] = (),
    ) -> None:
        self._tool = installation.need_measure()
        self._launcher = list(launcher)
        self._environment = dict(environment)
        # Not through the preloaded library: the program brings the engine itself.
        self._environment.pop("LD_PRELOAD", None)
        report = settings.query(
            installation, self._environment, "--machine", launcher=self._launcher
        )
        self.machine: dict[str, Any] = report["machine"]
        self.fingerprint: str = report["fingerprint"]
        self.settings = {setting["name"]: setting for setting in report["settings"]}
        self.far_threshold_ns = nanoseconds(self.settings["far_threshold"]["value"])

    def run(
        self,
        arguments: Sequence[str],
        seconds: float,
        take: Callable[[Sample], None],
        tick: Callable[[float], None] = lambda _: None,
    ) -> float:
        """Measure; hand over each sample and, now and then, the seconds that have passed.

        Returns the seconds that were measured; after Ctrl-C everything that had been measured has
        been handed over and Stopped is raised.
        """
        command = [
            *self._launcher, str(self._tool), *arguments, "--seconds", f"{seconds:.1f}",
        ]  # fmt: skip
        started = time.monotonic()
        process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        watchdog = threading.Timer(DRAIN_SECONDS, process.kill)
        stopped = False

        def stop(_signal: int, _frame: FrameType | None) -> None:
            nonlocal stopped
            if stopped:
                process.kill()
                return
            stopped = True
            process.send_signal(signal.SIGINT)
            watchdog.start()

        previous = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
        try:
            for line in process.stdout:
                if (sample := parse(line)) is not None:
                    take(sample)
                tick(time.monotonic() - started)
            passed = time.monotonic() - started
            message = process.stderr.read().strip()
            status = process.wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            watchdog.cancel()
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
        if stopped:
            raise Stopped
        if status != 0:
            raise CommandError(message or f"{command[0]} ended with status {status}")
        return passed


def medians(
    samples: Iterable[Sample], key: Callable[[Sample], Any], value: Callable[[Sample], float]
) -> dict[Any, tuple[float, int]]:
    """Return the median and the number of samples for each key; a key of None is left out."""
    values: dict[Any, list[float]] = {}
    for sample in samples:
        name = key(sample)
        if name is not None:
            values.setdefault(name, []).append(value(sample))
    return {name: (statistics.median(found), len(found)) for name, found in values.items()}

"""The jobs of learning.py: ways to serve a call, what a job says, and networks that are not there.

A *way* is named as the library names it in its verdicts: an algorithm with its mode, perhaps with
other segments than usual, or the host.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from campaign import PLAIN, PROGRAMS, SHARED_SOURCES, SOURCES, Sample, c_flags, compile_program
from coll_campaign import CALLS, COLL
from jobs import ROOT, Host, compiling, is_current, library
from lab_runs import LabRuns, nodes_and_ranks
from tuned import algorithms
from turns import Variant

SOURCE = ROOT / "bench" / "learning" / "od_learning.c"
LEARN, FAST, SLOW = "learn", "fast network", "slow network"
STARTS = (LEARN, FAST, SLOW)
"""Jobs that learn: from what MPI_Init measures, and from two networks that are not there."""
WRONG = {FAST: (0.01, 0.01), SLOW: (1.0, 100.0)}
"""By how much a message's and a byte's time are multiplied."""
# Rules that were tuned before would decide instead, and first_arrival, which learns in its own way,
# has a page of its own (arrival-learnt.md).
ALIKE = {"OVERDRIVE_FIRST_ARRIVAL": "off", "OVERDRIVE_SWITCH": "off"}
NO_RULES = {"OVERDRIVE_TUNING": "off"}
TELL = {"OVERDRIVE_VERBOSE": "3"}
START_SECONDS = 60
"""What a job may take beside its calls, at most, where ranks share cores."""
SLOWEST = 8
"""How many times as long as expected calls may take until the job is ended."""

VERDICT = re.compile(
    r"(\w+) of (\d+) to (\d+) bytes, \d+ ranks on \d+ nodes: (.*?)so (\S+(?: \([^)]*\))?) serves it"
)
SEGMENTS = re.compile(r"(\S+) \(segments of (-?\d+) bytes\)")
NETWORK = re.compile(r"between nodes a message takes ([\d.]+) us, and ([\d.e+-]+) ns per byte")


@dataclass(frozen=True)
class Verdict:
    """What the library has found out in a job."""

    least_bytes: int
    most_bytes: int
    """Of the calls that are counted together."""
    way: str
    times: str
    """Of each way, as the library writes them."""


@dataclass(frozen=True)
class Window:
    """Microseconds of a call in the mean over ranks, from one call to another."""

    size_bytes: int
    first: int
    last: int
    us: float


@dataclass
class Outcome:
    """What a job said; `problem` is empty where it ended well."""

    windows: list[Window]
    verdicts: list[Verdict]
    network: tuple[float, float] | None
    """Nanoseconds of a message and of a byte, where they were measured."""
    problem: str = ""


def windows_of(stdout: str) -> list[Window]:
    """Read the lines of the program; others are left out."""
    found = []
    for line in stdout.splitlines():
        words = line.split(",")
        if len(words) == 5 and all(word.isdigit() for word in words[1:4]):
            found.append(Window(int(words[1]), int(words[2]), int(words[3]), float(words[4])))
    return found


def verdicts_of(stderr: str, collective: str) -> list[Verdict]:
    """Read the library's verdicts about a collective, in their order."""
    return [
        Verdict(int(match[2]), int(match[3]), match[5], match[4].strip(" ,"))
        for match in map(VERDICT.search, stderr.splitlines())
        if match is not None and match[1] == collective
    ]


def network_of(stderr: str) -> tuple[float, float] | None:
    """Return what the library has measured between nodes: ns of a message and of a byte."""
    match = NETWORK.search(stderr)
    return (1e3 * float(match[1]), float(match[2])) if match else None


def forcing(collective: str, way: str) -> dict[str, str]:
    """Return the settings that let a way serve all calls."""
    variable = f"OVERDRIVE_ADJUST_{collective.upper()}"
    settings = {**NO_RULES, **ALIKE, "OVERDRIVE_LEARN": "off"}
    match = SEGMENTS.fullmatch(way)
    if match is None:
        return {**settings, variable: way}
    return {**settings, variable: match[1], f"{variable}_SEGMENT": match[2]}


def wrong_network(network: tuple[float, float], factors: tuple[float, float]) -> str:
    """Return a tuning file that says the network is another one.

    The parts of a message's time keep the proportions of the library's built-in network.
    """
    message_ns, byte_ns = network[0] * factors[0], network[1] * factors[1]
    parts = {"latency_ns": 1500, "overhead_ns": 300, "gap_ns": 250}
    whole = parts["latency_ns"] + 2 * parts["overhead_ns"]
    far = {name: round(message_ns * part / whole, 3) for name, part in parts.items()}
    machine = {"far": {**far, "byte_ns": round(byte_ns, 6)}}
    return json.dumps({"format": "overdrive-tuning", "version": 1, "machine": machine, "rules": []})


def candidates(place: Place, collective: str, sizes: Sequence[int]) -> list[str]:
    """Return the ways of Overdrive that can be forced, in both modes where there are two."""
    nodes = nodes_and_ranks(place.layout)[0]
    found = algorithms(collective, place.ranks, nodes, str(max(sizes)))
    return [name for name in found if not name.startswith("first_arrival")]


def preloaded() -> Path:
    """Return the library that is measured: OVERDRIVE_LIBRARY, or this tree's release build."""
    return Path(os.environ.get("OVERDRIVE_LIBRARY") or library())


def build(host: Host) -> Path:
    """Compile the program for a host unless it is newer than its sources."""
    folder = PROGRAMS / host.name
    binary = folder / "od_learning"
    sources = [SOURCE, *CALLS, *SHARED_SOURCES]
    with compiling(folder):
        if not is_current(binary, [*sources, *COLL.glob("*.h"), *SOURCES.glob("*.h")]):
            names = [str(path) for path in sources]
            command = [*host.mpicc, *c_flags(host), *names, "-lm", "-o", str(binary)]
            if problem := compile_program(command, host, folder):
                raise SystemExit(f"learning: {problem}")
    return binary


@dataclass(frozen=True)
class Place:
    """A cluster that is up, and the host whose jobs run over it."""

    host: Host
    layout: str
    rate: str
    program: Path
    cluster: LabRuns
    ranks: int

    @property
    def name(self) -> str:
        """Return what files with its samples are called."""
        return f"{self.host.name}-{self.layout}-{self.rate}"

    def variant(self, collective: str, name: str, rules: dict[str, Path]) -> Variant:
        """Return a job by its name: one that learns, the host alone, or a way that is forced."""
        if name == PLAIN:
            return Variant(name, self.host, self.program)
        settings = forcing(collective, name)
        if name == LEARN:
            settings = {**NO_RULES, **ALIKE, **TELL}
        elif name in rules:
            settings = {"OVERDRIVE_TUNING": str(rules[name]), **ALIKE, **TELL}
        return Variant(name, self.host, self.program, preloaded(), settings)

    def run(self, variant: Variant, collective: str, calls: dict[int, int], us: float) -> Outcome:
        """Run a job with so many calls of each size, which should take so long altogether."""
        if not calls:
            return Outcome([], [], None)
        points = ",".join(f"{size}:{count}" for size, count in calls.items())
        seconds = START_SECONDS + SLOWEST * us / 1e6
        words = [str(self.program), collective, points]
        job = self.cluster.start(variant, self.ranks, words, seconds, 0, threading.Event())
        return Outcome(
            windows_of(job.stdout),
            verdicts_of(job.stderr, collective),
            network_of(job.stderr),
            "" if job.ok else f"{self.name}, {collective}, {variant.name}: {job.problem('slow')}",
        )


def samples_of(
    outcome: Outcome, place: Place, part: str, collective: str, variant: str,
    calls: dict[int, int], number: int,
) -> Iterator[Sample]:  # fmt: skip
    """Yield what a job took as the raw samples of all benchmarks: `mode` is calls and window."""
    whole = Sample(
        place.host.name, variant, number, collective, part, "", "learning", 0, place.ranks,
        0, "us", -1, -1, 0, 0,
    )  # fmt: skip
    for window in outcome.windows:
        mode = f"{calls[window.size_bytes]}:{window.first}-{window.last}"
        yield replace(whole, mode=mode, size_bytes=window.size_bytes, value=window.us)


@dataclass
class Look:
    """A short first look at a collective: how long each way takes at each size, the network."""

    us: dict[str, dict[int, float]]
    network: tuple[float, float] | None

    def fastest(self, size: int) -> float:
        """Return the microseconds of the best way."""
        return min(times[size] for times in self.us.values() if size in times)

    def near(self, size: int, times: float, most: int) -> list[str]:
        """Return the host, and the best ways that are no more than so many times as slow."""
        limit = times * self.fastest(size)
        us = {way: of[size] for way, of in self.us.items() if size in of and way != PLAIN}
        own = sorted((way for way in us if us[way] <= limit), key=us.__getitem__)
        return [PLAIN, *own[:most]]

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps({"us": self.us, "network": self.network})

    @staticmethod
    def read(text: str) -> Look:
        """Return what `text` has written."""
        value = json.loads(text)
        us = {way: {int(size): t for size, t in of.items()} for way, of in value["us"].items()}
        return Look(us, tuple(value["network"]) if value["network"] else None)


def calls_of_look(size: int) -> int:
    """Return how many calls a first look makes."""
    return 100 if size <= 4096 else 60 if size <= 65536 else 12


def look_at(place: Place, collective: str, sizes: Sequence[int], problems: list[str]) -> Look:
    """Run a short job of each way; those that fail or cannot serve are left out."""
    calls = {size: calls_of_look(size) for size in sizes}
    look = Look({}, None)
    for way in (PLAIN, LEARN, *candidates(place, collective, sizes)):
        # Nothing is expected yet: slow ways end by the limit.
        outcome = place.run(place.variant(collective, way, {}), collective, calls, 2e6)
        if outcome.problem:
            problems.append(f"first look: {outcome.problem}")
            continue
        look.network = look.network or outcome.network
        if way != LEARN:
            look.us[way] = {window.size_bytes: window.us for window in outcome.windows}
    if PLAIN not in look.us:
        raise SystemExit(f"learning: {place.name}: no job of the host alone ends well")
    return look

"""What happens when in a pipelined allreduce on the virtual cluster: time lines for the page.

Measured, in the virtual cluster: the ranks note when each step of their calls begins and ends (the
setting `timeline`), and the call of median length is shown. Simulated: the library's own schedules
run on its simulator (`overdrive study timeline`), on a machine like the cluster: links of 1 Gbit/s,
and two cores that the ranks of four nodes share.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import lab_runs
from coll_campaign import LAB_NODES, LAB_RANKS, PIPELINE_ALGORITHM, PIPELINES, Part
from jobs import ROOT, Host
from overdrive import collectives, installation
from overdrive.bench_tables import parse_size
from overdrive.errors import CommandError
from overdrive.study import timeline
from turns import Variant

COLLECTIVE = "allreduce"
PICTURE, PICTURE_SIZE = "coll_timeline.png", "4M"
MEASURED_PICTURE = "coll_timeline_measured.png"
SHARING = LAB_RANKS / 2
"""Ranks for each core of the cluster: so many times as long takes what a core does."""
RECORD_SECONDS = 5
MACHINE = {
    "near": {"latency_ns": 5000, "overhead_ns": 500, "gap_ns": 500, "byte_ns": 0.1 * SHARING},
    "far": {"latency_ns": 25000, "overhead_ns": 5000, "gap_ns": 5000, "byte_ns": 8.0},
    "add_byte_ns": 0.1 * SHARING,
    "copy_byte_ns": 0.1 * SHARING,
    "rendezvous_bytes": "64K",
}
"""Of links of 1 Gbit/s: 8 ns per byte. Latencies are those of short messages in the cluster."""


def time_lines(size: str) -> dict[str, dict[str, Any]]:
    """Return the simulator's time line of an allreduce for each size of segments, by its name."""
    found = {}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as tuning:
        rules = {"format": "overdrive-tuning", "version": 1, "rules": [], "machine": MACHINE}
        tuning.write(json.dumps(rules))
        tuning.flush()
        for name, pipeline in PIPELINES.items():
            words = ["timeline", COLLECTIVE, size, "--algorithm", PIPELINE_ALGORITHM]
            words += ["--ranks", str(LAB_RANKS), "--nodes", str(LAB_NODES)]
            words += ["--pipeline", pipeline, "--tuning", tuning.name]
            here = installation.find(os.environ, ROOT)
            found[name], _ = collectives.query(here, os.environ, *words)
    return found


def typical(setting: str) -> dict[str, Any]:
    """Return what happened in the call of median length of a job whose ranks noted their steps."""
    found: list[dict[str, Any]] = []
    while True:
        try:
            calls = len(found) + 1
            found.append(timeline.measured(setting, COLLECTIVE, parse_size(PICTURE_SIZE), calls))
        except CommandError:
            if not found:
                raise
            break
    return sorted(found, key=lambda report: report["last_ns"])[len(found) // 2]


def _file(folder: Path, name: str) -> Path:
    return folder / f"timeline-{name}.json"


def record(
    part: Part, host: Host, program: Path, lib: Path, folder: Path, niceness: int
) -> list[str]:
    """Run a job with each settings of the part and keep its typical call; return what failed."""
    problems = []
    with (
        lab_runs.up(LAB_NODES, LAB_RANKS // LAB_NODES, part.rate) as lab,
        tempfile.TemporaryDirectory(dir=folder) as scratch,
    ):
        for name, settings in part.settings:
            steps = f"{scratch}/{name}"
            variant = Variant(
                name, host, program, lib, {**dict(settings), "OVERDRIVE_TIMELINE": steps}
            )
            arguments = ["--tests", COLLECTIVE, "--shapes", part.shapes, "--sizes", PICTURE_SIZE]
            arguments += ["--sample-ms", f"{part.sample_ms:g}", "--seconds", str(RECORD_SECONDS)]
            done = lab.start(
                variant, part.ranks, [str(program), *arguments], 10 * RECORD_SECONDS, niceness,
                threading.Event(),
            )  # fmt: skip
            try:
                keep(folder, name, typical(steps))
            except CommandError as reason:
                problems.append(f"time line, {name}: {reason}; {done.problem('time limit')}")
    return problems


def keep(folder: Path, name: str, report: dict[str, Any]) -> None:
    """Keep a time line beside the samples, for the picture."""
    _file(folder, name).write_text(json.dumps(report), encoding="utf-8")


def kept(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the time lines that are beside the samples, by the name of the settings."""
    files = {name: _file(folder, name) for name in PIPELINES}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }

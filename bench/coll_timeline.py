"""What happens when in a pipelined allreduce on the virtual cluster: time lines for the page.

The library's own schedules run on its simulator (`overdrive study timeline`), on a machine like
the virtual cluster: links of 1 Gbit/s, and two cores that the ranks of four nodes share. Beside
them the page shows what the same calls took there.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from coll_campaign import LAB_NODES, LAB_RANKS, PIPELINE_ALGORITHM, PIPELINES
from jobs import ROOT
from overdrive import collectives, installation

COLLECTIVE = "allreduce"
PICTURE, PICTURE_SIZE = "coll_timeline.png", "4M"
SHARING = LAB_RANKS / 2
"""Ranks for each core of the cluster: so many times as long takes what a core does."""
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

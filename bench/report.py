"""Writes the page with the results of the point-to-point measurements from the samples."""

from __future__ import annotations

from pathlib import Path

from analysis import (
    FAR_FROM_NS,
    FAR_TO_NS,
    MAX_FOREIGN_CORES,
    MAX_WAITED,
    NEAR_BELOW_NS,
    REGIMES,
    Point,
    Results,
    geometric_mean,
)
from goals import (
    HOST_TITLES,
    KIND_TITLES,
    Finding,
    judge,
    known_ratios,
)
from page import (
    DASH,
    Circumstances,
    at_a_glance,
    goals_section,
    opening,
    pictures,
    titled_table,
    write,
)


def _method(results: Results) -> list[str]:
    counts = results.counts
    return [
        "## How it is measured",
        "",
        "Two ranks are pinned to one core each. Before and after each sample (about 3 ms) the two "
        "processes exchange one cache line directly, without MPI. If the one-way time is "
        f"below {NEAR_BELOW_NS:.0f} ns the sample counts as *near* (the cores share a cache), "
        f"between {FAR_FROM_NS:.0f} and {FAR_TO_NS:.0f} ns as *far*, otherwise, and if a rank "
        f"waited for its core for more than {MAX_WAITED:.0%} of the time, it is dropped. A virtual "
        "machine can move between the two within seconds; only samples of one regime are compared. "
        "Runs with and without Overdrive alternate. A ratio is the median over rounds of the ratio "
        "within a round, and is above 1 where Overdrive is faster. A mean is a geometric mean. "
        "Payloads are checked at each size before measuring; with rewritten buffers "
        "each message is checked.",
        "",
        "With more ranks than cores nothing is pinned, samples last 15 ms, and runs during which "
        f"other processes used more than {MAX_FOREIGN_CORES:g} cores are dropped.",
        "",
        f"Samples: {counts['near']} near, {counts['far']} far, {counts['noisy']} dropped.",
        "",
        "Buffers: *unchanged* ones are never rewritten, *alternating* ones neither, but there are "
        "16 in turn; *rewritten* as in an application: the sender writes the whole buffer with "
        "fresh values before each send, the receiver reads all of it, and both are timed.",
        "",
    ]


def _kind_table(results: Results, hosts: list[str]) -> list[str]:
    lines = [
        "## Where the buffer lies",
        "",
        "Geometric mean of the speed relative to the host alone over 8 B to 2 MiB, blocking, and "
        "in brackets the smallest.",
        "",
    ]
    for regime in REGIMES:
        rows = []
        for kind, title in KIND_TITLES.items():
            for shape, name in (("usual", "unchanged"), ("app", "rewritten")):
                points = results.points(
                    test="latency", shape=shape, mode="blocking", kind=kind, ranks=2
                )
                if kind == "heap":
                    points = [p for p in points if p.size_bytes >= 8]
                cells = [_mean_and_smallest(results, regime, host, points) for host in hosts]
                if any(cell != DASH for cell in cells):
                    rows.append([title, name, *cells])
        header = ["where", "buffer", *(HOST_TITLES[host] for host in hosts)]
        lines += titled_table(regime, header, rows)
    return lines


def _mean_and_smallest(results: Results, regime: str, host: str, points: list[Point]) -> str:
    ratios = [ratio.value for ratio in known_ratios(results, points, regime, host)]
    return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f})" if ratios else DASH


def write_page(path: Path, results: Results, around: Circumstances) -> list[Finding]:
    """Write the page and return the findings that are in it."""
    hosts = list(around.versions)
    findings = judge(results, hosts)
    lines = [
        *opening("Point-to-point: what is faster, and by how much", "run.py", around),
        "Times of every size with their quartiles: `latency.csv`, `bandwidth.csv`, `ranks.csv` "
        "and `cost.csv` in `data`.",
        "",
        *at_a_glance(findings, [HOST_TITLES[host] for host in hosts]),
        *_kind_table(results, hosts),
        *goals_section(path, findings, "the host alone"),
        *pictures(around),
        *_method(results),
    ]
    write(path, lines)
    return findings

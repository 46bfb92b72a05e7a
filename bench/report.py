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
    size_name,
)
from campaign import FIVE, OVERDRIVE, PLAIN
from goals import (
    HOST_TITLES,
    KIND_TITLES,
    Finding,
    judge,
    known_ratios,
    variant_title,
    variants_to_show,
)
from page import DASH, Circumstances, goals_section, number, opening, pictures, titled_table, write


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
        "Payloads are checked at each size before measuring; in the application's shape "
        "each message is checked.",
        "",
        "With more ranks than cores nothing is pinned, samples last 15 ms, and runs during which "
        f"other processes used more than {MAX_FOREIGN_CORES:g} cores are dropped.",
        "",
        f"Samples: {counts['near']} near, {counts['far']} far, {counts['noisy']} dropped.",
        "",
        "The shapes: *usual* never rewrites its send buffer; *alternating* does so with 16 buffers "
        "in turn; in *app* the sender writes the whole buffer with fresh values before each send, "
        "the receiver reads all of it, and both are timed.",
        "",
    ]


def _latency_tables(results: Results, hosts: list[str]) -> list[str]:
    lines = ["## One-way latency in µs", ""]
    for shape in ("usual", "alternating", "app"):
        for mode in ("blocking", "nonblocking"):
            points = results.points(test="latency", shape=shape, mode=mode, kind="heap", ranks=2)
            lines += _median_table(results, hosts, points, f"{shape}, {mode}")
    return lines


def _stream_tables(results: Results, hosts: list[str]) -> list[str]:
    lines = ["## Bandwidth (MB/s) and message rate (per second), 64 in flight", ""]
    for test, title in (
        ("bw", "Streaming bandwidth"),
        ("bibw", "Bidirectional bandwidth"),
        ("rate", "Message rate"),
    ):
        lines += _median_table(results, hosts, results.points(test=test, ranks=2), title)
    return lines


def _median_table(results: Results, hosts: list[str], points: list[Point], title: str) -> list[str]:
    lines: list[str] = []
    for regime in REGIMES:
        rows = []
        for host in hosts:
            for variant in (PLAIN, OVERDRIVE):
                medians = [results.median(regime, host, variant, point) for point in points]
                if any(median is not None for median in medians):
                    cells = [number(median) for median in medians]
                    rows.append([variant_title(host, variant), *cells])
        header = ["", *(size_name(p.size_bytes) for p in points)]
        lines += titled_table(f"{title}, {regime}", header, rows)
    return lines


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
            for shape in ("usual", "app"):
                points = results.points(
                    test="latency", shape=shape, mode="blocking", kind=kind, ranks=2
                )
                if kind == "heap":
                    points = [p for p in points if p.size_bytes >= 8]
                cells = [_mean_and_smallest(results, regime, host, points) for host in hosts]
                if any(cell != DASH for cell in cells):
                    rows.append([title, shape, *cells])
        header = ["buffer", "shape", *(HOST_TITLES[host] for host in hosts)]
        lines += titled_table(regime, header, rows)
    return lines


def _mean_and_smallest(results: Results, regime: str, host: str, points: list[Point]) -> str:
    ratios = [ratio.value for ratio in known_ratios(results, points, regime, host)]
    return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f})" if ratios else DASH


def _oversubscribed_tables(results: Results, hosts: list[str]) -> list[str]:
    lines = ["## More ranks than cores", "", "Time per step in µs, by the host's settings.", ""]
    for ranks in (4, 8):
        for test in ("pairs", "ring", "halo"):
            points = results.points(test=test, ranks=ranks)
            rows = []
            for regime in REGIMES:
                for host in hosts:
                    for variant in variants_to_show(results, host, points):
                        medians = [results.median(regime, host, variant, p) for p in points]
                        if any(median is not None for median in medians):
                            numbers = [number(median) for median in medians]
                            rows.append([HOST_TITLES[host], variant, regime, *numbers])
            header = ["host", "variant", "regime", *(size_name(p.size_bytes) for p in points)]
            lines += titled_table(f"{ranks} ranks, {test}", header, rows)
    return lines


def write_page(path: Path, results: Results, around: Circumstances) -> list[Finding]:
    """Write the page and return the findings that are in it."""
    hosts = list(around.versions)
    findings = judge(results, hosts)
    lines = [
        *opening("Point-to-point: what is faster, and by how much", "run.py", around),
        *goals_section(findings, "the host alone"),
        *pictures(around),
        *_method(results),
        *_latency_tables(results, hosts),
        *_stream_tables(results, hosts),
        *_kind_table(results, hosts),
        *_oversubscribed_tables(results, [host for host in FIVE if host in hosts]),
    ]
    write(path, lines)
    return findings

"""Measures the choice of `first_arrival` that is learnt, beside what chance does; writes a page.

    arrival_learnt.py [--rounds 5] [--hosts openmpi4,mpich4] [--networks ...] [--sizes 64K,1M,4M]

`overdrive bench arrival --learnt 1 --chance 2` runs two jobs with `first_arrival=on` (learnt) and
two without (usual), which take turns call by call; both compare with the host as they always do.
What a job learns differs from job to job, so a round is one sample: the first calls and the last
ones of each job. Two of a kind show what is chance. Rounds are kept one by one; the page is made
from all of them.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence

import arrival
import hosts
from analysis import geometric_mean, size_name
from arrival_page import DATA, ROOT, commits_of, wide
from goals import HOST_TITLES

PAGE = ROOT / "docs" / "measurements" / "arrival-learnt.md"
ROUNDS = DATA / "arrival-learnt.csv"
COPIES = 2
KINDS = ("usual", "learnt")
LATE_MS = 10
# The first calls, in which most is measured, and the last ones; by CALLS all other ways have been
# judged twice, and first_arrival after the first time.
PART, CALLS = 64, 364
POINT = ("host", "layout", "network", "bytes", "pattern")
FIELDS = (*POINT, "round", "job", "first_ms", "last_ms", "commit")
PATTERNS = ("together", "linear", "late-leader")
GOAL = 0.97

INTRO = """\
# First arrival: the choice that is learnt

Written by `python3 bench/arrival_learnt.py`: broadcasts with `first_arrival`, which is the
default (*learnt*), and without it (*usual*), two jobs of each in turns call by call, over virtual
clusters of two nodes with four ranks (2x4) and of four nodes with two (4x2) on one machine with
{processors} processors, no autogroups. Both measure and choose among all other algorithms, the
host's included. All ranks come *together*, or late by up to {late} ms: one after the other
(*linear*), or the leader of the second node (*late leader*). Figures: how many times as long
ranks wait in the call with *usual* as with *learnt* (mean over ranks), in the first {part} calls
of a job, and in the median of the last {part} of {calls}; geometric means over rounds of two jobs
each, {rounds} at each point. Single jobs are [here](data/arrival-learnt.csv). Library: as of
commit {commits}, each file optimised by itself.
"""


def measure(
    host: hosts.Host, layout: str, network: str, pattern: str, options: argparse.Namespace
) -> Iterator[dict[str, str]]:
    """Run one round over one cluster; yield what each job took."""
    with arrival.cluster(layout, network) as (lab, per_node):
        samples = arrival.bench(
            host, lab, per_node, "bcast", pattern, options.sizes,
            str(LATE_MS), CALLS, ["--learnt", "1", "--chance", str(COPIES)],
        )  # fmt: skip
    commit = arrival.commit()
    for size, job in dict.fromkeys((sample["bytes"], sample["job"]) for sample in samples):
        waits = [
            float(sample["wait"]) / 1e3
            for sample in samples
            if (sample["bytes"], sample["job"]) == (size, job)
        ]
        if len(waits) != CALLS:
            continue
        yield {
            "host": host.name,
            "layout": layout,
            "network": network,
            "bytes": size,
            "pattern": pattern,
            "job": job,
            "first_ms": f"{statistics.fmean(waits[:PART]):.4f}",
            "last_ms": f"{statistics.median(waits[-PART:]):.4f}",
            "commit": commit,
        }


class Point:
    """What was found at one point, round by round."""

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        """Take the rows of the point."""
        self.rounds: dict[str, dict[str, dict[str, str]]] = {}
        for row in rows:
            self.rounds.setdefault(row["round"], {})[row["job"]] = row
        whole = len(KINDS) * COPIES
        self.rounds = {key: jobs for key, jobs in self.rounds.items() if len(jobs) == whole}

    def mean(self, jobs: dict[str, dict[str, str]], kind: str, value: str) -> float:
        """Return what a round's jobs of a kind take."""
        return geometric_mean(
            [float(row[value]) for name, row in jobs.items() if name.startswith(f"{kind}-")]
        )

    def gains(self, value: str) -> list[float]:
        """Return usual to learnt of each round."""
        return [
            self.mean(jobs, "usual", value) / self.mean(jobs, "learnt", value)
            for jobs in self.rounds.values()
        ]

    def chance(self, value: str) -> list[float]:
        """Return the logarithms of the ratios of two of a kind."""
        return [
            math.log(float(jobs[f"{kind}-1"][value]) / float(jobs[f"{kind}-2"][value]))
            for jobs in self.rounds.values()
            for kind in KINDS
        ]


def interval(gains: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean and its interval of 95 % by the normal distribution."""
    logs = [math.log(gain) for gain in gains]
    middle = statistics.fmean(logs)
    half = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def sums(points: dict[tuple[str, ...], Point]) -> Iterator[str]:
    """Yield the table over all points of a pattern."""
    yield "| ranks come | points | first calls (95 %) | last calls (95 %) | least of the last |"
    yield "|---|---|---|---|---|"
    for pattern in PATTERNS:
        here = [point for key, point in points.items() if key[-1] == pattern and point.rounds]
        if not here:
            continue
        cells = []
        for value in ("first_ms", "last_ms"):
            # A point counts once, however often it was measured.
            each = [geometric_mean(point.gains(value)) for point in here]
            middle, low, high = interval(each)
            cells.append(f"{middle:.3f} ({low:.3f}–{high:.3f})")
        least = min(geometric_mean(point.gains("last_ms")) for point in here)
        yield f"| {pattern} | {len(here)} | {' | '.join(cells)} | {least:.2f} |"


def table(points: dict[tuple[str, ...], Point]) -> Iterator[str]:
    """Yield the table of all points."""
    titles = [f"{pattern}: first / last" for pattern in PATTERNS]
    yield f"| host, cluster, size | {' | '.join(titles)} |"
    yield "|---" * (len(PATTERNS) + 1) + "|"
    for place in dict.fromkeys(key[:-1] for key in points):
        cells = []
        for pattern in PATTERNS:
            point = points.get((*place, pattern))
            if point is None or not point.rounds:
                cells.append("–")
                continue
            first, last = (geometric_mean(point.gains(value)) for value in ("first_ms", "last_ms"))
            cells.append(f"{first:.2f} / {last:.2f}")
        host, layout, network, size = place
        title = f"{HOST_TITLES.get(host, host)}, {layout}, {network}, {size_name(int(size))}"
        yield f"| {title} | {' | '.join(cells)} |"


def write(rows: Sequence[dict[str, str]]) -> None:
    """Write the page."""
    keys = sorted(dict.fromkeys(tuple(row[name] for name in POINT) for row in rows), key=order)
    points = {
        key: Point([row for row in rows if tuple(row[name] for name in POINT) == key])
        for key in keys
    }
    counts = sorted({len(point.rounds) for point in points.values()})
    values = {
        "processors": os.cpu_count(),
        "late": LATE_MS,
        "part": PART,
        "calls": CALLS,
        "rounds": f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0]),
        "commits": commits_of(rows),
    }
    together = [point for key, point in points.items() if key[-1] == "together"]
    chance = {
        value: statistics.stdev([one for point in together for one in point.chance(value)])
        for value in ("first_ms", "last_ms")
    }
    each = [geometric_mean(point.gains("last_ms")) for point in together]
    reached = sum(gain >= GOAL for gain in each)
    # Of the mean of a point: of each kind there are COPIES jobs in each round.
    spread = chance["last_ms"] / math.sqrt(COPIES * max(counts[0], 1))
    lines = [wide(INTRO.format(**values)), "", *sums(points), ""]
    lines.append(
        wide(f"""
The logarithms of two jobs *of the same kind* together differ by {chance["first_ms"]:.2f} (standard
deviation) in the first calls and {chance["last_ms"]:.2f} in the last, so that the ratio of a
point strays by {spread:.2f} by chance alone (rounds: {counts[0]}). Together, last calls:
{reached} of {len(each)} points are at least {GOAL}. Jobs begin with different trees, because
`MPI_Init` finds different networks. So *usual* jobs ended at different ways, too (MPICH, 2x4, 1
Gbit/s, linear, up to a549f63: 4.9 ms in the last calls of 10 of 20 jobs, 1.3 in the others, because
who began with whole messages tried no segments; since then 1.3 in 8 of 8). What the first calls
cost is mostly that ranks wait for the last one whenever they agree or add up what they have
measured. With c59d8fb, where *first* was compared with the usual algorithm before anything else
was known and ranks agreed before calls 16, 32 and 64, the first calls and the last ones were 0.97
and 1.01 together, 0.81 and 1.00 with linear arrival, 0.93 and 1.90 with a late leader.
""")
    )
    lines += ["", *table(points)]
    PAGE.write_text("\n".join(lines) + "\n")


def order(key: tuple[str, ...]) -> tuple[str | int, ...]:
    """Return where a point stands in the table."""
    return (*key[:3], int(key[3]), PATTERNS.index(key[4]))


def main() -> int:
    """Measure rounds, each kept at once, and write the page from all there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="openmpi4,mpich4")
    parser.add_argument("--layouts", default=",".join(arrival.LAYOUTS))
    parser.add_argument("--networks", default=",".join(arrival.NETWORKS))
    parser.add_argument("--sizes", default="64K,1M,4M")
    parser.add_argument("--pattern", default="together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--evaluate", action="store_true", help="write the page again, no more")
    options = parser.parse_args()
    rows = arrival.load(ROUNDS)
    begin = max((int(row["round"]) for row in rows), default=0) + 1
    for number in range(begin, begin + (0 if options.evaluate else options.rounds)):
        for host, layout, network in arrival.places(options):
            for pattern in options.pattern.split(","):
                found = measure(host, layout, network, pattern, options)
                rows += [{**row, "round": str(number)} for row in found]
                arrival.keep(ROUNDS, rows, FIELDS)
    write(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

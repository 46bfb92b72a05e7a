"""The page of learning.py: from raw samples to medians, and from these to the tables.

A point is a host, a layout, a rate of the links, a collective and a size. Its best way is found in
one half of the rounds and compared in the other, and the other way round, so that the luck of the
smallest of many medians is left out (tuned.py).
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import page
from analysis import geometric_mean, quartiles, size_name
from arrival_learnt import interval
from campaign import Sample, load_part
from goals import HOST_TITLES
from jobs import BUILD, ROOT
from learning_jobs import LEARN, STARTS
from tuned import Halves, regret

RAW = BUILD / "bench" / "learning"
DATA = ROOT / "docs" / "measurements" / "data" / "learning.csv"
PAGE = ROOT / "docs" / "measurements" / "learning.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
VERDICT_COLUMNS = ["part", "collective", "bytes", "calls", "round", "variant", "at", "way", "times"]
PLACE = ["host", "layout", "rate"]
COLUMNS = [
    "part", *PLACE, "collective", "bytes", "calls", "what", "variant", "half",
    "value", "low", "high", "unit", "jobs", "commit",
]  # fmt: skip
FORCED = "forced"
RATIO, INSIDE = "ratio", "inside"
NEAR_BEST, MOST_WRONG, MOST_COST = 1.05, 1.0, 1.01
PER_CALLS = 100_000
LEARNT_BY = 200
"""Calls after which the best way should serve."""
SETTLED_BY = 400
"""Calls after which only measurements at powers of two are left."""
FIRST_POWER = 1024
MOST_LINES = 20
NOT_SAID = "not said"
Row = dict[str, str]


def verdicts_file(name: str) -> Path:
    """Return the file of what the library has said at a place."""
    return RAW / "verdicts" / f"{name}.csv"


def read_verdicts(name: str) -> list[Row]:
    """Return what the library has said at a place, none if nothing is kept."""
    path = verdicts_file(name)
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def bounds(mode: str) -> tuple[int, int, int]:
    """Return the calls of a job and the first and last one of a window of it."""
    calls, _, window = mode.partition(":")
    first, _, last = window.partition("-")
    return int(calls), int(first), int(last)


def last_window(samples: Sequence[Sample]) -> str:
    """Return the last window of the samples."""
    return max((sample.mode for sample in samples), key=bounds)


def median_us(samples: Sequence[Sample], mode: str) -> dict[str, float]:
    """Return what each variant takes in a window."""
    values: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.mode == mode:
            values[sample.variant].append(sample.value)
    return {variant: statistics.median(each) for variant, each in values.items()}


def by_job(verdicts: Sequence[Row]) -> list[list[str]]:
    """Return the ways that were found, in their order, of each job."""
    jobs: dict[tuple[str, ...], list[tuple[int, str]]] = defaultdict(list)
    for row in verdicts:
        key = tuple(row[name] for name in ("collective", "bytes", "round", "variant"))
        jobs[key].append((int(row["at"]), row["way"]))
    return [[way for _, way in sorted(ways)] for ways in jobs.values()]


def switches(verdicts: Sequence[Row]) -> list[tuple[str, str]]:
    """Return from which way to which jobs have switched; the first verdict of a job is none."""
    return [
        (before, after)
        for ways in by_job(verdicts)
        for before, after in zip(ways, ways[1:])
        if before != after
    ]


def is_quiet(first: int, last: int) -> bool:
    """Tell whether nothing is measured in a window, as far as numbers of calls tell."""
    power = FIRST_POWER
    while power <= last:
        # Half as many calls are more than a measurement takes.
        if first < power * 3 // 2:
            return False
        power *= 2
    return first > SETTLED_BY


def whole_us(windows: dict[tuple[int, int], float]) -> float:
    """Return the time of all calls of a job."""
    return sum(us * (last - first + 1) for (first, last), us in windows.items())


def inside_cost(windows: dict[tuple[int, int], float]) -> float | None:
    """Return the time of all calls of a job as a multiple of as many of its last quiet ones."""
    quiet = [window for window in windows if is_quiet(*window)]
    if not quiet:
        return None
    return whole_us(windows) / (windows[max(quiet)] * max(last for _, last in windows))


def spread(values: list[float], unit: str) -> dict[str, str]:
    """Return the columns of a median."""
    numbers = (statistics.median(values), *quartiles(values))
    texts = [f"{value:.5g}" for value in numbers]
    return {**dict(zip(("value", "low", "high"), texts)), "unit": unit, "jobs": str(len(values))}


def start_rows(samples: Sequence[Sample]) -> Iterator[Row]:
    """Yield the medians of even and of odd rounds, of each window and variant."""
    values: dict[tuple[str, int, str, str, int], list[float]] = defaultdict(list)
    for s in samples:
        values[s.test, s.size_bytes, s.mode, s.variant, s.round % 2].append(s.value)
    for (test, size, mode, variant, half), each in sorted(values.items()):
        calls, first, last = bounds(mode)
        yield {
            "collective": test, "bytes": str(size), "calls": str(calls),
            "what": f"{first}-{last}", "variant": variant, "half": str(half), **spread(each, "us"),
        }  # fmt: skip


def cost_rows(samples: Sequence[Sample]) -> Iterator[Row]:
    """Yield what learning costs: whole jobs against forced ones, pair by pair."""
    pairs: dict[tuple[str, int, int], dict[int, dict[str, dict[tuple[int, int], float]]]]
    pairs = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for s in samples:
        calls, first, last = bounds(s.mode)
        pairs[s.test, s.size_bytes, calls][s.round][s.variant][first, last] = s.value
    for (test, size, calls), rounds in sorted(pairs.items()):
        point = {"collective": test, "bytes": str(size), "calls": str(calls), "half": ""}
        both = [jobs for jobs in rounds.values() if LEARN in jobs and FORCED in jobs]
        if not both:
            continue
        for variant in (LEARN, FORCED):
            each = [whole_us(jobs[variant]) / calls for jobs in both]
            yield {**point, "what": "whole", "variant": variant, **spread(each, "us")}
        ratios = [whole_us(jobs[LEARN]) / whole_us(jobs[FORCED]) for jobs in both]
        yield {**point, "what": RATIO, "variant": LEARN, **spread(ratios, "ratio")}
        # A job may be faster than another as long as it lives. That cancels where each is compared
        # with its own later calls first.
        insides = [(inside_cost(jobs[LEARN]), inside_cost(jobs[FORCED])) for jobs in both]
        ratios = [mine / other for mine, other in insides if mine and other]
        if ratios:
            yield {**point, "what": INSIDE, "variant": LEARN, **spread(ratios, "ratio")}


def noise_rows(samples: Sequence[Sample], verdicts: Sequence[Row]) -> Iterator[Row]:
    """Yield how often jobs amid noise have switched, how often wrongly, and what ways take."""
    for test, size in sorted({(s.test, s.size_bytes) for s in samples}):
        here = [s for s in samples if (s.test, s.size_bytes) == (test, size)]
        point = {"collective": test, "bytes": str(size), "calls": "", "half": ""}
        said = [v for v in verdicts if (v["collective"], v["bytes"]) == (test, str(size))]
        quiet = [s for s in here if s.variant != LEARN]
        ways: dict[str, list[float]] = defaultdict(list)
        for s in quiet:
            if s.mode == last_window(quiet):
                ways[s.variant].append(s.value)
        for way, each in sorted(ways.items()):
            yield {**point, "what": "undisturbed", "variant": way, **spread(each, "us")}
        us = {way: statistics.median(each) for way, each in ways.items()}
        found = switches(said)
        known = [us[after] / us[before] for before, after in found if before in us and after in us]
        ends = [us[ways[-1]] / min(us.values()) for ways in by_job(said) if ways[-1] in us]
        last = {s.round: bounds(s.mode)[0] for s in here if s.variant == LEARN}
        counts = {
            "jobs": len(last),
            "calls": sum(last.values()),
            "verdicts": len(said),
            "switches": len(found),
            "wrong": sum(ratio > 1 for ratio in known),
            "wrong by 5 %": sum(ratio > NEAR_BEST for ratio in known),
            "unknown": len(found) - len(known),
            "slow ends": sum(ratio > NEAR_BEST for ratio in ends),
        }
        for what, count in counts.items():
            number = {"value": str(count), "low": "", "high": "", "unit": "count"}
            yield {**point, "what": what, "variant": LEARN, **number, "jobs": str(len(last))}


def evaluate(name: str) -> list[Row]:
    """Return the rows of a place, from its raw samples."""
    host, layout, rate = name.split("-")
    samples = load_part(name, RAW)
    parts: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        parts[sample.shape].append(sample)
    said = [row for row in read_verdicts(name) if row["part"] == "noise"]
    found = {
        "start": start_rows(parts["start"]),
        "noise": noise_rows(parts["noise"], [row for row in said if row["variant"] == LEARN]),
        "cost": cost_rows(parts["cost"]),
    }
    place = {"host": host, "layout": layout, "rate": rate}
    return [{"part": part, **place, **row} for part, rows in found.items() for row in rows]


def joined(old: Sequence[Row], new: Sequence[Row], commit: str) -> list[Row]:
    """Return rows of which new ones replace those of the same part and place."""

    def key(row: Row) -> tuple[str, ...]:
        return tuple(row[name] for name in ("part", *PLACE))

    before = {key(row): row["commit"] for row in old}
    renewed = {key(row) for row in new}
    rows = [row for row in old if key(row) not in renewed]
    for row in new:
        known = before.get(key(row), NOT_SAID) if commit == NOT_SAID else commit
        rows.append({**row, "commit": known})
    return rows


def title(place: tuple[str, ...]) -> str:
    """Return what the page calls a place."""
    host, layout, rate = place
    links = "links without a limit" if rate == "off" else "1 Gbit/s" if rate == "1gbit" else rate
    return f"{HOST_TITLES.get(host, host)}, {layout}, {links}"


def places(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the places of rows, in the order of the page."""
    return sorted({tuple(row[name] for name in PLACE) for row in rows})


def at(rows: Sequence[Row], place: tuple[str, ...]) -> list[Row]:
    """Return the rows of a place."""
    return [row for row in rows if tuple(row[name] for name in PLACE) == place]


def start_regrets(rows: Sequence[Row], window: str, start: str) -> dict[tuple[str, int], float]:
    """Return by how much a start is slower than the best of what is forced, in a window."""
    points: dict[tuple[str, int], Halves] = {}
    for row in rows:
        if row["what"] == window:
            both = points.setdefault((row["collective"], int(row["bytes"])), ({}, {}))
            both[int(row["half"])][row["variant"]] = float(row["value"])
    found = {
        point: regret(both, start, lambda name: name not in STARTS)
        for point, both in points.items()
    }
    return {point: value for point, value in found.items() if value is not None}


def windows_in(rows: Sequence[Row]) -> list[str]:
    """Return the windows of rows in their order."""
    return sorted({row["what"] for row in rows}, key=lambda window: bounds(f"0:{window}"))


def judged_window(rows: Sequence[Row]) -> str | None:
    """Return the first window after the calls in which the best way should be found."""
    later = [window for window in windows_in(rows) if bounds(f"0:{window}")[1] > LEARNT_BY]
    return later[0] if later else None


def chance(rows: Sequence[Row], window: str) -> float | None:
    """Return by how much a way's medians of the two halves differ, in the mean: a multiple."""
    halves: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row["what"] == window and row["variant"] not in STARTS:
            halves[row["collective"], row["bytes"], row["variant"]].append(float(row["value"]))
    both = [max(pair) / min(pair) for pair in halves.values() if len(pair) == 2]
    return geometric_mean(both) if both else None


def start_section(rows: Sequence[Row]) -> list[str]:
    """Return the chapter on wrong starts."""
    window = judged_window(rows)
    if window is None:
        return []
    if not any(start_regrets(at(rows, place), window, s) for place in places(rows) for s in STARTS):
        return ["From wrong starts there are no two halves to compare yet.", ""]
    body, missed = [], []
    for place in places(rows):
        here = at(rows, place)
        luck = chance(here, window)
        for start in STARTS:
            means = []
            for each in windows_in(rows):
                found = list(start_regrets(here, each, start).values())
                means.append(f"{geometric_mean(found):.3f}" if found else page.DASH)
            last = start_regrets(here, window, start)
            if not last:
                continue
            near = sum(value <= NEAR_BEST for value in last.values())
            counts = [f"{near} of {len(last)}", f"{max(last.values()):.2f}"]
            body.append([title(place), start, *means, *counts, page.number(luck)])
            missed += [
                (value, [title(place), start, test, size_name(size), f"{value:.2f}"])
                for (test, size), value in last.items()
                if value > NEAR_BEST
            ]
    means = [f"calls {each}" for each in windows_in(rows)]
    header = ["place", "start", *means, f"{window}: at most {NEAR_BEST}", "most", "chance"]
    lines = ["### From a wrong start", "", *page.table(header, body)]
    missed.sort(key=lambda one: -one[0])
    lines.append(f"Above {NEAR_BEST} in calls {window}: {len(missed)}{shown(missed)}.")
    lines.append("")
    cells = [cells for _, cells in missed[:MOST_LINES]]
    return lines + (
        page.table(["place", "start", "call", "size", "slower"], cells) if cells else []
    )


def shown(missed: Sequence[object]) -> str:
    """Return what to say of a list that is cut."""
    return f", of which the first {MOST_LINES}" if len(missed) > MOST_LINES else ""


def noise_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return the sums of what was counted amid noise."""
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["unit"] == "count":
            found[row["what"]] += int(row["value"])
    return found


def noise_section(rows: Sequence[Row]) -> list[str]:
    """Return the chapter on noise."""
    if not rows:
        return []
    body = []
    names = (
        "jobs",
        "calls",
        "verdicts",
        "switches",
        "wrong",
        "wrong by 5 %",
        "unknown",
        "slow ends",
    )
    for place in places(rows):
        counts = noise_counts(at(rows, place))
        rate = PER_CALLS * counts["wrong"] / max(counts["calls"], 1)
        body.append([title(place), *(str(counts[name]) for name in names), f"{rate:.2f}"])
    header = ["place", *names, "wrong in 100,000 calls"]
    return ["### Amid noise", "", *page.table(header, body)]


def cost_section(rows: Sequence[Row]) -> list[str]:
    """Return the chapter on what learning costs."""
    if not rows:
        return []
    body, missed = [], []
    for place in places(rows):
        here = at(rows, place)
        for calls in sorted({int(row["calls"]) for row in here}):
            cells = [title(place), str(calls)]
            for what in (RATIO, INSIDE):
                each = values_of(here, what, calls)
                cells += [mean_and_interval(each)]
                if what == RATIO:
                    cells.insert(2, str(len(each)))
            body.append(cells)
        missed += [
            (float(row["value"]), [title(place), row["calls"], row["collective"],
             size_name(int(row["bytes"])),
             f"{float(row['value']):.3f} ({float(row['low']):.3f}–{float(row['high']):.3f})",
             row["jobs"]])
            for row in here
            if row["what"] == RATIO and float(row["value"]) > MOST_COST
        ]  # fmt: skip
    header = ["place", "calls", "points", "against forced jobs (95 %)", "inside jobs (95 %)"]
    lines = ["### What learning costs", "", *page.table(header, body)]
    missed.sort(key=lambda one: -one[0])
    lines += [f"Medians above {MOST_COST} against forced jobs: {len(missed)}{shown(missed)}.", ""]
    cells = [cells for _, cells in missed[:MOST_LINES]]
    titles = ["place", "calls", "call", "size", "median (quartiles)", "pairs"]
    return lines + (page.table(titles, cells) if cells else [])


def values_of(rows: Sequence[Row], what: str, calls: int | None = None) -> list[float]:
    """Return the ratios of points."""
    return [
        float(row["value"])
        for row in rows
        if row["what"] == what and calls in (None, int(row["calls"]))
    ]


def mean_and_interval(values: Sequence[float]) -> str:
    """Return the geometric mean over points and its interval."""
    if not values:
        return page.DASH
    middle, low, high = interval(values)
    return f"{middle:.3f}" + (f" ({low:.3f}–{high:.3f})" if math.isfinite(high) else "")


def goals(rows: Sequence[Row]) -> list[str]:
    """Return the table of the goals, of everything that was measured."""
    parts = {part: [r for r in rows if r["part"] == part] for part in ("start", "noise", "cost")}
    body = []

    def add(goal: str, measured: str, met: bool | None) -> None:
        body.append([goal, measured, page.VERDICTS[met]])

    # From what MPI_Init measures is no goal of its own: it is shown beside them.
    window = judged_window(parts["start"])
    for start in STARTS[1:] if window else ():
        found = [
            value
            for place in places(parts["start"])
            for value in start_regrets(at(parts["start"], place), window or "", start).values()
        ]
        if not found:
            continue
        near = sum(value <= NEAR_BEST for value in found)
        goal = f"{start} at first: each point within 5 % of the best after {LEARNT_BY} calls"
        add(goal, f"{near} of {len(found)} points", near == len(found))
        mean = geometric_mean(found)
        add(f"{start} at first: likewise in the mean", f"{mean:.3f}", mean <= NEAR_BEST)
    counts = noise_counts(parts["noise"])
    if counts["calls"]:
        rate = PER_CALLS * counts["wrong"] / counts["calls"]
        text = f"{counts['wrong']} in {counts['calls']} calls"
        goal = f"noise: at most {MOST_WRONG:.0f} wrong switch in {PER_CALLS:,} calls"
        # Whoever has not made so many calls cannot have seen that it is so rare.
        enough = counts["calls"] >= PER_CALLS and not counts["unknown"]
        add(goal, text, False if rate > MOST_WRONG else True if enough else None)
    for calls in sorted({int(row["calls"]) for row in parts["cost"]}):
        each = values_of(parts["cost"], RATIO, calls)
        if each:
            mean = geometric_mean(each)
            goal = f"cost of learning in {calls} calls at most 1 %, in the mean over points"
            add(goal, mean_and_interval(each), mean <= MOST_COST)
    return ["### Goals", "", *page.table(["goal", "measured", "reached"], body)] if body else []


def figures(rows: Sequence[Row], commit: str) -> list[str]:
    """Return all that stands between the marks."""
    if not rows:
        return ["Nothing has been measured yet.", ""]
    sections = {"start": start_section, "noise": noise_section, "cost": cost_section}
    commits = ", ".join(sorted({row["commit"] for row in rows})) or commit
    lines = [f"Machine: {page.machine()} Commit {commits}.", "", *goals(rows)]
    for part, section in sections.items():
        lines += section([row for row in rows if row["part"] == part])
    return lines


def write(commit: str) -> None:
    """Write data and page, of raw samples and of rows that are kept of other places."""
    rows: list[Row] = []
    if DATA.exists():
        with DATA.open(newline="") as file:
            rows = list(csv.DictReader(file))
    new = [row for path in sorted(RAW.glob("*.csv")) for row in evaluate(path.stem)]
    rows = joined(rows, new, commit)
    if rows:
        page.write_csv(DATA, COLUMNS, ([row[name] for name in COLUMNS] for row in rows))
    before, rest = PAGE.read_text().split(BEGIN)
    text = "\n".join([before + BEGIN, "", *figures(rows, commit), END]) + rest.split(END)[1]
    page.write(PAGE, text.splitlines())

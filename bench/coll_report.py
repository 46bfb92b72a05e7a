"""Writes the pages on collectives from the samples of its parts.

`coll.md` says what is faster and what is not; the page of details beside it how that was measured,
and what single mechanisms do. Times of every size are in the CSV files of the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median_high

from analysis import (
    FAR_FROM_NS,
    FAR_TO_NS,
    MAX_FOREIGN_CORES,
    MAX_WAITED,
    MIN_SAMPLES,
    NEAR_BELOW_NS,
    REGIMES,
    Point,
    Results,
    geometric_mean,
    size_name,
)
from campaign import FIVE, OVERDRIVE, PLAIN, parse_sizes
from coll_campaign import (
    APP,
    DRIVER_SIZES,
    FEW_SIZES,
    JUDGED,
    LAB_JUDGED,
    LAB_NODES,
    LAB_RANKS,
    NET,
    OTHERS,
    PARTS,
    PIPELINE_ALGORITHM,
    PIPELINE_SIZES,
    PIPELINES,
    REDUCTIONS,
    SIZES,
    WORK,
)
from coll_goals import (
    DRIVERS_TOPIC,
    LABS,
    LARGE_FROM,
    SHAPES,
    driver_ratios,
    first_use_us,
    growth_kib,
    judge,
    points,
    selection_ns,
)
from coll_timeline import COLLECTIVE, MEASURED_PICTURE, PICTURE, PICTURE_SIZE, time_lines
from goals import (
    HOST_TITLES,
    Finding,
    Ratio,
    best_variant,
    in_any_regime,
    known_ratios,
    variant_title,
)
from overdrive.study import timeline
from page import (
    DASH,
    Circumstances,
    data_file,
    goals_section,
    link,
    number,
    opening,
    pictures,
    read_findings,
    renewed,
    replaced,
    table,
    titled_table,
    write,
    write_csv,
)


def _mean(results: Results, regime: str, host: str, wanted: list[Point], base: str = PLAIN) -> str:
    ratios = [r.value for r in known_ratios(results, wanted, regime, host, base=base)]
    if not ratios:
        return DASH
    note = "" if len(ratios) == len(wanted) else "*"
    return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f}){note}"


def _cells(results: Results, hosts: list[str], wanted: list[Point]) -> tuple[list[str], list[str]]:
    """Return the regimes in which anything was measured, and a cell for each host."""
    found = {}
    for regime in REGIMES:
        means = []
        for host in hosts:
            base = best_variant(results, regime, host, wanted) or PLAIN
            means.append(_mean(results, regime, host, wanted, base))
        if set(means) != {DASH}:
            found[regime] = means
    return list(found), [" / ".join(cell) for cell in zip(*found.values(), strict=True)]


def _summary(results: dict[str, Results], hosts: list[str]) -> list[str]:
    """Return small tables with one cell per collective and host: mean and smallest ratio."""
    lines = [
        "## At a glance",
        "",
        "How many times as fast as the host alone: geometric mean over the sizes and, in brackets, "
        "the smallest of them; a star where not all sizes were measured. Where two stand in a "
        "field the first is near, the second far. With more ranks than cores the host has its best "
        "setting.",
        "",
    ]
    sections = [("pair", "2 ranks, 4 KiB … 4 MiB", JUDGED, 2, SIZES, LARGE_FROM, 1 << 40)]
    sections += [("pair", "2 ranks, below 4 KiB", JUDGED, 2, SIZES, 0, LARGE_FROM)]
    sections += [("others", "2 ranks, 8 B … 1 MiB", OTHERS, 2, FEW_SIZES, 0, 1 << 40)]
    sections += [("eight", "8 ranks on 2 cores", JUDGED, 8, FEW_SIZES, 0, 1 << 40)]
    for part, title in LABS.items():
        where = f"4 nodes of 2 ranks, {title}"
        sections.append((part, where, LAB_JUDGED, LAB_RANKS, FEW_SIZES, 0, 1 << 40))
    for part, title, collectives, ranks, sizes, low, high in sections:
        rows = []
        for collective in collectives:
            for shape in ("usual", APP):
                wanted = points(collective, shape, ranks, sizes, low, high)
                seen, cells = _cells(results[part], hosts, wanted)
                if seen:
                    only = "" if len(seen) > 1 else f", {seen[0]}"
                    rows.append([collective, f"{SHAPE_NAMES[shape]}{only}", *cells])
        header = ["", "buffers", *(HOST_TITLES[host] for host in hosts)]
        lines += titled_table(title, header, rows)
    return lines


def _compared(results: dict[str, Results], host: str) -> Iterator[tuple[str, str, str, str, Ratio]]:
    """Yield title of the part, regime, collective and shape with each ratio to a host alone."""
    for part, ranks, sizes in (
        ("pair", 2, SIZES),
        ("others", 2, FEW_SIZES),
        ("eight", 8, FEW_SIZES),
        *((lab, LAB_RANKS, FEW_SIZES) for lab in LABS),
    ):
        title = next(p.title for p in PARTS if p.name == part)
        for regime in REGIMES:
            for collective in (*JUDGED, *OTHERS):
                for shape in SHAPES:
                    wanted = points(collective, shape, ranks, sizes)
                    base = best_variant(results[part], regime, host, wanted) or PLAIN
                    for ratio in known_ratios(results[part], wanted, regime, host, base=base):
                        yield title, regime, collective, SHAPE_NAMES[shape], ratio


def _slower(page: Path, results: dict[str, Results], hosts: list[str]) -> list[str]:
    """Return how many points a host alone is faster at; each of them is in the table beside it."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    points_lost = []
    for host in hosts:
        ratios: dict[tuple[str, str], list[Ratio]] = {}
        for title, regime, collective, shape, ratio in _compared(results, host):
            ratios.setdefault((title, regime), []).append(ratio)
            if ratio.slower:
                what = [title, regime, collective, shape, host, ratio.point.size_bytes]
                points_lost.append([*what, f"{ratio.value:.2f}"])
        for where, found in ratios.items():
            lost = [r.value for r in found if r.slower]
            smallest = f" (down to {min(lost):.2f})" if lost else ""
            cells.setdefault(where, {})[host] = f"{len(lost)} of {len(found)}{smallest}"
    header = ["part", "regime", "collective", "buffers", "host", "size_bytes", "ratio"]
    file = data_file(page, "slower")
    write_csv(file, header, points_lost)
    if not points_lost:
        return []
    rows = [
        [f"{title}, {regime}", *(found.get(host, DASH) for host in hosts)]
        for (title, regime), found in cells.items()
    ]
    return [
        "## Where the host alone is faster",
        "",
        "Points (a collective with one size of message and one kind of buffers) at which Overdrive "
        "is slower, and the smallest ratio; all of them are in "
        f"{link(file)}.",
        "",
        *table(["", *(HOST_TITLES[host] for host in hosts)], rows),
    ]


DRIVERS_CHAPTER = "## Drivers of reductions"
PIPELINE_CHAPTER = "## Segments in flight between nodes"
OF_ONE_PART = {"drivers": DRIVERS_CHAPTER, "pipeline": PIPELINE_CHAPTER}
"""Chapters that need the samples of one part only."""
SHAPE_NAMES = {
    "usual": "unchanged",
    NET: "rewritten, the call alone",
    APP: "rewritten, whole cycle",
    WORK: "the work alone",
}


def _method(results: dict[str, Results]) -> list[str]:
    counts = [
        [part.title, *(str(results[part.name].counts[key]) for key in (*REGIMES, "noisy"))]
        for part in PARTS
    ]
    return [
        "## How it is measured",
        "",
        "A batch of calls follows each other without a pause; before and after it all ranks wait "
        "for each other, without MPI. A batch lasts some milliseconds. Its time is that from the "
        "first rank's start to the last rank's end, divided by the number of calls. Bcast, reduce, "
        "gather and scatter have another root in each call and a scan changes its direction, so "
        "that no rank runs ahead and a call counts until its data have arrived. The size is that "
        "of the buffer; for allgather, alltoall, gather and scatter the block that one rank sends "
        "to one rank; for reduce_scatter all blocks together. Reductions add doubles.",
        "",
        "*Unchanged* buffers are never rewritten. *Rewritten*: as in an application, each rank "
        "writes all that it contributes before each call and reads all that it gets after it, and "
        "everything is timed (*whole cycle*). The same writing and reading without the calls is "
        "measured beside it; *the call alone* is the difference: what the call costs, including "
        "what it makes the program's own accesses cost. Every word of every result is compared "
        "once for each size and root (where calls take long, for as many roots as a second has "
        "room for), and with rewritten buffers the sum of all that was read.",
        "",
        "The compared variants are jobs that run at the same time and take turns: while one takes "
        "a sample the others sleep, and the order changes from round to round. Before and after "
        "each sample two ranks exchange one cache line without MPI: one-way times below "
        f"{NEAR_BELOW_NS:.0f} ns count as *near* (the cores share a cache), from "
        f"{FAR_FROM_NS:.0f} to {FAR_TO_NS:.0f} ns as *far*. Other samples are dropped, and those "
        f"in which a rank waited for its core for more than {MAX_WAITED:.0%} of the time, with "
        f"more ranks than cores those during which other programs used more than "
        f"{MAX_FOREIGN_CORES:g} cores. A ratio is the median over rounds of the ratio within a "
        "round; a mean is a geometric mean.",
        "",
        "With eight ranks nothing is pinned, and calls of a host that never gives its core away "
        "take up to seconds. Then the time does not suffice for all points of a round: it ends "
        "with the point that is under way, and the next run has them in another order. In the lab "
        "(`overdrive lab`) four nodes of two ranks "
        "share the two cores: its times are those of all nodes' work on two cores, not of wires. "
        "There MPICH, which never gives its core away, polls with short sleeps by a preloaded "
        "library (`tests/support/idle.c`), with and without Overdrive alike.",
        "",
        *table(["samples of", *REGIMES, "dropped"], counts),
    ]


def _drivers(results: Results, hosts: list[str]) -> list[str]:
    lines = []
    for collective in REDUCTIONS:
        for shape, name in SHAPES.items():
            wanted = points(collective, shape, 2, DRIVER_SIZES)
            for regime in REGIMES:
                for host in hosts:
                    ratios = {
                        r.point.size_bytes: r.value
                        for r in driver_ratios(results, wanted, regime, host)
                    }
                    if ratios:
                        cells = [number(ratios.get(size)) for size in parse_sizes(DRIVER_SIZES)]
                        lines.append([f"{collective}, {name}, {regime}", *cells])
    if not lines:
        return []
    return [
        DRIVERS_CHAPTER,
        "",
        "How many times as fast the segmented driver is as the generic one, 2 ranks. A reduce by "
        "two ranks is not divided at all, and neither cuts vectors that are a slice of a segment "
        "for each rank: there both do the same.",
        "",
        *table(["", *map(size_name, parse_sizes(DRIVER_SIZES))], lines),
    ]


def _pipeline(results: Results, around: Circumstances) -> list[str]:
    """Show that work inside nodes and messages between them overlap."""
    picture = [entry for entry in around.pictures if entry[0].endswith(PICTURE)]
    if not picture:
        return []
    measured_picture = [entry for entry in around.pictures if entry[0].endswith(MEASURED_PICTURE)]
    measured_lines = [
        "The same call as it was in the virtual cluster, of median length: the ranks noted the "
        "times of their steps (`OVERDRIVE_TIMELINE`, `overdrive study timeline --measured`). "
        "Overlap can save no more than the time inside the nodes, which on links as slow as these "
        "is little; segments that are on the way together share the link and finish late, which "
        "can cost more.",
        "",
        *(f"![{text}]({file})" for file, text in measured_picture),
        "",
    ]
    rows = []
    for size_bytes in parse_sizes(PIPELINE_SIZES):
        size = size_name(size_bytes)
        reports = time_lines(size)
        spans = [timeline.overlaps(report) for report in reports.values()]
        point = Point(COLLECTIVE, "usual", "blocking", "all", size_bytes, LAB_RANKS)
        for (name, report), nodes in zip(reports.items(), spans, strict=True):
            both, inside, between = (
                sum(node[what] for node in nodes) / len(nodes) / 1e3
                for what in ("both", "inside", "between")
            )
            values = in_any_regime(results, "openmpi4", name, point)
            measured = number(median_high(values)) if len(values) >= MIN_SAMPLES else DASH
            simulated = number(report["last_ns"] / 1e3)
            rows.append([size, name, *map(number, (inside, between, both)), simulated, measured])
    header = ["", "", "inside", "between nodes", "both at once", "simulated", "measured"]
    return [
        PIPELINE_CHAPTER,
        "",
        f"An {COLLECTIVE} by {PIPELINE_ALGORITHM} between leaders and in shared memory inside "
        f"{LAB_NODES} nodes of 2 ranks, with links of 1 Gbit/s. Long vectors are cut into segments "
        f"of {PIPELINES['segments']} (`OVERDRIVE_ADJUST_ALLREDUCE_PIPELINE`), of which some are "
        "inside the nodes while others are between them. The picture shows the library's own "
        "schedules on its simulator (`overdrive study timeline`), above with the vector uncut, "
        f"below in segments, {PICTURE_SIZE}: uncut, the network waits until the nodes have added "
        "and the nodes wait for the network; in segments something is going on inside the nodes "
        "while others are on the way.",
        "",
        f"![{picture[0][1]}]({picture[0][0]})",
        "",
        *(measured_lines if measured_picture else []),
        "Microseconds, per node; *measured* is the median in the virtual cluster with Overdrive "
        "over Open MPI 4.1, where eight ranks share two cores. What is done inside the nodes is "
        "all that overlap can hide; a segment's messages between nodes are shorter, and each of "
        "them has its own cost.",
        "",
        *table(header, rows),
    ]


def _selection(results: Results) -> list[str]:
    look_ups, tables = selection_ns(results), selection_ns(results, "table")
    schedules = selection_ns(results, "schedule")
    if not look_ups:
        return []
    rows = [
        [name, number(ns), number(tables[name] / 1e3)]
        + ([number(schedules[name] / 1e3)] if schedules else [])
        for name, ns in look_ups.items()
    ]
    header = ["", "a call, ns", "the table, µs", "a schedule of 64 ranks, µs"]
    return [
        "Choosing an algorithm for a call (`bench/coll/od_select.cc`, 64 ranks on 8 nodes, with "
        "some rules in the environment), and making the table that is searched, once per "
        "communicator and collective at first use:",
        "",
        *table(header if schedules else header[:-1], rows),
    ]


def _cost(results: Results, hosts: list[str]) -> list[str]:
    rows = []
    for host in hosts:
        for variant in (PLAIN, OVERDRIVE):
            for regime in REGIMES:
                found = first_use_us(results, regime, host, variant)
                if found:
                    text = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
                    rows.append([variant_title(host, variant), regime, text])
    growths = [
        [
            HOST_TITLES[host],
            *(number(growth_kib(results, host, variant)) for variant in (PLAIN, OVERDRIVE)),
        ]
        for host in hosts
        if growth_kib(results, host, PLAIN) is not None
    ]
    if not rows and not growths:
        return []
    return [
        "## Cost",
        "",
        "What the first call on a new communicator takes beyond a third one, in µs, median:",
        "",
        *table(["over", "regime", "call"], rows),
        *_selection(results),
        "Growth of a rank's memory in KiB while 10,000 communicators are made, used (allreduce, "
        "bcast, barrier) and freed, after a first thousand. Up to 1,536 KiB of it are cells that a "
        "rank makes ready while it waits, whether communicators come and go or not:",
        "",
        *table(["over", "host alone", "with Overdrive"], growths),
    ]


DETAILS = "coll-details.md"


def _details(results: dict[str, Results], hosts: list[str], around: Circumstances) -> list[str]:
    """Return the lines of the page of details."""
    return [
        *opening("Collectives: how they were measured, and single mechanisms", "coll.py", around),
        *_method(results),
        *_drivers(results["drivers"], hosts),
        *_pipeline(results["pipeline"], around),
        *_cost(results["cost"], hosts),
    ]


def _renew(
    path: Path, results: dict[str, Results], around: Circumstances, chapters: list[str]
) -> list[Finding]:
    """Write again what only some parts tell; their findings take the place of earlier ones."""
    hosts = [host for host in FIVE if host in around.versions]
    topics = [DRIVERS_TOPIC] if "drivers" in around.only else []
    again = [finding for finding in judge(results, hosts) if finding.topic in topics]
    kept = [finding for finding in read_findings(path) if finding.topic not in topics]
    findings = [*kept, *again]
    goals = goals_section(path, findings, "the host alone")
    write(path, replaced(path.read_text().splitlines(), goals))
    details = path.with_name(DETAILS)
    rows = [f"| {part.title} |" for part in PARTS if part.name in around.only]
    new = _details(results, hosts, around)
    write(details, renewed(details.read_text().splitlines(), new, chapters, rows))
    return findings


def write_page(path: Path, results: dict[str, Results], around: Circumstances) -> list[Finding]:
    """Write the pages and return the findings that are in them; results by part."""
    chapters = [OF_ONE_PART[part] for part in around.only if part in OF_ONE_PART]
    if chapters:
        return _renew(path, results, around, chapters)
    hosts = [host for host in FIVE if host in around.versions]
    findings = judge(results, hosts)
    shown = [picture for picture in around.pictures if PICTURE not in picture[0]]
    lines = [
        *opening("Collectives: what is faster, and by how much", "coll.py", around),
        f"How it is measured, and what single mechanisms do: [{DETAILS}]({DETAILS}). Times of "
        "every size with their quartiles: `data/coll-*.csv`.",
        "",
        *_summary(results, hosts),
        *_slower(path, results, hosts),
        *goals_section(path, findings, "the host alone"),
        *pictures(replace(around, pictures=shown)),
    ]
    write(path, lines)
    write(path.with_name(DETAILS), _details(results, hosts, around))
    return findings

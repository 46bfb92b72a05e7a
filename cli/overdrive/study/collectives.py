"""`overdrive study collectives`: which algorithm wins where, by simulation, up to large clusters.

The library's own schedules run on its simulator (a LogGP machine, docs/design/collectives.md);
where a simulation would be too large the model's closed form stands in, and the table says which.
Beside the best algorithm it shows what the fixed rules of other MPI libraries would choose on the
same machine: their thresholds, our schedules.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from overdrive import collectives
from overdrive.arguments import Parser, number
from overdrive.errors import CommandError
from overdrive.installation import Installation

COLLECTIVES = ("barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall")
SIZES = (8, 64, 512, 4096, 32768, 262144, 2097152)
NODES = tuple(2**i for i in range(1, 13))
KIB = 1024


@dataclass(frozen=True)
class Outcome:
    """One algorithm at one point."""

    collective: str
    bytes: int
    nodes: int
    per_node: int
    algorithm: str
    mode: str
    ns: int
    simulated: bool


def mpich_choice(collective: str, bytes_: int, ranks: int) -> str:
    """Return the algorithm of MPICH's classic fixed rules (Thakur, Rabenseifner, Gropp 2005)."""
    power = ranks & (ranks - 1) == 0
    if collective == "barrier":
        return "dissemination"
    if collective == "bcast":
        if bytes_ < 12 * KIB or ranks < 8:
            return "binomial"
        return "scatter_doubling" if bytes_ < 512 * KIB and power else "scatter_ring"
    if collective == "reduce":
        return "binomial" if bytes_ <= 2 * KIB else "rabenseifner"
    if collective == "allreduce":
        return "recursive_doubling" if bytes_ <= 2 * KIB else "rabenseifner"
    if collective == "allgather":
        total = bytes_ * ranks
        if total < 512 * KIB and power:
            return "recursive_doubling"
        return "bruck" if total < 80 * KIB else "ring"
    if collective == "alltoall":
        if bytes_ <= 256 and ranks >= 8:
            return "bruck"
        return "linear" if bytes_ <= 32 * KIB else "pairwise"
    raise CommandError(f"no rule for {collective}")


def openmpi_choice(collective: str, bytes_: int, ranks: int) -> str:
    """Return the algorithm of Open MPI's classic fixed rules (tuned, before its tables)."""
    if collective == "barrier":
        return "recursive_doubling" if ranks & (ranks - 1) == 0 else "dissemination"
    if collective == "bcast":
        if bytes_ < 2 * KIB:
            return "binomial"
        return "split_binary" if bytes_ < 370728 else "chain"
    if collective == "reduce":
        if bytes_ < 4 * KIB:
            return "binomial"
        return "chain" if bytes_ >= 512 * KIB else "binary"
    if collective == "allreduce":
        if bytes_ < 10000:
            return "recursive_doubling"
        if bytes_ // 8 <= ranks:  # not one element per rank
            return "reduce_bcast"
        return "ring" if bytes_ < ranks << 20 else "segmented_ring"
    if collective == "allgather":
        total = bytes_ * ranks
        if total < 50000:
            return "recursive_doubling" if ranks & (ranks - 1) == 0 else "bruck"
        return "neighbour_exchange" if ranks % 2 == 0 else "ring"
    if collective == "alltoall":
        if bytes_ < 200 and ranks > 12:
            return "bruck"
        return "linear" if bytes_ < 3000 else "pairwise"
    raise CommandError(f"no rule for {collective}")


RULES = {"MPICH's rules": mpich_choice, "Open MPI's rules": openmpi_choice}


def outcomes(
    installation: Installation,
    environment: Mapping[str, str],
    collective: str,
    bytes_: int,
    nodes: int,
    per_node: int,
    most_steps: int,
) -> list[Outcome]:
    """Return what every algorithm costs at one point."""
    report, _ = collectives.query(
        installation, environment, "simulate", collective, str(bytes_), "--ranks",
        str(nodes * per_node), "--nodes", str(nodes), "--most-steps", str(most_steps),
    )  # fmt: skip
    return [
        Outcome(
            collective, bytes_, nodes, per_node, item["algorithm"], item["mode"],
            item.get("simulated_ns", item["model_ns"]), "simulated_ns" in item,
        )
        for item in report
    ]  # fmt: skip


def best(found: Iterable[Outcome]) -> Outcome:
    """Return the fastest."""
    return min(found, key=lambda outcome: outcome.ns)


def ruled(found: Sequence[Outcome], choice: str) -> Outcome | None:
    """Return what a flat algorithm costs; None where it cannot run."""
    flat = [item for item in found if item.algorithm == choice and item.mode == "flat"]
    return flat[0] if flat else None


def summary(points: Sequence[Sequence[Outcome]]) -> list[dict[str, object]]:
    """Return one row per point: the winner, and how much slower the rules' choices are."""
    rows: list[dict[str, object]] = []
    for found in points:
        winner = best(found)
        row: dict[str, object] = {
            "collective": winner.collective, "bytes": winner.bytes, "nodes": winner.nodes,
            "ranks_per_node": winner.per_node, "winner": winner.algorithm, "mode": winner.mode,
            "us": winner.ns / 1000, "method": "simulated" if winner.simulated else "model",
        }  # fmt: skip
        for title, rule in RULES.items():
            choice = rule(winner.collective, winner.bytes, winner.nodes * winner.per_node)
            other = ruled(found, choice)
            row[title] = choice
            row[f"{title}: times slower"] = (
                round(other.ns / winner.ns, 3) if other is not None and winner.ns else ""
            )
        rows.append(row)
    return rows


def draw(rows: Sequence[Mapping[str, object]], folder: Path) -> list[Path]:
    """Draw one figure per collective: who wins where, and what the rules lose."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    paths = []
    for collective in dict.fromkeys(str(row["collective"]) for row in rows):
        mine = [row for row in rows if row["collective"] == collective]
        nodes = sorted({int(str(row["nodes"])) for row in mine})
        sizes = sorted({int(str(row["bytes"])) for row in mine})
        names = sorted({f"{row['winner']}/{row['mode']}" for row in mine})
        figure, panes = plt.subplots(1, 1 + len(RULES), figsize=(15, 0.45 * len(sizes) + 3))
        cells = {(row["nodes"], row["bytes"]): row for row in mine}
        winners = [
            [names.index(f"{cells[n, b]['winner']}/{cells[n, b]['mode']}") for n in nodes]
            for b in sizes
        ]
        colours = plt.get_cmap("tab10", max(len(names), 2))
        panes[0].imshow(winners, origin="lower", aspect="auto", cmap=colours,
                        vmin=-0.5, vmax=max(len(names), 2) - 0.5)  # fmt: skip
        panes[0].set_title("fastest (S: simulated, M: model)", fontsize=9)
        handles = [plt.Rectangle((0, 0), 1, 1, color=colours(i)) for i in range(len(names))]
        figure.legend(handles, names, loc="lower center", ncol=4, fontsize=8)
        for y, b in enumerate(sizes):
            for x, n in enumerate(nodes):
                letter = str(cells[n, b]["method"])[0].upper()
                panes[0].text(x, y, letter, ha="center", va="center", fontsize=7)
        for pane, title in zip(panes[1:], RULES):
            key = f"{title}: times slower"
            values = [[float(str(cells[n, b][key] or "nan")) for n in nodes] for b in sizes]
            pane.imshow(values, origin="lower", aspect="auto", cmap="Reds", vmin=1, vmax=10)
            pane.set_title(f"{title}: times as long", fontsize=9)
            for y, line in enumerate(values):
                for x, value in enumerate(line):
                    pane.text(x, y, f"{value:.3g}", ha="center", va="center", fontsize=6)
        for pane in panes:
            pane.set_xticks(range(len(nodes)), [str(n) for n in nodes], fontsize=7)
            pane.set_yticks(range(len(sizes)), [str(b) for b in sizes], fontsize=7)
            pane.set_xlabel("nodes")
            pane.set_ylabel("bytes")
        figure.suptitle(f"{collective}, {mine[0]['ranks_per_node']} ranks per node")
        figure.tight_layout(rect=(0, 0.12, 1, 1))
        path = folder / f"collectives_{collective}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        paths.append(path)
    return paths


def parser() -> Parser:
    """Return what reads the options."""
    made = Parser(
        prog="overdrive study collectives",
        description="Which algorithm wins where, by simulation of the library's own schedules.",
    )
    made.add_argument("--output", type=Path, default=Path("study"), help="folder for the results")
    made.add_argument("--per-node", type=number(1, 1 << 20), default=64, help="ranks on each node")
    made.add_argument("--nodes", default=",".join(map(str, NODES)), help="numbers of nodes")
    made.add_argument("--collectives", default=",".join(COLLECTIVES))
    made.add_argument(
        "--most-steps", type=number(1, 1 << 24), default=1_000_000,
        help="larger simulations are replaced by the model",
    )  # fmt: skip
    made.add_argument("--sizes", default=",".join(map(str, SIZES)), help="in bytes")
    made.add_argument("--no-plots", action="store_true", help="write the table only")
    return made


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Simulate, write table and figures; return the exit status."""
    chosen = parser().parse_args(arguments)
    try:
        nodes = [int(text) for text in chosen.nodes.split(",")]
        sizes = [int(text) for text in chosen.sizes.split(",")]
    except ValueError as reason:
        raise CommandError("--nodes and --sizes take numbers separated by commas") from reason
    if min(nodes) < 1 or min(sizes) < 0:
        raise CommandError("--nodes takes numbers from 1 on, --sizes from 0 on")
    for collective in chosen.collectives.split(","):
        if collective not in COLLECTIVES:
            raise CommandError(f"'{collective}' is not one of {', '.join(COLLECTIVES)}")
    chosen.output.mkdir(parents=True, exist_ok=True)
    points: list[list[Outcome]] = []
    for collective in chosen.collectives.split(","):
        for count in nodes:
            print(f"{collective}, {count} nodes", file=sys.stderr)
            for size in (0,) if collective == "barrier" else sizes:
                points.append(
                    outcomes(
                        installation,
                        environment,
                        collective,
                        size,
                        count,
                        chosen.per_node,
                        chosen.most_steps,
                    )
                )
    rows = summary(points)
    table = chosen.output / "collectives.csv"
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(table)
    if not chosen.no_plots:
        try:
            for path in draw(rows, chosen.output):
                print(path)
        except ImportError as reason:
            raise CommandError(
                f"figures need matplotlib ({reason}); --no-plots leaves them out"
            ) from reason
    return 0

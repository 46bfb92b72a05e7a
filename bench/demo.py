#!/usr/bin/env python3
"""Shows what Overdrive does to real, unmodified programs: equal results, and what became faster.

Runs NetPIPE and LAMMPS of the distribution over Open MPI and MPICH, alternately without and with
Overdrive, compares their results and prints a table; writes build/demo/demo.csv and demo.png.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from analysis import regime_of_probes
from jobs import BUILD, ROOT, build_regime_probe, end_jobs_on_termination, exchange_ns, library
from real_programs import PROGRAMS, Metric, Result, differences, run, why_unavailable

FOLDER = BUILD / "demo"
PAIRS = 5
BUSY_CORES = 0.3
"""If other processes use more than this, the figures are said to be unreliable."""
MAX_TRIES = 3
"""At most this many times as many runs as wanted, to get enough in one regime."""
NEVER_NS = -1.0
UNKNOWN = "unknown"
REGIME_TITLES = {
    "near": "cores near",
    "far": "cores far",
    "noisy": "mixed regimes",
    UNKNOWN: "mixed regimes",
}
HOST_TITLES = {"openmpi4": "Open MPI 4.1", "openmpi5": "Open MPI 5.0", "mpich4": "MPICH 4.0"}
NETPIPE_SHOWN = ["8 B", "1024 B", "8192 B", "65536 B", "262144 B", "1048576 B"]
SHOWN = {
    "netpipe": [f"{size} one way" for size in NETPIPE_SHOWN],
    "lammps": ["speed", "communication"],
    "hpcc": ["ping-pong 8 B", "ping-pong 2 MB", "ring 2 MB", "matrix transpose", "FFT", "Linpack"],
}


@dataclass(frozen=True)
class Scene:
    """One program over one host."""

    program: str
    host: str
    ranks: int

    @property
    def title(self) -> str:
        """Return what the table and the picture call it."""
        program = PROGRAMS[self.program].title.split(",")[0]
        return f"{program} over {HOST_TITLES[self.host]}, {self.ranks} ranks"


SCENES = [
    Scene("netpipe", "openmpi4", 2),
    Scene("netpipe", "mpich4", 2),
    Scene("netpipe", "openmpi5", 2),
    Scene("lammps", "openmpi4", 2),
    Scene("lammps", "openmpi4", 4),
]


@dataclass
class Outcome:
    """The runs of a scene: medians without and with Overdrive, and what is wrong.

    Both medians are from runs in one distance regime of the two cores, because a virtual machine
    can move between regimes within seconds and that changes figures more than anything else.
    """

    scene: Scene
    plain: dict[str, Metric] = field(default_factory=dict)
    overdrive: dict[str, Metric] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    foreign_cores: float = 0.0
    regime: str = ""
    runs: int = 0

    @property
    def title(self) -> str:
        """Return the scene with its regime."""
        return (
            f"{self.scene.title}, {REGIME_TITLES[self.regime]}" if self.regime else self.scene.title
        )

    def gain(self, name: str) -> float:
        """Return how many times better a figure is with Overdrive."""
        before, after = self.plain[name], self.overdrive[name]
        ratio = before.value / max(after.value, 1e-12)
        return 1 / max(ratio, 1e-12) if before.higher_is_better else ratio


def _medians(results: list[Result]) -> dict[str, Metric]:
    return {
        name: Metric(
            statistics.median(r.metrics[name].value for r in results if name in r.metrics),
            metric.unit,
            metric.higher_is_better,
        )
        for name, metric in results[0].metrics.items()
    }


class Player:
    """Runs scenes alternately without and with Overdrive until one regime has enough of both."""

    def __init__(self, pairs: int, lib: Path, niceness: int) -> None:
        """Prepare the probe of the regime."""
        self.pairs, self.lib, self.niceness = pairs, lib, niceness
        self.probe = build_regime_probe()

    def _run(self, scene: Scene, overdrive: bool) -> tuple[str, Result]:
        before = exchange_ns(self.probe) if self.probe else NEVER_NS
        result = run(
            scene.program,
            scene.host,
            overdrive,
            ranks=scene.ranks,
            lib=self.lib,
            niceness=self.niceness,
        )
        after = exchange_ns(self.probe) if self.probe else NEVER_NS
        regime = regime_of_probes(before, after) if self.probe else UNKNOWN
        return regime, result

    def play(self, scene: Scene) -> Outcome:
        """Run a scene."""
        outcome = Outcome(scene)
        found: dict[str, dict[bool, list[Result]]] = {}
        for _ in range(self.pairs * MAX_TRIES):
            pair = {}
            for overdrive in (False, True):
                regime, pair[overdrive] = self._run(scene, overdrive)
                kept = found.setdefault(regime, {False: [], True: []})
                kept[overdrive].append(pair[overdrive])
            outcome.problems = differences(pair[False], pair[True])
            if outcome.problems:
                return outcome
            outcome.regime = max(found, key=lambda name: self._completeness(name, found))
            if self._completeness(outcome.regime, found) >= self.pairs:
                break
        best = found[outcome.regime]
        if not best[False] or not best[True]:
            # No regime has runs of both kinds: then all runs together, and it is said.
            outcome.regime = UNKNOWN
            best = {
                kind: [r for kept in found.values() for r in kept[kind]] for kind in (False, True)
            }
        outcome.runs = min(len(best[False]), len(best[True]))
        outcome.foreign_cores = statistics.median(r.foreign_cores for r in best[False] + best[True])
        outcome.plain, outcome.overdrive = _medians(best[False]), _medians(best[True])
        return outcome

    @staticmethod
    def _completeness(regime: str, found: dict[str, dict[bool, list[Result]]]) -> int:
        # Runs between two regimes count only if there is nothing better.
        complete = min(len(found[regime][False]), len(found[regime][True]))
        return complete if regime != "noisy" else 0


def _number(metric: Metric) -> str:
    return f"{metric.value:.4g} {metric.unit}"


def print_table(outcomes: list[Outcome]) -> None:
    """Print what was measured and whether the results were equal."""
    width = 24
    for outcome in outcomes:
        print(f"\n{outcome.title}")
        if outcome.problems:
            print("  RESULTS DIFFER:" if outcome.plain else "  FAILED:")
            for problem in outcome.problems[:8]:
                print(f"    {problem}")
            continue
        print(f"  {'':{width}} {'without':>16} {'Overdrive':>16}   times as good")
        for name in SHOWN[outcome.scene.program]:
            if name in outcome.plain and name in outcome.overdrive:
                before, after = _number(outcome.plain[name]), _number(outcome.overdrive[name])
                print(f"  {name:{width}} {before:>16} {after:>16}   {outcome.gain(name):8.2f}")
        print(f"  results with and without Overdrive: equal; medians of {outcome.runs} runs each")
        if outcome.foreign_cores > BUSY_CORES:
            print(
                f"  caution: other processes used {outcome.foreign_cores:.1f} cores meanwhile; "
                "these figures are unreliable"
            )


def save(outcomes: list[Outcome], path: Path) -> None:
    """Write all figures as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["scene", "figure", "unit", "without", "overdrive", "gain", "shown"])
        for outcome in outcomes:
            for name, before in outcome.plain.items():
                if name in outcome.overdrive:
                    after = outcome.overdrive[name].value
                    shown = int(name in SHOWN[outcome.scene.program])
                    row = [outcome.title, name, before.unit, before.value, after]
                    writer.writerow([*row, f"{outcome.gain(name):.4f}", shown])


def draw(data: Path, picture: Path) -> None:
    """Draw the picture with an interpreter that has matplotlib."""
    setup = str(ROOT / "tools" / "setup" / "environments.py")
    found = subprocess.run([sys.executable, setup], stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode != 0:
        print("demo: no picture: matplotlib cannot be installed", file=sys.stderr)
        return
    interpreter = found.stdout.strip().splitlines()[-1]
    script = str(ROOT / "bench" / "demo_plot.py")
    if subprocess.run([interpreter, script, str(data), str(picture)], check=False).returncode == 0:
        print(f"\npicture: {picture}\nfigures: {data}")


def main() -> int:
    """Run the demo; fails if a program fails or a result differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help="alternating runs of each")
    parser.add_argument("--hosts", help="comma-separated; all that have the programs by default")
    parser.add_argument("--preset", default="release", help="build whose library is used")
    parser.add_argument(
        "--library", dest="lib", type=Path, help="the library itself instead of a preset"
    )
    parser.add_argument("--nice", type=int, default=0, help="niceness of the runs")
    options = parser.parse_args()
    end_jobs_on_termination()
    lib = (options.lib or library(options.preset)).resolve()
    if not lib.exists():
        print(f"demo: {lib} is missing; run `make` first", file=sys.stderr)
        return 2
    outcomes = []
    player = Player(options.pairs, lib, options.nice)
    for scene in SCENES:
        if options.hosts and scene.host not in options.hosts.split(","):
            continue
        missing = why_unavailable(scene.program, scene.host)
        if missing:
            print(f"demo: skipping {scene.title}: {missing}", file=sys.stderr)
            continue
        print(f"demo: {scene.title} ...", file=sys.stderr, flush=True)
        outcomes.append(player.play(scene))
    print_table(outcomes)
    save(outcomes, FOLDER / "demo.csv")
    draw(FOLDER / "demo.csv", FOLDER / "demo.png")
    if not outcomes:
        print("demo: none of the programs can run here", file=sys.stderr)
        return 1
    return 1 if any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

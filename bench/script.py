"""What the scripts share that measure a page part by part.

Each part has its share of the time and a file of raw samples of its own, so that a page can be
measured in short pieces and evaluated again. A script adds options of its own to `Script.parser`,
says how parts are measured, and hands all that to `Script.run`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from analysis import Results
from campaign import PROGRAMS, Sample, load_part, samples_file
from goals import Finding
from jobs import ROOT, Host, end_jobs_on_termination, select_hosts
from page import Circumstances, draw, print_findings, usual_facts


class Part(Protocol):
    """What is asked of a part here."""

    @property
    def name(self) -> str:
        """Return what it is called on the command line and in names of files."""

    @property
    def share(self) -> float:
        """Return its share of the time."""


SomePart = TypeVar("SomePart", bound=Part)
Measure = Callable[[argparse.Namespace, list[Host]], list[str]]
"""Measures the wanted parts and returns what failed."""
WritePage = Callable[[Path, dict[str, Results], Circumstances], list[Finding]]


@dataclass(frozen=True)
class Script(Generic[SomePart]):
    """One of the scripts."""

    file: str
    name: str
    """What its page, its data, its pictures and the folder of its raw samples are called after."""
    parts: Sequence[SomePart]
    budget_seconds: float
    quick_seconds: float

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        """Return a parser of the options that all scripts have."""
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add = parser.add_argument
        add("--budget", type=float, metavar="S", help=f"seconds to measure ({self.budget_seconds})")
        add("--quick", action="store_true", help="few samples of everything")
        add("--hosts", "--host", help="comma-separated; all by default")
        add("--only", "--part", help=f"comma-separated parts of: {self._names()}")
        add("--preset", default="release", help="build whose library is used")
        add("--nice", type=int, default=0, help="niceness of the runs; negative needs privilege")
        add("--add", action="store_true", help="add to the samples of earlier runs")
        add("--evaluate", action="store_true", help="only evaluate earlier samples")
        text = "write anew only what the page says of the parts of --only alone"
        add("--renew", action="store_true", help=text)
        add("--build", action="store_true", help="only compile the programs")
        add("--no-page", action="store_true", help="measure, but write no page")
        samples = PROGRAMS / self.name
        add("--samples", type=Path, default=samples, help="folder of the raw samples")
        page = ROOT / "docs" / "measurements" / f"{self.name}.md"
        add("--page", type=Path, default=page, help="where the page goes")
        add("--note", action="append", default=[], help="a sentence for the page on these samples")
        add("--no-plots", action="store_true", help="draw no pictures")
        return parser

    def parse(
        self, parser: argparse.ArgumentParser, arguments: Sequence[str]
    ) -> argparse.Namespace:
        """Read the command line; parts that do not exist end the script."""
        options = parser.parse_args(arguments)
        known = {part.name for part in self.parts}
        if options.only and (unknown := set(options.only.split(",")) - known):
            text = ", ".join(sorted(unknown))
            parser.error(f"unknown part {text}; known: {self._names()}")
        return options

    def _names(self) -> str:
        return ", ".join(part.name for part in self.parts)

    def wanted(self, options: argparse.Namespace) -> list[SomePart]:
        """Return the parts that the command line asks for."""
        names = options.only.split(",") if options.only else None
        return [part for part in self.parts if names is None or part.name in names]

    def in_turn(
        self, options: argparse.Namespace, parts: Sequence[SomePart]
    ) -> Iterator[tuple[SomePart, float]]:
        """Yield parts with the seconds of each; earlier samples go unless more are to be added."""
        usual = self.quick_seconds if options.quick else self.budget_seconds
        budget = options.budget or usual
        whole = sum(part.share for part in parts)
        for part in parts:
            if not options.add:
                samples_file(part.name, options.samples).unlink(missing_ok=True)
            yield part, budget * part.share / whole

    def run(
        self,
        options: argparse.Namespace,
        lib: Path | None,
        measure: Measure,
        refine: Callable[[list[Sample]], list[Sample]],
        write_page: WritePage,
    ) -> int:
        """Measure and write the page; `refine` makes the samples of the page from raw ones."""
        end_jobs_on_termination()
        hosts, missing = select_hosts(options.hosts)
        for name, why in missing.items():
            print(f"bench: {name} is NOT measured: {why}", file=sys.stderr)
        failures: list[str] = []
        if not options.evaluate:
            if lib is not None and not lib.exists() and not options.build:
                print(f"bench: {lib} is missing: build Overdrive first (make)", file=sys.stderr)
                return 1
            started = time.monotonic()
            failures = measure(options, hosts)
            if not options.build:
                _note_seconds(options, time.monotonic() - started)
            if options.build or options.no_page:
                return 1 if failures else 0
            # Also those that were not measured now have samples, perhaps.
            hosts, missing = select_hosts(None)
        results: dict[str, Results] = {}
        everything: list[Sample] = []
        renewed = [part.name for part in self.wanted(options)] if options.renew else []
        for part in self.parts:
            samples = refine(load_part(part.name, options.samples))
            everything += samples
            results[part.name] = Results(samples)
            data = options.page.parent / "data" / f"{self.name}-{part.name}.csv"
            if not options.renew or part.name in renewed:
                results[part.name].save_cells(data)
        around = self._circumstances(options, everything, hosts, missing, failures)
        around = replace(around, only=renewed)
        print_findings(write_page(options.page, results, around))
        print(f"bench: wrote {options.page}")
        return 0

    def _circumstances(
        self,
        options: argparse.Namespace,
        samples: list[Sample],
        hosts: list[Host],
        missing: dict[str, str],
        failures: list[str],
    ) -> Circumstances:
        measured = {sample.host for sample in samples}
        folder = options.page.parent / "plots"
        return Circumstances(
            {host.name: host.version for host in hosts if host.name in measured},
            missing,
            self._reproduction(options),
            usual_facts(options.nice, options.note, samples, failures),
            [] if options.no_plots else draw(f"{self.name}_plots.py", options.samples, folder),
        )

    def _reproduction(self, options: argparse.Namespace) -> str:
        """Return the one command that measures as much as the calls that made the samples."""
        seconds = _seconds_noted(options.samples) or self.budget_seconds
        command = ["python3", f"bench/{self.file}", "--budget", f"{round(seconds, -1):.0f}"]
        return shlex.join([*command, *(["--nice", str(options.nice)] if options.nice else [])])


def _seconds_noted(folder: Path) -> float | None:
    note = folder / "seconds"
    return float(note.read_text()) if note.exists() else None


def _note_seconds(options: argparse.Namespace, seconds: float) -> None:
    """Remember for how long the samples that there are have been measured."""
    before = _seconds_noted(options.samples) if options.add else None
    options.samples.mkdir(parents=True, exist_ok=True)
    (options.samples / "seconds").write_text(f"{(before or 0) + seconds:.0f}")

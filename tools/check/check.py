#!/usr/bin/env python3
"""Runs everything that tells whether Overdrive works: what `make check` and `make check-all` do.

Each part runs in its own process group under a time limit and writes its output to
build/check/<part>.log; only what fails is printed in full. What a part builds is built beside the
parts before it, with the lowest priority, and suspended while tests measure. The last line of the
output is the sum of all parts, `N passed, N failed, N skipped`, and the exit code is zero only if
nothing failed. A part that does not report numbers counts as one test.

With --all also everything that takes hours. Its results are kept in build/check-all, part by part:
an interrupted run goes on where it was, as long as the sources are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import autogroups
from parts import Part, long_parts, short_parts
from steps import ROOT, Count, Lane, Result

LOGS = ROOT / "build" / "check"
LOGS_ALL = ROOT / "build" / "check-all"
LOG_TAIL_LINES = 60
"""How much of a failing part's log is shown; the whole log stays in build/check."""

FAILURES_NAMED = 40
"""How many failing tests the end of the output names."""

LOWEST_PRIORITY = 19


class Preparation:
    """Builds what parts need, one after the other, beside the parts that run."""

    def __init__(self, parts: list[Part], logs: Path) -> None:
        """Begin at once."""
        self.lane = Lane(LOWEST_PRIORITY)
        self.logs = logs
        self.results: dict[str, Result] = {}
        self.done = {part.name: threading.Event() for part in parts}
        self.thread = threading.Thread(target=self._work, args=(parts,), daemon=True)
        self.thread.start()

    def _work(self, parts: list[Part]) -> None:
        for part in parts:
            self.results[part.name] = prepare(part, self.lane, self.logs)
            self.done[part.name].set()

    def wait(self, part: Part) -> Result:
        """Wait until a part has been prepared."""
        self.done[part.name].wait()
        return self.results[part.name]


def prepare(part: Part, lane: Lane, logs: Path) -> Result:
    """Build what a part needs."""
    log = logs / f"{part.name}.log"
    log.write_bytes(b"")
    # With the lowest priority beside tests it takes as long as these.
    limit = part.limit_seconds * (2 if lane.niceness else 1)
    result = lane.run(part.prepare(), log, limit)
    return Result(seconds=result.seconds) if part.prepare_may_fail else result


def run_part(
    part: Part, logs: Path, lane: Lane | None = None, beside: Preparation | None = None
) -> Result:
    """Run a part; return its numbers and, if it failed, why."""
    lane = lane or Lane()
    begin = time.monotonic()
    waits = beside is not None and part.name in beside.done
    prepared = beside.wait(part) if waits else prepare(part, lane, logs)
    if prepared.problem:
        prepared.seconds = time.monotonic() - begin
        return prepared
    result = Result()
    log = logs / f"{part.name}.log"
    for alone, steps in series(part, logs):
        if alone and beside is not None:
            beside.lane.suspend()
        try:
            result.add(lane.run(steps, log, part.limit_seconds))
        finally:
            if alone and beside is not None:
                beside.lane.resume()
    result.seconds = time.monotonic() - begin
    return result


def series(part: Part, logs: Path) -> list[tuple[bool, list]]:
    """Return the steps of a part, those together that run in the same way."""
    found: list[tuple[bool, list]] = []
    for step in part.steps(logs):
        if found and found[-1][0] == step.alone:
            found[-1][1].append(step)
        else:
            found.append((step.alone, [step]))
    return found


def state_of_sources() -> str:
    """Return a word that changes with everything but documentation."""
    digest = hashlib.sha256()
    for words in (("ls-files", "-s"), ("diff", "HEAD", "--", ".", ":!docs")):
        listing = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
        lines = listing.stdout.splitlines()
        if words[0] == "ls-files":
            lines = [line for line in lines if b"\tdocs/" not in line and not line.endswith(b".md")]
        digest.update(b"\n".join(lines))
    return digest.hexdigest()[:16]


class Kept:
    """Results of parts, kept between runs on the same sources."""

    def __init__(self, folder: Path, state: str) -> None:
        """Look into the folder."""
        self.folder = folder
        self.state = state

    def get(self, part: Part) -> Result | None:
        """Return the kept result of a part that passed."""
        path = self.folder / f"{part.name}.json"
        if not path.is_file():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["state"] != self.state or stored["problem"]:
            return None
        return Result(Count(**stored["count"]), "", stored["seconds"])

    def put(self, part: Part, result: Result) -> None:
        """Keep a result."""
        path = self.folder / f"{part.name}.json"
        partial = path.with_suffix(".partial")
        content = {"state": self.state, **asdict(result)}
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
        partial.replace(path)


def run_parts(chosen: list[Part], logs: Path, kept: Kept | None) -> int:
    """Run parts one after the other and print the sum; return the exit code."""
    rows = []
    failures: list[str] = []
    total = Count()
    begin = time.monotonic()
    lane = Lane()
    beside: Preparation | None = None
    try:
        for position, part in enumerate(chosen):
            known = kept.get(part) if kept is not None else None
            print(f"== {part.name}" + (" (kept)" if known else ""), flush=True)
            if part.beside and beside is None and known is None:
                rest = [later for later in chosen[position:] if later.beside]
                if kept is not None:
                    rest = [later for later in rest if kept.get(later) is None]
                beside = Preparation(rest, logs)
            result = known or run_part(part, logs, lane, beside)
            if kept is not None and known is None:
                kept.put(part, result)
            total.add(result.count)
            rows.append((part.name, str(result.count), f"{result.seconds:.0f} s", result.problem))
            if result.problem:
                log = logs / f"{part.name}.log"
                where = log.relative_to(ROOT) if log.is_relative_to(ROOT) else log
                print(f"-- {part.name} FAILED: {result.problem}; the end of {where}:")
                lines = log.read_text(errors="replace").splitlines()
                print("\n".join(lines[-LOG_TAIL_LINES:]))
                found = [f"{part.name}: {line}" for line in result.failures]
                failures += found or [f"{part.name}: {result.problem}"]
            print(f"   {result.count}, {result.seconds:.0f} s", flush=True)
    finally:
        lane.end()
        if beside is not None:
            beside.lane.end()

    print("\nSummary")
    for name, count_text, seconds_text, problem in rows:
        print(f"  {name:18} {count_text:42} {seconds_text:>7}  {problem}")
    print(f"  in all {time.monotonic() - begin:.0f} s")
    # Last, because whoever reads a long log begins at its end.
    for line in failures[:FAILURES_NAMED]:
        print(f"FAILED {line}")
    if len(failures) > FAILURES_NAMED:
        print(f"FAILED and {len(failures) - FAILURES_NAMED} more: see the logs")
    print(total)
    return 1 if total.failed or total.passed == 0 else 0


def pass_wrapper_of_python() -> None:
    """Let `python3` be the interpreter where it is a script that looks for one.

    Version managers install such scripts (pyenv). They take longer than Python itself takes to
    begin, and tests start hundreds of commands.
    """
    found = shutil.which("python3")
    if found is None or Path(found).read_bytes()[:2] != b"#!":
        return
    code = "import sys; print(sys.executable)"
    answer = subprocess.run([found, "-c", code], capture_output=True, text=True, check=False)
    folder = Path(answer.stdout.strip()).parent
    if answer.returncode == 0 and (folder / "python3").exists():
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also what takes hours")
    parser.add_argument("--fresh", action="store_true", help="with --all: forget kept results")
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these")
    options = parser.parse_args()
    every = [*short_parts(), *(long_parts() if options.all else [])]
    names = {word for part in every for word in (part.name, part.group) if word}
    unknown = [name for name in options.parts if name not in names]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; known: {', '.join(sorted(names))}")
    chosen = [
        part for part in every if not options.parts or {part.name, part.group} & set(options.parts)
    ]
    logs = LOGS_ALL if options.all else LOGS
    logs.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        for path in logs.glob("*.json"):
            path.unlink()
    # A check that is told to end leaves through the code that ends what it has started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    pass_wrapper_of_python()
    kept = Kept(logs, state_of_sources()) if options.all else None
    with autogroups.off() as done:
        if done:
            print(done, flush=True)
        return run_parts(chosen, logs, kept)


if __name__ == "__main__":
    sys.exit(main())

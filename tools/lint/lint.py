#!/usr/bin/env python3
"""Checks the style of every source file that git knows, or formats them.

    lint.py            clang-format, ruff, and the rules of the house; ends with a count
    lint.py --tidy     also clang-tidy (minutes; needs a configured build folder)
    lint.py --format   rewrite the files as clang-format and ruff want them

The rules of the house: C++ and Python files open with a comment that says what they are for, no
source file of the library grows beyond 500 lines, includes point down only (includes.py), atomic
operations say what they pair with (atomics.py), the command's modules do not import each other in
circles (imports.py), and what pages name exists (words.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from atomics import lonely_operations
from imports import circles
from includes import wrong_includes
from words import wrong_words

ROOT = Path(__file__).resolve().parents[2]
C_SUFFIXES = {".c", ".cc", ".h", ".hpp"}
MAX_LINES = 500
"""Beyond this a file holds more than one concept."""


def tracked_files() -> list[Path]:
    """Return the files that git knows, or all outside build/ where there is no git."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        names = [name for name in listing.stdout.split("\0") if name]
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
        names = [name for name in names if not name.startswith(("build/", ".git/"))]
    return sorted(ROOT / name for name in names if (ROOT / name).is_file())


def is_python(path: Path) -> bool:
    """Tell whether the file is Python, by its suffix or its first line."""
    if path.suffix == ".py":
        return True
    if path.suffix or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        first = file.readline(80)
    return first.startswith(b"#!") and b"python" in first


def tool(name: str) -> str | None:
    """Return the path of a tool: the development environment's own, else the system's."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


class Report:
    """Counts the checks and prints what fails."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def check(self, title: str, problems: list[str]) -> None:
        """Record one check; problems are printed."""
        if problems:
            self.failed += 1
            print(f"lint: {title}: FAILED")
            for problem in problems:
                print(f"  {problem}")
        else:
            self.passed += 1
            print(f"lint: {title}: ok")

    def skip(self, title: str, why: str) -> None:
        """Record a check that could not be made."""
        self.skipped += 1
        print(f"lint: {title}: skipped, {why}")


def run(command: list[str]) -> list[str]:
    """Run a checker; return its output lines when it complains, else nothing."""
    result = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode == 0:
        return []
    return result.stdout.strip().splitlines() or [f"{command[0]} exit code {result.returncode}"]


def opening_comments(files: list[Path]) -> list[str]:
    """Name the C and C++ files that do not open with a comment."""
    wrong = []
    for path in files:
        text = path.read_text(errors="replace").lstrip()
        if text and not text.startswith(("//", "/*")):
            wrong.append(f"{path.relative_to(ROOT)}: does not open with a comment")
    return wrong


def too_long(files: list[Path]) -> list[str]:
    """Name the library's source files that are longer than MAX_LINES."""
    wrong = []
    for path in files:
        name = path.relative_to(ROOT)
        if name.parts[0] not in ("src", "include") or path.stem.endswith("_test"):
            continue
        count = len(path.read_text(errors="replace").splitlines())
        if count > MAX_LINES:
            wrong.append(f"{name}: {count} lines, more than {MAX_LINES}")
    return wrong


def tidy(files: list[Path], report: Report) -> None:
    """Run clang-tidy over the sources that the release or dev build compiles."""
    builds = [ROOT / "build" / name for name in ("dev", "release")]
    build = next((path for path in builds if (path / "compile_commands.json").exists()), None)
    program = shutil.which("clang-tidy")
    if program is None or build is None:
        report.skip("clang-tidy", "it is not installed, or nothing is configured yet (run make)")
        return
    known = (build / "compile_commands.json").read_text()
    sources = [str(path) for path in files if path.suffix == ".cc" and str(path) in known]
    report.check("clang-tidy", run([program, "-p", str(build), "--quiet", *sources]))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", action="store_true", help="rewrite files instead of checking")
    parser.add_argument("--tidy", action="store_true", help="run clang-tidy as well")
    options = parser.parse_args()

    files = tracked_files()
    c_files = [path for path in files if path.suffix in C_SUFFIXES]
    python_files = [str(path) for path in files if is_python(path)]
    clang_format = shutil.which("clang-format")
    ruff = tool("ruff")

    if options.format:
        if clang_format and c_files:
            subprocess.run([clang_format, "-i", *map(str, c_files)], check=True)
        if ruff and python_files:
            subprocess.run([ruff, "check", "-q", "--fix", *python_files], cwd=ROOT, check=False)
            subprocess.run([ruff, "format", "-q", *python_files], cwd=ROOT, check=True)
        return 0

    report = Report()
    if clang_format is None:
        report.skip("clang-format", "it is not installed")
    else:
        command = [clang_format, "--dry-run", "-Werror", *map(str, c_files)]
        lines = run(command) if c_files else []
        # The first line of each complaint names the place; the excerpts after it only add noise.
        report.check("clang-format", [line for line in lines if "error:" in line][:40] or lines[:1])
    if ruff is None:
        report.skip("ruff", "it is not installed")
    else:
        problems = run([ruff, "check", "--output-format", "concise", *python_files])
        report.check("ruff", problems)
    report.check("opening comments", opening_comments(c_files))
    report.check("length of files", too_long(c_files))
    report.check("includes point down", wrong_includes(ROOT / "src"))
    report.check("atomics say what they pair with", lonely_operations(ROOT / "src"))
    report.check("no import circles", circles(ROOT / "cli" / "overdrive"))
    report.check("what pages name exists", wrong_words(ROOT, files))
    if options.tidy:
        tidy(files, report)
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())

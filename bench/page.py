"""What the pages of measurements share: tables, facts about the machine, goals, pictures."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from goals import HOST_TITLES, Finding
from jobs import ROOT

DASH = "–"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def number(value: float | None) -> str:
    """Return a number with three digits, or a dash."""
    if value is None:
        return DASH
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return "unknown"


def facts(versions: dict[str, str], missing: dict[str, str], extra: list[str]) -> list[str]:
    """Return lines on the machine, the hosts and whatever else the page has to tell."""
    hosts = ", ".join(f"{HOST_TITLES[name]} ({version})" for name, version in versions.items())
    lines = [
        f"- Machine: {_processor()}, {os.cpu_count()} cores; Linux {platform.release()}, "
        f"{_distribution()}.",
        f"- Hosts measured: {hosts}.",
    ]
    lines += [f"- **Not measured: {HOST_TITLES[name]}**: {why}." for name, why in missing.items()]
    return [*lines, *(f"- {line}" for line in extra), ""]


def verdict(met: bool | None) -> str:
    """Return the word for a verdict."""
    return {True: "yes", False: "**no**", None: "?"}[met]


def goals_section(findings: list[Finding], base: str) -> list[str]:
    """Return the chapter of the goals: how many are reached, and each of them."""
    lines = ["## Goals", ""]
    judged = [finding for finding in findings if finding.met is not None]
    met = sum(finding.met is True for finding in judged)
    lines += [
        f"{met} of {len(judged)} figures are reached; {len(findings) - len(judged)} were not "
        f"measured. Ratios are speeds relative to {base}.",
        "",
    ]
    topics = list(dict.fromkeys(finding.topic for finding in findings))
    rows = []
    for topic in topics:
        verdicts = [finding.met for finding in findings if finding.topic == topic]
        rows.append([topic, *(str(verdicts.count(met)) for met in (True, False, None))])
    lines += table(["goal", "reached", "missed", "not measured"], rows)
    for topic in topics:
        group = [finding for finding in findings if finding.topic == topic]
        lines += [f"**{topic}**", ""]
        rows = [[f.host, f.regime, f.goal, f.measured, f.smallest, verdict(f.met)] for f in group]
        header = ["over", "regime", "goal", "measured", "smallest", "reached"]
        lines += table(header, rows)
    return lines


def draw(script: str, samples: Path, folder: Path) -> list[tuple[str, str]]:
    """Let a script of this folder draw its pictures into a folder; return (file, caption) of each.

    The script runs in an interpreter that has matplotlib; without one there are no pictures, and it
    is said so.
    """
    setup = ROOT / "tools" / "setup" / "environments.py"
    found = subprocess.run(
        [sys.executable, str(setup)], stdout=subprocess.PIPE, text=True, check=False
    )
    if found.returncode != 0:
        print("bench: no pictures: matplotlib cannot be installed", file=sys.stderr)
        return []
    interpreter = found.stdout.strip().splitlines()[-1]
    result = subprocess.run(
        [interpreter, str(ROOT / "bench" / script), str(samples), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        print("bench: drawing failed", file=sys.stderr)
    lines = [line.split("\t") for line in result.stdout.splitlines() if "\t" in line]
    return [(f"{folder.name}/{name}", caption) for name, caption in lines]


def replace_path(text: str) -> str:
    """Return the text with paths in the project made relative to it."""
    return text.replace(f"{ROOT}/", "")

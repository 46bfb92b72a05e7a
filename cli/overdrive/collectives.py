"""`overdrive explain` and `overdrive info --algorithms`: collectives as the library sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overdrive import settings
from overdrive.errors import CommandError
from overdrive.installation import Installation

TOOL = "overdrive-collectives"

STRICT_STATUS = 3
"""Exit status of the program when `strict` makes what it found an error."""

USAGE = """\
Usage: overdrive explain COLLECTIVE BYTES [--ranks N] [--nodes N] [--no-commute] [--json]
                         [--set NAME=VALUE]

Tells which algorithm a call gets and why: every rule that was looked at, what each algorithm
costs by the model and, where a rule of the tuning file matches, what `overdrive tune` has measured,
also of the installed MPI library. BYTES is the message size as the collective counts it (it is
shown); sizes may end in K, M or G. --no-commute: the operation of a reduction does not commute.
--set: with this setting, such as --set adjust_bcast=ring.

Ways are named as in the statistics: shared memory (inside a node, no algorithm between ranks),
messages (between all ranks; rules write /flat), both levels (shared memory inside nodes and the
algorithm between them; rules write /hierarchical), host (the installed MPI library).

Example: overdrive explain allreduce 64K --ranks 8 --nodes 2
"""


def query(installation: Installation, environment: Mapping[str, str], *arguments: str) -> Any:
    """Run the library's own program; return what it says and its exit status."""
    path = installation.tool.parent / TOOL if installation.tool is not None else None
    if path is None or not path.exists():
        raise CommandError(
            f"{TOOL} was not found near {installation.home}: run `make` in the checkout, "
            f"or install Overdrive completely"
        )
    done = subprocess.run(
        [str(path), *arguments], env=dict(environment), capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, STRICT_STATUS):
        raise CommandError(done.stderr.strip().splitlines()[0].removeprefix(f"{TOOL}: "))
    return json.loads(done.stdout), done.returncode


def _duration(nanoseconds: float) -> str:
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def _parameters(parameters: Mapping[str, int]) -> str:
    words = {-1: "none"}
    return ", ".join(
        f"{name} {words.get(value, value)}" for name, value in parameters.items() if value
    )


def way_of(item: Mapping[str, Any], nodes: int) -> str:
    """Return the way of a decision in the words of the statistics."""
    if item["algorithm"] == "host":
        return "host"
    if item["mode"] == "flat":
        return "messages"
    return "shared memory" if nodes == 1 else "both levels"


def measured(report: Mapping[str, Any], tuning: Path) -> dict[str, dict[str, float]]:
    """Return what the rules of the tuning file that match were based on.

    By size in bytes: microseconds of the variants, in the words of `overdrive tune`. When one of
    its rules matches, the program has read the file without complaint.
    """
    prefix = f"{tuning}:"
    lines = [
        int(rule["origin"].removeprefix(prefix))
        for rule in report["rules"]
        if rule["origin"].startswith(prefix) and rule["verdict"] != "does not match"
    ]
    if not lines:
        return {}
    text = tuning.read_text(encoding="utf-8")
    of_matching = [text.splitlines()[line - 1] for line in lines]
    found: dict[str, dict[str, float]] = {}
    for rule in json.loads(text)["rules"]:
        # `overdrive tune` writes one rule to a line; what others have written is not looked for.
        if "evidence" in rule and any(json.dumps(rule) in line for line in of_matching):
            found |= rule["evidence"]
    return found


def _described(item: Mapping[str, Any], nodes: int) -> str:
    way = way_of(item, nodes)
    if way == "shared memory" and item["algorithm"].startswith("shared_"):
        return f"{way}, {item['algorithm']}"
    if way in ("host", "shared memory"):
        return way  # no algorithm between ranks takes part
    extra = _parameters(item["parameters"])
    return f"{way}, {item['algorithm']}" + (f" ({extra})" if extra else "")


def render_explanation(report: Mapping[str, Any]) -> str:
    """Return an explanation as text for people."""
    ranks, nodes = report["ranks"], report["nodes"]
    place = "one node" if nodes == 1 else f"{nodes} nodes, up to {report['ranks_per_node']} on each"
    lines = [
        f"{report['collective']}, {report['bytes']} bytes, {ranks} ranks on {place}"
        + ("" if report["commutative"] else ", the operation does not commute"),
        f"  message size: {report['message_size']}",
        "",
        f"Chosen: {_described(report['decision'], nodes)}",
        f"  by {report['decision']['origin']}",
    ]
    name = report["decision"]["algorithm"]
    if way_of(report["decision"], nodes) == "shared memory":
        lines.append(f"  calls that shared memory cannot serve: messages, as {name}")
    lines.append(f"  in rules: {name}/{report['decision']['mode']}, or its number "
                 f"{report['decision']['number']}")  # fmt: skip
    if report["rules"]:
        lines += ["", "Rules, in order"]
        for rule in report["rules"]:
            lines += [f"  {rule['origin']}", f"    {rule['rule']}", f"    {rule['verdict']}"]
    lines += ["", "Cost by the model"]
    for candidate in report["candidates"]:
        reason = f"  {candidate['why_not']}" if candidate["why_not"] else ""
        what = _described(candidate, nodes)
        lines.append(f"  {_duration(candidate['model_ns']):>9}  {what}{reason}")
    if report.get("measured"):
        lines += ["", "Measured by `overdrive tune`, for the rules that match"]
        for size, variants in report["measured"].items():
            times = sorted(variants.items(), key=lambda item: item[1])
            words = (f"{_duration(us * 1e3)} {name}" for name, us in times)
            lines.append(f"  {size:>9} bytes: {', '.join(words)}")
    elif nodes > 1 and report["decision"]["origin"] == "cost model":
        lines += [
            "",
            "What the installed MPI library takes is not known before the job runs. It is measured",
            "there, and the faster one serves (`learn`); `--verbose 3` tells.",
        ]
    if report["issues"]:
        lines += ["", "Problems", *(f"  {issue}" for issue in report["issues"])]
    return "\n".join(lines) + "\n"


def explain(
    installation: Installation, arguments: list[str], environment: Mapping[str, str]
) -> int:
    """Print why a call gets its algorithm; return the exit status."""
    if not arguments or "--help" in arguments:
        print(USAGE, end="")
        return 0 if arguments else 2
    as_json = "--json" in arguments
    wanted = [argument for argument in arguments if argument != "--json"]
    if wanted[0].startswith("neighbor_"):
        raise CommandError(
            f"'{wanted[0]}' has one algorithm: a message from each rank to each of its neighbours; "
            "`overdrive info neighbour_collectives` tells where Overdrive sends them"
        )
    if len(wanted) < 2 or wanted[1].startswith("-"):
        raise CommandError("`overdrive explain` needs a collective and a size in bytes")
    # Settings of files count as well, so the library is asked, not the environment.
    known = {
        setting["name"]: setting["value"]
        for setting in settings.query(installation, environment)["settings"]
    }
    for name in ("strict", "intel_adjust"):
        if known.get(name) == "true":
            wanted.append("--intel" if name == "intel_adjust" else "--strict")
    tuning = known.get("tuning", "off")
    if tuning not in ("off", "auto"):
        wanted += ["--tuning", tuning]
    report, status = query(installation, environment, "explain", *wanted)
    if tuning not in ("off", "auto"):
        report["measured"] = measured(report, Path(tuning))
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        print(render_explanation(report), end="")
    return status


def render_algorithms(report: list[Mapping[str, Any]]) -> str:
    """Return the table of algorithms as text for people."""
    lines = [
        "Algorithms of collectives: number, name, what it is. In brackets the number of Intel MPI,",
        "with h where it stands for the form with shared memory inside nodes. All but the host's",
        "own serve between leaders of nodes (/hierarchical), too; parameters leaders, pipeline.",
    ]
    for family in report:
        lines += ["", f"{family['collective']} (message size: {family['message_size']})"]
        if family["hierarchical_why_not"]:
            lines.append(f"  on several nodes {family['hierarchical_why_not']}")
        for algorithm in family["algorithms"]:
            numbers = ", ".join(
                f"{number['number']}{'h' if number['hierarchical'] else ''}"
                for number in algorithm["intel_numbers"]
            )
            lines.append(
                f"  {algorithm['number']}  {algorithm['name']:20} {algorithm['doc']}"
                + (f" [{numbers}]" if numbers else "")
            )
            extra = [f"needs {need}" for need in algorithm["needs"]]
            if algorithm["takes"]:
                extra.append(f"takes {', '.join(algorithm['takes'])}")
                if algorithm["defaults"]:
                    extra[-1] += f" (default {_parameters(algorithm['defaults'])})"
            if extra:
                lines.append(f"{'':28}{'; '.join(extra)}")
    return "\n".join(lines) + "\n"


def show_algorithms(
    installation: Installation, environment: Mapping[str, str], as_json: bool
) -> int:
    """Print the table of algorithms; return the exit status."""
    report, _ = query(installation, environment, "list")
    if as_json:
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        print(render_algorithms(report), end="")
    return 0

"""From winners to a tuning file: ranges of sizes and ranks, and what was measured as evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from overdrive.tune.statistics import BUILT_IN, Table, winner

HOST = "host"

MOST_BYTES = 1 << 40

WITHOUT_SIZE = frozenset(("barrier", "alltoallv", "alltoallw", "gatherv", "scatterv"))
"""What has no size that all ranks know, so that one rule serves all calls."""


def between(low: int, high: int) -> int:
    """Return where the range of the lower of two neighbouring sizes or counts ends."""
    return max(low, min(high - 1, math.isqrt(low * high)))


def _evidence(table: Table, sizes: Sequence[int], variant: str) -> dict[str, Any]:
    return {
        str(size): {
            name: round(table[name][size].median, 3)
            for name in dict.fromkeys((variant, BUILT_IN, HOST))
            if size in table.get(name, {})
        }
        for size in sizes
    }


def ranges(
    table: Table,
    largest: int = MOST_BYTES,
    usual: str = BUILT_IN,
    planned: Sequence[int] = (),
) -> list[tuple[str, int, int, list[int]]]:
    """Return winner, first and last byte, and the sizes that were measured, of each range.

    `planned`: sizes that were to be measured. Of those that were not the usual choice wins, so that
    no range reaches over them.
    """
    sizes = sorted({*planned, *(size for known in table.values() for size in known)})
    found: list[tuple[str, int, int, list[int]]] = []
    for i, size in enumerate(sizes):
        first = 0 if i == 0 else between(sizes[i - 1], size) + 1
        last = between(size, sizes[i + 1]) if i + 1 < len(sizes) else min(2 * size, largest)
        best = winner(table, size, usual)
        if found and found[-1][0] == best:
            found[-1] = (best, found[-1][1], last, [*found[-1][3], size])
        else:
            found.append((best, first, last, [size]))
    return found


def rules_of(
    collective: str,
    tables: Mapping[int, Table],
    where: Mapping[str, object],
    planned: Sequence[int] = (),
) -> list[dict[str, Any]]:
    """Return the rules of one collective; `tables` by number of ranks."""
    counts = sorted(tables)
    found: list[dict[str, Any]] = []
    for i, ranks in enumerate(counts):
        following = counts[i + 1] if i + 1 < len(counts) else None
        for best, first, last, sizes in ranges(tables[ranks], planned=planned):
            if best == BUILT_IN:
                continue
            # Between two numbers of ranks that take different algorithms nothing is known.
            high = ranks
            if following and all(winner(tables[following], size) == best for size in sizes):
                high = following - 1
            name, *parameters = best.split()
            algorithm, _, mode = name.partition("/")
            rule: dict[str, Any] = {"collective": collective, "algorithm": algorithm}
            if mode:
                rule["mode"] = mode
            rule.update(parameter.split("=", 1) for parameter in parameters)
            if collective not in WITHOUT_SIZE:
                rule["bytes"] = [first, last]
            rule["ranks"] = [ranks, high]
            rule.update(where)
            rule["evidence"] = _evidence(tables[ranks], sizes, best)
            found.append(rule)
    return found


def render(fingerprint: str, host: str, date: str, rules: Sequence[Mapping[str, Any]]) -> str:
    """Return the tuning file: one rule to a line, so that people can read and cut it."""
    head = {"format": "overdrive-tuning", "version": 1, "fingerprint": fingerprint,
            "host": host, "date": date}  # fmt: skip
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    body = ",\n".join(f"    {json.dumps(rule)}" for rule in rules)
    listed = f"[\n{body}\n  ]" if rules else "[]"
    return "{\n" + "\n".join(lines) + f'\n  "rules": {listed}\n}}\n'

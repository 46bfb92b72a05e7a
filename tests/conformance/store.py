"""Keeps the results of all invocations, so that a page can be made of runs of single parts.

One file per host: what a later run says about a test replaces what an earlier one said. Results of
another version of the host are forgotten.
"""

from __future__ import annotations

import fcntl
import json
from dataclasses import asdict
from pathlib import Path

from conformance.compare import Result, as_json
from conformance.jobs import Traffic
from conformance.mpi4py_tests import PythonResults
from conformance.mpich_tests import HostResults

EMPTY: dict = {"results": {}, "left_out": {}, "not_built": {}, "mpi4py": {}}


def _path(work: Path, host: str) -> Path:
    return work / f"results-{host}.json"


def _load(path: Path, version: str) -> dict:
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] == version:
            return content
    return {"version": version, **{name: {} for name in EMPTY}}


def _save(path: Path, content: dict) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(path)


def add_mpich(work: Path, found: HostResults) -> None:
    """Remember results of MPICH's suite."""
    path = _path(work, found.host)
    with path.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        content = _load(path, found.version)
        for plain in as_json(found.results):
            content["results"][plain["identity"]] = {**plain, "order": found.order}
        groups = (("left_out", found.skipped), ("not_built", found.unbuildable))
        for name, reasons in groups:
            content[name].update(reasons)
            for identity in reasons:
                content["results"].pop(identity, None)
        for result in found.results:
            for name, _ in groups:
                content[name].pop(result.identity, None)
        _save(path, content)


def add_mpi4py(work: Path, parts: list[PythonResults]) -> None:
    """Remember results of mpi4py's suite."""
    for part in parts:
        path = _path(work, part.host)
        with path.with_suffix(".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            content = _load(path, part.version)
            content["mpi4py"][str(part.ranks)] = asdict(part)
            _save(path, content)


def _result(values: dict) -> Result:
    traffic = Traffic(**values.pop("traffic"))
    values.pop("order", None)
    return Result(**values, traffic=traffic)


def load(work: Path, host: str, version: str) -> tuple[HostResults | None, list[PythonResults]]:
    """Return everything that is remembered about a host."""
    content = _load(_path(work, host), version)
    parts = []
    for _, values in sorted(content["mpi4py"].items()):
        traffic = Traffic(**values.pop("traffic"))
        results = [_result(plain) for plain in values.pop("results")]
        parts.append(PythonResults(**values, traffic=traffic, results=results))
    if not content["results"] and not content["not_built"]:
        return None, parts
    orders = {values["order"] for values in content["results"].values()}
    found = HostResults(host, version)
    if len(orders) == 1:
        found.order = orders.pop()
    found.results = [_result(values) for values in content["results"].values()]
    found.skipped, found.unbuildable = content["left_out"], content["not_built"]
    return found, parts

"""Keeps the results of all invocations, so that a page can be made of runs of single parts.

One file per host, and one more for each layout of nodes and each choice of settings that a run
forced: what a later run says about a test replaces what an earlier one said. Results of another
version of the host are forgotten.

The same files stand, shortened, in docs/measurements/data/conformance: the runs take hours, so the
page is made of what several machines found, and everybody can see which version passed which test.
"""

from __future__ import annotations

import fcntl
import json
import re
from dataclasses import asdict
from pathlib import Path

from conformance.compare import WITH_FIRST, Result, as_json
from conformance.jobs import Traffic
from conformance.mpi4py_tests import PythonResults
from conformance.mpich_tests import HostResults

EMPTY: dict = {"results": {}, "left_out": {}, "not_built": {}, "mpi4py": {}}


def _path(work: Path, host: str, settings: str, layout: str) -> Path:
    place = f"@{layout.replace(':', '-')}" if layout else ""
    forced = "+" + re.sub(r"[^\w=,.-]", "_", settings) if settings else ""
    return work / f"results-{host}{place}{forced}.json"


def _load(path: Path, version: str, settings: str, layout: str) -> dict:
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] == version:
            # What is empty is not written where results are kept.
            for name in EMPTY:
                content.setdefault(name, {})
            return content
    about = {"version": version, "settings": settings}
    if layout:
        about["layout"] = layout
    return {**about, **{name: {} for name in EMPTY}}


def _save(path: Path, content: dict) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(path)


def add_mpich(work: Path, found: HostResults) -> None:
    """Remember results of MPICH's suite."""
    path = _path(work, found.host, found.settings, found.layout)
    with path.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        content = _load(path, found.version, found.settings, found.layout)
        for plain in as_json(found.results):
            about = {"order": found.order, "overdrive": found.overdrive}
            content["results"][plain["identity"]] = {**plain, **about}
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
        path = _path(work, part.host, part.settings, part.layout)
        with path.with_suffix(".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            content = _load(path, part.version, part.settings, part.layout)
            content["mpi4py"][str(part.ranks)] = asdict(part)
            _save(path, content)


def _short(values: dict) -> dict:
    """Return an entry without what is empty or zero, which loading supplies again."""
    plain = dict(values)
    for name, value in values.items():
        if isinstance(value, dict):
            plain[name] = _short(value)
        elif isinstance(value, float):
            plain[name] = round(value, 2)
        if name not in ("status", "version", "settings") and not plain[name]:
            del plain[name]
    return plain


def _lines(content: dict) -> str:
    """Return the text of a file with a line for each entry, so that a change shows what changed."""
    groups = []
    for name, value in content.items():
        if isinstance(value, dict) and value:
            entries = (f"  {json.dumps(key)}: {json.dumps(value[key])}" for key in sorted(value))
            text = "{\n" + ",\n".join(entries) + "\n }"
        else:
            text = json.dumps(value)
        groups.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(groups) + "\n}\n"


def keep(work: Path, kept: Path) -> None:
    """Add what the runs in `work` found to the files in `kept`.

    That a run left a test out says nothing about the test: an earlier result stays.
    """
    kept.mkdir(parents=True, exist_ok=True)
    for path in sorted(work.glob("results-*.json")):
        new = json.loads(path.read_text(encoding="utf-8"))
        layout = new.get("layout", "")
        content = _load(kept / path.name, new["version"], new["settings"], layout)
        for identity, values in new["results"].items():
            content["results"][identity] = _short(values)
            content["left_out"].pop(identity, None)
            content["not_built"].pop(identity, None)
        for name in ("left_out", "not_built"):
            for identity, reason in new[name].items():
                if identity not in content["results"]:
                    content[name][identity] = reason
        for ranks, values in new["mpi4py"].items():
            known = content["mpi4py"].get(ranks)
            # A short run says less than a whole one; the page tells which version each was.
            if not known or len(values.get("left_out", [])) <= len(known.get("left_out", [])):
                content["mpi4py"][ranks] = _short(values)
        (kept / path.name).write_text(_lines(content), encoding="utf-8")


def _result(values: dict) -> Result:
    traffic = Traffic(**values.pop("traffic", {}))
    for name in ("order", "overdrive"):
        values.pop(name, None)
    return Result(**values, traffic=traffic)


def kinds(work: Path, host: str) -> list[tuple[str, str]]:
    """Return the pairs of layout and settings with which a host was tested, the usual one first."""
    found = {("", "")}
    for path in work.glob(f"results-{host}[+@]*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        found.add((content.get("layout", ""), content["settings"]))
    return sorted(found)


def load(
    work: Path, host: str, version: str, settings: str, layout: str = ""
) -> tuple[HostResults | None, list[PythonResults]]:
    """Return everything that is remembered about a host with these settings and these nodes."""
    content = _load(_path(work, host, settings, layout), version, settings, layout)
    parts = []
    for _, values in sorted(content["mpi4py"].items()):
        traffic = Traffic(**values.pop("traffic", {}))
        results = [_result(plain) for plain in values.pop("results", [])]
        parts.append(PythonResults(**values, traffic=traffic, results=results))
    if not content["results"] and not content["not_built"]:
        return None, parts
    orders = {values["order"] for values in content["results"].values()}
    versions = {values.get("overdrive", "") for values in content["results"].values()} - {""}
    found = HostResults(host, version, settings=settings, layout=layout)
    found.overdrive = ", ".join(sorted(versions))
    found.order = orders.pop() if len(orders) == 1 else WITH_FIRST
    found.results = [_result(values) for values in content["results"].values()]
    found.skipped, found.unbuildable = content["left_out"], content["not_built"]
    return found, parts

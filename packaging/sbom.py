#!/usr/bin/env python3
"""Writes the software bill of materials of a release: `sbom.py OUTPUT`, CycloneDX 1.6 as JSON.

What is listed is what the binaries hold of others: header-only libraries, with the versions that
their headers state, the compiler's C++ library, and the MPI headers that each face was compiled
with. Needs cyclonedx-python-lib; the result is checked against the schema that comes with it.
"""

from __future__ import annotations

import re
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "packaging" / "wheel"), str(ROOT / "tools" / "setup")]
sys.path.insert(0, str(ROOT / "tools" / "hosts"))

import build_wheel  # noqa: E402
import hosts  # noqa: E402

HEADERS = (
    ("highway", "hwy/highway.h", "HWY", "Apache-2.0"),
    ("tomlplusplus", "toml++/impl/version.h", "TOML_LIB", "MIT"),
    ("nlohmann-json", "nlohmann/detail/abi_macros.hpp", "NLOHMANN_JSON_VERSION", "MIT"),
    ("cli11", "CLI/Version.hpp", "CLI11_VERSION", "BSD-3-Clause"),
)
"""Name, the header with its version, the beginning of the macros, and the licence."""


def stated_version(header: Path, prefix: str) -> str:
    """Return the version that a header's macros state."""
    text = header.read_text(encoding="utf-8", errors="replace")
    parts = []
    for name in ("MAJOR", "MINOR", "PATCH"):
        found = re.search(rf"#\s*define\s+{prefix}_{name}\s+(\d+)", text)
        if found is None:
            raise SystemExit(f"sbom: {header} does not state {prefix}_{name}")
        parts.append(found.group(1))
    return ".".join(parts)


def library(name: str, version: str, licence: str) -> Component:
    """Return a component of the binaries."""
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        licenses=[LicenseExpression(licence)],
        purl=PackageURL("generic", None, name, version),
        bom_ref=f"{name}@{version}",
    )


def contents() -> list[Component]:
    """Return what the binaries hold of others."""
    found = []
    for name, header, prefix, licence in HEADERS:
        path = build_wheel.include_folder(header) / header
        found.append(library(name, stated_version(path, prefix), licence))
    compiler = build_wheel.TOOLS[0].partition("==")
    found.append(library("libc++", f"zig-{compiler[2]}", "Apache-2.0 WITH LLVM-exception"))
    for name in ("openmpi4", "mpich4", "mpiabi"):
        host = hosts.get(name)
        if host is not None:
            licence = "BSD-3-Clause-Open-MPI" if host.family == "openmpi" else "mpich2"
            title = {"openmpi4": "openmpi-headers", "mpich4": "mpich-headers"}
            found.append(library(title.get(name, "mpi-abi-headers"), host.version, licence))
    return found


def bill(version: str, seconds: int) -> str:
    """Return the bill as JSON; the same input gives the same text."""
    own = library("overdrive-mpi", version, "Apache-2.0")
    own.type = ComponentType.APPLICATION
    bom = Bom(components=contents())
    bom.metadata.component = own
    bom.metadata.timestamp = datetime.fromtimestamp(seconds, timezone.utc)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"overdrive-mpi/{version}/{seconds}")
    bom.register_dependency(own, list(bom.components))
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise SystemExit(f"sbom: the result does not follow the schema: {problem}")
    return text + "\n"


def main() -> int:
    """Run the command line."""
    if len(sys.argv) != 2:
        print("usage: sbom.py OUTPUT", file=sys.stderr)
        return 2
    text = bill(build_wheel.version(), int(build_wheel.epoch()))
    Path(sys.argv[1]).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

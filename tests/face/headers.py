"""Reads what an MPI header declares, independently of the interface text."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hosts import Host

# Open MPI hides removed functions from new programs; old programs still call them.
DEFINES = ["-DOMPI_OMIT_MPI1_COMPAT_DECLS=0", "-DOMPI_REMOVED_USE_STATIC_ASSERT=0"]
NO_CXX_BINDINGS = ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]

_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)")
_PROTOTYPE = re.compile(
    r"(?:^|[;{}])\s*(?P<result>[A-Za-z_][\w ]*?[\w*] ?\*?) ?\b(?P<name>MPI_\w+) ?"
    r"\((?P<arguments>(?:[^()]|\([^()]*\))*)\)\s*(?=;)"
)


@dataclass(frozen=True)
class Prototype:
    """A function as a header declares it; arguments are their text, parameter names included."""

    name: str
    result: str
    arguments: tuple[str, ...]

    def mentions(self, *types: str) -> bool:
        """Tell whether one of the types occurs in an argument or the result."""
        text = " ".join([self.result, *self.arguments])
        return any(re.search(rf"\b{t}\b", text) for t in types)

    def writes(self, handle: str) -> bool:
        """Tell whether an argument is a pointer through which handles of this type are written."""
        pattern = rf"^{handle} ?(\*|\w+ ?\[\])"
        return any(re.search(pattern, a) for a in self.arguments)


def header_name(host: Host) -> str:
    """Return the header that programs for this host's ABI include."""
    return "mpi_abi.h" if host.family == "mpiabi" else "mpi.h"


def declared(host: Host) -> dict[str, Prototype]:
    """Return every MPI_ function that the preprocessed header of the host declares."""
    text = subprocess.run(
        ["gcc", "-E", "-P", "-xc", f"-I{host.include_dir}", *DEFINES, "-"],
        input=f"#include <{header_name(host)}>\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    text = re.sub(r"\s+", " ", _ATTRIBUTE.sub("", text))
    found = {}
    for match in _PROTOTYPE.finditer(text):
        result = match["result"].replace("extern ", "").strip()
        if result.startswith("typedef"):
            continue
        arguments = match["arguments"].strip()
        parts = () if arguments in ("", "void") else tuple(a.strip() for a in arguments.split(","))
        found[match["name"]] = Prototype(match["name"], result, parts)
    return found


def exported(library: Path) -> set[str]:
    """Return the function symbols that a library offers."""
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    fields = [line.split() for line in lines]
    return {f[2].split("@")[0] for f in fields if len(f) == 3 and f[1] in "TWi"}

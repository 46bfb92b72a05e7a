"""Nodes for tests that need several: a virtual cluster of `overdrive lab`, and how to start there.

Names carry this process's id, so that several tests do not meet.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

from support.programs import ROOT

COMMAND = [sys.executable, str(ROOT / "overdrive"), "lab"]

IMPOSSIBLE = ("no right to make namespaces", "is missing: install iproute2")
"""What the command says where there can be no lab; anything else is a failure."""


class CannotMakeNodes(Exception):
    """Why there are no nodes here."""


class Nodes:
    """A context with `count` nodes and a head from which launchers start."""

    head = "head"

    def __init__(self, count: int) -> None:
        """Remember how many; nothing is made before `with`."""
        self.lab = f"odn{os.getpid()}"
        self.names = [f"{self.lab}-{i}" for i in range(count)]

    def __enter__(self) -> Nodes:
        """Make the nodes, or raise CannotMakeNodes and leave nothing."""
        command = [*COMMAND, "up", "--name", self.lab, "--nodes", str(len(self.names)), "--quiet"]
        # Ctrl-C is for this process: if it ends while `up` still works, the lab ends as well.
        made = subprocess.run(
            command, capture_output=True, text=True, check=False, start_new_session=True
        )
        if made.returncode != 0 and any(text in made.stderr for text in IMPOSSIBLE):
            raise CannotMakeNodes(made.stderr.strip())
        assert made.returncode == 0, made.stderr
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the nodes with everything in them."""
        subprocess.run([*COMMAND, "down", "--name", self.lab], check=True, start_new_session=True)

    def enter(self, name: str) -> list[str]:
        """Return the command prefix that runs something on a node; the head knows the others."""
        return [*COMMAND, "exec", "--name", self.lab, name]

    def launcher_options(self, family: str, per_node: int) -> list[str]:
        """Return the options that place ranks on the nodes, `per_node` consecutive ones on each."""
        if family == "openmpi":
            return ["-H", ",".join(f"{name}:{per_node}" for name in self.names)]
        return ["-hosts", ",".join(self.names), "-ppn", str(per_node)]

"""Starts the suites' jobs over several nodes: the virtual cluster of `overdrive lab`.

A layout says how many ranks each node has when the job has as many ranks as the layout, and in
which order ranks are dealt to nodes: `2x2` (2 nodes with 2 ranks each), `3+1+2`, and either with
`:round-robin` behind it. MPICH's tests name their number of ranks themselves, so a layout also
says where any other number of ranks goes:

- Nodes get ranks in turn until each has its share, and then all over again. So a job uses as many
  nodes as it can, and with more ranks than the layout all nodes get more: on 3+1+2, 2 ranks lie
  1+1+0, 4 ranks 2+1+1, 10 ranks 5+2+3.
- In block order the ranks of a node follow each other; in round-robin order they are dealt as the
  nodes get them.

A job of one rank lies on one node whatever the layout: such tests are left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from support.nodes import COMMAND, CannotMakeNodes, Nodes

LAYOUTS = ("2x2", "3x2", "3+1+2", "2x2:round-robin")
"""The layouts of `make conformance`: even, with an odd number of nodes, uneven, not in blocks."""

BLOCK, ROUND_ROBIN = "block", "round-robin"


@dataclass(frozen=True)
class Layout:
    """How ranks are placed on nodes."""

    text: str
    """As on the command line; part of the identity of a result."""
    shares: tuple[int, ...]
    """The ranks of each node in a job that has as many as the layout."""
    order: str

    @property
    def ranks(self) -> int:
        """Return the number of ranks of the layout."""
        return sum(self.shares)

    def _turns(self) -> list[int]:
        """Return the node that gets each of the layout's ranks when nodes get them in turn."""
        turns = range(max(self.shares))
        return [n for turn in turns for n, share in enumerate(self.shares) if share > turn]

    def counts(self, ranks: int) -> list[int]:
        """Return how many ranks each node has in a job with that many."""
        turns = self._turns()
        nodes = [turns[rank % len(turns)] for rank in range(ranks)]
        return [nodes.count(node) for node in range(len(self.shares))]


def parse_layout(text: str) -> Layout:
    """Return the layout that a text such as 2x2, 3+1+2 or 2x2:round-robin describes."""
    numbers, colon, order = text.partition(":")
    order = order if colon else BLOCK
    even = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", numbers)
    if even:
        shares = [int(even[2])] * int(even[1])
    elif re.fullmatch(r"[1-9]\d*(\+[1-9]\d*)*", numbers):
        shares = [int(word) for word in numbers.split("+")]
    else:
        shares = []
    if len(shares) < 2 or order not in (BLOCK, ROUND_ROBIN):
        raise ValueError(
            f"'{text}' is no layout: write 2x2 (nodes x ranks), 3+1+2 (the ranks of each of "
            f"several nodes), and :{ROUND_ROBIN} behind it for ranks that are dealt in turn"
        )
    return Layout(numbers if order == BLOCK else text, tuple(shares), order)


class CannotMakeLab(Exception):
    """Why there are no nodes here."""


@dataclass
class Lab:
    """The nodes of a layout, while they are up."""

    layout: Layout
    nodes: Nodes

    def command(
        self,
        launcher: str,
        ranks: int,
        overdrive: bool,
        program: Sequence[str],
        *,
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the command that starts a job; `variables` reach its ranks.

        It is what a user types. The environment names the library (OVERDRIVE_LIBRARY) and what is
        preloaded besides.
        """
        counts = self.layout.counts(ranks)
        words = ["--name", self.nodes.lab, "--layout", "+".join(str(count) for count in counts)]
        words += ["--order", self.layout.order]
        words += [] if overdrive else ["--without-overdrive"]
        for name, value in (variables or {}).items():
            words += ["-x", f"{name}={value}"]
        words += ["--options", shlex.join(options)] if options else []
        return [*COMMAND, launcher, *words, *program]


def remove_remains() -> None:
    """End labs of earlier runs that could not do it themselves because they were killed."""
    query = subprocess.run(
        [*COMMAND, "status", "--json"], capture_output=True, text=True, check=False
    )
    if query.returncode != 0:
        return
    for lab in json.loads(query.stdout):
        made_by = re.fullmatch(r"odn(\d+)", lab["name"])
        if made_by and not os.path.exists(f"/proc/{made_by[1]}"):
            subprocess.run([*COMMAND, "down", "--name", lab["name"]], check=False)


@contextlib.contextmanager
def up(layout: Layout | None) -> Iterator[Lab | None]:
    """Have the nodes of a layout up meanwhile; without a layout this does nothing."""
    if layout is None:
        yield None
        return
    remove_remains()
    nodes = Nodes(len(layout.shares))
    try:
        nodes.__enter__()
    except CannotMakeNodes as reason:
        raise CannotMakeLab(str(reason)) from reason
    try:
        yield Lab(layout, nodes)
    finally:
        # Who is impatient and presses Ctrl-C again must not keep the nodes from going down.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            nodes.__exit__(None, None, None)
        finally:
            signal.signal(signal.SIGINT, before)

"""Jobs whose launcher does not end them when a rank dies: the others must notice it themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hosts import Host

from support import jobs

KEEP_GOING = {
    "env": {"OMPI_MCA_orte_abort_on_non_zero_status": "0"},
    "options": ["--mca", "orte_enable_recovery", "1"],
}
"""How Open MPI 4.1's launcher is told not to end a job of which a rank has died."""

UNNOTICED = ["sh", "-c", '"$@"; exec sleep 600', "sh"]
"""Hydra looks at the process that it has started and at its end of a socket: a shell that has
started the rank in turn lives on, and has the socket as well."""

IN_A_HURRY = {"peer_check": "1ms", "spin": "10us"}
"""MPICH ends a process without a word when it is asked after a peer's connection has closed: ranks
that sleep look whether their peers live before they ask it."""


def needs_standby(host: Host) -> None:
    """Skip a test on a host whose launcher always ends such jobs."""
    if host.name == "openmpi5":
        pytest.skip(f"{host.name}: its launcher cannot be told to stand by")


def attempts(host: Host) -> int:
    """Return how often a test may try.

    A rank dies between the other one's look and its question to MPICH once in hundreds of times.
    """
    return 5 if host.uses_hydra else 1


def run(
    host: Host, command: list[str], ranks: int = 2, env: Mapping[str, str] | None = None
) -> jobs.Result:
    """Run a job whose launcher does not end it when the last rank dies."""
    more = dict(env or {})
    if host.uses_hydra:
        each = [*[command] * (ranks - 1), [*UNNOTICED, *command]]
        return jobs.run(
            host, ranks, command, per_rank=each, env=more, settings=IN_A_HURRY, limit=60
        )
    more |= KEEP_GOING["env"]
    return jobs.run(
        host, ranks, command, env=more, launcher_options=KEEP_GOING["options"], limit=60
    )


def names_rank(result: jobs.Result, rank: int) -> bool:
    """Tell whether Overdrive has said something about a rank."""
    said = [line for line in result.stderr.splitlines() if "overdrive" in line.lower()]
    return any(re.search(rf"rank {rank}\b", line) for line in said)

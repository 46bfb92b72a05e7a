"""What jobs with more ranks than cores need, with and without Overdrive alike."""

from __future__ import annotations

from hosts import Host

from support import programs


def environment(host: Host) -> dict[str, str]:
    """Return the variables that make a host's ranks give their core away while they wait."""
    return {"OMPI_MCA_mpi_yield_when_idle": "1"} if host.family == "openmpi" else {}


def libraries(host: Host, between_nodes: bool = False) -> list[str]:
    """Return what is preloaded: MPICH has no such variable, and between nodes 4.0 hangs at its end.

    idle.c and disconnect.c say why.
    """
    sources = [] if host.family == "openmpi" or host.name == "impi" else ["idle.c"]
    if between_nodes and host.name == "mpich4":
        sources.append("disconnect.c")
    return [str(programs.plain_library(programs.SUPPORT / name)) for name in sources]

"""Starts MPI jobs over the nodes of a lab with the launcher of the program's MPI library.

Launchers reach other nodes through a program that is called like ssh; in a lab that is ours
(agent.py), which each launcher is told by a variable. So nothing is installed, and a launcher
that is started by hand in the head (`overdrive lab exec head mpirun ...`) finds its way as well.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from overdrive import launchers
from overdrive.errors import CommandError
from overdrive.lab import fabric, network
from overdrive.lab import nodes as lab_nodes
from overdrive.lab.state import Lab

BLOCK, ROUND_ROBIN = "block", "round-robin"


@dataclass(frozen=True)
class Placement:
    """Which node each rank is on, by number."""

    node_of: tuple[int, ...]
    order: str

    def counts(self) -> dict[int, int]:
        """Return the number of ranks of each node that has some, in the order of nodes."""
        return {node: self.node_of.count(node) for node in sorted(set(self.node_of))}


def parse_layout(text: str) -> list[int]:
    """Return the ranks per node of a layout such as 3+1+2."""
    words = text.split("+")
    if not all(word.isdigit() for word in words) or not any(int(word) for word in words):
        raise CommandError(f"'{text}' is not a layout: write the ranks of each node, such as 3+1+2")
    return [int(word) for word in words]


def _ranks_per_node(
    nodes: int, ranks: int | None, per_node: int | None, layout: list[int] | None
) -> list[int]:
    if layout is not None:
        if per_node is not None:
            raise CommandError("--layout says how many ranks each node has: leave --ppn out")
        if len(layout) > nodes:
            raise CommandError(f"the layout is for {len(layout)} nodes, the lab has {nodes}")
        if ranks is not None and ranks != sum(layout):
            raise CommandError(f"-n {ranks} contradicts the layout, which has {sum(layout)} ranks")
        return layout
    if per_node is not None:
        total = nodes * per_node if ranks is None else ranks
        if total > nodes * per_node:
            raise CommandError(
                f"{total} ranks do not fit on {nodes} nodes with {per_node} ranks each"
            )
        return [max(0, min(per_node, total - node * per_node)) for node in range(nodes)]
    total = nodes if ranks is None else ranks
    return [total // nodes + (1 if node < total % nodes else 0) for node in range(nodes)]


def place(
    nodes: int, ranks: int | None, per_node: int | None, layout: list[int] | None, order: str
) -> Placement:
    """Decide which node each rank is on.

    With block order the ranks of a node are consecutive; with round-robin order ranks are dealt to
    the nodes in turn, leaving out nodes that have all theirs.
    """
    counts = _ranks_per_node(nodes, ranks, per_node, layout)
    if order == BLOCK:
        found = [node for node, count in enumerate(counts) for _ in range(count)]
    else:
        turns = range(max(counts))
        found = [node for turn in turns for node, count in enumerate(counts) if count > turn]
    return Placement(tuple(found), order)


def launch_environment(lab: Lab, present: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let launchers in the head reach the nodes.

    Where the user has set something that is a matter of taste, it stays.
    """
    agent = lab.inside(lab_nodes.AGENT)
    forced = {
        # Open MPI 4 and 5. Daemons are started from the head only, and stay attached, so that the
        # agent sees them end.
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        # MPICH and Intel MPI.
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_IFACE": network.INTERFACE,
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
        "I_MPI_HYDRA_IFACE": network.INTERFACE,
    }
    usual = {
        "OMPI_MCA_pml": "ob1",
        # Every node believes that all processors are its own: bound ranks of different nodes
        # would share one processor while others idle, and spinning ones would keep it.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "I_MPI_PIN": "0",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "I_MPI_THREAD_YIELD": "2",
        "UCX_NET_DEVICES": network.INTERFACE,
        "FI_TCP_IFACE": network.INTERFACE,
    }
    if os.geteuid() == 0:
        # A lab is the user's own, and who has made it as root means to use it as root.
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
            usual.update({name: "1", f"{name}_CONFIRM": "1"})
    return {**{name: present.get(name, value) for name, value in usual.items()}, **forced}


def waiting(placement: Placement, present: Mapping[str, str]) -> dict[str, str]:
    """Return how Overdrive's ranks should wait, where the nodes share too few processors.

    A rank sees that its own node has enough; that the other nodes use the same ones it cannot see.
    Pairs of ranks that exchange 8 bytes, 4 nodes of 2 ranks on 2 processors: 5 us with yield, 20 to
    30 with sleep; 5 (Open MPI) to 14 (MPICH) with auto, which spins.
    """
    processors = len(os.sched_getaffinity(0))
    fits_in_nodes = max(placement.counts().values()) <= processors
    if fits_in_nodes and len(placement.node_of) > processors and "OVERDRIVE_WAIT" not in present:
        return {"OVERDRIVE_WAIT": "yield"}
    return {}


def switch(lab: Lab, present: Mapping[str, str]) -> dict[str, str]:
    """Return what tells Overdrive's ranks that switches which add are between the nodes."""
    if lab.fabric == fabric.BRIDGE or "OVERDRIVE_SWITCH" in present:
        return {}
    return {"OVERDRIVE_SWITCH": f"auto:{network.INTERFACE}"}


def _knows(launcher: str, option: str) -> bool:
    done = subprocess.run(
        [launcher, "-help"], capture_output=True, text=True, check=False, errors="replace"
    )
    return option in done.stdout + done.stderr


def _hydra_hosts(lab: Lab, placement: Placement, launcher: launchers.Launcher) -> list[str]:
    counts = placement.counts()
    total = len(placement.node_of)
    nodes = list(counts)
    names = [lab.nodes[node].name for node in nodes]
    if placement.order == BLOCK:
        each = [f"{name}:{count}" for name, count in zip(names, counts.values())]
        return ["-hosts", ",".join(each), "-n", str(total)]
    if all(node == nodes[rank % len(nodes)] for rank, node in enumerate(placement.node_of)):
        # The launcher goes over the list again until all ranks are placed.
        return ["-hosts", ",".join(f"{name}:1" for name in names), "-n", str(total)]
    if not _knows(launcher.path, "-rankmap"):
        raise CommandError(
            f"{launcher.title} can deal ranks in turn only to nodes with equal numbers of ranks "
            f"(or one more on the first): use --order block, such numbers, or MPICH 5 or Open MPI"
        )
    position = {node: index for index, node in enumerate(nodes)}
    order = ",".join(str(position[node]) for node in placement.node_of)
    each = [f"{name}:{count}" for name, count in zip(names, counts.values())]
    return ["-hosts", ",".join(each), "-rankmap", order, "-n", str(total)]


def _intel_sections(lab: Lab, placement: Placement, program: list[str]) -> list[str]:
    """Return one section per run of ranks on one node: the launcher ignores other numbers."""
    words: list[str] = []
    for node, run in itertools.groupby(placement.node_of):
        words += [":"] if words else []
        words += ["-host", lab.nodes[node].name, "-n", str(len(list(run))), *program]
    return words


def _openmpi_hosts(lab: Lab, placement: Placement) -> list[str]:
    total = len(placement.node_of)
    if placement.order == BLOCK:
        each = [f"{lab.nodes[node].name}:{count}" for node, count in placement.counts().items()]
        return ["-H", ",".join(each), "--map-by", "slot", "-n", str(total)]
    names = [lab.nodes[node].name for node in placement.node_of]
    return ["-H", ",".join(names), "--map-by", "seq", "-n", str(total)]


def find_launcher(word: str) -> launchers.Launcher:
    """Return the launcher of that name or path, if a lab can use it."""
    path = shutil.which(word)
    if path is None:
        raise CommandError(f"{word} was not found: load or install the MPI you want to use")
    launcher = launchers.identify(path)
    if launcher.family not in ("openmpi", "hydra"):
        raise CommandError(
            f"{path} cannot start jobs in a lab ({launcher.title}): use the launcher of Open MPI, "
            f"MPICH or Intel MPI"
        )
    return launcher


def command_line(
    lab: Lab,
    launcher: launchers.Launcher,
    placement: Placement,
    variables: Mapping[str, str],
    present: Mapping[str, str],
    extra: list[str],
    program: list[str],
) -> list[str]:
    """Return the launcher's command; `variables` go to every rank, `extra` to the launcher.

    `present` is the environment in which the launcher itself will run.
    """
    if launcher.family == "openmpi":
        where = [*_openmpi_hosts(lab, placement), *program]
        # By name where possible: Open MPI takes some characters in values for separators.
        carried = []
        for name, value in variables.items():
            carried += ["-x", name if present.get(name) == value else f"{name}={value}"]
    else:
        carried = launchers.forwarding("hydra", variables)
        if "intel" in launcher.title.lower():
            where = _intel_sections(lab, placement, program)
        else:
            where = [*_hydra_hosts(lab, placement, launcher), *program]
    return [launcher.path, *carried, *extra, *where]

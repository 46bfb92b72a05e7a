"""What `overdrive lab up` was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from overdrive.lab import network


@dataclass
class Plan:
    """What `up` was asked for."""

    name: str
    nodes: int
    rate: str
    sockets: int
    cores: int
    mtu: int
    fabric: str = "bridge"
    tors: int = 0
    spines: int = 0
    latency_ns: int = 0
    program: str = ""  # the switch, if it is one

    def names(self) -> list[str]:
        """Return the host names of nodes and head."""
        return [*(f"{self.name}-{index}" for index in range(self.nodes)), f"{self.name}-head"]

    def addresses(self) -> list[str]:
        """Return the addresses of nodes and head."""
        nodes = [network.address(index) for index in range(self.nodes)]
        return [*nodes, network.HEAD_ADDRESS]

"""The network of a lab: a bridge, a pair of virtual interfaces per node, rates and loss.

    switch namespace                         node i
    br0 -- p0, p1, ... p(N) for the head     eth0 10.77.x.y/16

A rate is a token bucket (tbf) at both ends of a node's link, so it holds in each direction. Loss is
a filter at the switch's end that drops frames which come from the node, at random; it needs no
other queueing discipline, so it can be combined with a rate. Where a program is the switch
(fabric.py) there is no bridge, and the program does at its end what is done to frames there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overdrive.errors import CommandError
from overdrive.lab import system

if TYPE_CHECKING:
    from overdrive.lab.state import Node

INTERFACE = "eth0"
PREFIX_BITS = 16
HEAD_ADDRESS = "10.77.255.1"

MOST_NODES = 256

SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin"
"""Where `ip` and `tc` are on systems that keep them from users' search paths."""

_BURST_SECONDS = 0.001
_SMALLEST_BURST_FRAMES = 2
_LARGEST_BURST_BYTES = 128 << 10
"""A bucket of a millisecond lets small messages through at once and is hidden in longer ones; a
larger one than 128 KiB is not needed at any rate up to 10 Gbit/s."""

_QUEUE_BYTES = 4 << 20
_HEADER_BYTES = 18

_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
_LOWEST_RATE, _HIGHEST_RATE = 1e5, 1e11

# Classic BPF: A = random; if A >= threshold pass, else drop. The offset is SKF_AD_OFF +
# SKF_AD_RANDOM of <linux/filter.h>; 0 and 2 are TC_ACT_OK and TC_ACT_SHOT.
_RANDOM_OFFSET = 0xFFFFF000 + 56
_DROP_AT_RANDOM = "4,32 0 0 {offset},53 0 1 {threshold},6 0 0 0,6 0 0 2"


def address(index: int) -> str:
    """Return the address of a node."""
    return f"10.77.{index // 250}.{index % 250 + 1}"


def parse_rate(text: str) -> str:
    """Return a rate in the form `tc` takes (bits per second with unit), or `off`."""
    if text.lower() in ("off", "none"):
        return "off"
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:bit|bits|bps|bit/s)?", text.lower())
    if match is None:
        raise CommandError(f"'{text}' is not a rate: write 100mbit, 1gbit, 2.5gbit, or off")
    bits = float(match[1]) * _UNITS[match[2]]
    if not _LOWEST_RATE <= bits <= _HIGHEST_RATE:
        raise CommandError(f"a rate of {text} is out of range: 100kbit to 100gbit are possible")
    return f"{round(bits)}bit"


def rate_text(rate: str) -> str:
    """Return a rate for people."""
    if rate == "off":
        return "unlimited"
    bits = int(rate.removesuffix("bit"))
    for unit, size in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if bits >= size:
            return f"{bits / size:g}{unit}"
    return rate


def parse_loss(text: str) -> str:
    """Return a share of lost frames in per cent, or `off`."""
    if text.lower() in ("off", "none"):
        return "off"
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%?", text)
    if match is None:
        raise CommandError(f"'{text}' is not a share of frames: write 1%, 0.1%, or off")
    if float(match[1]) > 100:
        raise CommandError(f"{text} is more than all frames")
    return "off" if float(match[1]) == 0 else f"{float(match[1]):g}%"


def tool(name: str) -> str:
    """Return the path of `ip` or `tc`."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")
    if path is None:
        raise CommandError(f"the program `{name}` is missing: install iproute2")
    return path


def run_in(pid: int, name: str, lines: Sequence[str]) -> None:
    """Run lines of `ip` or `tc` in the network of a process; `pid` 0 stands for this one."""
    opened = [item for item in system.open_namespaces(pid) if item[0] in ("user", "net")] if (
        pid != 0
    ) else []  # fmt: skip

    def enter() -> None:
        for kind, descriptor in opened:
            system.setns(descriptor, kind)
        system.keep_capabilities_over_exec()

    try:
        done = subprocess.run(
            [tool(name), "-batch", "-"],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=enter,
        )
    except subprocess.SubprocessError as reason:
        raise CommandError(f"the lab's network cannot be entered: {reason}") from reason
    finally:
        for _, descriptor in opened:
            os.close(descriptor)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        culprit = next((word for word in words if word.startswith("Command failed")), "")
        number = re.search(r":(\d+)$", culprit)
        line = lines[int(number[1]) - 1] if number else lines[0]
        raise CommandError(f"`{name} {line}` failed: {words[0] if words else 'no reason given'}")


def without_ipv6() -> None:
    """Switch IPv6 off in this network: its automatic addresses only confuse MPI libraries."""
    for which in ("all", "default"):
        try:
            with open(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6", "w") as file:
                file.write("1")
        except OSError:
            return  # there is none, or it may not be changed


def build(pids: Sequence[int], addresses: Sequence[str], mtu: int, bridge: bool = True) -> None:
    """Connect the networks of the processes to this process's, by a bridge or without.

    Without a bridge nothing passes between the links until a program forwards it.
    """
    lines = ["link set lo up"]
    if bridge:
        lines += [f"link add br0 mtu {mtu} type bridge mcast_snooping 0", "link set br0 up"]
    for index, pid in enumerate(pids):
        hardware = f"02:00:0a:4d:{index // 250:02x}:{index % 250 + 1:02x}"
        lines.append(
            f"link add p{index} mtu {mtu} type veth "
            f"peer name {INTERFACE} mtu {mtu} address {hardware} netns {pid}"
        )
    run_in(0, "ip", lines)
    for pid, own in zip(pids, addresses):
        run_in(
            pid,
            "ip",
            [
                "link set lo up",
                f"addr add {own}/{PREFIX_BITS} dev {INTERFACE}",
                f"link set {INTERFACE} up",
            ],
        )
    # The switch's ends last: a link whose both ends are up carries frames at once.
    master = "master br0 " if bridge else ""
    run_in(0, "ip", [f"link set p{index} {master}up" for index in range(len(pids))])


def _shaping(device: str, rate: str, mtu: int, present: bool) -> list[str]:
    if rate == "off":
        return [f"qdisc del dev {device} root"] if present else []
    bits = int(rate.removesuffix("bit"))
    smallest = _SMALLEST_BURST_FRAMES * (mtu + _HEADER_BYTES)
    burst = max(smallest, min(_LARGEST_BURST_BYTES, int(bits / 8 * _BURST_SECONDS)))
    return [f"qdisc replace dev {device} root tbf rate {rate} burst {burst}b limit {_QUEUE_BYTES}b"]


def shape(
    switch: int, nodes: Sequence[tuple[int, Node]], rate: str, mtu: int, bridge: bool = True
) -> None:
    """Limit the links of nodes, given with their numbers, in both directions.

    Without a bridge only from the nodes: the other direction is the switch program's.
    """
    lines: list[str] = []
    for index, node in nodes:
        present = node.rate != "off"
        if bridge:
            lines += _shaping(f"p{index}", rate, mtu, present)
        inside = _shaping(INTERFACE, rate, mtu, present)
        if inside:
            run_in(node.pid, "tc", inside)
    if lines:
        run_in(switch, "tc", lines)


def cut_streams(nodes: Sequence[tuple[int, Node]], cut: bool) -> None:
    """Let nodes send streams in frames as a wire has them, or up to 64 KiB as one frame."""
    for _, node in nodes:
        run_in(node.pid, "ip", [f"link set {INTERFACE} gso_max_segs {1 if cut else 65535}"])


def lose(switch: int, nodes: Sequence[tuple[int, Node]], loss: str) -> None:
    """Drop a share of the frames that nodes, given with their numbers, send."""
    for index, node in nodes:
        if node.loss != "off":
            run_in(switch, "tc", [f"qdisc del dev p{index} clsact"])
            run_in(node.pid, "ip", [f"link set {INTERFACE} gso_max_segs 65535"])
        if loss == "off":
            continue
        share = float(loss.removesuffix("%")) / 100
        program = _DROP_AT_RANDOM.format(
            offset=_RANDOM_OFFSET, threshold=min(0xFFFFFFFF, round(share * 2**32))
        )
        # A virtual link carries up to 64 KiB of a stream as one frame; what gets lost should be
        # frames as a wire has them.
        run_in(node.pid, "ip", [f"link set {INTERFACE} gso_max_segs 1"])
        run_in(
            switch,
            "tc",
            [
                f"qdisc add dev p{index} clsact",
                f"filter add dev p{index} ingress bpf da bytecode '{program}'",
            ],
        )

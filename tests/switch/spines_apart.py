"""Two ToRs and two spines, each a program of its own, between four hosts; run inside of namespaces.

    unshare -Urn python3 spines_apart.py FOLDER SCRATCH GROUPS OPERATIONS SECONDS

Starts overdrive-switch (from FOLDER) four times, with pairs of virtual interfaces between them and
to a namespace for each host, and leaders on all hosts for each of so many groups at once, which
have so many seconds. Prints JSON: what each leader has said, and the state of each switch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

HOSTS = 4
TORS = 2
SPINES = 2
ADDRESSES = {
    **{f"tor{i}": f"198.18.0.{1 + i}" for i in range(TORS)},
    **{f"spine{i}": f"198.18.1.{1 + i}" for i in range(SPINES)},
}


def pair(one: str, other: str) -> None:
    """Make a cable."""
    ip("link", "add", one, "type", "veth", "peer", "name", other)
    ip("link", "set", one, "up")
    ip("link", "set", other, "up")


def ip(*words: str, inside: int = 0) -> None:
    """Run ip(8), perhaps in the namespace of a process."""
    prefix = ["nsenter", "-t", str(inside), "-n"] if inside else []
    subprocess.run([*prefix, "ip", *words], check=True)


def port(interface: str, *lines: str) -> str:
    """Return a port of a configuration."""
    return "\n".join(["[[switch.port]]", f'interface = "{interface}"', *lines])


def configurations() -> dict[str, str]:
    """Make cables between switches; return the ports of each."""
    ports: dict[str, list[str]] = {name: [] for name in ADDRESSES}
    for tor in range(TORS):
        for spine in range(SPINES):
            up, down = f"t{tor}s{spine}", f"s{spine}t{tor}"
            pair(up, down)
            lines = [f'spine = "{ADDRESSES[f"spine{spine}"]}"']
            # Ordinary frames need a tree: they take the first spine.
            lines += ['traffic = "in-network"'] if spine > 0 else []
            ports[f"tor{tor}"].append(port(up, *lines))
            ports[f"spine{spine}"].append(port(down))
    for host in range(HOSTS):
        ports[f"tor{host * TORS // HOSTS}"].append(port(f"h{host}"))
    return {
        name: "\n".join(
            ["[[switch]]", f'name = "{name}"', f'compute = "{name[:-1]}"']
            + [f'address = "{ADDRESSES[name]}"', *lines]
        )
        for name, lines in ports.items()
    }


def state_of(folder: Path, scratch: Path) -> dict[str, dict]:
    """Ask all switches."""
    found = {}
    for name in ADDRESSES:
        words = ["--status", "json", "--control", scratch / f"{name}.sock"]
        shown = subprocess.run(
            [folder / "overdrive-switch", *words], stdout=subprocess.PIPE, check=True
        )
        found[name] = json.loads(shown.stdout)["switches"][0]["compute"]
    return found


def main() -> int:
    """Run the command line."""
    folder, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    groups, operations, seconds = int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    # Each host is a process that does nothing and has interfaces of its own.
    hosts = [
        subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE) for _ in range(HOSTS)
    ]
    switches: list[subprocess.Popen] = []
    leaders: list[subprocess.Popen] = []
    try:
        own = Path("/proc/self/ns/net").readlink()
        texts = configurations()
        for number, host in enumerate(hosts):
            while Path(f"/proc/{host.pid}/ns/net").readlink() == own:
                time.sleep(0.01)  # it has not come to that yet
            far = ["peer", "name", "eth0", "netns", str(host.pid)]
            ip("link", "add", f"h{number}", "type", "veth", *far)
            ip("link", "set", f"h{number}", "up")
            ip("address", "add", f"10.78.0.{1 + number}/24", "dev", "eth0", inside=host.pid)
            ip("link", "set", "eth0", "up", inside=host.pid)
        for name, text in texts.items():
            config = scratch / f"{name}.toml"
            config.write_text(text + "\n")
            words = ["--config", config, "--control", scratch / f"{name}.sock"]
            switches.append(
                subprocess.Popen([folder / "overdrive-switch", *words], stdout=subprocess.PIPE)
            )
            stdout = switches[-1].stdout
            assert stdout is not None and stdout.readline() == b"ready\n"
        for group in range(groups):
            for number, host in enumerate(hosts):
                words = ["nsenter", "-t", str(host.pid), "-n", folder / "overdrive-switch-leaders"]
                words += ["verify", "--operations", operations, "--group", str(1 + group)]
                words += ["--meeting", scratch / f"meeting{group}", "--leaders", str(HOSTS)]
                words += ["--tors", str(TORS), "--index", str(number)]
                words += ["--ip", f"10.78.0.{1 + number}"]
                leaders.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        end = time.monotonic() + seconds
        said = [leader.communicate(timeout=end - time.monotonic())[0] for leader in leaders]
        states = state_of(folder, scratch)
        while any(state["groups"] for state in states.values()) and time.monotonic() < end:
            time.sleep(0.1)  # the leaders' last words are on the way
            states = state_of(folder, scratch)
        print(json.dumps({"leaders": [json.loads(text) for text in said], "switches": states}))
        return max(leader.returncode for leader in leaders)
    finally:
        for process in [*leaders, *switches, *hosts]:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())

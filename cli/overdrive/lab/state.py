"""Where a running lab is written down: one folder per lab, locked as long as the lab lives.

    $XDG_RUNTIME_DIR/overdrive-lab/NAME/    or /tmp/overdrive-lab-UID/NAME/
        state.json    what there is; written when everything stands, replaced as a whole
        switch.toml   where the switch is a program: what it is to do
        switch.sock   and where it is asked; switch.log: what went wrong in it
        node/         empty; inside every node something of its own is mounted here

Both folders belong to the user and nobody else can look inside. The lab's keeper holds a lock
(flock) on the lab's folder from before anything else is made until all is gone, so a
folder that can be locked is what remains of a lab that was killed with everything that could have
cleaned up; the next command removes it. Who makes, removes or changes a lab holds a lock on the
folder above.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from overdrive.errors import CommandError
from overdrive.lab import system

DEFAULT_NAME = "lab"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,23}")
"""Host names are made of it, and it is part of paths of sockets, which are short."""

STATE, NODE = "state.json", "node"
SWITCH_FILE, SWITCH_SOCKET = "switch.toml", "switch.sock"


@dataclass
class Node:
    """A machine of the lab, as seen from outside."""

    name: str
    address: str
    pid: int  # of the process that holds its namespaces, as the command sees it
    inner_pid: int  # the same as the head sees it
    started: int  # start time of that process
    rate: str = "off"
    loss: str = "off"

    def alive(self) -> bool:
        """Tell whether its processes run."""
        return self.started != 0 and system.start_time(self.pid) == self.started


@dataclass
class Lab:
    """What state.json holds."""

    name: str
    folder: str
    keeper: int
    privilege: str  # as privilege.py names it
    sockets: int
    cores: int
    mtu: int
    fabric: str = "bridge"  # or what fabric.py names
    tors: int = 0
    spines: int = 0
    latency_ns: int = 0
    nodes: list[Node] = field(default_factory=list)
    head: Node | None = None
    switch: Node | None = None

    def everyone(self) -> list[Node]:
        """Return nodes, head and switch."""
        return [*self.nodes, *(machine for machine in (self.head, self.switch) if machine)]

    def find(self, word: str) -> Node:
        """Return the node of a name, number, `head` or `switch`."""
        for node in self.everyone():
            if word in (node.name, node.name.removeprefix(f"{self.name}-")):
                return node
        last = len(self.nodes) - 1
        known = "0" if last == 0 else f"0 to {last}"
        raise CommandError(
            f"lab '{self.name}' has no node '{word}': its nodes are {known} "
            f"({self.nodes[0].name} ...), head and switch"
        )

    def inside(self, *parts: str) -> str:
        """Return a path in the folder that every node has for itself."""
        return os.path.join(self.folder, NODE, *parts)

    @staticmethod
    def read(folder: Path) -> Lab:
        """Read the state of a lab that stands."""
        content = json.loads((folder / STATE).read_text())
        try:
            for name in ("head", "switch"):
                content[name] = Node(**content[name])
            content["nodes"] = [Node(**node) for node in content["nodes"]]
            return Lab(**content)
        except (TypeError, KeyError) as reason:
            raise CommandError(
                f"{folder / STATE} was written by another version of Overdrive: use that one, or "
                f"end process {content.get('keeper', '(unknown)')}, which keeps the lab"
            ) from reason

    def write(self) -> None:
        """Replace the state."""
        handle, path = tempfile.mkstemp(dir=self.folder, prefix=STATE)
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(self), file, indent=1)
        os.replace(path, os.path.join(self.folder, STATE))


def check_name(name: str) -> str:
    """Return the name if a lab may have it."""
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"'{name}' cannot name a lab: use up to 24 small letters, digits and hyphens, "
            f"beginning with a letter"
        )
    return name


def _candidates() -> list[Path]:
    """Return the folders in which labs may be, the one for new labs first."""
    found = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isabs(runtime) and os.access(runtime, os.W_OK | os.X_OK):
        found.append(Path(runtime) / "overdrive-lab")
    return [*found, Path("/tmp") / f"overdrive-lab-{os.geteuid()}"]


def _check_owner(folder: Path, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise CommandError(
            f"{folder} is not a folder of yours; somebody else may have made it. "
            f"Remove it, or set XDG_RUNTIME_DIR to a folder that only you can write to"
        )
    if status.st_mode & 0o077:
        raise CommandError(f"{folder} is open to others: run `chmod 700 {folder}` and try again")


def _locked(folder: Path) -> int | None:
    """Lock a folder and return the descriptor, or None when it does not exist (any more)."""
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as reason:
            raise CommandError(f"{folder} cannot be used: {reason.strerror}") from reason
        _check_owner(folder, os.fstat(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        os.close(descriptor)  # another command has removed it while this one waited


def is_alive(folder: Path) -> bool:
    """Tell whether a lab's folder is locked by its keeper."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError as reason:
        return reason.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a lab's folder, of which nothing but known entries is touched."""
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.name.startswith((STATE, "switch.")):
                entry.unlink(missing_ok=True)
            elif entry.name == NODE:
                entry.rmdir()
        folder.rmdir()


def remove_base_if_empty(folder: Path) -> None:
    """Remove the folder above if no lab is left in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def discard(folder: Path) -> None:
    """Remove the folder of a lab that has ended, and the one above if it was the last."""
    descriptor = _locked(folder.parent)
    if descriptor is not None:
        remove(folder)
        remove_base_if_empty(folder.parent)
        os.close(descriptor)


@contextlib.contextmanager
def changing(create: bool = False) -> Iterator[list[Path]]:
    """Hold the locks of all base folders; yields them. What dead labs have left is removed."""
    bases: list[Path] = []
    descriptors = []
    try:
        for index, base in enumerate(_candidates()):
            descriptor = None
            while descriptor is None:
                if create and index == 0:
                    with contextlib.suppress(FileExistsError):
                        base.mkdir(mode=0o700)
                descriptor = _locked(base)
                if descriptor is None and not (create and index == 0):
                    break
            if descriptor is not None:
                descriptors.append(descriptor)
                bases.append(base)
        for base in bases:
            for folder in sorted(base.iterdir()):
                if folder.is_dir() and not is_alive(folder):
                    remove(folder)
        yield bases
    finally:
        for base in bases:
            remove_base_if_empty(base)
        for descriptor in descriptors:
            os.close(descriptor)


def make_folder(base: Path, name: str) -> tuple[Path, int]:
    """Make and lock the folder of a new lab; the caller holds the base's lock."""
    folder = base / name
    folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (folder / NODE).mkdir(mode=0o700)
    return folder, descriptor


def existing(bases: list[Path], name: str) -> Path | None:
    """Return the folder of a lab of that name."""
    return next((base / name for base in bases if (base / name).is_dir()), None)


def labs() -> list[Lab]:
    """Return all labs of this user that stand."""
    found = []
    with changing() as bases:
        for base in bases:
            for folder in sorted(base.iterdir()):
                # Without a state it is just being built.
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    found.append(Lab.read(folder))
    return found


def reread(name: str) -> Lab:
    """Return the present state of a lab; the caller holds the locks."""
    for base in _candidates():
        with contextlib.suppress(FileNotFoundError):
            return Lab.read(base / name)
    raise CommandError(f"lab '{name}' has gone down meanwhile")


def select(name: str | None) -> Lab:
    """Return the lab of that name; without a name the only one, or the one with the usual name."""
    running = labs()
    if name is not None:
        check_name(name)
    wanted = name or (running[0].name if len(running) == 1 else DEFAULT_NAME)
    for lab in running:
        if lab.name == wanted:
            return lab
    names = ", ".join(lab.name for lab in running)
    if name is None and running:
        raise CommandError(f"several labs are up ({names}): choose one with --name")
    there = f"; there is: {names}" if running else ""
    raise CommandError(f"there is no lab '{wanted}'{there}; `overdrive lab up --nodes 2` makes one")


def wait_until_removed(folder: str, seconds: float) -> bool:
    """Wait until a lab's folder is gone."""
    deadline = time.monotonic() + seconds
    while os.path.exists(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True

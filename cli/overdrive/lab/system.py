"""The kernel calls behind virtual nodes: namespaces, mounts, capabilities, who dies with whom.

Python's library has most of them only in newer versions, or not at all. Everything here raises
OSError with the name of the call in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import time
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_MOVE, MS_REC, MS_SLAVE = 0x1000, 0x2000, 0x4000, 0x80000

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE, _PR_CAP_AMBIENT_CLEAR_ALL = 2, 4

CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_CHROOT, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 12, 13, 18, 19, 21
_CAPABILITIES_KEPT = (CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_CHROOT, CAP_SYS_PTRACE, CAP_SYS_ADMIN)
_CAPABILITY_VERSION_3 = 0x20080522

PRELOAD_KEPT = "_LAB_LD_PRELOAD"
"""The variable in which a launch agent keeps LD_PRELOAD for the command that it starts."""

NAMESPACE_ORDER = ("user", "ipc", "uts", "net", "pid", "mnt")
"""The user namespace first, since it gives the right to enter the others; the mount namespace last,
since it takes /proc away."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Put this process (with CLONE_NEWPID: its later children) into new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: str) -> None:
    """Enter a namespace."""
    _check(_libc.setns(descriptor, 0), f"setns ({kind})")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system, or change how one is mounted."""
    words = [None if word is None else word.encode() for word in (source, target, kind, data)]
    result = _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _check(result, f"mount {kind or 'onto'} {target}")


def _prctl(option: int, *arguments: object) -> int:
    return _check(_libc.prctl(option, *arguments), f"prctl {option}")


def die_with_parent(signal_number: int, parent: int) -> None:
    """Have this process get a signal when its parent ends; ends it if that has happened already.

    `parent` is its number as this process sees it: 0 if it is outside of the pid namespace.
    """
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number))
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def _children() -> list[int]:
    """Return the living children of this process, by the /proc of its pid namespace."""
    me = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            if fields[0] != "Z" and int(fields[1]) == me:
                found.append(int(name))
    return found


def end_children() -> None:
    """Kill every child; with adopt_orphans() these become all descendants, whatever they do."""
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.002)
        except ChildProcessError:
            return


def set_name(name: str) -> None:
    """Set the name that `ps -o comm` and `top` show."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def keep_capabilities_over_exec() -> None:
    """Let programs that this process starts keep what it takes to enter and set up nodes.

    The superuser's programs keep them anyway. A process of another user loses them at exec even
    inside its own user namespace, unless they are ambient.
    """
    if os.geteuid() == 0:
        return
    header = _Header(_CAPABILITY_VERSION_3, 0)
    sets = (_Sets * 2)()
    _check(_libc.capget(ctypes.byref(header), sets), "capget")
    for capability in _CAPABILITIES_KEPT:
        sets[0].inheritable |= sets[0].permitted & (1 << capability)
    _check(_libc.capset(ctypes.byref(header), sets), "capset")
    for capability in _CAPABILITIES_KEPT:
        if sets[0].inheritable & (1 << capability):
            _prctl(
                _PR_CAP_AMBIENT,
                ctypes.c_ulong(_PR_CAP_AMBIENT_RAISE),
                ctypes.c_ulong(capability),
                ctypes.c_ulong(0),
                ctypes.c_ulong(0),
            )


def drop_kept_capabilities() -> None:
    """Undo keep_capabilities_over_exec() for the programs that this process starts."""
    if os.geteuid() == 0:
        return
    zero = ctypes.c_ulong(0)
    _prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), zero, zero, zero)


def effective_capabilities() -> int:
    """Return the set of capabilities that count for this process now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def enter_user_namespace() -> None:
    """Make a user namespace in which this user keeps its numbers and has all capabilities."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def start_time(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 if there is none.

    With its number this tells a process from a later one of the same number.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def open_namespaces(pid: int) -> list[tuple[str, int]]:
    """Open the namespaces of a process that are not this process's own, in order of entering."""
    opened = []
    try:
        for kind in NAMESPACE_ORDER:
            path = f"/proc/{pid}/ns/{kind}"
            mine, theirs = os.stat(f"/proc/self/ns/{kind}"), os.stat(path)
            if (mine.st_dev, mine.st_ino) != (theirs.st_dev, theirs.st_ino):
                opened.append((kind, os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
    except OSError:
        for _, descriptor in opened:
            os.close(descriptor)
        raise
    return opened


def enter_namespaces(opened: list[tuple[str, int]]) -> None:
    """Enter what open_namespaces() has opened, and close it; children are in the pid namespace."""
    for kind, descriptor in opened:
        setns(descriptor, kind)
        os.close(descriptor)


def send_with_identity(channel: socket.socket, text: str) -> None:
    """Send a message; the kernel tells the receiver who sent it."""
    channel.send(text.encode())


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets for messages; the first gets the senders' process ids."""
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return receiver, sender


MESSAGE_BYTES = 4096


def receive_with_identity(channel: socket.socket) -> tuple[int, str]:
    """Return the sender's process id as this process's pid namespace has it, and its message.

    The message is empty when every sender has closed its end.
    """
    size = struct.calcsize("3i")
    data, extra, _, _ = channel.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(size))
    pid = 0
    for level, kind, content in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid = struct.unpack("3i", content[:size])[0]
    return pid, data.decode(errors="replace")

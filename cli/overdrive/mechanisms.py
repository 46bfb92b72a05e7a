"""Tries what Overdrive would like to use on this machine, and says why something cannot be used."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import resource
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

_MEMBARRIER_NUMBERS = {"x86_64": 324, "aarch64": 283, "ppc64le": 365, "riscv64": 283}
_MEMBARRIER_CMD_QUERY = 0
_MEMBARRIER_GLOBAL_EXPEDITED = 1 << 1
_MADV_COLLAPSE = 25
_MAP_FIXED = 0x10
_HUGE_PAGE_BYTES = 2 << 20


@dataclass(frozen=True)
class Mechanism:
    """One thing the machine may or may not permit."""

    name: str
    purpose: str
    available: bool
    detail: str  # why not, or what else is worth knowing

    def as_dict(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return asdict(self)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _name(number: int) -> str:
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"


def _in_child(body: Callable[[], int]) -> int:
    """Run body in a forked child; return its result (0 to 254), or 255 if it failed otherwise."""
    child = os.fork()
    if child == 0:
        code = 255
        with contextlib.suppress(BaseException):
            code = body()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 255


def shared_memory() -> Mechanism:
    """Memory without a name, which ranks share."""
    purpose = "memory that the ranks of a node share"
    try:
        fd = os.memfd_create("overdrive-info", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError) as reason:
        return Mechanism("memfd_create", purpose, False, f"{reason}; nothing can be shared")
    try:
        os.ftruncate(fd, _HUGE_PAGE_BYTES)
        mmap.mmap(fd, _HUGE_PAGE_BYTES).close()
    except OSError as reason:
        return Mechanism("memfd_create", purpose, False, f"cannot be mapped: {reason}")
    finally:
        os.close(fd)
    noexec = _read("/proc/sys/vm/memfd_noexec")
    detail = f"vm.memfd_noexec={noexec}" if noexec not in ("", "0") else ""
    return Mechanism("memfd_create", purpose, True, detail)


def abstract_socket() -> Mechanism:
    """Hand-over of descriptors over a socket without a name in the file system."""
    name, purpose = "abstract socket", "hands the memory over to other ranks, checks who they are"
    address = f"\0overdrive-info-{os.getpid()}"
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client,
        ):
            server.bind(address)
            server.listen(1)
            client.connect(address)
            connection, _ = server.accept()
            with connection, open(os.devnull, "rb") as file:
                socket.send_fds(client, [b"x"], [file.fileno()])
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
                for descriptor in descriptors:
                    os.close(descriptor)
                if not descriptors:
                    return Mechanism(name, purpose, False, "descriptors do not pass")
    except (OSError, AttributeError) as reason:
        return Mechanism(name, purpose, False, str(reason))
    return Mechanism(name, purpose, True, "")


def proc_descriptor() -> Mechanism:
    """Hand-over of descriptors through /proc, the second choice."""
    name, purpose = "/proc/PID/fd", "hands the memory over where sockets cannot"
    read_end, write_end = os.pipe()
    parent = os.getpid()

    def body() -> int:
        try:
            os.close(os.open(f"/proc/{parent}/fd/{read_end}", os.O_RDONLY | os.O_NONBLOCK))
        except OSError as reason:
            return reason.errno or 254
        return 0

    code = _in_child(body)
    os.close(read_end)
    os.close(write_end)
    return Mechanism(name, purpose, code == 0, "" if code == 0 else _name(code))


def process_vm_readv() -> Mechanism:
    """Reading of another process's memory through the kernel."""
    name, purpose = "process_vm_readv", "copies from memory that is not shared"
    scope = _read("/proc/sys/kernel/yama/ptrace_scope")
    libc = _libc()
    if not hasattr(libc, "process_vm_readv"):
        return Mechanism(name, purpose, False, "the C library does not have it")
    source = ctypes.create_string_buffer(b"overdrive")
    parent = os.getpid()

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    def body() -> int:
        # The child reads its parent: this is what one rank would do with another, whereas the
        # other direction is allowed even where ptrace is restricted to descendants.
        target = ctypes.create_string_buffer(9)
        local = Vector(ctypes.addressof(target), 9)
        remote = Vector(ctypes.addressof(source), 9)
        got = libc.process_vm_readv(
            ctypes.c_int(parent),
            ctypes.byref(local), ctypes.c_ulong(1),
            ctypes.byref(remote), ctypes.c_ulong(1),
            ctypes.c_ulong(0),
        )  # fmt: skip
        if got != 9:
            return ctypes.get_errno() or 254
        return 0 if target.raw == b"overdrive" else 254

    code = _in_child(body)
    detail = f"kernel.yama.ptrace_scope={scope}" if scope else ""
    if code != 0:
        detail = ", ".join(part for part in (_name(code), detail) if part)
    return Mechanism(name, purpose, code == 0, detail)


def pidfd() -> Mechanism:
    """A descriptor that tells when a process has ended."""
    name, purpose = "pidfd_open", "notices at once that another rank has died"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as reason:
        return Mechanism(name, purpose, False, f"{reason}; /proc is watched instead")
    return Mechanism(name, purpose, True, "")


def membarrier() -> Mechanism:
    """A barrier that the sleeper pays for instead of every sender."""
    name, purpose = "membarrier", "spares senders a memory fence per message"
    number = _MEMBARRIER_NUMBERS.get(platform.machine())
    if number is None:
        return Mechanism(name, purpose, False, f"not known for {platform.machine()}")
    commands = _libc().syscall(ctypes.c_long(number), ctypes.c_int(_MEMBARRIER_CMD_QUERY), 0)
    if commands < 0:
        return Mechanism(name, purpose, False, f"{_name(ctypes.get_errno())}; a fence is used")
    if not commands & _MEMBARRIER_GLOBAL_EXPEDITED:
        return Mechanism(name, purpose, False, "no global expedited form; a fence is used")
    return Mechanism(name, purpose, True, "")


def _collapse(fd: int) -> int:
    """Try to turn the first two megabytes of a memfd into one huge page; return errno or 0."""
    libc = _libc()
    libc.mmap.restype = ctypes.c_void_p
    with mmap.mmap(-1, 2 * _HUGE_PAGE_BYTES) as reserved:
        view = ctypes.c_char.from_buffer(reserved)
        start = ctypes.addressof(view)
        # The kernel wants the address aligned like the offset in the file.
        aligned = (start + _HUGE_PAGE_BYTES - 1) & ~(_HUGE_PAGE_BYTES - 1)
        address = libc.mmap(
            ctypes.c_void_p(aligned),
            ctypes.c_size_t(_HUGE_PAGE_BYTES),
            ctypes.c_int(mmap.PROT_READ | mmap.PROT_WRITE),
            ctypes.c_int(mmap.MAP_SHARED | _MAP_FIXED),
            ctypes.c_int(fd),
            ctypes.c_long(0),
        )
        if address != aligned:
            del view
            return ctypes.get_errno() or errno.ENOMEM
        # A range is collapsed only if at least one of its pages is there.
        ctypes.c_char.from_address(aligned).value = b"x"
        failed = libc.madvise(
            ctypes.c_void_p(aligned),
            ctypes.c_size_t(_HUGE_PAGE_BYTES),
            ctypes.c_int(_MADV_COLLAPSE),
        )
        code = ctypes.get_errno() if failed else 0
        del view
        return code


def huge_pages() -> Mechanism:
    """Huge pages in shared memory."""
    name, purpose = "huge pages", "fewer page faults in shared memory; not used so far"
    setting = _read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    detail = f"shmem_enabled: {setting}" if setting else "no transparent huge pages in this kernel"
    try:
        fd = os.memfd_create("overdrive-info", os.MFD_CLOEXEC)
    except (OSError, AttributeError) as reason:
        return Mechanism(name, purpose, False, str(reason))
    try:
        os.ftruncate(fd, _HUGE_PAGE_BYTES)
        code = _collapse(fd)
    finally:
        os.close(fd)
    if code == errno.EINVAL:
        detail += "; MADV_COLLAPSE: refused (needs Linux 6.1)"
    elif code:
        detail += f"; MADV_COLLAPSE: {_name(code)}"
    else:
        detail += "; MADV_COLLAPSE works"
    return Mechanism(name, purpose, code == 0, detail)


def limits() -> Mechanism:
    """Resource limits that reach shared memory."""
    name, purpose = "resource limits", "room for shared memory and descriptors"
    values = {
        "address space (ulimit -v)": resource.RLIMIT_AS,
        "file size (ulimit -f)": resource.RLIMIT_FSIZE,
        "open files (ulimit -n)": resource.RLIMIT_NOFILE,
    }
    texts: list[str] = []
    roomy = True
    for title, limit in values.items():
        soft, _ = resource.getrlimit(limit)
        if soft == resource.RLIM_INFINITY:
            continue
        texts.append(f"{title} {soft}")
        smallest = 64 if limit == resource.RLIMIT_NOFILE else 256 << 20
        roomy = roomy and soft >= smallest
    detail = ", ".join(texts) if texts else "none"
    if not roomy:
        detail += "; shared memory shrinks to fit"
    return Mechanism(name, purpose, roomy, detail)


def xpmem(why: str) -> Mechanism:
    """Attaching to the memory of other processes; `why` not is what the library says itself."""
    purpose = "reads and writes other ranks' stacks, static data, foreign allocators"
    return Mechanism("XPMEM", purpose, why == "", why)


FAULT_TOLERANCE_SWITCHES = ("OMPI_MCA_mpi_ft_enable", "MPIR_CVAR_ENABLE_FT")
"""Variables that switch fault tolerance on in every job of this environment."""


def fault_tolerance() -> Mechanism:
    """Jobs that outlive their ranks are left to the host MPI; says whether jobs here are such."""
    detail = (
        "Overdrive is passive in jobs that outlive their ranks: mpiexec --with-ft (Open MPI), "
        "MPIR_CVAR_ENABLE_FT (MPICH)"
    )
    switches = [
        name
        for name in FAULT_TOLERANCE_SWITCHES
        if os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
    ]
    if switches:
        detail += f"; {switches[0]} is on here"
    return Mechanism("fault tolerance", "jobs that go on when a rank dies", False, detail)


def all_mechanisms() -> list[Mechanism]:
    """Try everything."""
    return [
        shared_memory(),
        abstract_socket(),
        proc_descriptor(),
        pidfd(),
        membarrier(),
        limits(),
        process_vm_readv(),
        huge_pages(),
        fault_tolerance(),
    ]

"""A virtual machine with Linux's RDMA adapter over Ethernet (rdma_rxe), in software.

The kernel is Debian's: an installed one whose modules have rdma_rxe, or OVERDRIVE_RXE_ROOT, a
folder into which a package linux-image-... was unpacked, or else one that apt fetches once into
build/rxe. Its file system is made here of busybox, the modules, and the examples of rdma-core with
their libraries. The machine has one processor, which QEMU translates (TCG), so times say nothing.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "rxe"
MODULES = ["crc32_generic", "virtio_pci", "virtio_net", "rdma_rxe", "ib_uverbs"]
"""In this order: the adapter needs the checksum when it is added, not before."""
PROGRAMS = ["ibv_rc_pingpong", "ibv_ud_pingpong", "rdma", "ip"]
PROVIDER = "libibverbs/librxe-rdmav34.so"
OWN, GUEST = "10.9.0.2", "10.9.0.1"
FETCH_SECONDS = 120

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do
  /bin/busybox insmod /modules/$module.ko || echo "no $module"
done
/bin/ip link set lo up
/bin/ip addr add GUEST/24 dev eth0
/bin/ip link set eth0 up
/bin/rdma link add rxe0 type rxe netdev eth0
COMMANDS
/bin/busybox poweroff -f
"""


class NoMachine(Exception):
    """Why there is none."""


def packages() -> Iterator[Path]:
    """Name folders with a kernel's package, the likeliest first; the last costs a download."""
    given = os.environ.get("OVERDRIVE_RXE_ROOT")
    if given:
        yield Path(given)
        return
    yield Path("/")
    yield CACHE / "root"
    apt = shutil.which("apt-get")
    if apt is None or shutil.which("dpkg-deb") is None:
        return
    shown = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True)
    found = re.search(rb"Depends: (linux-image-\S+)", shown.stdout)
    if found is None:
        return
    (CACHE / "root").mkdir(parents=True, exist_ok=True)
    for package in (found.group(1).decode(), "ibverbs-utils"):
        command = [apt, "download", package]
        if subprocess.run(
            command, cwd=CACHE, capture_output=True, timeout=FETCH_SECONDS
        ).returncode:
            return
        for file in CACHE.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(file), str(CACHE / "root")], check=True)
            file.unlink()
    yield CACHE / "root"


def kernel() -> tuple[Path, dict[str, Path]]:
    """Return a kernel and where its modules are, by name."""
    for root in packages():
        for image in sorted(root.glob("boot/vmlinuz-*"), reverse=True):
            folder = root / "lib" / "modules" / image.name.removeprefix("vmlinuz-")
            modules = {path.stem: path for path in folder.rglob("*.ko")}
            if all(name in modules for name in MODULES):
                return image, modules
    raise NoMachine("no kernel with rdma_rxe (Debian's package linux-image-amd64) is to be had")


def in_order(modules: dict[str, Path]) -> list[str]:
    """Return the modules that are needed, each behind those that it needs."""
    order: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        if name not in modules:  # built into the kernel
            return
        needs = re.search(rb"(?:^|\0)depends=([^\0]*)\0", modules[name].read_bytes())
        for needed in needs.group(1).decode().split(",") if needs else []:
            if needed:
                add(needed.replace("-", "_") if needed not in modules else needed)
        order.append(name)

    for name in MODULES:
        add(name)
    return order


def program(name: str) -> Path:
    """Return where a program is."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is not None:
        return Path(found)
    unpacked = CACHE / "root" / "usr" / "bin" / name
    if unpacked.exists():
        return unpacked
    raise NoMachine(f"{name} is not installed")


def libraries(path: Path) -> list[Path]:
    """Return the libraries that a program or library is linked with."""
    shown = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", shown)]


def archive(files: dict[str, bytes | None]) -> bytes:
    """Return a cpio archive (newc) of files, which are executable; folders have no content."""
    made = bytearray()

    def add(name: str, mode: int, content: bytes) -> None:
        encoded = name.encode() + b"\0"
        words = [0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
        made.extend(b"070701" + b"".join(b"%08x" % word for word in words) + encoded)
        made.extend(b"\0" * (-len(made) % 4))
        made.extend(content)
        made.extend(b"\0" * (-len(made) % 4))

    for name, content in files.items():
        if content is None:
            add(name, 0o040755, b"")
        else:
            add(name, 0o100755, content)
    add("TRAILER!!!", 0, b"")
    return bytes(made)


def file_system(modules: dict[str, Path], commands: str) -> bytes:
    """Return what the machine boots into: it runs the commands and ends."""
    order = in_order(modules)
    busybox = program("busybox")
    if libraries_of_static(busybox):
        raise NoMachine("busybox is not static (install busybox-static)")
    files: dict[str, bytes] = {
        "init": INIT.replace("GUEST", GUEST).replace("COMMANDS", commands).encode(),
        "bin/busybox": busybox.read_bytes(),
        "modules/order": " ".join(order).encode(),
        "etc/libibverbs.d/rxe.driver": b"driver rxe\n",
    }
    for name in order:
        files[f"modules/{name}.ko"] = modules[name].read_bytes()
    wanted = []
    for name in PROGRAMS:
        path = program(name)
        files[f"bin/{name}"] = path.read_bytes()
        wanted += libraries(path)
    verbs = next((path for path in wanted if path.name.startswith("libibverbs.so")), None)
    provider = verbs.resolve().parent / PROVIDER if verbs is not None else None
    if provider is None or not provider.exists():
        raise NoMachine("the library of rxe adapters is not installed (ibverbs-providers)")
    files[str(provider).lstrip("/")] = provider.read_bytes()
    for path in [*wanted, *libraries(provider)]:
        files[str(path).lstrip("/")] = path.read_bytes()
    folders = {str(folder) for name in files for folder in Path(name).parents} - {"."}
    return archive({**dict.fromkeys(sorted(folders)), **files})


def libraries_of_static(path: Path) -> list[Path]:
    """Return libraries as `libraries` does, none for a static program."""
    shown = subprocess.run(["ldd", str(path)], capture_output=True, text=True)
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", shown.stdout)]


def prepare(folder: Path, commands: str) -> list[str]:
    """Write the machine's file system; return the command that runs it, with a tap named tap0."""
    emulator = shutil.which("qemu-system-x86_64")
    if emulator is None:
        raise NoMachine("qemu-system-x86_64 is not installed (qemu-system-x86)")
    image, modules = kernel()
    disk = folder / "initrd.gz"
    disk.write_bytes(gzip.compress(file_system(modules, commands), 1))
    words = [emulator, "-accel", "tcg", "-cpu", "max", "-m", "512", "-kernel", str(image)]
    words += ["-initrd", str(disk), "-append", "console=ttyS0 panic=-1 quiet", "-nographic"]
    words += ["-no-reboot", "-netdev", "tap,ifname=tap0,script=no,downscript=no,id=n0"]
    return [*words, "-device", "virtio-net-pci,netdev=n0,romfile="]

"""Root file systems of Debian releases, made of packages, in which installations are tried.

A release is unpacked once into build/images; each `Image` sees it through an overlay of its own
and is clean when it begins. Commands run in it by chroot in own mount and process namespaces,
with no variable of this machine's environment. Needs root and mmdebstrap; what is missing is an
Unavailable.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.programs import ROOT

IMAGES = ROOT / "build" / "images"
MPI = "openmpi-bin,mpich,python3-venv"
KINDS = {
    "bullseye": ("bullseye", MPI),
    "bookworm": ("bookworm", MPI),
    "trixie": ("trixie", MPI),
    "lmod": ("bookworm", "openmpi-bin,mpich,lmod,man-db,pkg-config,python3"),
    "modules": ("bookworm", "openmpi-bin,mpich,environment-modules,man-db,pkg-config,python3"),
}
"""Debian release and packages of each kind of image; the distribution's Lmod and Environment
Modules exclude each other."""

MIRROR = os.environ.get("OVERDRIVE_DEBIAN_MIRROR", "http://deb.debian.org/debian")
HOST_NAME = "image"
"""Some MPI libraries want to find the address of their own host."""

MAKE_SECONDS = 1800
RUN_SECONDS = 600

IGNORED = (
    "dev",
    "proc",
    "sys",
    "tmp",
    "run",
    "var/log",
    "var/cache",
    "var/lib/dpkg",
    "var/lib/apt",
)
"""What packaging tools themselves keep, and what is not on a disk."""


class Unavailable(Exception):
    """Why there are no images here."""


def base(kind: str) -> Path:
    """Return the root file system of a kind, making it if it is not there."""
    if os.geteuid() != 0:
        raise Unavailable("root file systems are made and entered by the superuser")
    for program in ("unshare", "chroot"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not installed")
    folder = IMAGES / kind
    if folder.is_dir():
        return folder
    if shutil.which("mmdebstrap") is None:
        raise Unavailable("mmdebstrap is not installed")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with open(IMAGES / f"{kind}.lock", "w") as lock:
        # Tests that run beside each other want the same one.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _make(kind, folder)
    return folder


def _make(kind: str, folder: Path) -> None:
    """Make the root file system of a kind."""
    partial = IMAGES / f"{kind}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    release, packages = KINDS[kind]
    # In mounts of its own: when it is killed, this machine's /dev/shm must not stay mounted in a
    # folder that the next try removes.
    command = ["unshare", "--mount", "mmdebstrap", "--variant=minbase", "--format=directory"]
    command.append(f"--include={packages}")
    done = subprocess.run(
        [*command, release, str(partial), MIRROR],
        capture_output=True,
        text=True,
        timeout=MAKE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise Unavailable(f"mmdebstrap {release}: {done.stderr[-1000:]}")
    partial.rename(folder)


class Image:
    """A clean root file system of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.lower = base(kind)
        self.top = Path(tempfile.mkdtemp(prefix=f"image-{kind}-", dir=IMAGES))
        self.mounts: dict[Path, str] = {}
        for name in ("upper", "work", "root"):
            (self.top / name).mkdir()
        (self.top / "upper" / "etc").mkdir()
        (self.top / "upper" / "etc" / "hosts").write_text(f"127.0.0.1 localhost {HOST_NAME}\n")
        if self.run("true").returncode != 0:
            said = self.run("true").stderr.strip()
            self.remove()
            raise Unavailable(f"no overlay file system or namespaces here: {said}")

    def remove(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.top, ignore_errors=True)

    def mount(self, source: Path, place: str) -> None:
        """Show a folder of this machine in the image, read-only, from the next command on."""
        self.mounts[source.resolve()] = place

    def _show_folders(self, root: Path) -> list[str]:
        """Return the commands that show the folders of this machine in the image."""
        lines = []
        for source, place in self.mounts.items():
            lines += [
                f"mkdir -p {root}{place}",
                f"mount --bind -o ro {shlex.quote(str(source))} {root}{place}",
            ]
        return lines

    def run(
        self, command: str, env: Mapping[str, str] | None = None, limit: float = RUN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the image."""
        root = self.top / "root"
        options = f"lowerdir={self.lower},upperdir={self.top}/upper,workdir={self.top}/work"
        lines = [
            "set -e",
            f"hostname {HOST_NAME}",
            f"mount -t overlay overlay -o {options} {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount --rbind /sys {root}/sys",
            *self._show_folders(root),
        ]
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
        words = [f"{name}={value}" for name, value in {**variables, **(env or {})}.items()]
        inside = shlex.join(["env", "-i", *words, "sh", "-c", command])
        lines.append(f"exec chroot {root} {inside}")
        return subprocess.run(
            [
                "unshare",
                "--mount",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                "\n".join(lines),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )

    def entry(self) -> list[str]:
        """Return what is put in front of a command that runs in the image alone, as apptainer does.

        It keeps variables, processes, network and /tmp of who starts it, and sees the image
        read-only. Each such command has mounts of its own, so that several may run at once.
        """
        root = self.top / "root"
        lines = [
            "set -e",
            f"mount --bind -o ro {self.lower} {root}",
            f"mount -t tmpfs tmpfs {root}/mnt",
            f"mount --rbind /proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount --rbind /sys {root}/sys",
            f"mount --rbind /tmp {root}/tmp",
            *self._show_folders(root),
            f'exec chroot {root} "$@"',
        ]
        outside = [place for place in self.mounts.values() if not place.startswith("/mnt/")]
        assert not outside, "the rest of the image is read-only"
        return ["unshare", "--mount", "sh", "-c", "\n".join(lines), "sh"]

    def need(
        self, command: str, env: Mapping[str, str] | None = None, limit: float = RUN_SECONDS
    ) -> str:
        """Run a shell command; return its output, or fail with what it said."""
        done = self.run(command, env, limit)
        assert done.returncode == 0, (
            f"{self.kind}: {command}: status {done.returncode}\n"
            f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
        return done.stdout

    def files(self) -> set[str]:
        """Return all paths of the image but those that packaging tools keep for themselves."""
        places = ["/" + name for name in (*IGNORED, *(m.strip("/") for m in self.mounts.values()))]
        left_out = " -o ".join(f"-path {shlex.quote(place)}" for place in places)
        return set(self.need(f"find / \\( {left_out} \\) -prune -o -print").splitlines())

"""Folders and files whose contents are run or obeyed: nobody else may have put them there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from overdrive.errors import CommandError


def _fault(status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {status.st_mode & 0o777:o})"
    return ""


def make_own_folder(folder: Path) -> None:
    """Make a folder that only this user can write, or check that it is one."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o755, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.geteuid() and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            folder.chmod(stat.S_IMODE(status.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
            status = folder.stat()
    except OSError as reason:
        raise CommandError(f"{reason.filename or folder}: {reason.strerror}") from reason
    fault = _fault(status)
    if fault:
        raise CommandError(f"{folder} {fault}; remove it, or set XDG_CACHE_HOME to another folder")


def check_own_file(path: Path) -> None:
    """Raise an error unless the file is this user's or root's and nobody else can write it."""
    status = path.lstat()
    fault = "is not a regular file" if not stat.S_ISREG(status.st_mode) else _fault(status)
    if fault:
        raise CommandError(f"{path} {fault}; remove it")


MOST_TEXT_BYTES = 256 << 20
"""Of a file that the user names: far beyond all samples of a long study."""


def read_text(path: Path) -> str:
    """Return the text of a file that the user names; never waits, whatever the path names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise CommandError(f"{path}: is not a regular file")
        if status.st_size > MOST_TEXT_BYTES:
            raise CommandError(f"{path}: is larger than {MOST_TEXT_BYTES >> 20} MiB")
        return file.read()

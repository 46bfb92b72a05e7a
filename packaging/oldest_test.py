"""That the sources call nothing by name which the oldest C library of the wheel does not have.

Linking the wheel finds that, too, but takes the time of a whole build.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FOLDERS = ("src", "switch", "include")

NEWER = (
    "_Fork|arc4random|arc4random_buf|arc4random_uniform|close_range|closefrom|cnd_timedwait|"
    "epoll_pwait2|execveat|fsopen|getcpu|getdents64|gettid|mount_setattr|move_mount|open_tree|"
    "pidfd_getfd|pidfd_open|pidfd_send_signal|process_madvise|process_mrelease|"
    "pthread_cond_clockwait|pthread_mutex_clocklock|pthread_rwlock_clockrdlock|"
    "pthread_rwlock_clockwrlock|sched_getattr|sched_setattr|sem_clockwait|strlcat|strlcpy|tgkill|"
    "timespec_getres|twalk_r"
)
"""Functions that came to glibc after 2.28; those that are needed are called by their number."""

CALL = re.compile(rf"(?<![\w.>:])(?:::)?({NEWER})\(")
OWN = {"own_pages.cc": {"close_range"}, "own_pages.h": {"close_range"}}
"""Functions of the project's own with such a name."""


def test_the_pattern_finds_calls_and_nothing_else() -> None:
    for text in ("const int n = epoll_pwait2(fd, 0);", "if (::gettid() == 1)", "x = tgkill(1, 2)"):
        assert CALL.search(text), text
    for text in ("syscall(SYS_epoll_pwait2, fd)", "my_gettid()", "one.gettid()", "od::gettid()"):
        assert not CALL.search(text), text


def test_sources_call_nothing_that_the_oldest_c_library_lacks() -> None:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".cc", ".h", ".c", ".hpp"):
                continue
            text = path.read_text(encoding="utf-8")
            names = {match.group(1) for match in CALL.finditer(text)} - OWN.get(path.name, set())
            found += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(names)]
    assert not found, found

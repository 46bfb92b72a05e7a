"""Whether a library fits the C library of this system, by the symbol versions that it needs.

Also whether it fits the processor: both stand in the same file, and are asked in one go.

The dynamic linker ends every program that has a library preloaded which was built for a newer
glibc; so this is asked before a job starts. Every start of a job comes through here, so it imports
next to nothing and reads a few kilobytes. What cannot be read or understood counts as fitting: the
dynamic linker has the last word.
"""

from __future__ import annotations

import os

from overdrive import processor

_LOAD, _DYNAMIC, _PROPERTIES = 1, 2, 0x6474E553
"""Types of program headers."""
_END, _NAMES, _NEEDED_VERSIONS, _NEEDED_COUNT = 0, 5, 0x6FFFFFFE, 0x6FFFFFFF
"""Tags of the dynamic section: DT_NULL, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM."""
_WEAK = 2
"""Of a needed version: VER_FLG_WEAK, the linker goes on without it."""
_WITHOUT_NUMBER = {"GLIBC_ABI_DT_RELR": (2, 36)}
"""Marks of the linker's own features, and the glibc that brought them."""

Version = tuple[int, ...]


class _File:
    """An ELF file of 64 bits with its least significant bytes first."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        head = self.read(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise ValueError
        size, count = self.number(head, 54, 2), self.number(head, 56, 2)
        table = self.read(self.number(head, 32, 8), size * count)
        entries = [table[i * size : (i + 1) * size] for i in range(count)]
        self.segments = [
            (self.number(entry, 16, 8), self.number(entry, 32, 8), self.number(entry, 8, 8))
            for entry in entries
            if self.number(entry, 0, 4) == _LOAD
        ]
        # The first one of each type counts.
        places = {
            self.number(entry, 0, 4): (self.number(entry, 8, 8), self.number(entry, 32, 8))
            for entry in reversed(entries)
        }
        self.dynamic = self.read(*places[_DYNAMIC])
        self.properties = self.read(*places.get(_PROPERTIES, (0, 0)))

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the file; fewer only at its end."""
        return os.pread(self.descriptor, size, offset)

    @staticmethod
    def number(data: bytes, at: int, size: int) -> int:
        """Return a number in some bytes."""
        return int.from_bytes(data[at : at + size], "little")

    def at(self, address: int, size: int) -> bytes:
        """Return what lies at an address when the file is loaded."""
        for start, length, offset in self.segments:
            if start <= address < start + length:
                return self.read(address - start + offset, size)
        raise ValueError

    def tags(self) -> dict[int, int]:
        """Return the entries of the dynamic section that occur once."""
        found: dict[int, int] = {}
        for at in range(0, len(self.dynamic), 16):
            tag = self.number(self.dynamic, at, 8)
            if tag == _END:
                break
            found[tag] = self.number(self.dynamic, at + 8, 8)
        return found

    def needed_versions(self) -> list[str]:
        """Return the names of all versions that the linker insists on."""
        tags = self.tags()
        found = []
        need = tags.get(_NEEDED_VERSIONS, 0)
        for _ in range(tags.get(_NEEDED_COUNT, 0)):
            head = self.at(need, 16)
            one = need + self.number(head, 8, 4)
            for _ in range(self.number(head, 2, 2)):
                version = self.at(one, 16)
                if not self.number(version, 4, 2) & _WEAK:
                    name = self.at(tags[_NAMES] + self.number(version, 8, 4), 32)
                    found.append(name.partition(b"\0")[0].decode("ascii", "replace"))
                one += self.number(version, 12, 4)
            need += self.number(head, 12, 4)
        return found


def _numbers(text: str) -> Version:
    try:
        return tuple(int(part) for part in text.split("."))
    except ValueError:
        return ()


def _needs(path: str) -> tuple[Version, int]:
    """Return the oldest glibc and the least level of x86-64 that a library needs."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return (), 0
    try:
        file = _File(descriptor)
        names, level = file.needed_versions(), processor.needed(file.properties)
    except (OSError, ValueError, KeyError):
        return (), 0
    finally:
        os.close(descriptor)
    found = [
        _WITHOUT_NUMBER.get(name) or _numbers(name[len("GLIBC_") :])
        for name in names
        if name.startswith("GLIBC_")
    ]
    return max(found, default=()), level


def needed(path: str) -> Version:
    """Return the oldest glibc with which a library loads; () when the file does not say."""
    return _needs(path)[0]


def here() -> Version:
    """Return the version of glibc that this process runs with; () where it is another library."""
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return ()
    return _numbers(said.rpartition(" ")[2])


def text(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))


def misfit(library: str, faces: tuple[str, ...], present: Version | None = None) -> str:
    """Return why Overdrive cannot be used with C library and processor here, or "" if it can.

    `faces` are looked for beside the library; those that are not there are left out.
    """
    present = here() if present is None else present
    folder = os.path.join(os.path.dirname(library), "overdrive")
    beside = [os.path.join(folder, f"liboverdrive-{name}.so") for name in faces]
    needs = [_needs(path) for path in (library, *beside)]
    wanted = max(version for version, _ in needs)
    if present and wanted > present:
        return f"{library} needs glibc {text(wanted)}, and this system has {text(present)}"
    level = max(level for _, level in needs)
    # Most builds run on every processor.
    have = processor.here() if level > 1 else 0
    if have and level > have:
        return (
            f"{library} was built for processors of the level {processor.name(level)}, "
            f"and this one has {processor.name(have)}"
        )
    return ""


REMEDY = "install the wheel, which needs glibc 2.28, or build Overdrive on this system"

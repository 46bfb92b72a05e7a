"""Whether a library fits the processor of this system, by the level of x86-64 that it needs.

A build for newer processors ends every program that has it preloaded on an older one, be it by the
dynamic linker or by an instruction that there is not; so this is asked before a job starts. Builds
for every x86-64 processor say nothing, and nothing is read for them. What is not known counts as
fitting.
"""

from __future__ import annotations

_NEEDED = 0xC0008002
"""Type of a property of an ELF file: GNU_PROPERTY_X86_ISA_1_NEEDED, a bit for each level."""

_LEVELS = (
    "",
    "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3",
    "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "avx512bw avx512cd avx512dq avx512f avx512vl",
)
"""What each level adds to the one before, in the words of the kernel."""


def needed(note: bytes) -> int:
    """Return the level that the properties of a file demand; 0 when they do not say."""
    # Name's size, size of the properties, type of the note, and the name "GNU".
    end = min(len(note), 16 + int.from_bytes(note[4:8], "little"))
    at = 16
    while at + 8 <= end:
        kind, size = (int.from_bytes(note[i : i + 4], "little") for i in (at, at + 4))
        if kind == _NEEDED:
            return int.from_bytes(note[at + 8 : at + 8 + size], "little").bit_length()
        at += 8 + (size + 7) // 8 * 8
    return 0


def here(processors: str = "/proc/cpuinfo") -> int:
    """Return the level of this processor; 0 where the kernel does not tell."""
    try:
        with open(processors, encoding="ascii", errors="replace") as file:
            line = next(line for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        return 0
    flags = set(line.partition(":")[2].split())
    level = 0
    for words in _LEVELS:
        if not flags.issuperset(words.split()):
            break
        level += 1
    return level


def name(level: int) -> str:
    """Return a level as compilers call it."""
    return "x86-64" if level <= 1 else f"x86-64-v{level}"

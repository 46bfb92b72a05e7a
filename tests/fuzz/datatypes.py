"""Datatypes of random programs, as the interpreter's layout.h reads them."""

from __future__ import annotations

import random
from dataclasses import dataclass

SIZES = {"c": 1, "s": 2, "i": 4, "l": 8, "u": 4, "U": 8, "f": 4, "d": 8, "b": 1}
"""Basic types and their bytes."""

HUGE_RUNS = 70_000
"""More irregular runs than any implementation keeps in a small table."""


@dataclass(frozen=True)
class Type:
    """A datatype's specification."""

    spec: str

    @property
    def base(self) -> str:
        """Return the letter of its basic type."""
        return self.spec[0]

    @property
    def per(self) -> int:
        """Return how many basic elements one element has."""
        kind, numbers = parse(self.spec)
        if kind == "p":
            return 1
        if kind == "v":
            return numbers[0] * numbers[1]
        if kind == "x":
            return sum(1 + mix(numbers[1] * 1000003 + i) % 3 for i in range(numbers[0]))
        return numbers[0]


def parse(spec: str) -> tuple[str, list[int]]:
    """Return a specification's kind (p: the basic type itself) and numbers."""
    if len(spec) == 1:
        return "p", []
    _, kind, *numbers = spec.split(":")
    return kind, [int(number) for number in numbers]


def mix(value: int) -> int:
    """Return the interpreter's hash of a number."""
    mask = (1 << 64) - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def pick(rng: random.Random, base: str, derived: float = 0.4) -> Type:
    """Return some datatype of a basic type."""
    if rng.random() >= derived:
        return Type(base)
    kind = rng.choice("ccvvxxrrwn")
    count = rng.choice([1, 2, 3, 4, 7, 20])
    if kind == "c" or kind == "w" or kind == "n":
        return Type(f"{base}:{kind}:{count}")
    if kind == "v":
        length = rng.choice([1, 2, 3, 8])
        return Type(f"{base}:v:{count}:{length}:{length + rng.choice([0, 1, 5])}")
    if kind == "r":
        return Type(f"{base}:r:{count}:{rng.choice([0, 1, 3])}")
    return Type(f"{base}:x:{count}:{rng.randrange(1000)}")


SIZES_OF_INTEREST = (
    0, 1, 8, 56, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 32768, 65536,
    131072, 262144,
)  # fmt: skip
"""Where implementations change their protocol."""


def pick_bytes(rng: random.Random, most: int) -> int:
    """Return a length: next to where protocols change, or of random magnitude."""
    if rng.random() < 0.3:
        size = rng.randrange(1 << rng.randrange(1, 19))
    else:
        size = rng.choice(SIZES_OF_INTEREST) + rng.choice([-1, 0, 0, 1])
    return max(0, min(size, most))


def pick_memory(rng: random.Random) -> str:
    """Return where a buffer lies."""
    return f"{rng.choice('hhhggkdm')}:{rng.choice([0, 0, 0, 1, 4, 8, 24, 64])}"

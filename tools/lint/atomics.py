"""Checks that each atomic operation with an order says what it pairs with.

Acquire, release and stronger orders mean something only together with another operation. A comment
"pairs with ..." stands in the same function (or in the comment above it), or at the declaration of
the atomic variable. Unit tests and their support are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ORDER = re.compile(
    r"memory_order_(acquire|release|acq_rel|seq_cst)|__ATOMIC_(ACQUIRE|RELEASE|ACQ_REL|SEQ_CST|CONSUME)"
)
PAIRS = re.compile(r"\bpair(s|ed|ing)? with\b", re.IGNORECASE)
OPERATION = re.compile(
    r"(\w+)(?:\[[^\]]*\]|\(\))*(?:\.|->)(?:load|store|exchange|wait|fetch_\w+|compare_exchange_\w+)\("
)
BUILTIN = re.compile(r"__atomic_\w+\(\s*&?(?:\w+(?:\.|->))*(\w+)")
DECLARED = re.compile(r"(?:atomic\b[^;(]*>&?|atomic_flag|Word)\s+(\w+)")


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield what stands between empty lines, with the number of its first line.

    Functions of this house have no empty lines.
    """
    number = 1
    for part in re.split(r"(\n(?:[ \t]*\n)+)", text):
        if part.strip():
            yield number, part
        number += part.count("\n")


def _statements(paragraph: str) -> Iterator[tuple[int, str]]:
    """Yield the statements with an order, and the line where it is, from 0."""
    lines = paragraph.split("\n")
    for number, line in enumerate(lines):
        code = line.partition("//")[0]
        if not ORDER.search(code):
            continue
        first = number
        while first > 0 and not re.search(r"[;{}]\s*(//.*)?$|^\s*//", lines[first - 1]):
            first -= 1
        yield number, " ".join(one.partition("//")[0] for one in lines[first : number + 1])


def _with_comment(text: str) -> set[str]:
    """Return the atomic variables whose declaration says what operations on it pair with."""
    found = set()
    comment = ""
    commenting = False
    for line in text.split("\n"):
        if line.lstrip().startswith("//"):
            comment = (comment if commenting else "") + line
            commenting = True
            continue
        commenting = False
        match = DECLARED.search(line.partition("//")[0])
        if match is None:
            comment = ""
        elif PAIRS.search(re.sub(r"\s*//\s*", " ", comment) + line):
            found.add(match.group(1))  # one comment may stand above several
    return found


def lonely_operations(source: Path) -> list[str]:
    """Name the operations below `source` that do not say what they pair with."""
    files = {
        path: path.read_text()
        for path in sorted(source.rglob("*"))
        if path.suffix in (".h", ".cc") and not re.search(r"_test\.cc$|^test_", path.name)
    }
    declared = set().union(*(_with_comment(text) for text in files.values()))
    found = []
    for path, text in files.items():
        for first, paragraph in _paragraphs(text):
            if PAIRS.search(re.sub(r"\s*//\s*", " ", paragraph)):
                continue
            for number, statement in _statements(paragraph):
                names = OPERATION.findall(statement) + BUILTIN.findall(statement)
                if not declared.intersection(names):
                    name = path.relative_to(source).as_posix()
                    found.append(f"src/{name}:{first + number}: does not say what it pairs with")
    return found

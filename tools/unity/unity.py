#!/usr/bin/env python3
"""Groups sources that can be compiled as one: `unity.py --most N FILE...` prints `group;file`.

Whole builds spend most of their time reading the same headers (OVERDRIVE_UNITY in CMakeLists.txt).
Files of one folder share a group unless one of them declares for itself alone (in an unnamed
namespace, as a macro, by `using`) a name that another one mentions at all: then the second could
not be compiled, or would mean something else than by itself.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path

NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
WORD = re.compile(r"[A-Za-z_]\w*")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\s*\(\s*(\w+)\s*,\s*(\w+)")
NAMESPACE = re.compile(r"\bnamespace\s*(?:[\w:]+\s*)?$")
TYPE = re.compile(r"\b(?:struct|class|union|enum)\s+(?:class\s+)?(?:alignas\s*\([^)]*\)\s*)?(\w+)")
ALIAS = re.compile(r"\busing\s+(?:enum\s+)?(?:[\w:]+::)?(\w+)\s*(?:=|$)")
DECLARED = re.compile(r"([A-Za-z_]\w*)\s*(?:[(=\[,{]|$)")
KEYWORDS = {"alignas", "decltype", "noexcept", "static_assert", "operator", "requires", "template"}


@dataclass
class Source:
    """A file, the names that are its own, and every name that it mentions."""

    path: str
    own: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    def meets(self, other: Source) -> bool:
        """Tell whether the two cannot be compiled as one."""
        return bool(self.own & other.words or other.own & self.words)


def without_brackets(text: str) -> str:
    """Return a declaration without what stands in brackets, whose openings are kept."""
    kept, depth = [], 0
    for letter in re.sub(r"\[\[.*?\]\]", "", text):
        if letter in ")]>":
            depth = max(0, depth - 1)
        if depth == 0:
            kept.append(letter)
        if letter in "([<":
            depth += 1
    return "".join(kept)


def declared_names(head: str) -> set[str]:
    """Return the names that a declaration makes: more rather than fewer."""
    plain = without_brackets(head)
    found = {match[1] for match in TYPE.finditer(head)} | {m[1] for m in ALIAS.finditer(plain)}
    if plain.lstrip().startswith("using"):
        return found
    return found | {match[1] for match in DECLARED.finditer(plain)} - KEYWORDS


def own_names(code: str) -> set[str]:
    """Return what stands in unnamed namespaces of a source without comments and directives."""
    found: set[str] = set()
    levels: list[str] = []  # of each open brace: "named", "unnamed" or "other"
    head = ""
    for letter in code:
        outside = "other" not in levels
        if letter == "{":
            space = NAMESPACE.search(head) if outside else None
            if space is not None:
                unnamed = space[0].split() == ["namespace"] or "unnamed" in levels
                levels.append("unnamed" if unnamed else "named")
            else:
                if outside:
                    found |= names_at(head, levels)
                levels.append("other")
            if outside:
                head = ""
        elif letter == "}":
            if levels:
                levels.pop()
            if "other" not in levels:
                head = ""
        elif letter == ";" and outside:
            found |= names_at(head, levels)
            head = ""
        elif outside:
            head += letter
    return found


def names_at(head: str, levels: list[str]) -> set[str]:
    """Return the names of a declaration that only its file knows."""
    alone = "unnamed" in levels or re.match(r"\s*(?:using\b|static\b|namespace\s+\w+\s*=)", head)
    if not alone:
        return set()
    alias = re.match(r"\s*namespace\s+(\w+)\s*=", head)
    return {alias[1]} if alias else declared_names(head)


def read(path: Path) -> Source:
    """Return what a file declares and mentions."""
    text = NOT_CODE.sub(lambda found: " " if found[0][0] == "/" else '""', path.read_text("utf-8"))
    macros = set(MACRO.findall(text))
    code = DIRECTIVE.sub("", text)
    cases = {f"{suite}_{case}_Test" for suite, case in TEST.findall(code)}
    return Source(
        str(path),
        (own_names(code) | macros | cases) - {"TEST", "TEST_F", "TEST_P"},
        set(WORD.findall(text)) | cases,
    )


def fit(made: list[list[Source]], more: list[Source], most: int) -> bool:
    """Add sources to the first group that has room and that they do not meet."""
    for group in made:
        fits = len(group) + len(more) <= most
        if fits and not any(one.meets(other) for one in more for other in group):
            group += more
            return True
    return False


def groups(sources: list[Source], most: int) -> list[list[Source]]:
    """Return the sources in groups of at most so many whose members do not meet.

    Files of one folder come first, so that a change elsewhere leaves most groups as they are.
    """
    folders: dict[Path, list[list[Source]]] = {}
    for source in sources:
        near = folders.setdefault(Path(source.path).parent, [])
        if not fit(near, [source], most):
            near.append([source])
    made: list[list[Source]] = []
    small = [group for near in folders.values() for group in near if len(group) <= most // 2]
    for group in sorted(small, key=len, reverse=True):
        if not fit(made, group, most):
            made.append(group)
    return made + [group for near in folders.values() for group in near if len(group) > most // 2]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    for number, group in enumerate(groups([read(path) for path in options.files], options.most)):
        for source in group:
            print(f"{number};{source.path}")


if __name__ == "__main__":
    main()

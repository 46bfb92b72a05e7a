#!/usr/bin/env python3
"""Writes the pages that are installed below share/doc: `pages.py FOLDER`.

They are those of PAGES, in a flatter layout than that of the sources. A link to another of them
leads to where that one is installed; a link to a page that stays in the sources becomes its text
and the name of that page; one to the source of a man page becomes its text alone, which names the
man page.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]

PAGES = ("README.md", "CHANGELOG.md", "LICENSE", "docs/manual.md", "docs/manual/*.md")
"""What is installed, as patterns below the sources."""

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
SPAN = re.compile(r"(`[^`]*`)")


def installed_name(name: str) -> str:
    """Return where a page lies below the folder of the documentation."""
    return name.removeprefix("docs/")


def found(root: Path) -> list[str]:
    """Return the names of the pages below the sources."""
    names = {str(path.relative_to(root)) for mask in PAGES for path in root.glob(mask)}
    return sorted(names)


def link(words: str, target: str, page: str, pages: frozenset[str]) -> str:
    """Return what a link of a page becomes."""
    if target.startswith("#") or re.match(r"[a-z]+:", target):
        return f"[{words}]({target})"
    path, mark, heading = target.partition("#")
    name = os.path.normpath(PurePosixPath(page).parent / path)
    if name in pages:
        start = os.path.dirname(installed_name(page)) or "."
        return f"[{words}]({os.path.relpath(installed_name(name), start)}{mark}{heading})"
    if name.startswith("docs/man/"):
        return words
    return f"{words} (`{name}` in the sources)"


def rewritten(text: str, page: str, pages: frozenset[str]) -> str:
    """Return a page with links that hold where it is installed; code stays as it is."""
    lines, code = [], False
    for line in text.splitlines(keepends=True):
        code ^= line.startswith("```")
        if code or line.startswith("    "):
            lines.append(line)
            continue
        # Code spans are the odd pieces.
        pieces = SPAN.split(line)
        pieces[::2] = [
            LINK.sub(lambda match: link(*match.groups(), page, pages), piece)
            for piece in pieces[::2]
        ]
        lines.append("".join(pieces))
    return "".join(lines)


def write(root: Path, folder: Path) -> list[Path]:
    """Write all pages; return them."""
    pages = frozenset(found(root))
    made = []
    for page in sorted(pages):
        text = (root / page).read_text(encoding="utf-8")
        if page.endswith(".md"):
            text = rewritten(text, page, pages)
        target = folder / installed_name(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        made.append(target)
    return made


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    return 0 if write(ROOT, options.folder) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Turns the manual's Markdown pages into man pages: `manpage.py PAGE.1.md PAGE.1`.

It knows the Markdown that the pages use and nothing more: a first heading `# name(section) - text`,
`##` and `###` headings, paragraphs, bullet lists, indented or fenced code, tables, and inline
**bold**, *emphasis*, `code` and links. Anything else is an error, so that no page is mangled in
silence.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

TITLE = re.compile(r"# ([\w.-]+)\((\d)\) (?:-|—|–) (.+)")
BULLET = re.compile(r"[-*] (.*)")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class PageError(ValueError):
    """The page uses something that a man page cannot be made of."""


def escape(text: str) -> str:
    """Protect what roff would interpret."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def inline(text: str) -> str:
    """Translate emphasis, code and links within a line."""
    pieces = re.split(r"(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)", LINK.sub(r"\1", text))
    result = []
    for piece in pieces:
        if piece.startswith("`") and piece.endswith("`") and len(piece) > 2:
            result.append(f"\\fB{escape(piece[1:-1])}\\fR")
        elif piece.startswith("**") and len(piece) > 4:
            result.append(f"\\fB{escape(piece[2:-2])}\\fR")
        elif piece.startswith("*") and piece.endswith("*") and len(piece) > 2:
            result.append(f"\\fI{escape(piece[1:-1])}\\fR")
        else:
            result.append(escape(piece) if piece else "")
    joined = "".join(result)
    return "\\&" + joined if joined.startswith((".", "'")) else joined


def table(rows: list[str]) -> list[str]:
    """Translate a Markdown table: each row becomes a tagged paragraph, headings are left out."""
    lines = []
    for number, row in enumerate(rows):
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if number == 0 or set("".join(cells)) <= set("-: "):
            continue
        lines += [".TP", inline(cells[0]), inline("; ".join(cell for cell in cells[1:] if cell))]
    return lines


def translate(text: str, source: str, version: str) -> str:
    """Return the man page for a Markdown page."""
    lines = text.splitlines()
    title = TITLE.fullmatch(lines[0]) if lines else None
    if title is None:
        raise PageError(f"{source}: the first line must be `# name(section) - text`")
    name, section, summary = title.groups()
    output = [
        f'.TH "{name.upper()}" "{section}" "" "Overdrive {version}" "Overdrive manual"',
        ".SH NAME",
        f"{escape(name)} \\- {inline(summary)}",
    ]
    index = 1
    while index < len(lines):
        line = lines[index]
        bullet = BULLET.match(line)
        if not line.strip():
            index += 1
        elif line.startswith("## "):
            output.append(f'.SH "{escape(line[3:].upper())}"')
            index += 1
        elif line.startswith("### "):
            output.append(f'.SS "{escape(line[4:])}"')
            index += 1
        elif line.startswith("#"):
            raise PageError(f"{source}:{index + 1}: headings go down to ###, and # opens the page")
        elif line.startswith("```"):
            end = index + 1
            while end < len(lines) and not lines[end].startswith("```"):
                end += 1
            if end == len(lines):
                raise PageError(f"{source}:{index + 1}: code without an end")
            code = [escape(part) for part in lines[index + 1 : end]]
            output += [".PP", ".RS 4", ".nf", *code, ".fi", ".RE"]
            index = end + 1
        elif line.startswith("    "):
            end = index
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            code = [escape(part[4:]) for part in lines[index:end]]
            while code and not code[-1]:
                code.pop()
            output += [".PP", ".RS 4", ".nf", *code, ".fi", ".RE"]
            index = end
        elif line.startswith("|"):
            end = index
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            output += table(lines[index:end])
            index = end
        elif bullet:
            words = [bullet.group(1)]
            index += 1
            while index < len(lines) and lines[index].startswith("  ") and lines[index].strip():
                words.append(lines[index].strip())
                index += 1
            output += [".IP \\(bu 2", inline(" ".join(words))]
        else:
            words = []
            while index < len(lines) and lines[index].strip():
                if words and (BULLET.match(lines[index]) or lines[index].startswith(("#", "|"))):
                    break
                words.append(lines[index].strip())
                index += 1
            output += [".PP", inline(" ".join(words))]
    return "\n".join(output) + "\n"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="Markdown page")
    parser.add_argument("output", type=Path, help="man page to write")
    parser.add_argument("--version", default="", help="version shown in the footer")
    options = parser.parse_args()
    try:
        page = translate(options.source.read_text(), str(options.source), options.version)
    except (PageError, OSError) as error:
        print(f"manpage: {error}", file=sys.stderr)
        return 1
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Tests of the translation from Markdown to man pages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("manpage", Path(__file__).with_name("manpage.py"))
manpage = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(manpage)


def page(body: str) -> list[str]:
    return manpage.translate(f"# tool(1) - does things\n\n{body}", "tool.1.md", "9.9").splitlines()


def test_title_becomes_header_and_name() -> None:
    lines = page("")
    assert lines[0] == '.TH "TOOL" "1" "" "Overdrive 9.9" "Overdrive manual"'
    assert lines[1:] == [".SH NAME", "tool \\- does things"]


def test_headings_lists_and_code() -> None:
    lines = page("## Files\n\n- one\n  more\n- two\n\n```\n.hidden -x\n```\n")
    assert lines[3:] == [
        '.SH "FILES"',
        ".IP \\(bu 2",
        "one more",
        ".IP \\(bu 2",
        "two",
        ".PP",
        ".RS 4",
        ".nf",
        "\\&.hidden \\-x",
        ".fi",
        ".RE",
    ]


def test_inline_forms() -> None:
    assert page("use `a-b`, **c**, *d* and [e](f.md)")[-1] == (
        "use \\fBa\\-b\\fR, \\fBc\\fR, \\fId\\fR and e"
    )


def test_stars_of_products_and_globs_in_code_stay() -> None:
    assert page("`*.so` and 2 * 3")[-1] == "\\fB*.so\\fR and 2 * 3"


def test_table_rows_become_tagged_paragraphs() -> None:
    lines = page("| name | text |\n|---|---|\n| `A` | is a |\n")
    assert lines[3:] == [".TP", "\\fBA\\fR", "is a"]


@pytest.mark.parametrize(
    "text", ["no title\n", "# tool(1) - x\n\n```\nno end\n", "# tool(1) - x\n\n#### deep\n"]
)
def test_what_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(manpage.PageError):
        manpage.translate(text, "tool.1.md", "1")

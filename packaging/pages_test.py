"""Tests of the pages that are installed: their links hold where they lie."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("pages", Path(__file__).with_name("pages.py"))
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)

PAGES = frozenset(["README.md", "docs/manual.md", "docs/manual/settings.md"])


@pytest.mark.parametrize(
    ("page", "written", "installed"),
    [
        ("README.md", "[m](docs/manual.md#a-b)", "[m](manual.md#a-b)"),
        ("docs/manual.md", "[s](manual/settings.md)", "[s](manual/settings.md)"),
        ("docs/manual/settings.md", "[r](../../README.md)", "[r](../README.md)"),
        (
            "docs/manual.md",
            "[here](#here), [x](https://x.y/z)",
            "[here](#here), [x](https://x.y/z)",
        ),
        ("docs/manual.md", "[why](design/w.md#x)", "why (`docs/design/w.md` in the sources)"),
        ("docs/manual.md", "[tool(1)](man/tool.1.md) does", "tool(1) does"),
        ("docs/manual.md", "`[a](b.md)` [m](manual.md)", "`[a](b.md)` [m](manual.md)"),
        ("docs/manual.md", "```\n[a](b.md)\n```\n", "```\n[a](b.md)\n```\n"),
    ],
)
def test_links_follow_the_pages(page: str, written: str, installed: str) -> None:
    assert pages.rewritten(written, page, PAGES) == installed


def test_every_link_of_the_installed_manual_leads_to_a_page(tmp_path: Path) -> None:
    made = pages.write(pages.ROOT, tmp_path)
    assert {"README.md", "manual.md", "CHANGELOG.md", "LICENSE"} <= {
        str(path.relative_to(tmp_path)) for path in made
    }
    count = 0
    for path in made:
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if re.match(r"#|[a-z]+:", target):
                continue
            count += 1
            assert (path.parent / target.partition("#")[0]).is_file(), (path.name, target)
    assert count > 5

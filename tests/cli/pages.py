"""Checks the HTML pages that the command writes: well-formed, self-contained, figures inside."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Page(HTMLParser):
    """What a page consists of; raises an error where elements do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.figures = 0
        self.sections: list[str] = []
        self.links: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that begins."""
        named = dict(attrs)
        if tag == "svg" and "svg" not in self._open:
            self.figures += 1
            assert named.get("aria-label"), "a figure without a description"
        if tag == "section" and named.get("id"):
            self.sections.append(str(named["id"]))
        if tag == "a":
            self.links.append(str(named.get("href")))
        assert not (named.get("src") or "").startswith("http"), named
        assert tag != "link", "a page must not load anything"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that is closed at once."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note an element that ends."""
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-3:]}"
        self._open.pop()

    def close(self) -> None:
        """Demand that all has ended."""
        super().close()
        assert not self._open, self._open


def check(text: str) -> Page:
    """Demand that a page is well-formed and needs no network; return what it holds."""
    drawn = re.findall(r'\b(?:d|x|y|cx|cy|width|height|viewBox)="([^"]*)"', text)
    wrong = [value for value in drawn if re.search(r"nan|inf", value)]
    assert not wrong, f"not a number: {wrong[:3]}"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    page = Page()
    page.feed(text)
    page.close()
    return page

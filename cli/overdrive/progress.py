"""A progress bar on a terminal, and a plain line now and then elsewhere; both on standard error."""

from __future__ import annotations

import sys
import time

BAR = 30
REDRAW_SECONDS = 0.2
LINE_SECONDS = 10.0


class Progress:
    """Shows how far a measurement of a known length is."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._terminal = sys.stderr.isatty()
        self._shown = time.monotonic() if not self._terminal else 0.0
        self._drawn = 0

    def show(self, part: float, text: str) -> None:
        """Show that `part` (0 to 1) is done."""
        now = time.monotonic()
        if now - self._shown < (REDRAW_SECONDS if self._terminal else LINE_SECONDS):
            return
        self._shown = now
        part = min(1.0, max(0.0, part))
        left = f"{self._seconds * (1 - part):.0f} s left"
        if not self._terminal:
            print(f"measuring: {100 * part:.0f} %, {left}; {text}", file=sys.stderr, flush=True)
            return
        bar = "#" * round(BAR * part)
        line = f"[{bar:.<{BAR}}] {left}; {text}"
        print("\r" + line.ljust(self._drawn), end="", file=sys.stderr, flush=True)
        self._drawn = len(line)

    def end(self) -> None:
        """Take the bar away."""
        if self._drawn:
            print("\r" + " " * self._drawn + "\r", end="", file=sys.stderr, flush=True)
            self._drawn = 0

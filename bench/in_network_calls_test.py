"""Tests of how figures of in-network sums are read."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import in_network_calls  # noqa: E402


def test_figures_from_before_a_column_was_added_are_read():
    old = {"way": "switch", "us": "3.5"}
    new = {"way": "switch", "us": "4.5", "first_us": "9"}
    assert in_network_calls.by_way([old, new], "us") == {"switch": [3.5, 4.5]}
    assert in_network_calls.by_way([old, new], "first_us") == {"switch": [9.0]}
    assert in_network_calls.by_way([{**new, "first_us": ""}], "first_us") == {}

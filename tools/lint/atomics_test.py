"""Tests of the check that atomic operations say what they pair with."""

from __future__ import annotations

from pathlib import Path

import pytest
from atomics import lonely_operations

LOAD = "int get() {\n  return word.load(std::memory_order_acquire);\n}\n"


def _found(folder: Path, text: str, name: str = "box.cc") -> list[str]:
    (folder / name).write_text(text)
    return lonely_operations(folder)


def test_an_operation_without_a_word_is_named(tmp_path: Path) -> None:
    assert _found(tmp_path, "int x;\n\n" + LOAD) == [
        "src/box.cc:4: does not say what it pairs with"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "// Pairs with the release in put().\n" + LOAD,
        LOAD.replace(";", ";  // pairs with put()"),
        LOAD.replace("acquire", "relaxed"),
        "// Pairs\n// with the release in put().\n" + LOAD,
        "std::atomic<int> word;  // get() pairs with put()\n\n" + LOAD,
        "// The loads pair with the stores.\nstd::atomic<int> other;\nstd::atomic<int> word;\n\n"
        + LOAD,
    ],
)
def test_a_comment_at_the_function_or_the_variable_will_do(tmp_path: Path, text: str) -> None:
    assert _found(tmp_path, text) == []


def test_a_comment_elsewhere_will_not_do(tmp_path: Path) -> None:
    assert len(_found(tmp_path, "// Pairs with put().\nint x;\n\n" + LOAD)) == 1


def test_unit_tests_are_left_out(tmp_path: Path) -> None:
    assert _found(tmp_path, LOAD, "box_test.cc") == []

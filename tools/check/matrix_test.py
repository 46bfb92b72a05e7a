"""Tests of the other configurations: what each row is told, whatever the check was told."""

from __future__ import annotations

import subprocess

import matrix
import pytest


@pytest.mark.parametrize("name", [name for name, row in matrix.MATRIX.items() if not row.emulated])
def test_warnings_of_compilers_newer_than_the_distribution_end_no_build(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """clang 22 finds fault with the C++ library of GCC 12; others are as strict as the check."""
    commands: list[list[str]] = []

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setenv("OVERDRIVE_WERROR", "1")
    monkeypatch.setattr(matrix, "ensure", lambda packages: None)
    monkeypatch.setattr(matrix, "newest_clang", lambda: 99)
    monkeypatch.setattr(matrix.subprocess, "run", run)
    matrix.build(name, [], "1")
    newer = "-DCMAKE_CXX_COMPILER=clang++-99" in commands[0]
    assert newer == matrix.MATRIX[name].clang
    assert f"-DOVERDRIVE_WERROR={'OFF' if newer else '1'}" in commands[0]

"""Checks that the modules of a Python package do not import each other in circles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def _imported(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Yield the modules of the package that a module imports, also later and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in names else node.module


def circles(package: Path) -> list[str]:
    """Name each circle of imports below a package's folder, once."""
    modules: dict[str, Path] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {
        name: sorted(set(_imported(ast.parse(path.read_text()), set(modules))) & set(modules))
        for name, path in modules.items()
    }
    done: set[str] = set()
    found: list[str] = []

    def visit(name: str, way: list[str]) -> None:
        if name in way:
            found.append(" -> ".join([*way[way.index(name) :], name]))
        elif name not in done:
            for other in graph[name]:
                visit(other, [*way, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return found

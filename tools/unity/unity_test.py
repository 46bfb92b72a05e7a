"""Which sources are compiled as one, and which must not be."""

from __future__ import annotations

from pathlib import Path

import pytest
import unity


def grouped(folder: Path, *texts: str, most: int = 8) -> list[list[int]]:
    """Return which of these sources share a group."""
    sources = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.cc"
        path.write_text(text, encoding="utf-8")
        sources.append(unity.read(path))
    found = unity.groups(sources, most)
    return sorted([int(Path(source.path).stem) for source in group] for group in found)


HELPER = "namespace od {\nnamespace {\nint least(int a) { return a; }\n}\nint %s = least(1);\n}\n"


def test_sources_without_names_of_their_own_share_a_group(tmp_path: Path) -> None:
    texts = [f"namespace od {{ int f{i}() {{ int a = {i}; return a; }} }}" for i in range(5)]
    assert grouped(tmp_path, *texts) == [[0, 1, 2, 3, 4]]
    assert grouped(tmp_path, *texts, most=2) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    "other",
    [
        "namespace od { int b = least(2); }",  # would mean the other file's
        "namespace { int least = 0; }",
        "namespace { struct least { int x; }; }",
        "namespace { template <class T> T least(T a) { return a; } }",
        "using elsewhere::least;",
        "#define least 3",
        "namespace { const std::array<int, 3> least{1, 2, 3}; }",
        "namespace { enum class least { a }; }",
        "namespace { using least = int; }",
        "namespace od { namespace { namespace inner { int least(); } } }",
    ],
)
def test_a_name_of_ones_own_keeps_files_apart(tmp_path: Path, other: str) -> None:
    assert grouped(tmp_path, HELPER % "a", other) == [[0], [1]]


@pytest.mark.parametrize(
    "other",
    [
        "// least\n/* least */ int b;",
        "const char* text = \"least {\";\nchar c = '{';\nint b;",
        'const char* raw = R"(least " })";',
    ],
)
def test_comments_and_texts_do_not_matter(tmp_path: Path, other: str) -> None:
    assert grouped(tmp_path, HELPER % "a", other) == [[0, 1]]


def test_names_inside_functions_do_not_matter(tmp_path: Path) -> None:
    inside = "namespace { int %s(int least) { for (int i = 0;;) { if (i) return least; } } }"
    assert grouped(tmp_path, inside % "f", inside % "g") == [[0, 1]]


def test_cases_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    case = "namespace { TEST(Suite, %s) { EXPECT_EQ(1, 1); } }"
    assert grouped(tmp_path, case % "A", case % "B") == [[0, 1]]
    assert grouped(tmp_path, case % "A", case % "A") == [[0], [1]]

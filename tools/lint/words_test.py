"""Tests of words.py: what it finds, and what it lets pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from words import wrong_words

TREE = {
    "src/config/settings_types.h": 'struct ChoiceWords<Mode> {\n kWords[] = {"auto", "spin"};\n'
    "using WaitChoice = ChoiceType<Mode>;\n",
    "src/config/settings_table.h": 'X(wait, WaitChoice, "wait", 0,\n'
    'X(pool, Size, "pool_bytes", 2,\n',
    "src/coll/plan/ring.cc": 'int ring_steps; const char* counter = "sent_cells"; // bcast\n',
    "cli/overdrive/main.py": 'COMMANDS = (\n "info",\n "lab",\n)\nOPTION = "--json --set"\n'
    'HELP = """Usage: overdrive study copy"""\n',
    "bench/coll.py": 'parser.add_argument("--budget")\n',
    "Makefile": "all: build\ncheck-all: all\n",
    "docs/other.md": "# A page\n\n## What `it` says, in short\n",
}


@pytest.fixture
def judge(tmp_path: Path):
    """Return a function: the complaints about a page beside the files of TREE."""

    def run(text: str, page: str = "docs/page.md") -> list[str]:
        for name, content in {**TREE, page: text}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        return wrong_words(tmp_path, files)

    return run


@pytest.mark.parametrize(
    "text",
    [
        "[other](other.md), [there](other.md#what-it-says-in-short), [net](https://x.org/y)",
        "`src/coll/plan/ring.cc`, `src/coll/plan/ring`, `src/*/plan/`, `src/{coll,config}`, `a/b`",
        "`OVERDRIVE_WAIT`, `OVERDRIVE_ADJUST_BCAST`, `OVERDRIVE_ADJUST_BCAST_RADIX`",
        "`plan/ring.cc`, `ring.cc`, `plan/NAME.cc`, `mpi.h`",
        "`sent_cells`, `pool_bytes=4M`, `wait=spin`, `ring_steps`, `OMPI_MCA_x`, `n=4`",
        "    overdrive --set wait=spin mpirun -n 2 --any-option ./app",
        "`overdrive info --json`, `overdrive lab mpirun --any ./app`, `overdrive ./app`",
        "`make check-all`, `make`, `python3 bench/coll.py --budget 3`",
        "It makes src/none.cc and bad_word without a code span",
    ],
)
def test_what_exists_passes(judge, text: str) -> None:
    """Nothing is said about what is there, or is not of this project."""
    assert judge(text) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[x](none.md)", "link to none.md, which is not there"),
        ("[x](other.md#none)", "no such heading"),
        ("`src/coll/none.cc`", "src/coll/none.cc is not there"),
        ("`src/{coll,none}`", "src/none is not there"),
        ("`plan/none.{h,cc}`", "there is no source plan/none.h"),
        ("`OVERDRIVE_WAITS=1`", "no source reads OVERDRIVE_WAITS"),
        ("`sent_none`", "no source has sent_none"),
        ("`pool_size=4M`", "no source has pool_size"),
        ("`wait=often`", "wait does not take often"),
        ("    overdrive --set pool=4M mpirun ./app", "no setting pool"),
        ("`overdrive none`", "no command none"),
        ("```\n./overdrive info --none\n```", "no option --none"),
        ("`A=1 make none`", "make has no none"),
        ("`bench/coll.py --none`", "bench/coll.py has no option --none"),
    ],
)
def test_what_does_not_exist_is_found(judge, text: str, complaint: str) -> None:
    """Each kind of name that leads nowhere is reported, once."""
    found = judge(text)
    assert complaint in found[0]
    assert len(found) == (2 if "{h,cc}" in text else 1)


def test_measurement_pages_are_short(judge) -> None:
    """A page of measurements has a length that can be read; others may be longer."""
    assert "201 lines" in judge("a\n" * 201, "docs/measurements/long.md")[0]
    assert judge("a\n" * 200, "docs/measurements/long.md") == []


def test_figures_of_the_readme_are_measured(judge) -> None:
    """A ratio in a table of README.md stands on a page of measurements, if need be rounded."""
    judge("| a | 1.55 (1.09) | 489.93 (47.34) | 687.96 (687.96) |", "docs/measurements/p2p.md")
    assert judge("| a | 1.55 (1.09) | 490 (47) | 688 | yes |", "README.md") == []
    assert judge("| a | 1.56 (1.09) |", "README.md") == [
        "README.md: a: 1.56 (1.09) is on no page of measurements"
    ]


def test_the_manual_page_names_all_commands(judge) -> None:
    """A command that overdrive(1) lacks is named, and so is one of `study`."""
    found = judge("    overdrive [OPTION...] info\n", "docs/man/overdrive.1.md")
    assert [line.partition("`")[2] for line in found] == ["lab`", "study copy`"]


def test_defaults_are_those_of_the_settings_page(judge) -> None:
    """A size or time in brackets behind a setting is its default."""
    row = "### `{}`\n\nText.\n\nVariable `X`; type x; default `{}`; accepts `0`.\n\n"
    judge(row.format("pool_bytes", "2M") + row.format("wait", "50us"), "docs/manual/settings.md")
    assert judge("`pool_bytes` (2 MiB), `wait` (50 µs), `wait` (3 of them)") == []
    assert judge("`pool_bytes`\n(4 MiB)") == [
        "docs/page.md: the default of pool_bytes is 2 MiB, not 4 MiB"
    ]


def test_an_index_links_to_all_pages(judge) -> None:
    """The page that a folder's README.md does not link to is named."""
    assert judge("nothing", "docs/README.md") == ["docs/README.md: does not link to other.md"]
    assert judge("[other](other.md#what-it-says-in-short)", "docs/README.md") == []


def test_history_may_name_what_was(judge) -> None:
    """The list of changes names settings that have gone."""
    assert judge("`old_setting`", "CHANGELOG.md") == []


def test_the_map_of_the_tree_is_whole(judge) -> None:
    """Folders and rooms that the map lacks are named, and so are levels that are not lint's."""
    found = judge("```\ncli/ a  docs/ b  src/config/ c\n```\n", "CONTRIBUTING.md")
    assert [line.rpartition(" ")[2] for line in found[:2]] == ["bench/", "src/coll/plan/"]
    assert "the levels of src/ are: programs, {face, measure}, engine" in found[2]
    assert len(found) == 3

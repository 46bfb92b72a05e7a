"""Finds what the pages of the documentation name and the tree does not have.

In every Markdown page, where the page means this project (code spans, code blocks and links):

- a relative link leads to a file, and to a heading of it;
- a path that begins with a folder of the tree is there (`*`, `{a,b}` and NAME allowed), and so is a
  source file that is named by the end of its path;
- OVERDRIVE_NAME is a setting, or a variable that some source reads;
- a word_with_underscores, and the name before `=value`, is a word of some source: settings,
  counters, algorithms, functions; the value of a setting that is a choice is one of its words, and
  what stands in brackets behind a setting, with a unit, is its default in docs/manual/settings.md;
- `overdrive COMMAND --option`, `make TARGET` and `tool.py --option` exist.

A page of docs/measurements has at most 200 lines, and what a table of README.md says of
measurements stands on one of their pages, figure by figure. The map in CONTRIBUTING.md names every
folder at the top of the tree and every room of src/, and has the levels of includes.py. The manual
page overdrive(1) names every command, and every second word of `study` and `bench`. A
README.md below docs/ links to every page of its folder.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import NamedTuple

from includes import LEVELS

MAX_MEASUREMENT_LINES = 200
"""What a reader wants at a glance; the rest belongs into CSV files."""

MEASUREMENTS = "docs/measurements/"
MANUAL_PAGE = "docs/man/overdrive.1.md"
HISTORY = ("CHANGELOG.md",)
"""Pages that name what was: only their links are checked."""

NOT_SOURCES = (".md", ".csv", ".png", ".pdf", ".svg", ".json")
FOREIGN_PREFIXES = (
    "MPI_", "PMPI_", "I_MPI_", "OMPI_", "MPICH_", "SLURM_", "FI_", "UCX_", "HWLOC_", "OSU_",
)  # fmt: skip
"""Names of other projects: nothing is known of them here."""

FOREIGN = ("rdma_rxe", "mpi.h", "mpif.h", "foreach_target.h", "conclusions.txt")
"""The same, single ones, and a file that a command writes."""

_FENCE = re.compile(r"^\s*```")
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"\bOVERDRIVE_[A-Z0-9_]*[A-Z0-9]\b_?")
_SNAKE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_ASSIGNED = re.compile(r"([a-z][a-z0-9_]*)=[^=\s]*")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*")
_SOURCE = re.compile(r"[a-z][\w/{},-]*\.(?:cc|c|h|hpp|py|f90|cmake|lua|txt|\{h,cc\})")
_FIGURE = re.compile(r"(\d+(?:\.\d+)?)(?: \((\d+(?:\.\d+)?)\))?\*?$")


class Tree(NamedTuple):
    """What there is to be named: files, their folders, and the words of the sources."""

    root: Path
    names: frozenset[str]
    """Files, also without their suffix, and folders, relative to the root."""
    words: frozenset[str]
    """Identifiers of all sources, upper-case forms of settings among them."""
    options: dict[str, frozenset[str]]
    """Options that the Python and C sources of a folder mention, by folder."""
    commands: frozenset[str]
    """What can stand behind `overdrive`."""
    targets: frozenset[str]
    """What can stand behind `make`."""
    choices: dict[str, frozenset[str]]
    """The words of settings that are a choice."""


def read_tree(root: Path, files: list[Path]) -> Tree:
    """Collect what pages may name from the files of a tree."""
    names: set[str] = set()
    words: set[str] = set()
    options: dict[str, set[str]] = {}
    commands: set[str] = set()
    targets: set[str] = set()
    for path in files:
        relative = path.relative_to(root)
        names.update((str(relative), str(relative.with_suffix(""))))
        names.update(str(folder) for folder in relative.parents if str(folder) != ".")
        words.add(path.stem)
        if path.suffix in NOT_SOURCES:
            continue
        text = path.read_text(errors="replace")
        words.update(re.findall(r"[A-Za-z_]\w+", text))
        options.setdefault(str(relative.parent), set()).update(_OPTION.findall(text))
        if str(relative) == "Makefile":
            targets.update(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))
        if str(relative) == "cli/overdrive/main.py":
            found = re.search(r"^COMMANDS = \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
            commands.update(re.findall(r'"([a-z]+)"', found.group(1)) if found else ())
        if str(relative) == "src/config/settings_table.h":
            settings = re.findall(r'^\s*"([a-z][a-z0-9_]*)",', text, re.MULTILINE)
            settings += re.findall(r'\w, "([a-z][a-z0-9_]*)",', text)
            words.update("OVERDRIVE_" + name.upper() for name in settings)
    types, table = (
        root / "src" / "config" / name for name in ("settings_types.h", "settings_table.h")
    )
    known = types in files and table in files
    choices = choices_of(types.read_text(), table.read_text()) if known else {}
    frozen = {folder: frozenset(found) for folder, found in options.items()}
    return Tree(
        root,
        frozenset(names),
        frozenset(words),
        frozen,
        frozenset(commands),
        frozenset(targets),
        choices,
    )


def choices_of(types: str, table: str) -> dict[str, frozenset[str]]:
    """Return the words of each setting that is a choice, from the two headers of the table."""
    pattern = r"struct ChoiceWords<(\w+)> \{.*?kWords\[\] = \{(.*?)\}"
    words = {
        enum: frozenset(re.findall(r'"(\w+)"', inside))
        for enum, inside in re.findall(pattern, types, re.DOTALL)
    }
    names = dict(re.findall(r"using (\w+) = ChoiceType<(\w+)>", types))
    rows = re.findall(r'^\s*[XA]\(\w+, (\w+), "(\w+)"', table, re.MULTILINE)
    return {setting: words[names[kind]] for kind, setting in rows if kind in names}


def headings(text: str) -> set[str]:
    """Return the anchors of a page, as the usual viewers make them of its headings."""
    anchors = set()
    for line in _outside_fences(text):
        if line.startswith("#"):
            title = re.sub(r"[`*]", "", line.lstrip("#").strip().lower())
            anchors.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return anchors


def _outside_fences(text: str) -> list[str]:
    lines, inside = [], False
    for line in text.splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            lines.append(line)
    return lines


def code_of(text: str) -> list[tuple[int, str, bool]]:
    """Return (line, code, whole line) of all code spans and lines of code blocks of a page."""
    found, inside, before = [], False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            inside = not inside
        elif inside or (line.startswith("    ") and (before == "" or before.startswith("    "))):
            found.append((number, line.strip(), True))
        else:
            found.extend((number, span, False) for span in _SPAN.findall(line))
        before = line if line.strip() or not before.startswith("    ") else before
    return found


def _expanded(path: str) -> list[str]:
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    ends = [path[: braces.start()] + part + path[braces.end() :] for part in braces[1].split(",")]
    return [whole for end in ends for whole in _expanded(end)]


def _there(tree: Tree, path: str) -> bool:
    # A word in capitals, as in abi_NAME.h, is a place for a name.
    pattern = re.sub(r"(?<![A-Z])[A-Z]{3,}(?![A-Z.])|%r|<[^>]*>|NAME", "*", path).rstrip("/")
    if path in tree.names:
        return True
    if pattern in tree.names:
        return True
    return any(c in pattern for c in "*?") and any(
        fnmatch.fnmatch(name, pattern) for name in tree.names
    )


def wrong_paths(tree: Tree, code: str) -> list[str]:
    """Name the paths in a piece of code that begin with a folder of the tree and lead nowhere."""
    folders = {name for name in tree.names if "/" not in name}
    wrong = []
    for word in re.findall(r"(?<![\w./$~-])[a-z][\w.*?/{},<>%-]*", code):
        first, slash, _ = word.partition("/")
        if not slash or first not in folders or first in ("overdrive",):
            continue
        word = word.rstrip(".,:")
        wrong.extend(f"{path} is not there" for path in _expanded(word) if not _there(tree, path))
    source = _SOURCE.fullmatch(code)
    if source and first_of(code) not in folders and code not in FOREIGN:
        wrong.extend(
            f"there is no source {name}"
            for name in _expanded(code)
            if not _there(tree, name) and not _there(tree, "*/" + name)
        )
    return wrong


def first_of(path: str) -> str:
    """Return the first folder of a path."""
    return path.partition("/")[0]


def wrong_names(tree: Tree, code: str, whole_line: bool) -> list[str]:
    """Name the identifiers in a piece of code that no source knows."""
    wrong = []
    for name in _VARIABLE.findall(code):
        known = (
            any(word.startswith(name) for word in tree.words)
            if name.endswith("_")
            else name in tree.words or _adjusts(tree, name)
        )
        if not known:
            wrong.append(f"no source reads {name}")
    if whole_line:
        return wrong + [
            f"there is no setting {name}"
            for name in re.findall(r"--set[ =]([a-z][a-z0-9_]*)=", code)
            if "OVERDRIVE_" + name.upper() not in tree.words
            and not _adjusts(tree, "OVERDRIVE_" + name.upper())
        ]
    assigned = _ASSIGNED.fullmatch(code)
    if assigned and assigned[1] in tree.choices:
        value = code.partition("=")[2].strip('"')
        if re.fullmatch(r"[a-z]+", value) and value not in tree.choices[assigned[1]]:
            wrong.append(f"{assigned[1]} does not take {value}")
    name = assigned[1] if assigned else code
    # Test programs of a room are made by the build: base_tests, engine_threads_tests.
    name = re.sub(r"^([a-z_0-9]+?)(_threads)?_tests$", r"\1", name)
    if (assigned or _SNAKE.fullmatch(code)) and name not in tree.words and "_" in name:
        if name not in FOREIGN and not name.upper().startswith(FOREIGN_PREFIXES):
            wrong.append(f"no source has {name}")
    return wrong


def _adjusts(tree: Tree, name: str) -> bool:
    """Tell whether this is OVERDRIVE_ADJUST_COLLECTIVE, perhaps with a parameter."""
    found = re.fullmatch(r"OVERDRIVE_ADJUST_([A-Z_]+?)(_[A-Z]+)?", name)
    if not found:
        return False
    rest = (found[1] + (found[2] or "")).lower()
    return any(part.lower() in tree.words for part in (found[1], rest))


def wrong_commands(tree: Tree, code: str) -> list[str]:
    """Name the commands, options and targets in a piece of code that do not exist."""
    wrong = []
    for part in re.split(r"&&|\|\||;|\||\s#\s", code):
        words = part.split()
        while words and re.fullmatch(r"[A-Z_]+=\S*|\$|\(|python3|sudo", words[0]):
            words = words[1:]
        if not words:
            continue
        if words[0] in ("overdrive", "./overdrive"):
            wrong.extend(_wrong_overdrive(tree, words[1:]))
        elif words[0] == "make" and len(words) > 1 and re.fullmatch(r"[a-z][a-z-]+", words[1]):
            if words[1] not in tree.targets:
                wrong.append(f"make has no {words[1]}")
        else:
            wrong.extend(_wrong_script(tree, words))
    return wrong


def _wrong_overdrive(tree: Tree, words: list[str]) -> list[str]:
    """Judge what stands behind `overdrive`, up to the launcher."""
    known = _options_below(tree, "cli")
    wrong = []
    command = ""
    with_value = {"--set", "--verbose", "--library"}
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        if word in with_value and not command:
            skip = True
        option = _OPTION.match(word)
        if option:
            if option[0] not in known:
                wrong.append(f"overdrive has no option {option[0]}")
        elif not command and re.fullmatch(r"[a-z]+", word):
            command = word
            if word in ("mpirun", "mpiexec", "srun", "run"):
                break
            if word not in tree.commands:
                wrong.append(f"overdrive has no command {word}")
                break
        elif command == "lab" and re.search(r"mpirun|mpiexec|exec", word):
            break
        elif word == "mpirun" or not command:
            break
    return wrong


def _options_below(tree: Tree, folder: str) -> frozenset[str]:
    return frozenset().union(
        *(
            found
            for name, found in tree.options.items()
            if name == folder or name.startswith(folder + "/")
        )
    )


def _wrong_script(tree: Tree, words: list[str]) -> list[str]:
    """Judge the options of a Python program of the tree."""
    script = next((word for word in words if word.endswith(".py") and word in tree.names), "")
    if not script:
        return []
    known = _options_below(tree, str(Path(script).parent))
    after = words[words.index(script) + 1 :]
    options = [found[0] for found in map(_OPTION.match, after) if found]
    return [f"{script} has no option {name}" for name in options if name not in known]


def wrong_links(tree: Tree, page: str, text: str) -> list[str]:
    """Name the relative links of a page that lead to no file or no heading."""
    wrong = []
    for line in _outside_fences(text):
        for target in _LINK.findall(_SPAN.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (tree.root / page).parent / name if name else tree.root / page
            if not path.exists():
                wrong.append(f"{page}: link to {target}, which is not there")
            elif anchor and path.suffix == ".md" and anchor not in headings(path.read_text()):
                wrong.append(f"{page}: link to {target}, which has no such heading")
    return wrong


def wrong_figures(readme: str, measured: str) -> list[str]:
    """Name the figures in tables of ratios that no page of measurements has.

    A cell is a mean, and in brackets the smallest ratio; either may be rounded to whole numbers.
    """
    known = set()
    for mean, smallest in re.findall(r"(\d+\.\d+) \((\d+\.\d+)\)", measured):
        known.add((mean, smallest))
        known.add((f"{float(mean):.0f}", f"{float(smallest):.0f}"))
        if mean == smallest:
            known.update({(mean, ""), (f"{float(mean):.0f}", "")})
    wrong = []
    for line in readme.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        figures = [_FIGURE.match(cell) for cell in cells[1:]] if line.startswith("|") else []
        for found in figures:
            if found and (found[1], found[2] or "") not in known:
                wrong.append(f"README.md: {cells[0]}: {found[0]} is on no page of measurements")
    return wrong


def wrong_map(names: frozenset[str], text: str) -> list[str]:
    """Name the folders and rooms that the map in CONTRIBUTING.md lacks, and wrong levels."""
    tops = {f"{name.partition('/')[0]}/" for name in names if "/" in name}
    rooms = {f"src/{room}/" for level in LEVELS for room in level if f"src/{room}" in names}
    wanted = {name for name in tops | rooms if not name.startswith(".") and name != "src/"}
    wrong = [
        f"CONTRIBUTING.md: the map does not name {name}"
        for name in sorted(wanted)
        if not re.search(rf"(?<![\w/]){name}", text)
    ]
    groups = (level[0] if len(level) == 1 else f"{{{', '.join(level)}}}" for level in LEVELS)
    levels = ", ".join(groups)
    if levels not in re.sub(r"\s+", " ", text):
        wrong.append(f"CONTRIBUTING.md: the levels of src/ are: {levels}")
    return wrong


def wrong_index(tree: Tree, page: str, text: str) -> list[str]:
    """Name the pages of a folder that its index does not link to."""
    folder = page.removesuffix("README.md")
    links = {link.partition("#")[0] for link in _LINK.findall(text)}
    pages = (name[len(folder) :] for name in sorted(tree.names) if name.startswith(folder))
    return [
        f"{page}: does not link to {name}"
        for name in pages
        if name.endswith(".md") and "/" not in name and name not in {*links, "README.md"}
    ]


def defaults_of(settings: str) -> dict[str, str]:
    """Return the default of each setting that is a size or a time, as pages write it."""
    found = {}
    pattern = r"^### `(\w+)`\n\n.*\n\nVariable .*default `(\d+)([KMGT]|ns|us|ms|s)`"
    for name, number, unit in re.findall(pattern, settings, re.MULTILINE):
        found[name] = f"{number} {unit}iB" if unit in "KMGT" else f"{number} {unit}"
    return found


def wrong_defaults(defaults: dict[str, str], page: str, text: str) -> list[str]:
    """Name the settings behind which a page tells another default than they have."""
    pattern = r"`(\w+)` \((\d+ (?:[KMGT]iB|ns|us|µs|ms|s))\)"
    return [
        f"{page}: the default of {name} is {defaults[name]}, not {value}"
        for name, value in re.findall(pattern, text.replace("\n", " "))
        if name in defaults and defaults[name] != value.replace("µ", "u")
    ]


def commands_of(tree: Tree) -> list[str]:
    """Return the commands, with those of `study` and `bench` as the command itself names them."""
    names = [name for name in sorted(tree.names) if re.fullmatch(r"cli/overdrive/.*\.py", name)]
    text = "\n".join((tree.root / name).read_text() for name in names)
    pairs = set(
        re.findall(r"Usage:? +overdrive (?:\[OPTION\.\.\.\] )?((?:study|bench) [a-z]+)", text)
    )
    pairs |= set(re.findall(r"^ +overdrive ((?:study|bench) [a-z]+)", text, re.MULTILINE))
    return sorted(tree.commands | pairs)


def wrong_manual(tree: Tree, text: str) -> list[str]:
    """Name the commands that the manual page of the command lacks."""
    return [
        f"{MANUAL_PAGE}: does not name `{command}`"
        for command in commands_of(tree)
        if not re.search(rf"(?:overdrive|\]|`) ?{command}\b", text)
    ]


def wrong_words(root: Path, files: list[Path]) -> list[str]:
    """Return everything that the pages among these files name wrongly."""
    tree = read_tree(root, files)
    settings = root / "docs" / "manual" / "settings.md"
    defaults = defaults_of(settings.read_text()) if settings in files else {}
    wrong = []
    measured = []
    for path in files:
        if path.suffix != ".md":
            continue
        page = str(path.relative_to(root))
        text = path.read_text()
        wrong.extend(wrong_links(tree, page, text))
        if page.startswith("docs/") and path.name == "README.md":
            wrong.extend(wrong_index(tree, page, text))
        if page.startswith(MEASUREMENTS):
            measured.append(text)
            lines = len(text.splitlines())
            if lines > MAX_MEASUREMENT_LINES:
                wrong.append(f"{page}: {lines} lines, more than {MAX_MEASUREMENT_LINES}")
        if page in HISTORY:
            continue
        wrong.extend(wrong_defaults(defaults, page, text))
        for number, code, whole in code_of(text):
            found = wrong_paths(tree, code) + wrong_names(tree, code, whole)
            found += wrong_commands(tree, code)
            wrong.extend(f"{page}:{number}: {problem}" for problem in found)
    readme = root / "README.md"
    if readme in files:
        wrong.extend(wrong_figures(readme.read_text(), "\n".join(measured)))
    manual = root / MANUAL_PAGE
    if manual in files:
        wrong.extend(wrong_manual(tree, manual.read_text()))
    guide = root / "CONTRIBUTING.md"
    if guide in files:
        wrong.extend(wrong_map(tree.names, guide.read_text()))
    return wrong

"""Reads the test lists of MPICH's own test suite.

A list has one test per line, `program [ranks [key=value ...]]`, or the name of a folder that has a
list of its own. Lists that `configure` generates lie in the build folder and win over those of the
source folder. Unlike the suite's own driver, tests that are marked as expected failures (xfail=),
as extensions (mpix=) or as not strictly standard (strict=) are kept: what counts here is whether
the outcome changes, not what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LIST_NAMES = ["testlist", "testlist.dtp", "testlist.cvar"]
"""The lists that a folder may have: plain, datatype pools, MPICH's algorithm variables."""

DEFAULT_RANKS = 2
DEFAULT_LIMIT_SECONDS = 180.0

IGNORED_KEYS = {"xfail", "strict", "mpix", "mpiversion", "init", "lock"}


@dataclass(frozen=True)
class Test:
    """One line of a list: a program and how to run it."""

    __test__ = False  # not one of pytest's

    directory: str
    program: str
    ranks: int = DEFAULT_RANKS
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    launcher_arguments: tuple[str, ...] = ()
    limit_seconds: float = DEFAULT_LIMIT_SECONDS
    judge: str = ""
    memory_gib: float = 0.0

    @property
    def identity(self) -> str:
        """Return a name that tells this test from all others of the suite."""
        words = [f"{self.directory}/{self.program}", str(self.ranks), *self.arguments]
        words += [f"{name}={value}" for name, value in self.environment]
        return " ".join(words)

    @property
    def top_directory(self) -> str:
        """Return the folder of the suite to which the test belongs."""
        return self.directory.split("/")[0]


@dataclass
class Lists:
    """What the lists of some folders hold."""

    tests: list[Test] = field(default_factory=list)
    prerequisites: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of folder and target that must be made before the tests."""
    problems: list[str] = field(default_factory=list)


def parse_line(directory: str, line: str) -> Test | None:
    """Return the test that a line of the list of a folder describes; None for an empty line."""
    words = line.split("#")[0].split()
    if not words:
        return None
    ranks = DEFAULT_RANKS
    if len(words) > 1 and words[1].isdigit():
        ranks = int(words[1])
    program = words[0]
    arguments: list[str] = []
    environment: list[tuple[str, str]] = []
    launcher_arguments: list[str] = []
    limit = DEFAULT_LIMIT_SECONDS
    judge = ""
    memory = 0.0
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key in IGNORED_KEYS:
            continue
        if key == "arg":
            arguments.append(value)
        elif key == "env":
            name, _, content = value.partition("=")
            environment.append((name, content))
        elif key == "mpiexecarg":
            launcher_arguments.append(value)
        elif key == "timeLimit":
            limit = float(value)
        elif key == "resultTest":
            judge = value
        elif key == "mem":
            memory = float(value)
        else:
            raise ValueError(f"unknown key {key} in the list of {directory}: {line.strip()}")
    if "/" in program:
        subdirectory, _, program = program.rpartition("/")
        directory = f"{directory}/{subdirectory}"
    return Test(
        directory,
        program,
        ranks,
        tuple(arguments),
        tuple(environment),
        tuple(launcher_arguments),
        limit,
        judge,
        memory,
    )


def _list_file(build: Path, source: Path, directory: str, name: str) -> Path | None:
    """Return the list of that name of a folder: the generated one, else the shipped one."""
    for root in (build, source):
        path = root / directory / name
        if path.is_file() and path.stat().st_size > 0:
            return path
    return None


def _read(build: Path, source: Path, directory: str, lists: Lists) -> None:
    for name in LIST_NAMES:
        path = _list_file(build, source, directory, name)
        if path is None:
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            text = line.strip()
            if text.startswith("!"):
                folder, _, target = text[1:].partition(":")
                lists.prerequisites.append((f"{directory}/{folder}", target))
                continue
            try:
                test = parse_line(directory, text)
            except ValueError as error:
                lists.problems.append(str(error))
                continue
            if test is None:
                continue
            if (source / test.directory / test.program).is_dir():
                _read(build, source, f"{test.directory}/{test.program}", lists)
            else:
                lists.tests.append(test)


def _implicit(source: Path, directory: str) -> list[Test]:
    """Return the programs of a folder without a list; they are judged by their exit status.

    A program is named by the folder's Makefile.am, where noinst_PROGRAMS lists them.
    """
    makefile = source / directory / "Makefile.am"
    if not makefile.is_file():
        return []
    text = makefile.read_text(encoding="utf-8").replace("\\\n", " ")
    names: list[str] = []
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip().rstrip("+").strip() == "noinst_PROGRAMS":
            names += value.split()
    return [Test(directory, name, judge="ExitStatus") for name in names]


def read_lists(build: Path, source: Path, directories: list[str]) -> Lists:
    """Return all tests of these folders of the suite and of the folders that they name.

    Lines that would run the same program in the same way twice are kept once.
    """
    lists = Lists()
    for directory in directories:
        before = len(lists.tests)
        _read(build, source, directory, lists)
        if len(lists.tests) == before:
            lists.tests += _implicit(source, directory)
    seen: set[str] = set()
    unique = []
    for test in lists.tests:
        if test.identity not in seen:
            seen.add(test.identity)
            unique.append(test)
    lists.tests = unique
    return lists


def without_foreign_variables(tests: list[Test], prefixes: tuple[str, ...]) -> list[Test]:
    """Drop environment settings that mean nothing to a host, then tests that became equal."""
    seen: set[str] = set()
    kept = []
    for test in tests:
        own = tuple(pair for pair in test.environment if not pair[0].startswith(prefixes))
        if own != test.environment:
            test = Test(**{**test.__dict__, "environment": own})
        if test.identity not in seen:
            seen.add(test.identity)
            kept.append(test)
    return kept

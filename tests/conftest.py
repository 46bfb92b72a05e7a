"""Fixtures and options of Overdrive's end-to-end tests."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import hosts
import pytest
from support import jobs, programs
from support.nodes import CannotMakeNodes, Nodes

MAIN_HOSTS = ("openmpi4", "mpich4")
"""The distribution's hosts: `make check` runs every quick test on them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("overdrive")
    group.addoption("--hosts", default="", help="comma-separated host MPIs; default: all usable")
    group.addoption(
        "--all", action="store_true", help="also what is neither quick nor chosen by -m"
    )
    group.addoption(
        "--run",
        choices=("together", "alone"),
        help="of the tests only those that may run beside others, or only those marked `alone`",
    )
    group.addoption(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an Overdrive setting for every job that does not choose it itself, "
        "such as copy_path=pull",
    )
    group.addoption(
        "--without-overdrive",
        action="store_true",
        help="run the programs over the plain host, to check the tests themselves",
    )


ONE_HOST = "openmpi4"
"""Where `make check` runs what is marked `one`: the host whose ranks give up their core soonest."""


HOST_SUITES = (
    *("p2p", "collectives", "coll_ops", "hostile", "memory", "face_types", "fortran", "python"),
    *("real", "lab", "fuzz", "device", "smpi", "switch", "overlap", "report"),
)
"""Folders whose tests run MPI jobs on every host; without a choice only their quick part runs."""


SHARED_BY_MODULE = {"cluster", "two_nodes"}
"""Fixtures of a file that take seconds to make."""


def pytest_configure(config: pytest.Config) -> None:
    """Hand the settings of --set to the jobs."""
    for setting in config.getoption("--set"):
        name, _, value = setting.partition("=")
        jobs.COMMON_SETTINGS[name] = value


def _is_wanted(item: pytest.Item) -> bool:
    """Tell whether `make check` runs the test."""
    here = Path(__file__).parent
    parts = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ("",)
    marks = {mark.name for mark in item.iter_markers()}
    if "slow" in marks:
        return False
    if parts[0] not in HOST_SUITES:
        return True
    call = getattr(item, "callspec", None)
    if "one" in marks and call is not None and call.params.get("host", ONE_HOST) != ONE_HOST:
        return False
    everywhere = "everywhere" in marks or {"abis", "standard"} <= marks
    return "quick" in marks and ("wide" not in marks or everywhere)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without -m, --hosts and --all keep the part that `make check` runs; apply --run."""
    chosen = config.option.markexpr or config.getoption("--all") or config.getoption("--hosts")
    run = config.getoption("--run")
    left_out = set()
    for item in items:
        if SHARED_BY_MODULE & set(getattr(item, "fixturenames", ())):
            # Where several processes share the tests, one of them gets all of the file.
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
        alone = item.get_closest_marker("alone") is not None
        if (run is not None and alone != (run == "alone")) or not (chosen or _is_wanted(item)):
            left_out.add(item)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _selected(config: pytest.Config) -> list[str]:
    names = config.getoption("--hosts")
    return names.split(",") if names else hosts.NAMES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes a host on every selected host."""
    if "host" not in metafunc.fixturenames:
        return
    parameters = []
    for name in _selected(metafunc.config):
        marks = [pytest.mark.main if name in MAIN_HOSTS else pytest.mark.wide]
        if name == "mpiabi":
            marks.append(pytest.mark.standard)
        parameters.append(pytest.param(name, marks=marks, id=name))
    metafunc.parametrize("host", parameters, indirect=True)


_probed: dict[str, hosts.Host | str] = {}


@pytest.fixture
def host(request: pytest.FixtureRequest) -> hosts.Host:
    """Return the host MPI of this case; skips, saying why, when it is not usable here."""
    name = request.param
    if name not in _probed:
        _probed[name] = hosts.probe(name)
    found = _probed[name]
    if isinstance(found, str):
        pytest.skip(f"{name}: {found}")
    return found


@pytest.fixture
def overdrive(request: pytest.FixtureRequest) -> bool:
    """Tell whether the run is with Overdrive; fails when the library has not been built."""
    if request.config.getoption("--without-overdrive"):
        return False
    path = jobs.overdrive_library()
    assert path.exists(), f"{path} is missing: run `make` first, or give --without-overdrive"
    return True


@pytest.fixture
def needs_overdrive(overdrive: bool) -> None:
    """Skip a test that is about Overdrive itself in runs without it."""
    if not overdrive:
        pytest.skip("about Overdrive itself; this run is without it")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this test's random choices; part of the command that a failure shows.

    Every host gets some calls and datatypes wrong, and which of them a test meets depends on the
    seed. Short runs therefore always make the same choices, slow ones others every time;
    OVERDRIVE_TEST_SEED chooses.
    """
    given = os.environ.get("OVERDRIVE_TEST_SEED")
    if given:
        return int(given)
    if request.node.get_closest_marker("slow") is not None:
        return random.SystemRandom().randrange(1, 2**31)
    return zlib.crc32(request.node.name.encode()) % (2**31 - 1) + 1


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Nodes]:
    """Return two nodes; skips, saying why, where they cannot be made."""
    made = Nodes(2)
    try:
        made.__enter__()
    except CannotMakeNodes as reason:
        pytest.skip(f"no network namespaces here: {reason}")
    yield made
    made.__exit__(None, None, None)


@pytest.fixture
def compiled(host: hosts.Host) -> Callable[[Path], str]:
    """Return a function that compiles a source for the host, or skips saying why it cannot."""

    def build(source: Path, extra: Iterable[str] = ()) -> str:
        try:
            return str(programs.program(host, source, tuple(extra)))
        except programs.CannotBuild as reason:
            pytest.skip(str(reason))

    return build

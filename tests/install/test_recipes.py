"""The recipes for EasyBuild and Spack, as far as their own tools can be had here."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
EASYCONFIG = next((ROOT / "packaging" / "easybuild").glob("*.eb"))
SPACK_REPOSITORY = ROOT / "packaging" / "spack" / "spack_repo" / "overdrive"
RECIPE = SPACK_REPOSITORY / "packages" / "overdrive" / "package.py"

CMAKE_OPTION = re.compile(r"OVERDRIVE_[A-Z_]+")


def known_options() -> set[str]:
    """Return the cache variables that CMake knows."""
    texts = [path.read_text() for path in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").iterdir()]]
    headers = {f"OVERDRIVE_{abi}_INCLUDE" for abi in ("OPENMPI", "MPICH", "MPIABI")}
    return headers | {name for text in texts for name in CMAKE_OPTION.findall(text)}


def eb(folder: Path, home: Path, *words: str) -> str:
    """Run EasyBuild's command, with its own collection of recipes; return what it says."""
    # It looks for a modules tool before anything else; reading a recipe does not use it.
    lmod = home / "lmod"
    lmod.write_text('#!/bin/sh\necho "Modules based on Lua: Version 8.7.30 2023-06-13" >&2\n'
                    'echo "_mlstatus = True"\n')  # fmt: skip
    lmod.chmod(0o755)
    command = [str(folder / "eb"), "--allow-use-as-root-and-accept-consequences"]
    command += ["--prefix", str(home / "prefix"), *words, str(EASYCONFIG)]
    variables = {"HOME": str(home), "PATH": f"{folder}:{home}:/usr/bin:/bin", "USER": "somebody"}
    done = subprocess.run(
        command, env={**variables, "LMOD_CMD": str(lmod)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_easybuild_accepts_the_style_of_its_recipe(easybuild: Path, tmp_path: Path) -> None:
    assert "All style checks PASSed" in eb(easybuild, tmp_path, "--check-style")


@pytest.mark.slow
def test_easybuild_has_all_that_its_recipe_depends_on(easybuild: Path, tmp_path: Path) -> None:
    """A dry run reads and validates the recipe, and finds a recipe for each dependency."""
    said = eb(easybuild, tmp_path, "--dry-run", "--robot")
    version = (ROOT / "VERSION").read_text().strip()
    assert f"(module: Overdrive/{version}-GCCcore-13.3.0)" in said
    for name in ("Highway", "hwloc", "tomlplusplus", "nlohmann_json", "CLI11", "Python"):
        assert f"(module: {name}/" in said, said


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def calls(source: str, name: str) -> list[str]:
    """Return the first argument of each call of a directive."""
    return [
        node.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == name
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]


def test_spack_has_all_that_its_recipe_depends_on() -> None:
    """In a checkout of spack-packages, Spack's own collection, which OVERDRIVE_TEST_SPACK names."""
    checkout = os.environ.get("OVERDRIVE_TEST_SPACK")
    if not checkout:
        pytest.skip(
            "no collection: Spack is in no package registry, OVERDRIVE_TEST_SPACK names one"
        )
    builtin = Path(checkout) / "repos" / "spack_repo" / "builtin"
    for directive in re.findall(r"from spack_repo\.builtin\.(\S+) import (.*)", RECIPE.read_text()):
        module = (builtin / (directive[0].replace(".", "/") + ".py")).read_text()
        for word in directive[1].split(", "):
            assert re.search(rf"^(?:class|def) {word}\b", module, re.MULTILINE), directive
    wanted = calls(RECIPE.read_text(), "depends_on")
    assert len(wanted) > 10
    for text in wanted:
        name, _, least = text.partition("@")
        if name in ("c", "cxx"):
            continue  # languages, which compilers provide
        recipe = builtin / "packages" / name.replace("-", "_") / "package.py"
        known = [numbers(version) for version in calls(recipe.read_text(), "version")]
        assert any(version >= numbers(least) for version in known), text


@pytest.fixture
def spack(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs Spack with its collection and the repository of this recipe.

    OVERDRIVE_TEST_SPACK_COMMAND names Spack, OVERDRIVE_TEST_SPACK a checkout of spack-packages, and
    SPACK_PYTHON an interpreter that has the package clingo, since nothing is fetched here.
    """
    command, collection = (
        os.environ.get(name) for name in ("OVERDRIVE_TEST_SPACK_COMMAND", "OVERDRIVE_TEST_SPACK")
    )
    if not command or not collection:
        pytest.skip("no Spack: it is in no package registry, OVERDRIVE_TEST_SPACK_COMMAND names it")
    builtin = Path(collection).resolve() / "repos" / "spack_repo" / "builtin"
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "repos.yaml").write_text(
        f"repos:\n  builtin: {builtin}\n  overdrive: {SPACK_REPOSITORY}\n"
    )
    (settings / "bootstrap.yaml").write_text("bootstrap:\n  enable: false\n")
    variables = {
        "SPACK_USER_CONFIG_PATH": str(tmp_path / "user"),
        "SPACK_USER_CACHE_PATH": str(tmp_path / "cache"),
    }

    def run(*words: str) -> str:
        done = subprocess.run(
            [command, "-C", str(settings), *words], cwd=tmp_path, env={**os.environ, **variables},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_spack_finds_nothing_wrong_with_its_recipe(spack: Callable[..., str]) -> None:
    said = spack("audit", "packages", "overdrive")
    assert "PKG-DIRECTIVES: passed" in said and "PKG-PROPERTIES: passed" in said
    assert "issue" not in said, said


@pytest.mark.slow
def test_spack_resolves_its_recipe(spack: Callable[..., str]) -> None:
    """With both MPI libraries at once, of which only headers are used."""
    said = spack("spec", "overdrive")
    version = (ROOT / "VERSION").read_text().strip()
    assert f"overdrive@{version}" in said
    for name in ("openmpi", "mpich", "highway", "hwloc", "cli11", "ninja"):
        assert f"^{name}@" in said, said


class StandIn(ModuleType):
    """A module of Spack, of which the recipe needs names alone to be read."""

    class Package:
        """What the recipe's class is made of."""

        def define(self, name: str, value: object) -> str:
            return f"-D{name}={value}"

        define_from_variant = define

    def __getattr__(self, name: str) -> object:
        # Directives, which also decorate.
        return self.Package if name == "CMakePackage" else lambda *_, **__: lambda method: method


class Spec(dict):
    """A spec with every variant, and the prefixes of what it depends on."""

    def __init__(self, **prefixes: Path) -> None:
        include = {name: SimpleNamespace(include=str(path / "include")) for name, path in
                   prefixes.items()}  # fmt: skip
        super().__init__({name.replace("_", "-"): SimpleNamespace(prefix=prefix)
                          for name, prefix in include.items()})  # fmt: skip

    def satisfies(self, _: str) -> bool:
        return True


def test_spacks_recipe_names_headers_only_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distribution's MPI has the prefix /usr for Spack, but its header is not in /usr/include."""
    builtin = "spack_repo.builtin.build_systems.cmake"
    parents = [builtin.rsplit(".", count)[0] for count in range(4)]
    for name in ("spack", "spack.package", *parents):
        monkeypatch.setitem(sys.modules, name, StandIn(name))
    described = importlib.util.spec_from_file_location("overdrive_recipe", RECIPE)
    recipe = importlib.util.module_from_spec(described)
    described.loader.exec_module(recipe)
    own, system = tmp_path / "own", tmp_path / "usr"
    for folder in (own, system):
        (folder / "include").mkdir(parents=True)
    (own / "include" / "mpi.h").touch()
    package = recipe.Overdrive()
    package.spec = Spec(highway=system, nlohmann_json=system, openmpi=own, mpich=system)
    args = package.cmake_args()
    assert "-DOVERDRIVE_UNITY=True" in args, "compiled as what `make check` has tested"
    assert f"-DOVERDRIVE_OPENMPI_INCLUDE={own}/include" in args
    assert not [word for word in args if "MPICH_INCLUDE" in word]
    assert f"-DOVERDRIVE_HIGHWAY_INCLUDE={system}/include" in args


def test_spacks_repository_lies_where_spack_demands_it() -> None:
    """Below a folder `spack_repo`, in one of the repository's own name."""
    said = (SPACK_REPOSITORY / "repo.yaml").read_text()
    assert SPACK_REPOSITORY.parent.name == "spack_repo"
    assert f"namespace: {SPACK_REPOSITORY.name}\n" in said
    assert re.search(r"^  api: v2\.\d+$", said, re.MULTILINE)


@pytest.mark.slow
def test_the_service_of_the_switch_names_the_prefix(tmp_path: Path) -> None:
    build = ROOT / "build" / "release"
    if not (build / "cmake_install.cmake").exists():
        pytest.skip("run `make` first")
    command = ["cmake", "--install", str(build), "--component", "service"]
    environment = {**os.environ, "DESTDIR": str(tmp_path)}
    subprocess.run(
        [*command, "--prefix", "/opt/od"], env=environment, check=True, capture_output=True
    )
    service = next((tmp_path / "opt" / "od").rglob("overdrive-switch.service"))
    assert "\nExecStart=/opt/od/bin/overdrive-switch " in service.read_text()


def test_recipes_set_only_options_that_exist() -> None:
    for path in (EASYCONFIG, RECIPE):
        used = set(CMAKE_OPTION.findall(path.read_text())) - {"OVERDRIVE_ROOT", "OVERDRIVE_"}
        assert used and used <= known_options(), (path, used - known_options())


def test_recipes_state_the_version_of_the_sources() -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert f"version = '{version}'" in EASYCONFIG.read_text()
    tree = ast.parse(RECIPE.read_text())
    stated = [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "version"
    ]
    assert version in stated

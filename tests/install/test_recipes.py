"""The recipes for EasyBuild and Spack, as far as their own tools can be had here."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EASYCONFIG = next((ROOT / "packaging" / "easybuild").glob("*.eb"))
RECIPE = ROOT / "packaging" / "spack" / "packages" / "overdrive" / "package.py"

EASYBUILD = ["easybuild-framework==5.4.1", "easybuild-easyblocks==5.4.1"]

CHECK_EASYCONFIG = """
import sys
from easybuild.tools.options import set_up_configuration
root = '--allow-use-as-root-and-accept-consequences'
set_up_configuration(args=[root, '--prefix', sys.argv[2]], silent=True)
from easybuild.framework.easyconfig.easyconfig import EasyConfig
config = EasyConfig(sys.argv[1], validate=False)
config.validate(check_osdeps=False)
name = config.name, config.version, config['toolchain']['name']
print('%s %s %s' % name)
print(','.join(sorted(dep['name'] for dep in config.builddependencies())))
"""

CMAKE_OPTION = re.compile(r"OVERDRIVE_[A-Z_]+")


def known_options() -> set[str]:
    """Return the cache variables that CMake knows."""
    texts = [path.read_text() for path in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").iterdir()]]
    return {name for text in texts for name in CMAKE_OPTION.findall(text)}


@pytest.mark.slow
def test_easybuild_reads_its_recipe(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tools" / "setup"))
    from environments import ensure_environment
    from packages import SetupError

    try:
        python = ensure_environment(ROOT / "build" / "easybuild", EASYBUILD)
    except SetupError as reason:
        pytest.skip(f"EasyBuild cannot be had: {reason}")
    # EasyBuild looks for a modules tool before anything else; reading a recipe does not use it.
    lmod = tmp_path / "lmod"
    lmod.write_text('#!/bin/sh\necho "Modules based on Lua: Version 8.7.30 2023-06-13" >&2\n'
                    'echo "_mlstatus = True"\n')  # fmt: skip
    lmod.chmod(0o755)
    done = subprocess.run(
        [str(python), "-c", CHECK_EASYCONFIG, str(EASYCONFIG), str(tmp_path)],
        env={
            "HOME": str(tmp_path),
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "LMOD_CMD": str(lmod),
            "USER": "somebody",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version = (ROOT / "VERSION").read_text().strip()
    assert f"Overdrive {version} GCCcore" in done.stdout
    assert "Highway" in done.stdout


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

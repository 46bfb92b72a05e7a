"""EasyBuild carries out its recipe in a clean system: up to the compiler, and to the end.

Debian's compiler and libraries stand in for those of the collection, so that nothing else is built:
sources are found and unpacked, and the recipe's settings reach CMake in the tool's environment.
What it builds whole is loaded as the module that it writes, and carries a job.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.images import Image
from support.recipes import demand_settings

ROOT = Path(__file__).resolve().parents[2]
PROOF = ROOT / "packaging" / "proof"
EASYCONFIG = next((ROOT / "packaging" / "easybuild").glob("*.eb"))

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 1800
WHOLE_SECONDS = 3 * 3600
"""A whole compilation, optimised across files, on a machine that has other work."""

HAS_NOT_TO_BUILD = (
    "binutils", "CMake", "Ninja", "Highway", "nlohmann_json", "tomlplusplus", "CLI11", "Python",
    "hwloc",
)  # fmt: skip
"""What the recipe depends on, all of which the distribution has."""


def carry_out(system: Image, folder: Path, *options: str, limit: int = LIMIT_SECONDS) -> None:
    """Let EasyBuild carry out its recipe, from the archive of the sources."""
    stated = re.findall(r"^    \('(\w+)',", EASYCONFIG.read_text(), re.MULTILINE)
    assert set(stated) == set(HAS_NOT_TO_BUILD)
    place = "/mnt/easybuild"
    system.mount(folder.parent, place)
    system.mount(EASYCONFIG.parent, "/mnt/recipe")
    modules = next(folder.parent.glob("lib/python3*/site-packages")).relative_to(folder.parent)
    env = {
        "PYTHONPATH": f"{place}/{modules}",
        # Last: it finds its scripts and its collection beside its command, for which the image has
        # an interpreter. Of the collection it takes the recipe's own toolchain, to replace it.
        "PATH": f"/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:{place}/bin",
        "LMOD_CMD": system.need("ls /usr/share/lmod/*/libexec/lmod").split()[0],
        "EBROOTHIGHWAY": "/usr",
        "EBROOTNLOHMANN_JSON": "/usr",
        "USER": "root",
    }
    words = ["python3 -B -m easybuild.main --allow-use-as-root-and-accept-consequences"]
    # The first of the folders of sources must be its own.
    words += ["--prefix=/opt/eb --sourcepath=/root/sources:/mnt/debian"]
    words += ["--buildpath=/root/easybuild --parallel=2"]
    words += ["--modules-tool=Lmod --module-syntax=Lua --try-toolchain=system,system"]
    words += ["--check-ebroot-env-vars=ignore"]
    words += [f"--filter-deps={','.join(HAS_NOT_TO_BUILD)}", *options]
    system.need(" ".join([*words, f"/mnt/recipe/{EASYCONFIG.name}"]), env, limit)


def test_easybuild_configures(easybuild: Path, builder: Image) -> None:
    carry_out(builder, easybuild, "--stop=configure")
    demand_settings(builder, "/root/easybuild")


def test_easybuild_builds_what_carries_a_job(easybuild: Path, builder: Image) -> None:
    """Its own look at the result included: files that must be there, commands that must run."""
    carry_out(builder, easybuild, limit=WHOLE_SECONDS)
    builder.mount(PROOF, "/mnt/proof")
    loaded = ". /etc/profile.d/lmod.sh; module use /opt/eb/modules/all; module load Overdrive"
    root = builder.need(f"bash -c '{loaded}; echo $OVERDRIVE_ROOT; command -v overdrive' 2>&1")
    prefix, command = root.split()
    assert prefix.startswith("/opt/eb/software/Overdrive/") and command == f"{prefix}/bin/overdrive"
    for name, launcher in (("openmpi", "mpirun.openmpi --oversubscribe"),
                           ("mpich", "mpirun.mpich")):  # fmt: skip
        builder.need(f"mpicc.{name} /mnt/proof/job.c -o /root/{name}")
        proof = f"python3 -B /mnt/proof/proof.py {launcher} -n 2 /root/{name}"
        said = builder.need(f"bash -c '{loaded}; {proof}' 2>&1")
        assert re.search(r"proof: .* messages, .* collectives", said), said

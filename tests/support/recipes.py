"""What recipes of other tools must have told CMake, whichever tool carries them out."""

from __future__ import annotations

import re

from support.images import Image


def demand_settings(system: Image, folder: str) -> None:
    """Demand that a recipe's settings have reached CMake, and that it found everything."""
    cache = system.need(f"cat $(find {folder} -name CMakeCache.txt)")
    settings = dict(re.findall(r"^(OVERDRIVE_\w+):\w+=(.*)$", cache, re.MULTILINE))
    assert settings["OVERDRIVE_TESTS"] in ("OFF", "False"), settings
    for name in ("OVERDRIVE_LTO", "OVERDRIVE_UNITY"):
        assert settings[name] in ("ON", "True", "1"), settings
    assert settings["OVERDRIVE_HIGHWAY_INCLUDE"] == "/usr/include", settings
    missing = {name for name, value in settings.items() if value.endswith("-NOTFOUND")}
    assert missing <= {"OVERDRIVE_XPMEM_INCLUDE", "OVERDRIVE_CCACHE"}, missing
    skipped = system.need(f"cat $(find {folder} -name skipped-faces.txt)")
    assert "mpiabi" in skipped, "Debian 12 has no header of the standard ABI"
    assert "openmpi:" not in skipped and "mpich:" not in skipped, skipped

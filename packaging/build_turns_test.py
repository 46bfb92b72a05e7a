"""Two builds in one checkout do not destroy each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

BEGIN = f"""
import subprocess, sys
from pathlib import Path
sys.path[:0] = [{str(HERE)!r}, {str(HERE / "wheel")!r}]
from build_turns import turn
"""


def start(lines: str, folder: Path) -> subprocess.Popen[str]:
    """Start a program whose argument is a folder."""
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + lines, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


ONE = """
with turn(Path(sys.argv[1])):
    print("begun", flush=True)
    sys.stdin.readline()
    print("ended", flush=True)
"""


def test_the_second_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "build" / "debian"
    first = start(ONE, folder)
    assert first.stdout.readline() == "begun\n"
    second = start(ONE, folder)
    assert "waiting for another build" in second.stderr.readline()
    said, _ = first.communicate("\n", timeout=60)
    assert said == "ended\n"
    assert second.stdout.readline() == "begun\n"
    second.communicate("\n", timeout=60)
    assert not first.returncode and not second.returncode
    with_another_folder = start(ONE, tmp_path / "build" / "wheel")
    assert with_another_folder.communicate("\n", timeout=60) == ("begun\nended\n", "")


def test_what_a_killed_build_has_started_keeps_its_turn(tmp_path: Path) -> None:
    """By the same functions as the builds start their steps."""
    step = f"[sys.executable, '-c', '{'import sys; print(1, flush=True); sys.stdin.readline()'}']"
    for run in (f"build_deb.run({step}, Path('/'))", f"build_wheel.run({step})"):
        module = run.partition(".")[0]
        first = start(
            f"import {module}\nwith turn(Path(sys.argv[1])):\n    {run}\n", tmp_path / "b"
        )
        assert first.stdout.readline() == "1\n"
        first.kill()
        second = start(ONE, tmp_path / "b")
        assert "waiting for another build" in second.stderr.readline()
        first.communicate("\n", timeout=60)  # the step reads it
        assert second.stdout.readline() == "begun\n"
        second.communicate("\n", timeout=60)

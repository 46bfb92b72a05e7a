"""Tests of the description of the host MPIs: each must compile, start and see its variables."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOOLS / "hosts"), str(TOOLS / "setup")]

import environments  # noqa: E402
import hosts  # noqa: E402

PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("rank %d of %d, %s\\n", rank, size, getenv("OD_HOSTS_TEST"));
  return MPI_Finalize();
}
"""


@pytest.mark.parametrize("name", hosts.NAMES)
def test_compiles_and_starts(name: str, tmp_path: Path) -> None:
    host = hosts.probe(name)
    if not isinstance(host, hosts.Host):
        pytest.skip(host)
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    program = tmp_path / "program"
    environment = host.environment()
    subprocess.run([*host.mpicc, str(source), "-o", str(program)], env=environment, check=True)
    result = subprocess.run(
        [*host.mpiexec(3, {"OD_HOSTS_TEST": "a=b c,d"}), str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    expected = [f"rank {rank} of 3, a=b c,d" for rank in range(3)]
    assert sorted(result.stdout.splitlines()) == expected


def test_a_missing_host_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERDRIVE_HOSTS_DIR", str(tmp_path))
    reason = hosts.probe("mpich5")
    assert isinstance(reason, str)
    assert "hosts.py setup mpich5" in reason
    assert "mpich5" not in [host.name for host in hosts.load()]


def test_what_hosts_share_is_installed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERDRIVE_HOSTS_DIR", str(tmp_path))
    monkeypatch.setattr(hosts.os, "sched_getaffinity", lambda pid: set(range(4)))
    installed: list[tuple[str, tuple[str, ...]]] = []

    def create(directory: Path) -> None:
        (directory / "bin").mkdir(parents=True)
        (directory / "bin" / "python").touch()

    def install(directory: Path, arguments: list[str], env: object = None) -> None:
        time.sleep(0.01)  # Others come to the same environment meanwhile.
        installed.append((directory.name, tuple(arguments)))

    monkeypatch.setattr(environments, "_create", create)
    monkeypatch.setattr(environments, "pip_install", install)
    assert hosts.setup(["openmpi5", "mpich5", "mpiabi"]) == {}
    assert sorted(name for name, _ in installed) == ["mpiabi", "mpich5", "openmpi5", "python"]
    assert (tmp_path / "mpich5" / "overdrive-requirements.txt").read_text() == "mpich>=5,<6"


def test_one_host_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERDRIVE_HOSTS_DIR", str(tmp_path))

    def ensure_environment(directory: Path, *_arguments: object) -> Path:
        if directory.name == "mpich5":
            raise hosts.SetupError("no such wheel")
        return directory

    monkeypatch.setattr(hosts, "ensure_environment", ensure_environment)
    assert hosts.setup(["openmpi5", "mpich5"]) == {"mpich5": "no such wheel"}

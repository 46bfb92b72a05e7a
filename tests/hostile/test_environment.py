"""Environments that refuse what Overdrive would like: it must work, or fall back and say so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs, programs

HERE = Path(__file__).parent
Build = Callable[[Path], str]


def permitted(*command: str) -> bool:
    """Tell whether a command (an unshare, say) is allowed here."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def require(*command: str) -> None:
    """Skip, saying why, when the command is not permitted here."""
    if not permitted(*command):
        pytest.skip(f"not permitted here: {' '.join(command)}")


def forbid(*rules: str) -> list[str]:
    """Return the prefix that makes system calls fail."""
    return [str(programs.plain_program(HERE / "forbid.c")), *rules, "--"]


def shell(text: str, program: list[str]) -> list[str]:
    """Return the program behind a shell command such as a ulimit."""
    return ["sh", "-c", f'{text}; exec "$@"', "sh", *program]


@dataclass
class Environment:
    """How the ranks are started and what is expected of them."""

    wrap: Callable[[list[str]], list[str]]
    ours: bool = True
    """Whether local messages must still take Overdrive's path; otherwise it falls back."""
    env: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    host_env: dict[str, dict[str, str]] = field(default_factory=dict)
    """By host family: variables without which the host alone fails here."""


INSPECTION = ("ptrace=EPERM", "process_vm_readv=EPERM", "process_vm_writev=EPERM")
INSPECTION += ("pidfd_getfd=EPERM", "kcmp=EPERM")

NO_CMA = {
    "openmpi": {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_btl_sm_cma": "0"},
    "mpich": {"UCX_TLS": "sm,self", "MPIR_CVAR_CH4_CMA_ENABLE": "0"},
    "mpiabi": {"MPIR_CVAR_CH4_CMA_ENABLE": "0"},
}

ENVIRONMENTS = {
    "plain": Environment(lambda program: program),
    "no-ptrace": Environment(lambda program: [*forbid(*INSPECTION), *program], host_env=NO_CMA),
    "no-pidfd": Environment(
        lambda program: [*forbid("pidfd_open=ENOSYS", "pidfd_getfd=ENOSYS"), *program]
    ),
    "no-membarrier": Environment(lambda program: [*forbid("membarrier=EPERM"), *program]),
    "no-memfd": Environment(lambda program: [*forbid("memfd_create=ENOSYS"), *program], ours=False),
    "memfd-eperm": Environment(
        lambda program: [*forbid("memfd_create=EPERM"), *program], ours=False
    ),
    "undumpable": Environment(lambda program: [*program, "--undumpable=1"], host_env=NO_CMA),
    "ulimit-v": Environment(lambda program: shell("ulimit -v 3000000", program)),
    "ulimit-f": Environment(lambda program: shell("ulimit -f 65536", program)),
    "ulimit-n": Environment(lambda program: shell("ulimit -n 64", program)),
    "ulimit-l": Environment(lambda program: shell("ulimit -l 0", program)),
}


HOST_LIMIT_SECONDS = 60.0
"""Traffic takes a second; hosts that do not work in an environment often hang in it."""


def skip_if_failed(host: Host, alone: jobs.Result) -> None:
    """Skip when the host alone fails in this environment too."""
    if alone.returncode != 0 or alone.timed_out:
        reason = "no end" if alone.timed_out else alone.stderr.strip()[-200:]
        pytest.skip(f"{host.name} itself fails here: {reason}")


def run_traffic(
    host: Host,
    build: Build,
    environment: Environment,
    overdrive: bool,
    ranks: int = 2,
    launcher_prefix: list[str] | None = None,
) -> jobs.Result:
    """Run ordinary traffic in the environment; skips when the host alone fails there."""
    argv = environment.wrap([build(HERE / "traffic.c"), "--rounds=3"])
    env = {**environment.env, **environment.host_env.get(host.family, {})}
    result = jobs.run(
        host,
        ranks,
        argv,
        overdrive=overdrive,
        settings={"verbose": "1"},
        env=env,
        launcher_prefix=launcher_prefix,
        limit=HOST_LIMIT_SECONDS,
    )
    if result.returncode != 0 or result.timed_out:
        alone = result
        if overdrive:
            alone = jobs.run(
                host,
                ranks,
                argv,
                overdrive=False,
                env=env,
                launcher_prefix=launcher_prefix,
                limit=HOST_LIMIT_SECONDS,
            )
        skip_if_failed(host, alone)
    expect.passed(result)
    return result


@pytest.mark.quick
@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_environment(name: str, host: Host, compiled: Build, overdrive: bool) -> None:
    """Traffic is right; Overdrive carries it, or falls back with one line that says why."""
    environment = ENVIRONMENTS[name]
    result = run_traffic(host, compiled, environment, overdrive)
    if not overdrive:
        return
    if environment.ours:
        expect.took_our_path(result, 20)
    else:
        expect.fell_back(result)
        said = [line for line in result.stderr.splitlines() if "overdrive" in line.lower()]
        assert 1 <= len(said) <= 2, f"{len(said)} lines about the fall-back\n{result.report()}"
        quiet = jobs.run(
            host,
            2,
            environment.wrap([compiled(HERE / "traffic.c"), "--rounds=1"]),
            env={**environment.env, **environment.host_env.get(host.family, {})},
        )
        assert "overdrive" not in quiet.stderr.lower(), quiet.report()


@pytest.mark.quick
def test_no_unix_sockets(host: Host, compiled: Build, overdrive: bool) -> None:
    """Without AF_UNIX sockets memory is handed over by other means, or not at all; never wrong."""
    if host.family == "openmpi":
        pytest.skip(f"{host.name} itself never ends without AF_UNIX sockets")
    environment = Environment(lambda program: [*forbid("socket_unix=EPERM"), *program])
    run_traffic(host, compiled, environment, overdrive)


@pytest.mark.quick
def test_small_dev_shm(host: Host, compiled: Build, overdrive: bool) -> None:
    """/dev/shm of 1 MiB: the host may need other files, Overdrive does not use it."""
    require("unshare", "-m", "true")
    mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    prefix = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    env = {
        "openmpi": {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_osc": "^sm"},
        "mpich": {"UCX_TLS": "tcp,self", "I_MPI_FABRICS": "ofi", "MPIR_CVAR_NOLOCAL": "1"},
        "mpiabi": {"MPIR_CVAR_NOLOCAL": "1"},
    }[host.family]
    environment = Environment(lambda program: program, env=env)
    result = run_traffic(host, compiled, environment, overdrive, launcher_prefix=prefix)
    if overdrive:
        expect.took_our_path(result, 20)


NAMESPACES = {
    "user": (["unshare", "-U"], ["unshare", "-U"]),
    "user-one": (["unshare", "-Ur"], []),
    "pid": (["unshare", "-p", "--fork"], ["unshare", "-p", "--fork"]),
    "ipc": (["unshare", "-i"], ["unshare", "-i"]),
    "uts": (["unshare", "-u"], []),
    "mount": (["unshare", "-m"], ["unshare", "-m"]),
    "pid-and-proc": (["unshare", "-mpf", "--mount-proc"], ["unshare", "-mpf", "--mount-proc"]),
}
"""A wrapper for rank 0 and one for rank 1."""

NAMESPACE_ENV = {
    "openmpi": {
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "OMPI_MCA_osc": "^sm",
    },
    "mpich": {"UCX_TLS": "tcp,self", "I_MPI_FABRICS": "ofi", "MPIR_CVAR_NOLOCAL": "1"},
    "mpiabi": {"MPIR_CVAR_NOLOCAL": "1"},
}
"""The hosts' own shared memory does not work between namespaces: take the network."""


@pytest.mark.quick
@pytest.mark.parametrize("kind", list(NAMESPACES))
def test_namespaces(kind: str, host: Host, compiled: Build, overdrive: bool) -> None:
    """Ranks in namespaces of their own: shared if that can be verified, otherwise not, never
    wrong."""
    if (host.family, kind) == ("openmpi", "user"):
        pytest.skip("Open MPI itself never ends with ranks in user namespaces of their own")
    wrappers = NAMESPACES[kind]
    for wrapper in wrappers:
        if wrapper:
            require(*wrapper, "true")
    program = [compiled(HERE / "traffic.c"), "--rounds=3"]
    commands = [[*wrapper, *program] for wrapper in wrappers]
    outcome = jobs.run(
        host,
        2,
        program,
        per_rank=commands,
        overdrive=overdrive,
        settings={"verbose": "1"},
        env=NAMESPACE_ENV[host.family],
        limit=HOST_LIMIT_SECONDS,
    )
    if outcome.returncode != 0 or outcome.timed_out:
        alone = outcome
        if overdrive:
            alone = jobs.run(
                host,
                2,
                program,
                per_rank=commands,
                overdrive=False,
                env=NAMESPACE_ENV[host.family],
                limit=HOST_LIMIT_SECONDS,
            )
        skip_if_failed(host, alone)
    expect.passed(outcome)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["jemalloc", "tcmalloc"])
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_foreign_malloc(
    name: str, first: bool, host: Host, compiled: Build, overdrive: bool
) -> None:
    """Another allocator is preloaded, before Overdrive or after it."""
    pattern = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}[name]
    found = sorted(Path("/usr/lib").glob(f"*/{pattern}"))
    if not found:
        pytest.skip(f"{pattern} is not installed (python3 tools/setup/packages.py faults)")
    library = [str(found[0])]
    result = jobs.run(
        host,
        2,
        [compiled(HERE / "traffic.c"), "--rounds=3"],
        overdrive=overdrive,
        preload=(library, []) if first else ([], library),
    )
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 20)


@pytest.mark.quick
@pytest.mark.parametrize("ranks", [64])
def test_crowd(ranks: int, host: Host, compiled: Build, overdrive: bool) -> None:
    """64 ranks on few cores start, exchange messages and finish."""
    if not overdrive and host.name != "openmpi4":
        pytest.skip(f"{host.name} alone spins: {ranks} ranks would take minutes")
    result = jobs.run(
        host, ranks, [compiled(HERE / "crowd.c")], overdrive=overdrive, limit=300, grace=20
    )
    expect.passed(result)
    if overdrive:
        expect.took_our_path(result, 64 * 3)


@pytest.mark.quick
@pytest.mark.alone
def test_nothing_left_behind(host: Host, compiled: Build, overdrive: bool) -> None:
    """After the end there are no files, sockets or processes that were not there before."""
    places = [Path("/dev/shm"), Path("/tmp"), Path("/var/tmp")]

    def sockets() -> set[str]:
        names = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()}
        return {name for name in names if name.startswith("@")}

    def overdrives(names: set[str]) -> set[str]:
        return {name for name in names if "overdrive" in name.lower() or "od-" in name.lower()}

    def files() -> set[str]:
        return {str(path) for place in places for path in place.iterdir()}

    before = files(), sockets()
    result = jobs.run(host, 2, [compiled(HERE / "traffic.c")], overdrive=overdrive)
    expect.passed(result)
    # Other jobs of this machine come and go: only what could be ours counts.
    new_files, new_sockets = files() - before[0], sockets() - before[1]
    assert not overdrives(new_files), new_files
    assert not overdrives(new_sockets), new_sockets


@pytest.mark.quick
@pytest.mark.alone
@pytest.mark.parametrize("how", ["kill", "segv"])
def test_nothing_left_behind_by_a_crash(
    how: str, host: Host, compiled: Build, overdrive: bool, needs_overdrive: None
) -> None:
    """A job that dies leaves nothing either."""
    before = set(os.listdir("/dev/shm"))
    result = jobs.run(
        host, 2, [compiled(HERE / "death.c"), f"--how={how}", "--wait=recv"], limit=60
    )
    assert not result.timed_out and not result.leftovers, result.report()
    new = {name for name in set(os.listdir("/dev/shm")) - before if "overdrive" in name.lower()}
    assert not new, new


@pytest.mark.quick
@pytest.mark.parametrize("trap", ["0", "1"])
def test_floating_point_flags(
    trap: str, host: Host, compiled: Build, needs_overdrive: None
) -> None:
    """MPI calls raise no floating-point flags; a program that traps exceptions lives."""
    command = [compiled(HERE / "floats.c"), f"--trap={trap}"]
    result = jobs.run(host, 2, command)
    if result.returncode != 0 and jobs.run(host, 2, command, overdrive=False).returncode != 0:
        pytest.skip(f"{host.name} alone raises flags")
    expect.passed(result)
    expect.took_our_path(result, 100)

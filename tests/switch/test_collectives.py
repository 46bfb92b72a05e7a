"""Collectives of MPI programs that a switch serves: right results whatever happens to the switch.

Ranks of one machine stand for several nodes, and the switch is reached by UDP; one test has nodes
with a network of switches between them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts import Host
from overdrive.lab import fabric as lab_fabric
from overdrive.lab import state as lab_state
from support import expect, jobs, sharing
from support.nodes import COMMAND, IMPOSSIBLE

HERE = Path(__file__).parent
LIMIT_SECONDS = 120.0 * jobs.TIME_SCALE

pytestmark = [pytest.mark.one, pytest.mark.usefixtures("needs_overdrive")]

PAIRS = "0-2,0-3,1-2,1-3"
"""Ranks 0 and 1 on a node, 2 and 3 on another."""

UNEVEN = "0-2,0-3,0-4,1-2,1-3,1-4,2-4,3-4"
"""Nodes of two, two and one rank."""


RULES = {
    f"adjust_{name}": "in_network_node" for name in ("allreduce", "reduce", "bcast", "barrier")
}
"""So that what the switch does depends on no measurement."""


@pytest.fixture
def start(host: Host, compiled: Callable[[Path], str]) -> Callable[..., jobs.Result]:
    """Return a function that runs a program on ranks that stand for nodes."""
    usual = compiled(HERE / "collectives.c")

    def run(
        place: str,
        *words: str,
        program: str = usual,
        remote: str = PAIRS,
        ruled: bool = True,
        synthetic: str = "",
        limit: float = LIMIT_SECONDS,
        **settings: str,
    ) -> jobs.Result:
        rules = RULES if ruled else {}
        ranks = {PAIRS: 4, UNEVEN: 5}.get(remote, 3)
        result = jobs.run(
            host,
            ranks,
            [program, *words],
            settings={"switch": place, "test_remote": remote, "learn": "off", **rules, **settings},
            env=sharing.environment(host) | ({"HWLOC_SYNTHETIC": synthetic} if synthetic else {}),
            preload=([], sharing.libraries(host)),
            limit=limit,
        )
        expect.passed(result)
        return result

    return run


def expect_nothing_left(switch) -> None:
    """Demand that the switch has freed everything."""
    state = switch.compute()
    assert state["groups"] == 0 and state["memory_bytes"] == 0, state


QUICK = pytest.mark.quick

FAULTS = [
    ["--loss", "3%"],
    ["--duplication", "10%"],
    ["--reordering", "10%"],
    pytest.param(
        ["--loss", "1%", "--duplication", "5%", "--reordering", "5%", "--corruption", "2%"],
        marks=QUICK,
    ),
]
FAULT_NAMES = ["loss", "duplication", "reordering", "all"]


@pytest.mark.parametrize("remote", [pytest.param(PAIRS, marks=QUICK), UNEVEN, "all"])
def test_a_switch_serves_all_types_and_operations(running, start, remote):
    switch = running()
    result = start(switch.address, "--rounds=200", "--comms=4", remote=remote)
    nodes = 2 if remote == PAIRS else 3
    # Two communicators for long and four in between; what is too long is left to others.
    assert result.counter("switch_groups") == 6 * nodes, result.report()
    assert result.counter("switch_operations") > 700 * nodes, result.report()
    assert result.counter("switch_fallbacks") == 0, result.report()
    assert result.counter("switch_refused") == 0, result.report()
    assert result.counter("switch_bytes") > 0
    expect_nothing_left(switch)


def test_long_messages(running, start):
    switch = running()
    result = start(switch.address, "--rounds=64", "--most=16000")
    assert result.counter("switch_fallbacks") == 0, result.report()
    # 16,000 elements of 4 bytes at most are within what a switch takes at once, longer ones are
    # done by the leaders as if there were none.
    assert result.counter("switch_bytes") > 4 * 3 * 2 * 16000, result.report()
    expect_nothing_left(switch)


def test_leaders_by_socket(running, host, start):
    switch = running()
    result = start(
        switch.address,
        "--rounds=100",
        adjust_allreduce="in_network_socket",
        synthetic="pack:4 core:1 pu:1",
    )
    # World and the reversed one: groups of one leader a node, made anew with two by the first
    # allreduce where that is not the first call.
    assert result.counter("switch_fallbacks") == 0, result.report()
    assert result.counter("switch_groups") >= 2 * 4, result.report()
    # Two slices of each allreduce, on two communicators.
    counts = [rank["counters"]["switch_operations"] for rank in result.stats.values()]
    assert min(counts) > 100, result.report()
    expect_nothing_left(switch)


def test_algorithms_by_chance(running, start):
    result = start(
        running().address, "--rounds=200", "--most=4000", ruled=False, collective_shuffle="7"
    )
    assert result.counter("switch_operations") > 0, result.report()
    assert result.counter("switch_fallbacks") == 0, result.report()


@QUICK
def test_without_rules_the_switch_is_measured_against_all_others(running, start):
    switch = running()
    result = start(switch.address, "--rounds=1000", ruled=False, learn="nodes")
    assert result.counter("switch_groups") == 2 * 2, result.report()
    # A block of four calls of each collective at least, on two communicators, whoever is faster.
    assert result.counter("switch_operations") >= 2 * 2 * 4 * 4, result.report()
    # Each is judged in several ranges of sizes.
    assert result.counter("trials") >= 4 * 2 * 4 * 2, result.report()
    expect_nothing_left(switch)


@QUICK
def test_barriers_are_measured_for_each_loop_and_with_what_follows(running, start, compiled):
    switch = running()
    result = start(
        switch.address, "--loops=120", program=compiled(HERE / "loops.c"), ruled=False, verbose="3"
    )
    assert result.counter("switch_groups") == 2, result.report()
    assert result.counter("switch_fallbacks") == 0, result.report()
    verdicts = [line for line in result.stderr.splitlines() if line.endswith("serves it")]
    for kind in ("barrier after allreduce of 8 to 15", "barrier after allreduce of 4096 to 8191"):
        assert any(f"{kind} bytes" in line and "in what follows" in line for line in verdicts), (
            kind,
            verdicts,
        )
    assert sum(" allreduce of " in line and "after" not in line for line in verdicts) >= 2, verdicts
    expect_nothing_left(switch)


@QUICK
def test_calls_from_which_a_handler_jumps_away_belong_to_samples(running, start, compiled):
    switch = running()
    program = compiled(HERE.parent / "collectives" / "leaving.c")
    result = start(switch.address, program=program, ruled=False, adjust_bcast="host")
    assert result.counter("switch_groups") == 2, result.report()
    # Sums and reductions, more than once each, on all ranks alike.
    trials = [rank["counters"]["trials"] for rank in result.stats.values()]
    assert min(trials) == max(trials) >= 4, result.report()
    expect_nothing_left(switch)


@pytest.mark.parametrize(
    ("remote", "progress"),
    [
        pytest.param(PAIRS, "calls", marks=QUICK),
        (PAIRS, "agent"),
        (UNEVEN, "calls"),
        ("all", "agent"),
    ],
)
def test_calls_that_do_not_block(running, start, remote, progress):
    switch = running()
    words = ["--rounds=100", "--later=1"]
    result = start(switch.address, *words, remote=remote, progress=progress)
    nodes = 2 if remote == PAIRS else 3
    # World and the reversed one, each with a group for blocking calls and one for others.
    assert result.counter("switch_groups") == nodes * 2 * 2, result.report()
    plain = start(switch.address, "--rounds=100", remote=remote, progress=progress)
    more = result.counter("switch_operations") - plain.counter("switch_operations")
    # Four of these on each communicator in each round but those before there is a group.
    assert more >= nodes * 2 * 4 * 96, (more, result.report())
    assert result.counter("switch_fallbacks") == 0, result.report()
    expect_nothing_left(switch)


@pytest.mark.parametrize("progress", [pytest.param("calls", marks=QUICK), "agent"])
def test_calls_that_do_not_block_follow_the_verdicts(running, start, progress):
    switch = running("--loss", "0.5%", "--duplication", "2%")
    words = ["--rounds=300", "--later=1"]
    result = start(switch.address, *words, ruled=False, learn="nodes", progress=progress)
    assert result.counter("switch_groups") == 2 * 2 * 2, result.report()
    assert result.counter("trials") > 0, result.report()
    assert result.counter("switch_fallbacks") == 0, result.report()


@pytest.mark.parametrize("faults", FAULTS, ids=FAULT_NAMES)
def test_faults_among_calls_that_do_not_block(running, start, faults):
    switch = running(*faults)
    result = start(switch.address, "--rounds=60", "--later=1", "--comms=3", progress="calls")
    assert result.counter("switch_operations") > 600, result.report()
    assert result.counter("switch_fallbacks") == 0, result.report()


@pytest.mark.parametrize(
    ("progress", "again"), [("calls", False), ("agent", False), ("calls", True), ("agent", True)]
)
def test_a_switch_that_ends_among_calls_that_do_not_block(
    running, start, tmp_path, progress, again
):
    switch = running()

    def end() -> None:
        switch.stop(signal.SIGKILL)
        if again:
            switch.start()

    tell = tmp_path / "ended"
    thread = end_in_the_middle(switch, end, tell)
    result = start(switch.address, f"--until={tell}", "--rounds=20", "--later=1", progress=progress)
    thread.join()
    assert result.counter("switch_operations") >= 100, result.report()
    assert result.counter("switch_fallbacks") > 0, result.report()


@pytest.mark.slow
def test_calls_that_do_not_block_after_a_switch_has_ended(running, start, tmp_path):
    switch = running()
    tell = tmp_path / "ended"
    thread = end_in_the_middle(switch, lambda: restart(switch), tell)
    # Long enough for world's check that all leaders still use their groups: there is a new one of
    # blocking calls, and others are the host's.
    words = [f"--until={tell}", "--rounds=200", "--later=1"]
    result = start(switch.address, *words, progress="calls", limit=3 * LIMIT_SECONDS)
    thread.join()
    assert result.counter("switch_groups") == 2 * 2 * 2 + 2, result.report()


@QUICK
def test_programs_with_few_calls_look_for_no_switch(running, start):
    result = start(running().address, "--rounds=1", ruled=False)
    assert result.counter("switch_groups") == 0, result.report()


def test_long_messages_without_a_rule_look_for_no_switch(running, start):
    result = start(running().address, "--rounds=20", ruled=False, switch_max="0")
    assert result.counter("switch_groups") == 0, result.report()
    assert result.counter("switch_refused") == 0, result.report()


def test_a_new_group_is_made_after_a_restart(running, start, tmp_path):
    switch = running()
    tell = tmp_path / "ended"
    thread = end_in_the_middle(switch, lambda: restart(switch), tell)
    result = start(switch.address, "--rounds=300", f"--until={tell}")
    thread.join()
    # Each of two leaders, twice on two communicators.
    assert result.counter("switch_groups") == 2 * 2 * 2, result.report()
    assert switch.compute()["combined"] > 200
    expect_nothing_left(switch)


@pytest.mark.parametrize("faults", FAULTS, ids=FAULT_NAMES)
def test_faults_on_the_way(running, start, faults):
    switch = running(*faults)
    result = start(switch.address, "--rounds=60")
    assert result.counter("switch_operations") > 300, result.report()
    assert result.counter("switch_fallbacks") == 0, result.report()
    if "--loss" in faults:
        assert result.counter("switch_repeated") > 0, result.report()


def restart(switch) -> None:
    """Start it anew: all that it knew is gone."""
    switch.stop(signal.SIGKILL)
    switch.start()


def end_in_the_middle(switch, end: Callable[[], None], tell: Path) -> threading.Thread:
    """Do something to the switch after some sums, then tell the program; return the thread."""

    def work() -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while switch.compute()["combined"] < 100 and time.monotonic() < deadline:
            time.sleep(0.005)
        end()
        tell.touch()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("remote", "again"),
    [pytest.param(PAIRS, False, marks=QUICK), (PAIRS, True), ("all", False), ("all", True)],
)
def test_a_switch_that_ends_in_the_middle(running, start, tmp_path, remote, again):
    switch = running()

    def end() -> None:
        switch.stop(signal.SIGKILL)
        if again:  # it has forgotten everything
            switch.start()

    tell = tmp_path / "ended"
    thread = end_in_the_middle(switch, end, tell)
    result = start(switch.address, "--rounds=40", f"--until={tell}", remote=remote)
    thread.join()
    assert result.counter("switch_operations") >= 100, result.report()
    # Each leader once on each of the two communicators, unless one of these was not in a call.
    leaders = 2 if remote == PAIRS else 3
    assert result.counter("switch_fallbacks") == 2 * leaders, result.report()


def test_a_stopped_switch_is_like_a_dead_one(running, start, tmp_path):
    switch = running()
    tell = tmp_path / "ended"
    thread = end_in_the_middle(switch, lambda: switch.process.send_signal(signal.SIGSTOP), tell)
    result = start(switch.address, "--rounds=40", f"--until={tell}")
    thread.join()
    switch.process.send_signal(signal.SIGCONT)
    assert result.counter("switch_fallbacks") == 2 * 2, result.report()


@pytest.mark.parametrize(
    "place", ["127.0.0.1:9", "auto", pytest.param("auto:nosuch0", marks=QUICK)]
)
def test_without_a_switch_all_goes_as_usual(start, place):
    result = start(place, "--rounds=20", "--comms=1")
    assert result.counter("switch_operations") == 0, result.report()
    assert result.counter("switch_refused") >= 1, result.report()


@QUICK
def test_what_is_no_place_is_said(start):
    result = start("nowhere", "--rounds=4")
    assert "'nowhere' is no place of a switch" in result.stderr, result.report()
    assert result.counter("switch_refused") == 0, result.report()


def test_jobs_at_once_share_a_switch(running, start):
    switch = running()
    results: list[jobs.Result] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(start(switch.address, "--rounds=100", "--comms=8"))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    for result in results:
        assert result.counter("switch_fallbacks") == 0, result.report()
        assert result.counter("switch_operations") > 300, result.report()
    expect_nothing_left(switch)


def test_a_full_switch_refuses_the_rest(running, start):
    switch = running(config='compute = "tor"\ngroups = 1')
    result = start(switch.address, "--rounds=40", "--comms=3")
    assert result.counter("switch_groups") == 2, result.report()
    assert result.counter("switch_refused") > 0, result.report()
    expect_nothing_left(switch)


@QUICK
def test_leaders_that_were_refused_ask_again(running, start, tmp_path):
    switch = running(config='compute = "tor"\ngroups = 1\nlease = "500ms"')
    others = switch.leaders(2, "time", "--operations", "100000000", "--pause", "1000", group=9)
    tell = tmp_path / "free"

    def wait(name: str, least: int) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while switch.compute()[name] < least and time.monotonic() < deadline:
            time.sleep(0.005)

    def free() -> None:
        # Two leaders of each of two communicators have asked in vain.
        wait("queries", asked + 4)
        for one in others:
            one.kill()
            one.communicate()
        wait("expired", 1)
        tell.touch()

    wait("combined", 1)
    asked = switch.compute()["queries"]
    thread = threading.Thread(target=free)
    thread.start()
    try:
        result = start(switch.address, f"--until={tell}", "--rounds=150")
    finally:
        thread.join()
    # World's, or the other communicator's: there is room for one.
    assert result.counter("switch_groups") == 2, result.report()
    assert result.counter("switch_refused") == 2 * 2, result.report()
    assert result.counter("switch_operations") > 0, result.report()
    expect_nothing_left(switch)


@QUICK
def test_many_communicators_leave_nothing(running, start):
    switch = running()
    result = start(switch.address, "--rounds=80", "--comms=80")
    # Those of freed communicators answer for a while: each of four leaders has 32 at most, and one
    # for good.
    made = result.counter("switch_groups")
    assert made >= 4 * (32 + 1), result.report()
    assert made + result.counter("switch_refused") == 2 * (80 + 2), result.report()
    expect_nothing_left(switch)


MANY = int(os.environ.get("OVERDRIVE_SWITCH_SUMS", "1000000"))
"""Sums made by the switch for each kind of fault."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["--loss", "--duplication", "--reordering", "--corruption"])
def test_very_many_sums_with_faults(running, start, tmp_path, fault):
    switch = running(fault, "0.5%")
    tell = tmp_path / "enough"

    def count() -> None:
        while not tell.exists():
            if switch.compute()["combined"] >= MANY:
                tell.touch()
            time.sleep(0.5)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        # The program compares each result.
        words = [f"--until={tell}", "--rounds=8", "--most=60", "--comms=4"]
        result = start(switch.address, *words, limit=LIMIT_SECONDS + MANY / 100)
    finally:
        tell.touch()
        thread.join()
    assert switch.compute()["combined"] >= MANY
    print(f"{result.counter('switch_operations')} operations of leaders")
    assert result.counter("switch_fallbacks") == 0, result.report()


SOAK_SECONDS = float(os.environ.get("OVERDRIVE_SWITCH_SOAK_SECONDS", "600"))


@pytest.mark.slow
def test_two_jobs_with_three_communicators_each_for_long(running, start, tmp_path):
    switch = running("--loss", "0.5%", "--duplication", "1%")
    tell = tmp_path / "enough"
    words = [f"--until={tell}", "--rounds=8", "--comms=20", "--third=1"]
    results: list[jobs.Result] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(
                start(switch.address, *words, limit=SOAK_SECONDS + LIMIT_SECONDS)
            )
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    pages = []
    end = time.monotonic() + SOAK_SECONDS
    while time.monotonic() < end and all(thread.is_alive() for thread in threads):
        time.sleep(min(5.0, SOAK_SECONDS / 10))
        statm = Path(f"/proc/{switch.process.pid}/statm").read_text()
        pages.append(int(statm.split()[1]))
    tell.touch()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    operations = [result.counter("switch_operations") for result in results]
    print(f"{operations} operations, {pages[0]} to {pages[-1]} pages")
    for result in results:
        assert result.counter("switch_fallbacks") == 0, result.report()
    assert min(operations) * 2 > max(operations), operations
    # The memory of the switch does not grow with its work.
    assert pages[-1] < 1.2 * pages[len(pages) // 4], pages
    # Where the last word of a leader was lost, the switch forgets a group after a minute.
    deadline = time.monotonic() + 90
    while switch.compute()["groups"] != 0 and time.monotonic() < deadline:
        time.sleep(1)
    expect_nothing_left(switch)


@pytest.fixture(scope="module")
def fabric(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the name of a lab with switches."""
    name = f"odf{os.getpid()}"
    words = ["up", "--name", name, "--nodes", "4"]
    words += ["--fabric", "tor-spine", "--tors", "2", "--spines", "2"]
    made = subprocess.run(
        [*COMMAND, *words, "--quiet"], capture_output=True, text=True, check=False
    )
    if any(text in made.stderr for text in IMPOSSIBLE):
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr
    yield name
    subprocess.run([*COMMAND, "down", "--name", name], check=True)


@pytest.mark.netns
@pytest.mark.parametrize("per_node", [1, 2])
def test_switches_between_nodes_are_found(fabric, folder, host, compiled, tmp_path, per_node):
    program = compiled(HERE / "collectives.c")
    env = {name: value for name, value in host.env.items() if value}
    libraries = sharing.libraries(host, between_nodes=True)
    if libraries:
        env["LD_PRELOAD"] = ":".join(libraries)
    env |= {"OVERDRIVE_LIBRARY": str(jobs.overdrive_library()), "OVERDRIVE_LEARN": "off"}
    env |= {f"OVERDRIVE_{name.upper()}": value for name, value in RULES.items()}
    env["OVERDRIVE_STATS"] = str(tmp_path / "%r.json")
    words = [host.launcher, "--name", fabric]
    words += ["-n", str(4 * per_node), "--ppn", str(per_node), program, "--rounds=50"]
    done = subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS collectives" in done.stdout, done.stdout + done.stderr
    counters = [json.loads(path.read_text())["counters"] for path in tmp_path.glob("*.json")]
    assert len(counters) == 4 * per_node
    assert sum(one.get("switch_operations", 0) for one in counters) > 4 * 150, counters
    assert sum(one.get("switch_fallbacks", 0) for one in counters) == 0, counters
    # Of two communicators each spine has served one at least.
    control = lab_fabric.socket_path(lab_state.select(fabric).folder)
    command = [folder / "overdrive-switch", "--status", "json", "--control", control]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    spines = [one for one in json.loads(shown.stdout)["switches"] if "spine" in one["name"]]
    assert len(spines) == 2
    assert all(one["compute"]["combined"] > 0 for one in spines), shown.stdout

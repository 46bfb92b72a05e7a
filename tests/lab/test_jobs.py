"""MPI jobs over the nodes of a virtual cluster: who is where, who shares memory, how jobs end."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from overdrive.errors import CommandError
from overdrive.lab import agent, jobs
from support import processes, sharing
from support.expect import LOCAL_SENDS

from .conftest import interrupt

pytestmark = [pytest.mark.netns, pytest.mark.quick]

HERE = Path(__file__).parent

LINE = re.compile(r"rank (\d+) of (\d+) on (\S+), (\d+) local")

MESSAGES_PER_PAIR = 2


@pytest.fixture
def job(cluster, host, compiled, overdrive, tmp_path):
    """Return a function that starts a job of the host in the shared lab."""
    return Job(cluster, host, compiled(HERE / "hello.c"), overdrive, tmp_path)


class Job:
    """A way to start the test program over the lab's nodes."""

    def __init__(self, cluster, host, program, overdrive, folder):
        self.cluster = cluster
        self.host = host
        self.program = program
        self.overdrive = overdrive
        self.folder = folder

    def environment(self) -> dict[str, str]:
        """Return what the host's launcher needs; MPICH gets what keeps it going on few cores."""
        own = {name: value for name, value in self.host.env.items() if value}
        libraries = sharing.libraries(self.host, between_nodes=True)
        if libraries:
            own["LD_PRELOAD"] = ":".join(libraries)
        if self.overdrive:
            own["OVERDRIVE_STATS"] = str(self.folder / "%r.json")
        return own

    def words(self, *placement: str, seconds: int = 0) -> list[str]:
        """Return the arguments after `overdrive lab`."""
        plain = [] if self.overdrive else ["--without-overdrive"]
        return [self.host.launcher, *plain, *placement, self.program, f"--seconds={seconds}"]

    def places(self, *placement: str) -> list[tuple[str, int]]:
        """Run the job; return host name and number of local ranks of each rank."""
        done = self.cluster(*self.words(*placement), env=self.environment())
        assert done.code == 0, done.text()
        assert "PASS hello" in done.out, done.text()
        found = {int(m[1]): (m[3], int(m[4])) for m in LINE.finditer(done.out)}
        assert sorted(found) == list(range(len(found))), done.text()
        return [found[rank] for rank in sorted(found)]

    def statistics(self) -> dict[int, dict]:
        """Return the counters of each rank."""
        return {
            int(path.stem): json.loads(path.read_text())["counters"]
            for path in self.folder.glob("*.json")
        }


def expect_counters(job: Job, nodes: list[str]) -> None:
    """Demand that ranks of a node, and only they, are local to each other and use our path."""
    sizes = Counter(nodes)
    counters = job.statistics()
    assert sorted(counters) == list(range(len(nodes)))
    for rank, node in enumerate(nodes):
        local = sum(counters[rank].get(name, 0) for name in LOCAL_SENDS)
        if sizes[node] == 1:
            # It shares memory with nobody, so everything passes to the host, uncounted.
            assert local == 0, counters[rank]
            continue
        assert counters[rank]["local_ranks_peak"] == sizes[node], counters[rank]
        assert local >= MESSAGES_PER_PAIR * (sizes[node] - 1), counters[rank]
        remote = counters[rank].get("sends_host", 0)
        assert remote >= MESSAGES_PER_PAIR * (len(nodes) - sizes[node]), counters[rank]


@pytest.mark.parametrize(
    ("placement", "numbers"),
    [
        (["-n", "8", "--ppn", "2"], "00112233"),
        (["-n", "8", "--ppn", "2", "--order", "round-robin"], "01230123"),
        (["--layout", "2+2+1", "--order", "round-robin"], "01201"),
        (["--layout", "3+1+2"], "000122"),
        (["--layout", "3+1+2", "--order", "round-robin"], "012020"),
    ],
    ids=["block", "round-robin", "short-last-turn", "uneven", "uneven-round-robin"],
)
def test_ranks_are_where_they_should_be(job, placement, numbers):
    if job.host.name == "mpich4" and numbers == "012020":
        done = job.cluster(*job.words(*placement), env=job.environment())
        assert done.code == 2
        assert "only to nodes with equal numbers" in done.err
        return
    nodes = [f"lab-{number}" for number in numbers]
    sizes = Counter(nodes)
    assert job.places(*placement) == [(node, sizes[node]) for node in nodes]
    if job.overdrive:
        expect_counters(job, nodes)


def test_without_overdrive_nothing_is_taken_over(job):
    job.overdrive = False
    places = job.places("-n", "2")
    assert [node for node, _ in places] == ["lab-0", "lab-1"]
    assert job.statistics() == {}


COST = re.compile(r"overdrive\[0\]: between nodes a message takes (\S+) us, .*\((\S+) Gbit/s\)")


def test_the_network_is_measured_when_the_job_begins(job):
    """What a message costs is found once, and no more goes through a link than it takes."""
    words = job.words("-n", "4", "--ppn", "2")
    environment = {**job.environment(), "OVERDRIVE_VERBOSE": "2"}
    job.cluster.good("shape", "100mbit")
    try:
        done = job.cluster(*words, env=environment)
        silent = job.cluster(*words, env={**environment, "OVERDRIVE_LEARN": "off"})
    finally:
        job.cluster.good("shape", "off")
    found = COST.findall(done.text())
    assert len(found) == 1, done.text()
    latency_us, gbit = (float(text) for text in found[0])
    # A link holds back what goes beyond its bucket: a twentieth of what is sent.
    assert latency_us > 1 and 0 < gbit < 0.12, done.text()
    assert silent.code == 0 and not COST.search(silent.text()), silent.text()


def job_processes(job: Job) -> list[str]:
    """Return the processes that are not the lab's own."""
    found = [processes.describe(pid) for pid in processes.members(job.cluster.job)]
    return [text for text in found if " lab up " not in text]


def started(job: Job, *placement: str):
    """Start a long job; return its command when all ranks run."""
    process = job.cluster.start(*job.words(*placement, seconds=1000), env=job.environment())
    assert process.stdout is not None
    waited = 4
    while waited:
        line = process.stdout.readline()
        assert line, process.communicate()
        waited -= LINE.search(line) is not None
    return process


def expect_nothing_left(job: Job) -> None:
    """Demand that no process of the job is left in any node, and that the lab is there."""
    deadline = time.monotonic() + 60
    left = job_processes(job)
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = job_processes(job)
    assert left == []
    assert job.cluster.good("exec", "0", "echo", "here") == "here\n"


@pytest.mark.parametrize("how", ["ctrl-c", "kill", "terminate", "dead rank"])
def test_a_stopped_job_leaves_nothing(job, how):
    process = started(job, "-n", "4", "--ppn", "2")
    if how == "ctrl-c":
        interrupt(process)
    elif how == "kill":
        process.kill()
    elif how == "terminate":
        process.terminate()
    else:
        ranks = [
            pid
            for pid in processes.members(job.cluster.job)
            if processes.describe(pid).split(": ", 1)[1].startswith(job.program)
        ]
        os.kill(ranks[-1], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode != 0
    expect_nothing_left(job)


def test_jobs_share_nodes(job):
    """A job starts and ends while another one runs on the same nodes, and leaves that one alone."""
    process = started(job, "-n", "4", "--ppn", "2")
    before = len(job_processes(job))
    other = job.cluster(*job.words("-n", "4", "--ppn", "2"), env=job.environment())
    assert other.code == 0, other.text()
    assert len(job_processes(job)) == before
    process.terminate()
    process.communicate(timeout=60)
    expect_nothing_left(job)


def test_launchers_by_hand_find_the_nodes(job):
    if job.host.family == "openmpi":
        by_hand = ["-H", "lab-2:1,lab-3:1", "-n", "2"]
    else:
        by_hand = ["-hosts", "lab-2,lab-3", "-ppn", "1", "-n", "2"]
    out = job.cluster.good(
        "exec", "head", job.host.launcher, *by_hand, job.program, env=job.environment()
    )
    assert {m[3] for m in LINE.finditer(out)} == {"lab-2", "lab-3"}


# The rest needs neither a lab nor an MPI.


@pytest.mark.parametrize(
    ("ranks", "per_node", "layout", "block", "dealt"),
    [
        (8, 2, None, "00112233", "01230123"),
        (None, 2, None, "00112233", "01230123"),
        (None, None, None, "0123", "0123"),
        (6, None, None, "001123", "012301"),
        (2, None, None, "01", "01"),
        (5, 3, None, "00011", "01010"),
        (None, None, [3, 1, 2], "000122", "012020"),
        (None, None, [0, 2], "11", "11"),
    ],
)
def test_placement(ranks, per_node, layout, block, dealt):
    for order, expected in ((jobs.BLOCK, block), (jobs.ROUND_ROBIN, dealt)):
        found = jobs.place(4, ranks, per_node, layout, order)
        assert "".join(str(node) for node in found.node_of) == expected


def test_layouts():
    assert jobs.parse_layout("3+1+2") == [3, 1, 2]
    for text in ("", "3+", "0+0", "3,1", "-1"):
        with pytest.raises(CommandError):
            jobs.parse_layout(text)


@pytest.mark.parametrize(
    ("arguments", "machine", "command"),
    [
        (["node", "ls"], "node", "ls"),
        (["-x", "node", '"/bin/proxy"', "--port", "a:1"], "node", '"/bin/proxy" --port a:1'),
        (["-q", "-l", "me", "node", "a", "b"], "node", "a b"),
        (["me@node", "a; b"], "node", "a; b"),
    ],
)
def test_agent_understands_what_ssh_does(arguments, machine, command):
    assert agent.parse(arguments) == (machine, command)


def test_agent_names_what_is_wrong(cluster):
    inside = str(cluster.labs() / "lab" / "node" / "agent")
    unknown = cluster("exec", "head", inside, "elsewhere", "true")
    assert unknown.code == 255
    assert "no node 'elsewhere'" in unknown.err
    assert cluster("exec", "head", inside, "lab-1", "exit 5").code == 5
    assert "launch agent" in cluster("exec", "0", inside, "lab-1", "true").err


def test_ranks_share_processors_politely():
    placement = jobs.place(64, 64, None, None, jobs.BLOCK)
    assert jobs.waiting(placement, {}) == {"OVERDRIVE_WAIT": "yield"}
    assert jobs.waiting(placement, {"OVERDRIVE_WAIT": "spin"}) == {}
    assert jobs.waiting(jobs.place(1, 1, None, None, jobs.BLOCK), {}) == {}


def test_python_of_the_agent_is_the_one_that_made_the_lab(cluster):
    text = cluster.good("exec", "1", "cat", str(cluster.labs() / "lab" / "node" / "agent"))
    assert sys.executable in text

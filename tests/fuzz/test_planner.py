"""Planner, analysis and shrinker, without an MPI."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import jobs

from fuzz import faults
from fuzz.analysis import Analysis, Illegal, settle, text_of
from fuzz.datatypes import SIZES, Type
from fuzz.plan import Planner, make
from fuzz.plan_collectives import forms_of
from fuzz.program import Comm, Op, Program
from fuzz.shrink import shrink
from fuzz.standalone import standalone

pytestmark = pytest.mark.quick


def program(ranks: int, *ops: Op) -> Program:
    """Return a program on MPI_COMM_WORLD, an operation a step."""
    made = Program(1, 1, ranks)
    made.comms[0] = Comm(0, (tuple(range(ranks)),))
    for step, op in enumerate(ops):
        op.step = step + 1
    made.ops = list(ops)
    return made


def send(rank: int, to: int, number: int, unit: int, **more: object) -> Op:
    args = {"m": number, "c": 0, "to": to, "tag": 1, "type": "i", "n": 4, "mode": "std", **more}
    return Op("send", (rank,), args, unit)


def recv(rank: int, source: object, unit: int, **more: object) -> Op:
    args = {"c": 0, "from": source, "tag": 1, "type": "i", "n": 4, **more}
    return Op("recv", (rank,), args, unit)


def done(rank: int, *requests: tuple[int, int]) -> Op:
    return Op("done", (rank,), {"how": "waitall", "q": list(requests)})


def barrier(ranks: int, unit: int) -> Op:
    return Op("coll", tuple(range(ranks)), {"k": unit, "name": "barrier", "c": 0}, unit)


def test_same_seed_same_program() -> None:
    assert text_of(make(5, 4)) == text_of(make(5, 4))
    assert text_of(make(5, 4)) != text_of(make(6, 4))


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_programs_are_legal_and_full(ranks: int) -> None:
    verbs = set()
    for seed in range(40):
        settled, _ = settle(make(seed, ranks, strands=1 + seed % 2))
        verbs |= {op.verb for op in settled.ops}
    assert verbs >= {"send", "recv", "exch", "sinit", "start", "done", "poke", "cancel", "coll"}
    assert verbs >= {"comm", "commfree", "look", "free", "window", "file"}
    assert verbs >= {"psend", "precv", "pready", "parrived", "win", "access", "sync", "winend"}
    assert "process" in verbs


def test_a_wildcard_that_could_take_anothers_message_is_illegal() -> None:
    ops = [
        send(1, 0, 0, 1, q=0),
        send(2, 0, 1, 2, q=0),
        recv(0, "any", 1),
        recv(0, 1, 2),
        done(1, (0, 1)),
        done(2, (0, 2)),
    ]
    with pytest.raises(Illegal, match="without a message"):
        Analysis(program(3, *ops))


def test_a_barrier_keeps_wildcards_apart() -> None:
    ops = [
        send(2, 0, 0, 1, q=0),
        recv(0, "any", 1),
        done(2, (0, 1)),
        barrier(3, 3),
        send(1, 0, 1, 2, q=0),
        recv(0, 1, 2),
        done(1, (0, 2)),
    ]
    analysis = Analysis(program(3, *ops))
    candidates = [[m.number for m in r.receive.candidates] for r in analysis.recvs]
    assert candidates == [[0], [1]]


def test_every_message_that_a_wildcard_may_take_is_a_candidate() -> None:
    ops = [
        recv(0, "any", 1, q=0),
        recv(0, "any", 2, q=1),
        send(1, 0, 0, 1, q=0),
        send(2, 0, 1, 2, q=0, n=9),
        done(0, (0, 1), (1, 2)),
        done(1, (0, 1)),
        done(2, (0, 2)),
    ]
    settled, analysis = settle(program(3, *ops))
    assert [[m.number for m in r.receive.candidates] for r in analysis.recvs] == [[0, 1], [0, 1]]
    # Each must have room for either message.
    assert [op.args["n"] for op in settled.ops if op.verb == "recv"] == [9, 9]


def test_waiting_for_a_later_step_is_illegal() -> None:
    with pytest.raises(Illegal, match="later receive"):
        Analysis(program(2, send(0, 1, 0, 1, mode="sync"), recv(1, 0, 1)))
    with pytest.raises(Illegal, match="later send"):
        Analysis(program(2, recv(1, 0, 1), send(0, 1, 0, 1)))
    Analysis(program(2, send(0, 1, 0, 1, mode="buf"), recv(1, 0, 1)))


def test_a_ready_send_needs_to_know_of_its_receive() -> None:
    posted, sent = recv(1, 0, 1, q=0), send(0, 1, 0, 1, mode="rdy")
    settled, _ = settle(program(2, posted, sent, done(1, (0, 1))))
    assert settled.ops[1].args["mode"] == "std"
    posted, sent = recv(1, 0, 1, q=0), send(0, 1, 0, 1, mode="rdy")
    settled, _ = settle(program(2, posted, barrier(2, 2), sent, done(1, (0, 1))))
    assert settled.ops[2].args["mode"] == "rdy"


def test_leaving_out_a_unit_takes_what_depends_on_it() -> None:
    made = make(11, 4)
    for unit in made.units():
        rest = made.without([unit])
        assert unit not in rest.units()
        for op in rest.ops:
            assert not made.depends.get(op.unit, set()) & {unit}
            if op.verb in ("done", "poke", "start"):
                assert op.args["q"]
                assert all(entry[1] != unit for entry in op.args["q"])


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_shrinking_keeps_what_fails_and_little_else(seed: int) -> None:
    def fails(candidate: Program) -> bool:
        return any(
            op.verb == "send" and op.args["n"] * SIZES[op.args["type"][0]] > 100
            for op in candidate.ops
        )

    made = make(seed, 4, actions=60)
    assert fails(made)
    small = shrink(made, fails)
    assert fails(small)
    assert len(small.ops) <= 5, text_of(small)
    text_of(small)


def test_what_a_host_gets_wrong_is_left_out() -> None:
    comm = Comm(4, (tuple(range(4)),), neighbours=(((1,), (1,)),) * 4)

    def forms(name: str, host: str, **settings: str) -> list[str]:
        left_out = faults.of(host, True, settings, False)
        return forms_of(Planner(1, 4, left_out, 1000), name, comm)

    assert "persistent" in forms("allgatherv", "mpich5")
    assert "persistent" not in forms("neighbor_allgatherv", "mpich5")
    assert "persistent" in forms("neighbor_allgatherv", "mpich5", neighbour_collectives="all")
    assert "persistent" in forms("neighbor_allgatherv", "openmpi5")
    assert "started" not in forms("allgatherv", "impi")
    assert "started" in forms("allgatherv", "mpich5")


def test_types_hold_what_they_say() -> None:
    assert Type("i:v:3:2:5").per == 6
    assert Type("d:c:7").per == 7
    assert Type("s").per == 1
    assert 4 <= Type("i:x:4:9").per <= 12


@pytest.mark.one
def test_a_program_of_its_own_compiles(host: Host, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    for seed in range(3):
        made = make(seed, 3, without=frozenset({"no-persistent-collectives", "partitioned"}))
        source.write_text(standalone(made, "a test"))
        command = [*host.mpicc, "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, env=host.environment())
        assert done.returncode == 0, done.stderr


def test_programs_of_their_own_run(
    host: Host, overdrive: bool, compiled: Callable[[Path], str], tmp_path: Path
) -> None:
    """With everything that a program can have, but what the host gets wrong."""
    for seed in (100, 108, 110, 208, 307, 404, 417):
        made = make(seed, 3, without=faults.of(host.name, True, {}, False))
        source = tmp_path / f"program{seed}.c"
        source.write_text(standalone(made, "a test"))
        result = jobs.run(host, 3, [compiled(source)], overdrive=overdrive)
        assert result.returncode == 0 and "passed" in result.stdout, result.report()

"""How often a waiting or polling rank asks the host to progress and gives its core away.

Told by the counters, so that nothing depends on how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import Host
from support import expect, jobs

HERE = Path(__file__).parent
Build = Callable[[Path], str]

POLLS = 400
"""Looks in vain per case of polling.c, of which there are nine."""


@pytest.mark.quick
@pytest.mark.parametrize("ranks", [2, 4])
def test_targets_drive_the_host(ranks: int, host: Host, compiled: Build, overdrive: bool) -> None:
    """Whatever a rank waits in, one-sided access to it goes on as if the host waited."""
    program = [compiled(HERE / "passive_target.c")]
    result = jobs.run(host, ranks, program, overdrive=overdrive)
    expect.passed(result)
    if overdrive:
        idle, asked = result.counter("idle_rounds"), result.counter("host_polls")
        assert asked >= idle * 0.9, f"the host was asked {asked} times in {idle} idle rounds"


@pytest.mark.quick
@pytest.mark.parametrize("interval", ["2", "10"])
def test_forced_interval(interval: str, host: Host, compiled: Build, needs_overdrive: None) -> None:
    """Messages of other nodes are looked for in any case, whatever the interval is."""
    result = jobs.run(
        host,
        3,
        [compiled(HERE / "wildcards.c"), "--messages=20"],
        settings={"host_poll_interval": interval, "test_remote": "0-2,1-2"},
        limit=60,
    )
    expect.passed(result)
    expect.took_our_path(result, 20)


@pytest.mark.quick
def test_host_is_left_alone(host: Host, compiled: Build) -> None:
    """Without anything in the host it is asked rarely."""
    result = jobs.run(host, 2, [compiled(HERE / "polling.c"), f"--polls={POLLS}"], overdrive=True)
    expect.passed(result)
    idle, asked = result.counter("idle_rounds"), result.counter("host_polls")
    # Two more looks per ask stand for MPI_Finalize and long waits.
    assert asked <= idle / 16 + 100, f"the host was asked {asked} times in {idle} idle rounds"


@pytest.mark.quick
@pytest.mark.parametrize(("wait", "least", "most"), [("yield", 0.9, 1.0), ("spin", 0.0, 0.0)])
def test_polls_give_the_core_away(
    wait: str, least: float, most: float, host: Host, compiled: Build
) -> None:
    """Calls that find nothing several times in a row let others run, where ranks yield."""
    program = [compiled(HERE / "polling.c"), f"--polls={POLLS}"]
    result = jobs.run(host, 2, program, overdrive=True, settings={"wait": wait})
    expect.passed(result)
    share = result.counter("poll_yields") / (9 * POLLS)
    assert least <= share <= most, f"{share:.3f} of the polls in vain gave the core away"

"""What tests demand of a finished job."""

from __future__ import annotations

from support.jobs import Result


def passed(result: Result) -> None:
    """Demand that the job's program found nothing wrong and left nothing running."""
    assert not result.timed_out, f"time limit {result.late}\n{result.report()}"
    assert result.returncode == 0, result.report()
    assert "PASS " in result.stdout, f"no PASS line\n{result.report()}"
    assert "FAIL " not in result.stderr, result.report()
    assert not result.leftovers, result.report()


LOCAL_SENDS = (
    "sends_inline",
    "sends_cell",
    "sends_frame",
    "sends_stream",
    "sends_direct",
    "sends_cooperative",
)
"""Counters of messages that one process gave to another through Overdrive (those that a sender
copied
aside are among them)."""


def local_messages(result: Result) -> int:
    """Return how many messages all ranks together sent to others through Overdrive."""
    assert result.stats, f"no rank wrote statistics: Overdrive was not active\n{result.report()}"
    return sum(result.counter(name) for name in LOCAL_SENDS)


def took_our_path(result: Result, at_least: int = 1) -> None:
    """Demand that local messages really went through Overdrive."""
    sent = local_messages(result)
    assert sent >= at_least, (
        f"only {sent} messages went through Overdrive\n{result.counters()}\n{result.report()}"
    )


def fell_back(result: Result) -> None:
    """Demand that no message between different ranks went through Overdrive."""
    if result.stats:
        sent = local_messages(result)
        assert sent == 0, f"{sent} messages went through Overdrive\n{result.report()}"

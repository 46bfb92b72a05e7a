"""Which message each receive of one communicator and receiver may get, whatever the timing.

Between one sender and one receiver MPI fixes the order, so only wildcard receives have a choice.
Going through the receives in the order of posting, each may take from each source it accepts the
first message that is left and that it accepts; every sequence of choices is a possible run. A
program is legal only if every one of them gives all receives a message. A message that is sent only
after its sender knows that a receive is complete cannot be that receive's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Message:
    """A message on its way."""

    number: int
    source: int
    tag: int
    n: int
    unit: int
    step: int
    """Where it is started."""


@dataclass
class Receive:
    """A receive; source and tag None: any."""

    source: int | None
    tag: int | None
    unit: int
    step: int
    """Where it is posted."""
    done: int
    """Where it is complete at the latest."""
    candidates: list[Message] = field(default_factory=list)

    def accepts(self, message: Message) -> bool:
        """Tell whether its pattern fits."""
        return self.source in (None, message.source) and self.tag in (None, message.tag)


class Ambiguous(Exception):
    """Some order of events leaves a receive without a message; names the units concerned."""

    def __init__(self, units: set[int], text: str) -> None:
        super().__init__(text)
        self.units = units


MOST_STATES = 4000
"""Beyond this a channel counts as too complicated."""


def match(
    receives: list[Receive],
    messages: list[Message],
    too_late: Callable[[Message, Receive], bool],
) -> None:
    """Fill in the candidates of all receives (in the order of posting), or raise Ambiguous."""
    found: list[set[int]] = [set() for _ in receives]
    level: set[frozenset[int]] = {frozenset()}
    by_source: dict[int, list[int]] = {}
    for i, message in enumerate(messages):
        by_source.setdefault(message.source, []).append(i)
    for position, receive in enumerate(receives):
        following: set[frozenset[int]] = set()
        for taken in level:
            choices = _choices(receive, messages, by_source, taken, too_late)
            if not choices:
                wild = {r.unit for r in receives[:position] if r.source is None}
                raise Ambiguous(wild | {receive.unit}, "a receive may stay without a message")
            found[position].update(choices)
            following.update(taken | {choice} for choice in choices)
        if len(following) > MOST_STATES:
            raise Ambiguous({receive.unit}, "too many orders of events")
        level = following
    for taken in level:
        left = [m.unit for i, m in enumerate(messages) if i not in taken]
        if left:
            raise Ambiguous(set(left), "a message may stay without a receive")
    for receive, choices_found in zip(receives, found):
        receive.candidates = [messages[i] for i in sorted(choices_found)]


def _choices(
    receive: Receive,
    messages: list[Message],
    by_source: dict[int, list[int]],
    taken: frozenset[int],
    too_late: Callable[[Message, Receive], bool],
) -> list[int]:
    """Return the messages that a receive may take next: at most one of each source."""
    result = []
    sources = by_source if receive.source is None else {receive.source: None}
    for source in sources:
        for i in by_source.get(source, []):
            if i in taken or not receive.accepts(messages[i]):
                continue
            if not too_late(messages[i], receive):
                result.append(i)
            break
    return result

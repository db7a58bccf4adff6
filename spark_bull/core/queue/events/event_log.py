"""The kept events of a queue of BullMQ: a stream, read by ranges of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spark_bull.core.queue.handle.handle import QueueHandle

#: Events that one script counts.
STEP: Final = 2_000

#: Id, and names and values of fields, in turn.
Entry = tuple[bytes, Sequence[bytes]]


class Position(NamedTuple):
    """A position in the events of a queue: the id of the last event taken, and how many were added up to it.

    taken: None if it is not known: Redis counts events since its version 7.
    """

    id: str
    taken: int | None

    def plus(self, entry_id: str, events: int) -> Position:
        """The position some events later."""
        return Position(entry_id, None if self.taken is None else self.taken + events)

    def is_before(self, other: Position) -> bool:
        return _parts(self.id) < _parts(other.id)


def position_of(entry_id: str, taken: int | None) -> Position:
    """A position that was stored. Raises ValueError or TypeError if that is none."""
    _parts(entry_id)
    return Position(entry_id, None if taken is None else int(taken))


#: Before the first event of a queue.
BEGIN: Final = Position("0-0", 0)


class EventSpan(NamedTuple):
    """The kept events: those after `before`, up to `last`. length: their number."""

    before: Position
    last: Position
    length: int

    def without_lost(self, after: Position) -> Position:
        """A position that has lost no events: this one, or the begin of those that are kept."""
        return self.before if after.is_before(self.before) else after


class EventPage(NamedTuple):
    """Some events. lost: whether events before them were removed: 0 no, 1 yes, 2 perhaps."""

    lost: int
    entries: Sequence[Entry]


def span_of(handle: QueueHandle) -> EventSpan:
    before, last, length, added = handle.connection.script("read/event_span", {"events": handle.keys["events"]})
    is_counted = added >= 0
    return EventSpan(
        Position(before.decode(), added - length if is_counted else None),
        Position(last.decode(), added if is_counted else None),
        length,
    )


def read_page(handle: QueueHandle, after: Position, stop: str, limit: int, expected: str) -> EventPage:
    """Up to `limit` events after a position, up to an id. expected: id of the first of them; '' if it is not known."""
    taken = "" if after.taken is None else after.taken
    args = {"after": after.id, "stop": stop, "limit": limit, "taken": taken, "expected": expected}
    return EventPage(*handle.connection.script("read/event_page", {"events": handle.keys["events"]}, args))


def steps(handle: QueueHandle, after: Position, stop: Position, size: int) -> Iterator[Position]:
    """The positions that divide a range into parts of `size` events; the last one is `stop`."""
    count = 0
    while after.is_before(stop):
        limit = min(STEP, size - count)
        args = {"after": after.id, "stop": stop.id, "limit": limit}
        found, last = handle.connection.script("read/event_step", {"events": handle.keys["events"]}, args)
        if found < limit:
            break
        after, count = after.plus(last.decode(), found), count + found
        if count == size and after.is_before(stop):
            yield after
            count = 0
    yield stop


def _parts(entry_id: str) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence or 0)

"""The kept events of a queue of BullMQ, a stream: reads them by ranges of ids, adds events of programs, removes old
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.base import json_text
from spark_bull.core.dialects.events import OWN_EVENTS
from spark_bull.core.dialects.fields import integer_of, text_of
from spark_bull.core.errors import OptionError, check_count, encodable, expected
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.round_trips import LargeRead, RoundTrips

#: Events that one script counts.
STEP: Final = 2_000
#: Events that one call measures: they may be large.
PAGE: Final = 100

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
        return _ms_and_number(self.id) < _ms_and_number(other.id)


def position_of(entry_id: str, taken: int | None) -> Position:
    """A position that was stored. Raises ValueError or TypeError if that is none."""
    _ms_and_number(entry_id)
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
        found, after = _step(handle, after, stop, limit)
        if found < limit:
            break
        count += found
        if count == size and after.is_before(stop):
            yield after
            count = 0
    yield stop


def _step(handle: QueueHandle, after: Position, stop: Position, limit: int) -> tuple[int, Position]:
    """The number of events after a position, and the position after them, up to `limit` events, or `stop`."""
    args = {"after": after.id, "stop": stop.id, "limit": limit}
    found, last = handle.connection.script("read/event_step", {"events": handle.keys["events"]}, args)
    return found, after.plus(last.decode(), found) if found else after


def count_of(handle: QueueHandle, after: Position, stop: Position, enough: int) -> int:
    """The number of events in a range; counted up to `enough` where Redis does not count them."""
    if after.taken is not None and stop.taken is not None:
        return stop.taken - after.taken
    count = 0
    while count < enough and after.is_before(stop):
        found, after = _step(handle, after, stop, min(STEP, enough - count))
        if not found:
            break
        count += found
    return count


def end_of(handle: QueueHandle, after: Position, stop: Position, size: int) -> Position:
    """The last position of a range up to which the values of events have `size` bytes; after one event at least."""
    first = after
    while after.is_before(stop):
        entries = read_page(handle, after, stop.id, PAGE, "").entries
        for entry_id, fields in entries:
            size -= len(entry_id) + sum(map(len, fields[1::2]))
            if size < 0 and after is not first:
                return after
            after = after.plus(entry_id.decode(), 1)
        if len(entries) < PAGE:
            break
    return stop


def _ms_and_number(entry_id: str) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence or 0)


#: Events that each call reads: the first one is sufficient for most queues, and shares its round trip.
_CALLS: Final = (20, *[1_000] * 10)
#: Approximate number of events that BullMQ keeps, unless the queue has another limit.
_KEPT: Final = 10_000


class RecentEvents(NamedTuple):
    """The jobs of the newest events: those added by name, and the number of those that have completed or failed.

    last_on: time of the last event, ms since 1970, however old. over_ms: the period of the events that were read, ms.
    """

    last_on: int | None
    over_ms: int
    added: Counter[str]
    finished: int


def recent_events(handle: QueueHandle, now: int, period_ms: int) -> RoundTrips[RecentEvents]:
    """Reads the events of `period_ms` up to `now`, or of less time if there are too many, or older ones are gone."""
    key, since = handle.keys["events"], now - period_ms
    newest, oldest, kept, limit = yield [
        ("XREVRANGE", key, "+", "-", "COUNT", 1),
        ("XRANGE", key, "-", "+", "COUNT", 1),
        ("XLEN", key),
        ("HGET", handle.keys["meta"], "opts.maxLenEvents"),
    ]
    added, finished, oldest_ms, end = Counter[str](), 0, now, str(now)
    is_cut = bool(oldest) and _time_of(oldest[0]) >= since and kept >= (integer_of(limit) or _KEPT)
    for most in _CALLS:
        call = ("XREVRANGE", key, end, since, "COUNT", most)
        (entries,) = yield [call] if most == _CALLS[0] else LargeRead([call])
        for _, fields in entries:
            kind = fields.get(b"event")
            if kind == b"added":
                added[text_of(fields.get(b"name")) or ""] += 1
            finished += kind in (b"completed", b"failed")
        if entries:
            oldest_ms, end = _time_of(entries[-1]), f"({entries[-1][0].decode()}"
        if len(entries) < most:
            break
    else:
        is_cut = True
    last_on = _time_of(newest[0]) if newest else None
    return RecentEvents(last_on, max(1, now - oldest_ms) if is_cut else period_ms, added, finished)


def _time_of(entry: Any) -> int:
    return int(entry[0].partition(b"-")[0])


#: Maximum number of fields of an event.
MAX_FIELDS: Final = 1_000
#: Events that one call removes.
_TRIMMED: Final = 10_000


def publish(handle: QueueHandle, event: str, fields: Mapping[str, Any], max_events: int | None) -> str:
    """Adds an event to the stream of a queue; returns its id. Raises OptionError or DialectError."""
    handle.dialect.require("custom-events")
    if not isinstance(event, str) or not event:
        raise expected("event", "a name that is not empty", event)
    encodable("event", event)
    if event in OWN_EVENTS:
        raise OptionError(
            f"expected `event` to be a name of your own, got: {event!r}, which says what happened to a job; put a word "
            "in front"
        )
    if "event" in fields:
        raise OptionError("expected `fields` without `event`, which has the name of the event")
    if len(fields) > MAX_FIELDS:
        raise expected("fields", f"at most {MAX_FIELDS} fields", len(fields))
    if max_events is not None:
        check_count("max_events", max_events, 1)
    texts = ["event", event]
    for name, value in fields.items():
        texts += [name, value if isinstance(value, str) else json_text(f"fields.{name}", value)]
    entry_id: bytes = handle.run_once("publish", {"fields": texts, "max_events": max_events or ""})
    return entry_id.decode()


def trim_events(handle: QueueHandle, max_events: int) -> int:
    """Removes the oldest events but about the last `max_events`; returns how many. Raises OptionError or DialectError.

    Redis removes whole parts of its stream, of about 100 events each.
    """
    handle.dialect.require("event-stream")
    check_count("max_events", max_events)
    removed = 0
    while part := handle.connection.call("XTRIM", handle.keys["events"], "MAXLEN", "~", max_events, "LIMIT", _TRIMMED):
        removed += int(part)
    return removed

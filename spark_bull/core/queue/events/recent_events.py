"""How many jobs were added and have ended recently, by the event stream of BullMQ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.core.dialects.fields import integer_of, text_of
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.steps import LargeStep, Steps

#: Events that each call reads: the first one is sufficient for most queues, and shares its round trip.
_CALLS: Final = (20, *[1_000] * 10)
#: Approximate number of events that BullMQ keeps, unless the queue has another limit.
_KEPT: Final = 10_000


@dataclass(frozen=True)
class RecentEvents:
    """The jobs of the newest events: those added by name, and the number of those that have completed or failed.

    last_on: time of the last event, ms since 1970, however old. over_ms: the period of the events that were read, ms.
    """

    last_on: int | None
    over_ms: int
    added: Counter[str]
    finished: int


def recent_events(handle: QueueHandle, now: int, period_ms: int) -> Steps[RecentEvents]:
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
        (entries,) = yield [call] if most == _CALLS[0] else LargeStep([call])
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

"""How many jobs were added and have ended of late, by the event stream of BullMQ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.dialects.fields import integer_of, text_of
from spark_bull.queue.handle import QueueHandle
from spark_bull.store.steps import Steps

#: Events that one call reads, and maximum number of calls.
_EVENTS: Final = 1_000
_CALLS: Final = 10
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
    """Reads the events of the last `period_ms`; if there are too many, or older ones are gone, those of less time."""
    key = handle.keys["events"]
    newest, kept, limit = yield [
        ("XREVRANGE", key, "+", "-", "COUNT", 1),
        ("XLEN", key),
        ("HGET", handle.keys["meta"], "opts.maxLenEvents"),
    ]
    added, finished, read, oldest_ms, end, is_cut = Counter[str](), 0, 0, now, "+", True
    for _ in range(_CALLS):
        (entries,) = yield [("XREVRANGE", key, end, now - period_ms, "COUNT", _EVENTS)]
        for _, fields in entries:
            kind = fields.get(b"event")
            if kind == b"added":
                added[text_of(fields.get(b"name")) or ""] += 1
            finished += kind in (b"completed", b"failed")
        read += len(entries)
        if entries:
            oldest_ms, end = _time_of(entries[-1]), f"({entries[-1][0].decode()}"
        if len(entries) < _EVENTS:
            is_cut = kept <= read and kept >= (integer_of(limit) or _KEPT)
            break
    last_on = _time_of(newest[0]) if newest else None
    return RecentEvents(last_on, max(1, now - oldest_ms) if is_cut else period_ms, added, finished)


def _time_of(entry: Any) -> int:
    return int(entry[0].partition(b"-")[0])

"""How many jobs enter and leave a queue between two looks at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.model.jobs import ENDED
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import count_commands


@dataclass(frozen=True)
class Look:
    """The jobs of a queue by state. at_ms: time of Redis, ms since 1970; ids: counter of all jobs that were added."""

    queue: str
    at_ms: int
    ids: int
    counts: Mapping[str, int]

    @property
    def unfinished(self) -> int:
        return sum(count for state, count in self.counts.items() if state not in ENDED)


def look_at(handle: QueueHandle) -> Look:
    """Reads the counts of a queue in one round trip."""
    time, ids, *counts = handle.connection.pipeline(
        [("TIME",), ("GET", handle.keys["id"]), *count_commands(handle).values()]
    )
    by_state = dict(zip(handle.dialect.states, map(int, counts), strict=True))
    return Look(handle.keys.queue, int(time[0]) * 1000 + int(time[1]) // 1000, integer_of(ids) or 0, by_state)


@dataclass(frozen=True)
class Throughput:
    """The change of a queue. Rates are jobs per second, None at the first look. changes: of the counts by state.

    added_per_s counts jobs that were added. left_per_s counts those that have completed, failed or were removed; a
    finished job that is retried counts against it. A job that was not added because its id existed counts in both: the
    counter of ids counts it, too.
    """

    added_per_s: float | None
    left_per_s: float | None
    changes: Mapping[str, int]


def throughput_of(before: Look | None, now: Look) -> Throughput:
    """What has changed since an earlier look at the same queue."""
    if before is None:
        return Throughput(None, None, {})
    seconds = max(1, now.at_ms - before.at_ms) / 1000
    # The counter is deleted with the queue.
    added = max(0, now.ids - before.ids)
    left = max(0, added - (now.unfinished - before.unfinished))
    changes = {state: count - before.counts.get(state, 0) for state, count in now.counts.items()}
    return Throughput(added / seconds, left / seconds, changes)

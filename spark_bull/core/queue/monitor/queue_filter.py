"""Filters of queues: by length, by rates, and by how long nothing has happened."""

from __future__ import annotations

from dataclasses import dataclass

from spark_bull.core.errors import OptionError
from spark_bull.core.model.jobs import NOT_STARTED
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.queue.monitor.activity import observing
from spark_bull.core.store.connection import ms_of
from spark_bull.core.store.steps import Steps


@dataclass(frozen=True)
class QueueFilter:
    """Which queues are shown; None: no bound.

    Parameters:
      min_length, max_length: number of jobs that are not active and have not ended.
      min_added_per_s, min_finished_per_s: jobs per second, in the last minute. A queue whose rate is not known is left
        out.
      min_idle_ms: for how long there was no event, and no job has ended. A queue of which it is not known is left out.
    """

    min_length: int | None = None
    max_length: int | None = None
    min_added_per_s: float | None = None
    min_finished_per_s: float | None = None
    min_idle_ms: int | None = None

    def __post_init__(self) -> None:
        if self.min_length is not None and self.max_length is not None and self.min_length > self.max_length:
            raise OptionError(
                f"expected `minLength` to be at most `maxLength`, got: {self.min_length} and {self.max_length}"
            )

    @property
    def has_length(self) -> bool:
        return self.min_length is not None or self.max_length is not None

    @property
    def has_activity(self) -> bool:
        return (self.min_added_per_s, self.min_finished_per_s, self.min_idle_ms) != (None, None, None)


def selecting(handle: QueueHandle, wanted: QueueFilter) -> Steps[bool]:
    """Whether a queue fits. Its length is read first, and its activity only if that fits; without bounds, nothing."""
    if wanted.has_length:
        found = yield from counting(handle)
        length = sum(jobs for state, jobs in found.items() if state in NOT_STARTED)
        if not _is_within(length, wanted.min_length, wanted.max_length):
            return False
    if not wanted.has_activity:
        return True
    busy = yield from observing(handle)
    (time,) = yield [("TIME",)]
    idle_ms = None if busy.last_active_on is None else ms_of(time) - busy.last_active_on
    return (
        _is_within(_per_s(busy.added_per_minute), wanted.min_added_per_s)
        and _is_within(_per_s(busy.finished_per_minute), wanted.min_finished_per_s)
        and _is_within(idle_ms, wanted.min_idle_ms)
    )


def _per_s(per_minute: float | None) -> float | None:
    return None if per_minute is None else per_minute / 60


def _is_within(value: float | None, least: float | None, most: float | None = None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)

"""Finishes the interrupted writes and calls of queues for a service, in its rounds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.call.caller import sweep
from spark_bull.core.queue.dispatch.roll_forward import advance_all
from spark_bull.core.queue.handle.admission import RoomPauses
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.services.damaged_queues import DamagedQueues

log = logging.getLogger("spark_bull")

#: Interval of the check for interrupted writes and calls, s.
RECOVER_S: Final = 30.0


@dataclass
class _Waiting:
    """Writes of a queue that wait for room. done: their rows that are processed. look_at: when to look again."""

    done: int = -1
    look_at: float = 0.0
    pauses: RoomPauses = field(default_factory=RoomPauses)


class Recovery:
    """Looks for interrupted writes and calls at an interval, and again and again at writes that wait for room in their
    queue. The jobs that a call has left are removed.
    """

    def __init__(self, damaged: DamagedQueues) -> None:
        self._damaged = damaged
        self._all_at = 0.0
        self._waiting: dict[QueueHandle, _Waiting] = {}

    @property
    def next_at(self) -> float:
        """When to call `run` again; monotonic, s."""
        return min([self._all_at, *(waiting.look_at for waiting in self._waiting.values())])

    def run(self, handles: Sequence[QueueHandle]) -> Iterator[tuple[QueueHandle, WriteRecord]]:
        """Rolls the writes forward for which it is time, and yields the records of those that are finished."""
        now = monotonic_s()
        is_check = now >= self._all_at
        due = [*handles] if is_check else [one for one, waiting in self._waiting.items() if now >= waiting.look_at]
        for handle in due:
            for record in self._damaged.attempt(handle.keys, "recover writes", partial(self._advance, handle)) or ():
                yield handle, record
        if is_check:
            for handle in handles:
                if removed := self._damaged.attempt(handle.keys, "remove ended calls", partial(sweep, handle)):
                    log.warning("queue %s: removed %d jobs that an ended call() has left", handle.keys.queue, removed)
            self._all_at = now + RECOVER_S

    def _advance(self, handle: QueueHandle) -> list[WriteRecord]:
        # A service works for other writes and queues, too.
        records = advance_all(handle, on_loss=lambda error: log.error("%s", error))
        unfinished = [record.done for record in records if record.state == "open"]
        if not unfinished:
            self._waiting.pop(handle, None)
            return records
        waiting, done = self._waiting.setdefault(handle, _Waiting()), sum(unfinished)
        if done != waiting.done:
            waiting.pauses.reset()
        waiting.done, waiting.look_at = done, monotonic_s() + waiting.pauses.next_s()
        return [record for record in records if record.state != "open"]

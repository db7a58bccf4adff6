"""For the rounds of a service: finishes interrupted writes and calls, and finds writes that Redis has lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import DataLost, QueueDamaged
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.call.caller import sweep
from spark_bull.core.queue.dispatch.roll_forward import KnownWrites, advance_all, report_losses
from spark_bull.core.queue.handle.admission import RoomPauses
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.claims.waits import DamagedQueues
from spark_bull.run.services.service import Service

#: Minimum interval, s, and maximum number of queues per second.
LOOK_S: Final = 5.0
_QUEUES_PER_S: Final = 200


class LossCheck:
    """strict: whether a loss is raised as DataLost; otherwise it is logged."""

    def __init__(self, *, strict: bool = False, damaged: DamagedQueues | None = None) -> None:
        self._strict = strict
        self._damaged = damaged or DamagedQueues()
        self._known = KnownWrites()
        self._next_at = 0.0

    def run(self, handles: Sequence[QueueHandle]) -> None:
        """Looks at these queues, of one Redis, if it is time. Raises ConnectionLost."""
        if self.due:
            report_losses(self._lost(handles), strict=self._strict)
            self._next_at = monotonic_s() + max(LOOK_S, len(handles) / _QUEUES_PER_S)

    def _lost(self, handles: Sequence[QueueHandle]) -> Sequence[DataLost]:
        """The losses of all queues in shared round trips; of each by itself if one is damaged."""
        try:
            return self._known.lost(handles)
        except QueueDamaged:
            look = [(one.keys, partial(self._known.lost, [one])) for one in handles]
            return [lost for keys, run in look for lost in self._damaged.attempt(keys, "look for losses", run) or ()]

    @property
    def due(self) -> bool:
        """Whether it is time to look again."""
        return monotonic_s() >= self._next_at


class LossWatch(Service):
    """Logs what Redis has lost of queues, for a worker without a promoter."""

    def __init__(self, handles: Sequence[QueueHandle]) -> None:
        super().__init__("loss watch")
        self._handles = handles
        self._check = LossCheck()

    def round(self) -> None:
        """Looks, then waits until it is time again."""
        self._check.run(self._handles)
        self._over.wait(LOOK_S)


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

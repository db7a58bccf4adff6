"""Looks at an interval whether Redis has lost writes, for services, workers and collecting queries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import DataLost, QueueDamaged
from spark_bull.core.queue.dispatch.lost_writes import KnownWrites, report_losses
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.services.damaged_queues import DamagedQueues
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

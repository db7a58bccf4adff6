"""Reads the events of queues into the ledgers of a collecting query as soon as they arrive.

BullMQ trims its event stream to about 10,000 entries, and a job that is removed on completion leaves nothing else. At
thousands of jobs per second the stream is trimmed within seconds, which may be less than the query's trigger interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from spark_bull.core.errors import QueueDamaged
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.run.services.damaged_queues import DamagedQueues
from spark_bull.run.services.queue_collector import QueueCollector
from spark_bull.run.services.service import Service
from spark_bull.run.services.signals import StreamSignal

#: Minimum interval between two reads.
PAUSE_S: Final = 0.05
#: Pause after a queue whose events cannot be read.
BLOCKED_PAUSE_S: Final = 1.0


class EventReader(Service):
    """Reads the events of the queues that `queues()` returns, by name. Dialects without an event stream are skipped."""

    def __init__(self, settings: RedisSettings, queues: Callable[[], Mapping[str, QueueCollector]]) -> None:
        super().__init__("event reader")
        self._signal = StreamSignal(settings)
        self._queues = queues
        self._cursors: dict[str, str] = {}
        self._damaged = DamagedQueues()

    def round(self) -> None:
        queues = {
            collector.ledger.handle.keys["events"]: collector
            for collector in self._queues().values()
            if collector.ledger.handle.dialect.has("event-stream")
        }
        for stream in queues.keys() - self._cursors.keys():
            self._read(stream, queues[stream])
        last = {stream: self._cursors[stream] for stream in queues if stream in self._cursors}
        if not last:
            self._over.wait(BLOCKED_PAUSE_S)
            return
        try:
            changed = self._signal.wait(last)
        except QueueDamaged:
            # The next round reads each queue by itself, and passes over the damaged one.
            self._cursors.clear()
            return
        if self._over.is_set():
            return
        for stream in changed:
            self._read(stream, queues[stream])
        self._over.wait(PAUSE_S)

    def wake(self) -> None:
        """Lets the wait of the current round end when Redis does."""
        self._signal.stop_retrying()

    def _read(self, stream: str, queue: QueueCollector) -> None:
        cursor = self._damaged.attempt(queue.ledger.handle.keys, "read its events", queue.read_events)
        if cursor is None:
            self._cursors.pop(stream, None)
            self._over.wait(BLOCKED_PAUSE_S)
        else:
            self._cursors[stream] = cursor

"""Reads the events of queues into the ledgers of a reader of results, whenever there are any.

BullMQ keeps about 10,000 events, and nothing else is left of a job that was removed on completion. At some thousand
jobs a second events are gone within seconds, whatever the trigger of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from spark_bull.services.queue_collector import QueueCollector
from spark_bull.services.service import Service
from spark_bull.services.stream_signal import StreamSignal
from spark_bull.store.settings import RedisSettings

#: A busy reader reads no more often.
PAUSE_S: Final = 0.05
#: How long a queue whose events can't be read rests.
REST_S: Final = 1.0


class EventReader(Service):
    """For the queues that `queues()` returns, by their names; those whose dialect has no event stream are left out."""

    def __init__(self, settings: RedisSettings, queues: Callable[[], Mapping[str, QueueCollector]]) -> None:
        super().__init__("reader of events")
        self._signal = StreamSignal(settings)
        self._queues = queues
        self._cursors: dict[str, str] = {}

    def round(self) -> None:
        queues = {
            known.ledger.handle.keys["events"]: known
            for known in self._queues().values()
            if known.ledger.handle.dialect.has_event_stream
        }
        for stream in queues.keys() - self._cursors.keys():
            self._read(stream, queues[stream])
        last = {stream: self._cursors[stream] for stream in queues if stream in self._cursors}
        if not last:
            self._over.wait(REST_S)
            return
        happened = self._signal.wait(last)
        if self._over.is_set():
            return
        for stream in happened:
            self._read(stream, queues[stream])
        self._over.wait(PAUSE_S)

    def _read(self, stream: str, queue: QueueCollector) -> None:
        cursor = queue.read_events()
        if cursor is None:
            self._cursors.pop(stream, None)
            self._over.wait(REST_S)
        else:
            self._cursors[stream] = cursor

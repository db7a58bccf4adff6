"""Sets an event when a job is delayed, by the notification of the queue's dialect.

Bull publishes the time on a channel. BullMQ adds a marker to a ZSET, which one worker removes; its event stream can be
read without removing anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Final

from spark_bull.core.errors import QueueDamaged
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.queue.handle.handle import QueueHandle, by_hub
from spark_bull.core.store.connection import BlockingConnection, Subscription
from spark_bull.core.store.streams import StreamReader
from spark_bull.run.claims.waits import BLOCK_S, RETRY_S
from spark_bull.run.services.service import Service


class StreamSignal:
    """Waits for new entries in any of several streams. Uses its own connection."""

    def __init__(self, settings: RedisSettings) -> None:
        self._reader = StreamReader(settings, BLOCK_S)

    def wait(self, last: Mapping[str, str]) -> list[str]:
        """Returns the streams with entries after these ids; empty after a timeout. Raises ConnectionLost."""
        return list(self._reader.wait(last, 1, BLOCK_S))

    def stop_retrying(self) -> None:
        """Lets a call of another thread end when Redis does, without a warning."""
        self._reader.stop_retrying()


#: Minimum interval between two notifications of a busy queue.
PAUSE_S: Final = 0.01


class StreamWatch(Service):
    """Sets `signal` when an entry is added to the event stream of a queue."""

    def __init__(self, handles: Sequence[QueueHandle], signal: Event) -> None:
        super().__init__("event stream watch")
        self._connection = handles[0].connection
        self._stream_signal = StreamSignal(self._connection.settings)
        self._streams = [handle.keys["events"] for handle in handles]
        self._signal = signal
        self._last: dict[str, str] = {}

    def round(self) -> None:
        if len(self._last) < len(self._streams):
            self._last = self._newest()
            self._signal.set()
        if not self._last:
            self._over.wait(RETRY_S)
            return
        try:
            changed = self._stream_signal.wait(self._last)
        except QueueDamaged:
            self._last = {}
            return
        # After stop(), the program may have stopped Redis, too.
        if changed and not self._over.wait(PAUSE_S):
            self._last = self._newest()
            self._signal.set()

    def wake(self) -> None:
        """Lets the wait of the current round end when Redis does."""
        self._stream_signal.stop_retrying()

    def _newest(self) -> dict[str, str]:
        """The id of the newest entry of each stream; a key of another type is left out."""
        replies = self._connection.pipeline(
            [("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in self._streams], raw=True
        )
        return {
            stream: entries[0][0].decode() if entries else "0-0"
            for stream, entries in zip(self._streams, replies, strict=True)
            if entries is not None
        }


class ChannelWatch(Service):
    """Sets `signal` when a queue publishes a delayed job on its channel."""

    def __init__(self, handles: Sequence[QueueHandle], signal: Event) -> None:
        super().__init__("channel watch")
        self._connection = BlockingConnection(handles[0].connection.settings, BLOCK_S)
        self._channels = [handle.keys["delayed"] for handle in handles]
        self._signal = signal
        self._subscription: Subscription | None = None

    def round(self) -> None:
        if self._subscription is None:
            self._subscription = self._connection.subscribe(self._channels)
            self._signal.set()
        try:
            if self._subscription.receive(BLOCK_S):
                self._over.wait(PAUSE_S)
                self._signal.set()
        except Exception:
            self._subscription.close()
            self._subscription = None
            raise

    def wake(self) -> None:
        """Lets the wait of the current round end when Redis does."""
        self._connection.stop_retrying()


def watches(handles: Sequence[QueueHandle], signal: Event) -> list[Service]:
    """Returns the services, not yet started, that set `signal` for these queues."""
    streams = [handle for handle in handles if handle.dialect.has("event-stream")]
    channels = [handle for handle in handles if not handle.dialect.has("event-stream")]
    services: list[Service] = [StreamWatch(streams, signal)] if streams else []
    return [*services, *(ChannelWatch(together, signal) for together in by_hub(channels))]

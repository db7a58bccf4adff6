"""The events of queues, as they happen: from the stream of BullMQ, or the channels of Bull."""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from threading import Event, Lock
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.events import entry_event
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import ConnectionLost, OptionError, RedisUnavailable, expected
from spark_bull.core.model.queues import QueueEvent
from spark_bull.core.queue.events.event_log import Position, span_of
from spark_bull.core.queue.handle.handle import QueueHandle, by_hub
from spark_bull.core.store.connection import BlockingConnection, Subscription
from spark_bull.core.store.round_trips import StreamReader

log = logging.getLogger("spark_bull")

#: Maximum time that a read blocks, after which it looks whether it is to end.
STEP_S: Final = 0.5
#: The same when queues with streams and queues with channels are read in turn.
TURN_S: Final = 0.1
#: Maximum number of entries of a stream that one call reads.
BATCH: Final = 1_000

NEWEST: Final = "$"
OLDEST: Final = "0-0"
#: The events of a stream after which a job does not go on, or may not.
_ENDS: Final = frozenset({b"completed", b"failed", b"removed"})
_ENTRY_ID: Final = re.compile(r"\d{1,20}(-\d{1,20})?")


class _Source(ABC):
    """Where events of some queues come from."""

    @abstractmethod
    def read(self, wait_s: float) -> list[QueueEvent]:
        """Waits for an event, at most `wait_s`, and returns those that have arrived. Raises ConnectionLost."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection."""


class _Streams(_Source):
    """Reads streams from a position on. After a lost connection it goes on there."""

    def __init__(self, handles: Sequence[QueueHandle], start: str, *, ends_only: bool) -> None:
        self._handles = {handle.keys["events"]: handle for handle in handles}
        self._reader = StreamReader(handles[0].connection.settings, STEP_S)
        self._ends_only = ends_only
        self._last = dict.fromkeys(self._handles, OLDEST if start in ("0", NEWEST) else start)
        if start == NEWEST:
            newest = [("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in self._handles]
            replies = zip(self._handles, handles[0].connection.pipeline(newest), strict=True)
            self._last |= {stream: entries[0][0].decode() for stream, entries in replies if entries}

    def read(self, wait_s: float) -> list[QueueEvent]:
        found = self._reader.wait(self._last, BATCH, wait_s) if wait_s > 0 else self._reader.read(self._last, BATCH)
        events = []
        for stream, entries in found.items():
            queue = self._handles[stream].keys.queue
            if len(entries) == BATCH and self._has_lost(stream):
                log.warning(
                    "events of %s after %s may be missing: the stream was trimmed faster than it was read",
                    queue,
                    self._last[stream],
                )
            events += [
                entry_event(queue, entry_id, entry)
                for entry_id, entry in entries
                if not self._ends_only or entry.get(b"event") in _ENDS
            ]
            self._last[stream] = entries[-1][0].decode()
        return events

    def _has_lost(self, stream: str) -> bool:
        """Whether entries may have been removed before they were read: the last one that was read is gone.

        Not from a stream of which nothing was ever removed, nor before the first entry that is read of a stream.
        """
        before = span_of(self._handles[stream]).before
        return (
            self._last[stream] != OLDEST and before.taken != 0 and Position(self._last[stream], None).is_before(before)
        )

    def close(self) -> None:
        self._reader.close()


class _Channels(_Source):
    """Receives messages of channels. Those that are published while the connection is lost are missing."""

    def __init__(self, handles: Sequence[QueueHandle], *, ends_only: bool) -> None:
        self._connection = BlockingConnection(handles[0].connection.settings, STEP_S)
        self._names: dict[str, QueueHandle] = {}
        self._patterns: dict[str, QueueHandle] = {}
        for handle in handles:
            channels = handle.dialect.event_channels(handle.keys)
            self._names |= dict.fromkeys(channels.ends if ends_only else channels.names, handle)
            self._patterns |= dict.fromkeys([] if ends_only else channels.patterns, handle)
        self._queues = ", ".join(handle.keys.queue for handle in handles)
        self._subscription = self._subscribe()

    def _subscribe(self) -> Subscription:
        try:
            return self._connection.subscribe(list(self._names), list(self._patterns))
        except RedisUnavailable:
            raise
        except ConnectionLost as error:
            rights = " ".join(f"&{name}" for name in (*self._names, *self._patterns))
            raise ConnectionLost(
                f"{error}; to read the events of {self._queues}, the user needs the rights to these channels: {rights}"
            ) from error

    def read(self, wait_s: float) -> list[QueueEvent]:
        try:
            received = self._subscription.receive(wait_s)
        except ConnectionLost as error:
            self._subscription.close()
            self._subscription = self._subscribe()
            log.warning("events of %s may be missing, as the connection to Redis was lost: %s", self._queues, error)
            # Redis may end each new connection at once. What is published meanwhile is received later.
            time.sleep(STEP_S)
            return []
        found = []
        for channel, message in received:
            handle = self._names.get(channel) or self._by_base(channel)
            event = handle and handle.dialect.event_of(handle.keys, channel, message)
            if event:
                found.append(event)
        return found

    def _by_base(self, channel: str) -> QueueHandle | None:
        """The queue of a channel `<base><event>@<token>`."""
        base = channel.rpartition("@")[0].rpartition(":")[0] + ":"
        return next((handle for handle in self._patterns.values() if handle.keys.base == base), None)

    def close(self) -> None:
        self._subscription.close()
        self._connection.close()


@short_errors
class QueueEvents(Iterator[QueueEvent]):
    """An iterator over the events of queues, and a context manager that ends it; see `BullQueue.events`.

    It begins when it is created, not with the first read. One thread reads; any thread may call `close`.

    Parameters:
      handles: the queues; queues of one dialect are read with one connection.
      start: as in `BullQueue.events`.
      timeout_s: as in `BullQueue.events`.
      stop: as in `BullQueue.events`.
      ends_only: whether no events but `completed`, `failed` and, in BullMQ, `removed` are needed, which is less work.

    Raises:
      OptionError: for an argument that is wrong.
      ConnectionLost: when Redis can't be reached.
    """

    def __init__(
        self,
        handles: Sequence[QueueHandle],
        *,
        start: str | None = None,
        timeout_s: float | None = None,
        stop: Event | None = None,
        ends_only: bool = False,
    ) -> None:
        _check_arguments(handles, start, timeout_s)
        self._timeout_s, self._stop = timeout_s, stop
        self._closed, self._reading = Event(), Lock()
        self._waiting: deque[QueueEvent] = deque()
        streams = [handle for handle in handles if handle.dialect.has("event-stream")]
        channels = [handle for handle in handles if not handle.dialect.has("event-stream")]
        self._sources: list[_Source] = [_Streams(streams, start or NEWEST, ends_only=ends_only)] if streams else []
        self._sources += [_Channels(together, ends_only=ends_only) for together in by_hub(channels)]

    def __next__(self) -> QueueEvent:
        if not self._waiting:
            self._waiting.extend(self.read(self._timeout_s))
        if not self._waiting:
            self.close()
            raise StopIteration
        return self._waiting.popleft()

    def read(self, timeout_s: float | None = None) -> list[QueueEvent]:
        """Waits for an event, and returns all that have arrived, in order within a queue.

        Parameters:
          timeout_s: maximum time to wait, s; 0 does not wait; None waits until `close` or `stop`.

        Returns:
          The events; none after the timeout, and after `close` or `stop`.

        Raises:
          ConnectionLost: when Redis can't be reached for longer than `retry_ms`.
        """
        end_at = None if timeout_s is None else monotonic_s() + timeout_s
        events: list[QueueEvent] = []
        left_s = STEP_S
        with self._reading:
            while not (self._over or events or left_s <= 0):
                left_s = STEP_S if end_at is None else end_at - monotonic_s()
                wait_s = max(0.0, min(left_s, STEP_S if len(self._sources) == 1 else TURN_S))
                events = [event for source in self._sources for event in source.read(wait_s)]
        if self._closed.is_set():
            self._close_sources()
        return events

    @property
    def _over(self) -> bool:
        return self._closed.is_set() or (self._stop is not None and self._stop.is_set())

    def close(self) -> None:
        """Ends the iterator, at once or, while another thread waits for an event, within a second."""
        self._closed.set()
        self._close_sources()

    def _close_sources(self) -> None:
        """Closes the connections, unless a thread reads, which does so then."""
        if self._reading.acquire(blocking=False):
            try:
                for source in self._sources:
                    source.close()
            finally:
                self._reading.release()

    def __enter__(self) -> QueueEvents:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_arguments(handles: Sequence[QueueHandle], start: str | None, timeout_s: float | None) -> None:
    if timeout_s is not None and not timeout_s >= 0:
        raise expected("timeout_s", "a number of seconds >= 0", timeout_s)
    if start is None:
        return
    for handle in handles:
        if not handle.dialect.has("event-stream"):
            raise OptionError(
                f"expected no `start`: {handle.dialect.name} keeps no events of {handle.keys.queue}, which can only be "
                "read from now on; leave it out"
            )
    if start != NEWEST and not _ENTRY_ID.fullmatch(start):
        raise expected("start", "$ (from now on), 0 (all that are kept) or the id of an event", start)

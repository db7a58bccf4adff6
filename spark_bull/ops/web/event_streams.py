"""Events of queues as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio import CapacityLimiter
from fastapi.sse import ServerSentEvent

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.ops.web.problems import RETRY_AFTER_S, Problem
from spark_bull.ops.web.shown import document

Messages = AsyncIterator[ServerSentEvent]
#: Maximum number of streams, each of which has a thread and a connection to Redis.
MAX_STREAMS: Final = 32
#: Maximum time until a stream ends after its client has gone, s.
_STEP_S: Final = 1.0
#: A stream ends after this time, s: a browser connects again, and its session is checked.
_DURATION_S: Final = 3_600.0


class StreamSlots:
    """Counts the open streams of an application. Used by its event loop only."""

    def __init__(self) -> None:
        self.open = 0
        self.are_closing = False
        self._threads = CapacityLimiter(MAX_STREAMS)

    def close(self) -> None:
        """Lets all streams end within some seconds, as the server stops."""
        self.are_closing = True

    @asynccontextmanager
    async def opened(self, handles: Sequence[QueueHandle], start: str | None) -> AsyncIterator[Messages]:
        """The events of queues, which end with the context. Raises Problem 429 if there are too many streams."""
        if self.open >= MAX_STREAMS:
            raise Problem(
                429,
                f"expected at most {MAX_STREAMS} streams of events at once, all are in use: close one, or "
                "poll GET /api/queues",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        self.open += 1
        try:
            with await anyio.to_thread.run_sync(lambda: QueueEvents(handles, start=start)) as events:
                yield self._messages(events, has_ids=len(handles) == 1)
        finally:
            self.open -= 1

    async def _messages(self, events: QueueEvents, *, has_ids: bool) -> Messages:
        """The events as messages without a type, which a browser gets in `onmessage`."""
        yield ServerSentEvent(retry=RETRY_AFTER_S * 1_000)
        started = monotonic_s()
        while monotonic_s() - started < _DURATION_S and not self.are_closing:
            try:
                found = await anyio.to_thread.run_sync(
                    events.read, _STEP_S, limiter=self._threads, abandon_on_cancel=True
                )
            except ConnectionLost:
                # The client connects again, and begins after the last id.
                return
            for event in found:
                yield ServerSentEvent(raw_data=_text(document(event)), id=event.id if has_ids else None)


def _text(found: dict[str, Any]) -> str:
    try:
        return json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        shown = {name: found[name] if name not in ("data", "returnvalue") else None for name in found}
        return json.dumps(shown, allow_nan=False)

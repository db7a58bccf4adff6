"""Events of queues as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from anyio import CapacityLimiter
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from spark_bull.clock import monotonic_s
from spark_bull.errors import ConnectionLost
from spark_bull.model.jobs import QueueEvent
from spark_bull.queue.events.events import QueueEvents
from spark_bull.web.json_output import document
from spark_bull.web.problems import RETRY_AFTER_S, Problem

#: Maximum number of streams, each of which has a thread and a connection to Redis.
MAX_STREAMS: Final = 32
#: A stream without events sends a comment after this time, so that proxies keep it open, s.
HEARTBEAT_S: Final = 15.0
#: Maximum time until a stream ends after its client has gone, s.
_STEP_S: Final = 1.0
#: A stream ends after this time, s: a browser connects again, and its session is checked.
_DURATION_S: Final = 3_600.0


class StreamSlots:
    """Counts the open streams of an application. Used by its event loop only."""

    def __init__(self) -> None:
        self.open = 0
        self.are_closing = False
        self.threads = CapacityLimiter(MAX_STREAMS)

    def take(self) -> None:
        """Raises Problem 429 if there are too many streams."""
        if self.open >= MAX_STREAMS:
            raise Problem(
                429,
                f"expected at most {MAX_STREAMS} streams of events at once, all are in use: close one, or "
                "poll GET /api/queues",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        self.open += 1

    def close(self) -> None:
        """Lets all streams end within some seconds, as the server stops."""
        self.are_closing = True

    def give_back(self) -> None:
        self.open -= 1


class EventStream(StreamingResponse):
    """Sends events until the client disconnects, and gives the slot back, which was taken, at the end."""

    def __init__(self, events: QueueEvents, slots: StreamSlots, *, has_ids: bool) -> None:
        self._events = events
        self._slots = slots
        # X-Accel-Buffering: nginx would collect events.
        super().__init__(self._lines(has_ids), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slots.give_back()
            self._events.close()

    async def _lines(self, has_ids: bool) -> AsyncIterator[str]:
        yield f"retry: {RETRY_AFTER_S * 1_000}\n\n"
        started = sent = monotonic_s()
        while monotonic_s() - started < _DURATION_S and not self._slots.are_closing:
            try:
                found = await anyio.to_thread.run_sync(
                    self._events.read, _STEP_S, limiter=self._slots.threads, abandon_on_cancel=True
                )
            except ConnectionLost:
                # The client connects again, and begins after the last id.
                return
            if found:
                yield "".join(as_message(event, has_id=has_ids) for event in found)
                sent = monotonic_s()
            elif monotonic_s() - sent >= HEARTBEAT_S:
                yield ": still connected\n\n"
                sent = monotonic_s()


def as_message(event: QueueEvent, *, has_id: bool) -> str:
    """A message without an event type, which a browser gets in `onmessage`."""
    start = f"id: {event.id}\n" if has_id and event.id else ""
    return f"{start}data: {_text(document(event))}\n\n"


def _text(found: dict[str, Any]) -> str:
    try:
        return json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        shown = {name: found[name] if name not in ("data", "returnvalue") else None for name in found}
        return json.dumps(shown, allow_nan=False)

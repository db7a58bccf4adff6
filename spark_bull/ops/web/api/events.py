"""Events of queues as they happen, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import anyio
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.ops.web.problems import RETRY_AFTER_S, Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue
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
                yield ServerSentEvent(raw_data=_event_text(document(event)), id=event.id if has_ids else None)


def _event_text(found: dict[str, Any]) -> str:
    try:
        return json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        shown = {name: found[name] if name not in ("data", "returnvalue") else None for name in found}
        return json.dumps(shown, allow_nan=False)


#: Maximum number of queues of a stream.
MAX_QUEUES: Final = 200
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events without a type; their data is a QueueEvent in JSON, in camel case.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
}
router = APIRouter(tags=["events"], responses=_STREAM)
Start = Annotated[
    str | None,
    Query(
        max_length=50,
        pattern=r"^(\$|0|\d{1,20}(-\d{1,20})?)$",
        description="BullMQ only: the id of an event, after which to begin, also ms since 1970; 0: all that are kept; "
        "default: from now on",
    ),
]
LastId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", pattern=r"^(\d{1,20}-\d{1,20})?$", description="instead of `start`: of a browser"),
]


async def _of_queue(
    request: Request, queue: ExistingQueue, start: Start = None, last_id: LastId = None
) -> AsyncIterator[Messages]:
    begin = last_id or start
    if begin is not None:
        queue.handle.dialect.require("event-stream", "`start`")
    async with _slots(request).opened([queue.handle], begin) as messages:
        yield messages


async def _of_queues(
    request: Request,
    queues: AllQueues,
    queue: Annotated[list[str] | None, Query(description="only these queues; default: all", max_length=200)] = None,
) -> AsyncIterator[Messages]:
    def opened() -> list[BullQueue]:
        if queue:
            return [queues.existing(name) for name in dict.fromkeys(queue)]
        return [queues.open(name) for name in queues.names()]

    found = await anyio.to_thread.run_sync(opened)
    if len(found) > MAX_QUEUES:
        raise Problem(400, f"expected at most {MAX_QUEUES} queues, got {len(found)}: name some", field="queue")
    if not found:
        raise Problem(404, "no queue exists on this server yet")
    async with _slots(request).opened([one.handle for one in found], None) as messages:
        yield messages


def _slots(request: Request) -> StreamSlots:
    slots: StreamSlots = request.app.state.streams
    return slots


@router.get("/queues/{queue}/events", response_class=EventSourceResponse)
async def stream_queue(messages: Annotated[Messages, Depends(_of_queue)]) -> Messages:
    """Sends the events of a queue until the client disconnects, with an empty comment now and then.

    Bull keeps no events: there, only events from now on are sent, and `start` is refused.
    """
    async for message in messages:
        yield message


@router.get("/events", response_class=EventSourceResponse)
async def stream_all(messages: Annotated[Messages, Depends(_of_queues)]) -> Messages:
    """Sends the events of several queues from now on. Events of queues that are created later are not among them."""
    async for message in messages:
        yield message

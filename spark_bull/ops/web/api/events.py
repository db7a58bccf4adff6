"""Events of queues, as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.ops.web.event_streams import Messages, StreamSlots
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.queue_access import AllQueues, ExistingQueue

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
        raise Problem(404, "expected a queue of this server, found none")
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

"""The messages that Redis publishes while a block runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from tests.support.dump import escaped
from tests.support.wait import PATIENCE_S

Message = tuple[str, str]


@contextmanager
def published(client: Redis, prefix: str, queue: str) -> Iterator[list[Message]]:
    """Collect (channel, message) of one queue; the list is complete when the block is left.

    Bull 1 publishes to `<event>@<queue>`, outside every prefix.
    """
    messages: list[Message] = []
    sentinel = f"{prefix}:{queue}:sentinel:{uuid.uuid4()}"
    with client.pubsub() as subscription:
        subscription.psubscribe(f"{escaped(prefix)}:{escaped(queue)}:*", f"*@{escaped(queue)}")
        for _ in range(2):
            subscription.get_message(timeout=PATIENCE_S)
        yield messages
        client.publish(sentinel, b"")
        for message in subscription.listen():
            channel = message["channel"].decode()
            if channel == sentinel:
                return
            if message["type"] == "pmessage":
                messages.append((channel, message["data"].decode()))

"""The verb that writes events, with the name of its script; see core/queue/handle/verbs.py."""

from __future__ import annotations

from collections.abc import Sequence

from spark_bull.core.queue.handle.handle import QueueHandle


def publish(handle: QueueHandle, fields: Sequence[str], *, max_events: int | None) -> str:
    """Adds an event, names and values of fields, to the stream of events; returns its id.

    max_events: about how many events the stream keeps; None: as many as the queue says.
    """
    entry_id: bytes = handle.run_once("publish", {"fields": fields, "max_events": max_events or ""})
    return entry_id.decode()

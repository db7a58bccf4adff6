"""What is done to the stream of events: adding an event of a program, and removing old ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_bull.core.dialects.base import json_text
from spark_bull.core.dialects.events import OWN_EVENTS
from spark_bull.core.errors import OptionError, check_count, encodable, expected
from spark_bull.core.queue.handle import verbs
from spark_bull.core.queue.handle.handle import QueueHandle

#: Maximum number of fields of an event.
MAX_FIELDS: Final = 1_000
#: Events that one call removes.
_TRIMMED: Final = 10_000


def publish(handle: QueueHandle, event: str, fields: Mapping[str, Any], max_events: int | None) -> str:
    """Adds an event to the stream of a queue; returns its id. Raises OptionError or DialectError."""
    handle.dialect.require("custom-events")
    if not isinstance(event, str) or not event:
        raise expected("event", "a name that is not empty", event)
    encodable("event", event)
    if event in OWN_EVENTS:
        raise OptionError(
            f"expected `event` to be a name of your own, got: {event!r}, which says what happened to a job; put a word "
            "in front"
        )
    if "event" in fields:
        raise OptionError("expected `fields` without `event`, which has the name of the event")
    if len(fields) > MAX_FIELDS:
        raise expected("fields", f"at most {MAX_FIELDS} fields", len(fields))
    if max_events is not None and (isinstance(max_events, bool) or not isinstance(max_events, int) or max_events < 1):
        raise expected("max_events", "an integer >= 1", max_events)
    texts = ["event", event]
    for name, value in fields.items():
        texts += [name, value if isinstance(value, str) else json_text(f"fields.{name}", value)]
    return verbs.publish(handle, texts, max_events=max_events)


def trim_events(handle: QueueHandle, max_events: int) -> int:
    """Removes the oldest events but about the last `max_events`; returns how many. Raises OptionError or DialectError.

    Redis removes whole parts of its stream, of about 100 events each.
    """
    handle.dialect.require("event-stream")
    check_count("max_events", max_events)
    removed = 0
    while part := handle.connection.call("XTRIM", handle.keys["events"], "MAXLEN", "~", max_events, "LIMIT", _TRIMMED):
        removed += int(part)
    return removed

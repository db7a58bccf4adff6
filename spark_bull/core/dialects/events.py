"""Reads events of the dialects: entries of a stream (BullMQ), and messages of channels (Bull), which keep nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_bull.core.clock import epoch_ms
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.keys import QueueKeys, literal_glob
from spark_bull.core.late import late
from spark_bull.core.model.job_json import json_or_text
from spark_bull.core.well_formed import well_formed

if TYPE_CHECKING:
    from spark_bull.core.model import queues
    from spark_bull.core.model.queues import QueueEvent
else:
    (queues,) = late("queues", of="spark_bull.core.model")

#: Events of Bull 3 and 4 on one channel, and on one for each queue object (`<event>@<token>`).
_BULL_EVENTS: Final = ("completed", "failed", "progress", "paused", "resumed", "drained")
_BULL_SENDER_EVENTS: Final = ("waiting", "active", "stalled", "duplicated", "debounced")
#: Events of Bull 1.1 and 2, on channels `<event>@<queue>` without prefix.
_BULL1_EVENTS: Final = ("waiting", "stalled", "progress", "completed", "failed", "cleaned")


#: The events that end a job.
ENDS: Final = ("completed", "failed")
#: The events of BullMQ, and what Node's QueueEvents emits beside them.
OWN_EVENTS: Final = frozenset(
    (
        *("active", "added", "cleaned", "completed", "debounced", "deduplicated", "delayed", "drained", "duplicated"),
        *("error", "failed", "ioredis:close", "paused", "progress", "removed", "resumed", "retries-exhausted"),
        *("stalled", "waiting", "waiting-children"),
    )
)


class EventChannels(NamedTuple):
    """The channels of a queue's events.

    names: the channels whose names are known. patterns: patterns of the others, which a user of Redis may lack the
    right to. ends: the names of the channels on which jobs complete or fail.
    """

    names: list[str]
    patterns: list[str]
    ends: list[str]


def entry_event(queue: str, entry_id: bytes, entry: Mapping[bytes, bytes]) -> QueueEvent:
    """The event of an entry of BullMQ's stream."""
    fields = {name.decode("utf-8", "replace"): text.decode("utf-8", "replace") for name, text in entry.items()}
    name = fields.pop("event", "")
    data, returnvalue, run_at = fields.pop("data", None), fields.pop("returnvalue", None), fields.pop("delay", None)
    return queues.QueueEvent(
        queue,
        entry_id.decode(),
        name,
        fields.pop("jobId", None),
        int(entry_id.partition(b"-")[0]),
        fields.pop("prev", None),
        json_or_text(data) if name == "progress" else data,
        json_or_text(returnvalue),
        fields.pop("failedReason", None),
        None if run_at is None else integer_of(run_at.encode()),
        fields,
    )


def bull_channels(keys: QueueKeys) -> EventChannels:
    """The channels of Bull 3 and 4."""
    return EventChannels(
        [*map(keys.channel, _BULL_EVENTS)],
        [f"{literal_glob(keys.channel(event))}@*" for event in _BULL_SENDER_EVENTS],
        [*map(keys.channel, ENDS)],
    )


def bull_event(keys: QueueKeys, channel: str, message: bytes) -> QueueEvent | None:
    """The event of a message of Bull 3 or 4; None for one that can't be read."""
    event, text = channel.removeprefix(keys.base).partition("@")[0], message.decode("utf-8", "replace")
    if event in ("paused", "resumed", "drained"):
        return _event_of(keys, event)
    if event in _BULL_SENDER_EVENTS:
        return _event_of(keys, event, job_id=text)
    parsed = json_or_text(text)
    if not isinstance(parsed, dict) or "jobId" not in parsed:
        return _old_progress(keys, event, text)
    job_id = well_formed(str(parsed["jobId"]))
    if event == "progress":
        return _event_of(keys, event, job_id=job_id, data=parsed.get("progress"))
    value = parsed.get("val")
    if event == "completed":
        # JSON text within JSON.
        found = json_or_text(value) if isinstance(value, str) else value
        return _event_of(keys, event, job_id=job_id, returnvalue=found)
    reason = well_formed(value) if isinstance(value, str) else json.dumps(value)
    return _event_of(keys, event, job_id=job_id, failed_reason=reason)


def _old_progress(keys: QueueKeys, event: str, text: str) -> QueueEvent | None:
    """The event of a progress message of older versions of Bull 3: `<id>,<progress>`."""
    job_id, comma, progress = text.partition(",")
    if event != "progress" or not comma:
        return None
    return _event_of(keys, event, job_id=job_id, data=json_or_text(progress))


def bull1_channels(keys: QueueKeys) -> EventChannels:
    """The channels of Bull 1.1 and 2; Bull 1.0 publishes no events."""
    return EventChannels(
        [*map(keys.plain_channel, _BULL1_EVENTS), keys["paused"]], [], [*map(keys.plain_channel, ENDS)]
    )


def bull1_event(keys: QueueKeys, channel: str, message: bytes) -> QueueEvent | None:
    """The event of a message of Bull 1.1 or 2, `[sender, job, what]`; None for one that can't be read."""
    text = message.decode("utf-8", "replace")
    if channel == keys["paused"]:
        return _event_of(keys, text)
    event = channel.partition("@")[0]
    parsed = json_or_text(text)
    if not isinstance(parsed, list) or len(parsed) < 2:
        return None
    _, job, what = [*parsed, None][:3]
    if event == "cleaned":
        return _event_of(keys, event, fields={"count": str(len(job) if isinstance(job, list) else 0)})
    opts = job.get("opts") if isinstance(job, dict) else None
    if not isinstance(opts, dict) or "jobId" not in opts:
        return None
    of_kind: Mapping[str, Callable[[], dict[str, Any]]] = {
        "progress": lambda: {"data": what},
        "completed": lambda: {"returnvalue": what},
        "failed": lambda: {"failed_reason": _reason_of(what)},
    }
    return _event_of(keys, event, job_id=well_formed(str(opts["jobId"])), **of_kind.get(event, dict)())


def _reason_of(error: object) -> str | None:
    """The message of an error as Bull 1 publishes it: JSON of a JavaScript error, which often lacks it."""
    message = error.get("message") if isinstance(error, dict) else error
    return well_formed(message) if isinstance(message, str) else None


def _event_of(keys: QueueKeys, event: str, *, job_id: str | None = None, **values: Any) -> QueueEvent:
    return queues.QueueEvent(keys.queue, None, event, job_id, epoch_ms(), **values)

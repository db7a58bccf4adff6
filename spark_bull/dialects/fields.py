"""What a job's hash calls its fields, in every dialect, and how their texts become values.

Whatever stands in a hash can be read: text that is not UTF-8 gets replacement characters, a number that is none counts
as not given, a stack trace that is no JSON list is shown as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

Raw = bytes | None
Kind = Literal["text", "json", "integer", "traces"]


@dataclass(frozen=True)
class Field:
    """A property of a job. `names`: what hashes call it; the first that is there counts, else `default`."""

    attribute: str
    kind: Kind
    names: tuple[str, ...]
    default: int | None = None


#: By Bull's own name, which is the DataFrame's column too. BullMQ's short names stand beside the long ones.
FIELDS: Final[dict[str, Field]] = {
    "name": Field("name", "text", ("name",)),
    "data": Field("data_text", "text", ("data",)),
    "opts": Field("opts_text", "text", ("opts",)),
    "progress": Field("progress_text", "text", ("progress",)),
    "returnvalue": Field("returnvalue_text", "json", ("returnvalue",)),
    "failedReason": Field("failed_reason", "text", ("failedReason",)),
    "stacktrace": Field("stacktrace", "traces", ("stacktrace",)),
    "attemptsMade": Field("attempts_made", "integer", ("attemptsMade", "atm"), 0),
    "attemptsStarted": Field("attempts_started", "integer", ("ats",)),
    "stalledCounter": Field("stalled_counter", "integer", ("stalledCounter", "stc"), 0),
    "timestamp": Field("timestamp", "integer", ("timestamp",)),
    "processedOn": Field("processed_on", "integer", ("processedOn",)),
    "finishedOn": Field("finished_on", "integer", ("finishedOn",)),
    "delay": Field("delay", "integer", ("delay",), 0),
    "priority": Field("priority", "integer", ("priority",), 0),
    "processedBy": Field("processed_by", "text", ("pb",)),
    "parentKey": Field("parent_key", "text", ("parentKey",)),
    "deduplicationId": Field("deduplication_id", "text", ("deid",)),
    "repeatJobKey": Field("repeat_job_key", "text", ("rjk",)),
}

#: The field that every job has, and what is left of a removed one (a late progress report) has not.
ALWAYS_THERE: Final = "timestamp"


#: What the libraries store for a JavaScript undefined.
NO_VALUE: Final = (b"null", b"")


def value_of(field: Field, raw: Raw) -> Any:
    """The value of a field as model.Job holds it."""
    if field.kind == "integer":
        number = integer_of(raw)
        return field.default if number is None else number
    if field.kind == "traces":
        return traces_of(raw)
    if field.kind == "json" and raw in NO_VALUE:
        return None
    return text_of(raw)


def text_of(raw: Raw) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def integer_of(raw: Raw) -> int | None:
    if not raw:
        return None
    try:
        return int(raw)
    except ValueError:
        pass
    try:
        return int(float(raw))
    except (ValueError, OverflowError):
        return None


def traces_of(raw: Raw) -> tuple[str, ...]:
    if not raw or raw in (b"[]", b"null"):
        return ()
    text = raw.decode("utf-8", "replace")
    try:
        traces = json.loads(text)
    except (ValueError, RecursionError):
        return (text,)
    if not isinstance(traces, list):
        return (text,)
    return tuple(trace if isinstance(trace, str) else json.dumps(trace) for trace in traces if trace is not None)

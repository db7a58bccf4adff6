"""The table of a job's fields: names in hashes, DataFrames and objects, types, and how their texts are read.

Any hash can be read. Text that is not UTF-8 gets replacement characters. A number that can't be parsed counts as not
given. A stack trace that is not a JSON list is shown as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from spark_bull.core.model.javascript import whole_in
from spark_bull.core.well_formed import well_formed

Raw = bytes | None
#: The counter of stalls with which a job begins that may not run twice: its first stall is one too many.
STALLED_PRESET: Final = 1_000_000
#: Text, JSON text, an INT, one that may begin with STALLED_PRESET, a BIGINT, ms since 1970, a JSON list of texts.
FieldKind = Literal["text", "json", "count", "stalls", "number", "time", "traces"]
NUMBERS: Final = frozenset({"count", "stalls", "number", "time"})


class Field(NamedTuple):
    """A field of a job.

    names: its names in hashes, Bull's first and BullMQ's last; a reader takes the first one that a hash has, else
    `default`. attribute: its name in model.Job. claimed: its name in outcomes.ClaimedJob. A name is empty where the
    object lacks the field.
    """

    kind: FieldKind
    names: tuple[str, ...]
    attribute: str = ""
    claimed: str = ""
    default: int | None = None


#: The fields of a job, by their DataFrame columns, which have Bull's own names.
FIELDS: Final[Mapping[str, Field]] = {
    "name": Field("text", ("name",), "name", "name"),
    "data": Field("text", ("data",), "data_text", "data"),
    "opts": Field("text", ("opts",), "opts_text", "opts"),
    "progress": Field("text", ("progress",), "progress_text", "progress"),
    "returnvalue": Field("json", ("returnvalue",), "returnvalue_text"),
    "failedReason": Field("text", ("failedReason",), "failed_reason"),
    "stacktrace": Field("traces", ("stacktrace",), "stacktrace", "stacktrace"),
    "attemptsMade": Field("count", ("attemptsMade", "atm"), "attempts_made", "attempts_made", default=0),
    "attemptsStarted": Field("count", ("ats",), "attempts_started", "attempts_started"),
    "stalledCounter": Field("stalls", ("stalledCounter", "stc"), "stalled_counter", "stalled_counter", default=0),
    "returnedCounter": Field("count", ("returned",), "returned_counter", default=0),
    "timestamp": Field("time", ("timestamp",), "timestamp", "timestamp"),
    "processedOn": Field("time", ("processedOn",), "processed_on"),
    "finishedOn": Field("time", ("finishedOn",), "finished_on"),
    "delay": Field("number", ("delay",), "delay", default=0),
    "priority": Field("number", ("priority",), "priority", "priority", default=0),
    "processedBy": Field("text", ("pb",), "processed_by"),
    "parentKey": Field("text", ("parentKey",), "parent_key", "parent_key"),
    "deduplicationId": Field("text", ("deid",), "deduplication_id"),
    "repeatJobKey": Field("text", ("rjk",), "repeat_job_key"),
}

#: The fields that a claim reads. `attempts`: only Bull 1 writes it. `expireAt`: only of jobs that have not started.
CLAIMED_FIELDS: Final[Mapping[str, Field]] = {
    **{name: field for name, field in FIELDS.items() if field.claimed},
    "deferredFailure": Field("text", ("defa",), claimed="deferred_failure"),
    "attempts": Field("count", ("attempts",), claimed="attempts"),
    "expireAt": Field("time", ("expireAt",), claimed="expire_at"),
}

#: The fields of these that only BullMQ writes.
BULLMQ_FIELDS: Final = frozenset({"attemptsStarted", "parentKey", "deferredFailure"})

#: A field that every job gets when it is added. What workers write to a removed job later lacks it.
ALWAYS_THERE: Final = "timestamp"

#: Names of fields that only hashes of jobs have. The hash of a job scheduler can have the other fields, too.
ONLY_OF_JOBS: Final = frozenset(name for field in {**CLAIMED_FIELDS, **FIELDS}.values() for name in field.names) - {
    "data",
    "name",
    "opts",
    "expireAt",
}


def fields_of(columns: Iterable[str]) -> list[str]:
    """The fields of hashes that columns of jobs need."""
    return [name for column in columns if column in FIELDS for name in FIELDS[column].names]


#: The columns with JSON text, as the libraries store it.
JSON_COLUMNS: Final = frozenset({"data", "opts", "progress", "returnvalue"})

#: What the libraries store for a JavaScript undefined.
NO_VALUE: Final = (b"null", b"")


def value_of(field: Field, raw: Raw) -> Any:
    """The value of a field as model.Job holds it."""
    if field.kind in NUMBERS:
        number = integer_of(raw)
        if number is not None and field.kind == "stalls":
            return stalls_of(number)
        return field.default if number is None else number
    if field.kind == "traces":
        return traces_of(raw)
    if field.kind == "json" and raw in NO_VALUE:
        return None
    return text_of(raw)


def stalls_of(counter: int) -> int:
    """How often a job has stalled, by its counter."""
    return counter - STALLED_PRESET if counter >= STALLED_PRESET else counter


def text_of(raw: Raw) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def integer_of(raw: Raw) -> int | None:
    return whole_in(raw) if raw else None


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
    texts = (trace if isinstance(trace, str) else json.dumps(trace) for trace in traces if trace is not None)
    return tuple(map(well_formed, texts))

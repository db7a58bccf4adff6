"""The record of a registered write, a hash: which kind of write it is, and how far it has come.

Beside the fields of its kind, it may have `replace`: the queue is emptied before the first job, then `emptied` is set;
`callback`: a job that is added before the first job and may start after the last one, and `callbackState`: open, then
closed; `maxLength` and `whenFull`: with fail, the write is registered only if all of its jobs fit, otherwise each step
adds those that fit; `keepsIds` and `outcomes`: each step keeps the ids of its jobs, or what became of each change;
`events`: the only events that the write writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import msgpack

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.keys import SEGMENTS
from spark_bull.core.model.jobs import Changed
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.options.table import ALL_EVENTS
from spark_bull.core.queue.dispatch.flows import TOUCHED
from spark_bull.core.queue.handle.handle import QueueHandle, touched_keys

#: Calls of a write whose outcomes are read at once.
_OUTCOMES_PER_CALL: Final = 20

Fields: TypeAlias = Mapping[str, str | int]


@dataclass(frozen=True)
class WriteKind:
    """What the chunks of a write are.

    verb: commits the next chunk. marks: the fields of the record that tell the kind. queues: the field with the names
    of the other queues that the write may touch; touched: the names of their keys.
    """

    verb: str
    marks: Mapping[str, str] = field(default_factory=dict)
    queues: str | None = None
    touched: Iterable[str] = ()

    def fields(self, queues: Iterable[str] = ()) -> Fields:
        """The fields of a record of this kind. queues: the other queues that the write may touch."""
        return self.marks if self.queues is None else {**self.marks, self.queues: json.dumps(sorted(queues))}

    def has(self, fields: Fields) -> bool:
        """Whether the record with these fields is of this kind."""
        if not self.marks:
            return self.queues in fields
        return all(str(fields.get(name)) == value for name, value in self.marks.items())


JOBS: Final = WriteKind("commit")
FLOWS: Final = WriteKind("commit_flows", queues="flows", touched=TOUCHED)
#: Jobs that depend on each other; see `graph`.
GRAPH: Final = WriteKind("commit_graph", {"graph": "1"})
SCHEDULERS: Final = WriteKind("commit_schedules", {"mode": "schedule"})
#: Changes of jobs, which can move them to other queues.
CHANGES: Final = WriteKind("commit_managed", {"mode": "manage"}, "moves", SEGMENTS)
_KINDS: Final = (FLOWS, GRAPH, SCHEDULERS, CHANGES)
_READ: Final = ("jobs", "dialect", "events", "maxLength", "unkept", "flows", "graph", "mode", "moves")


class OpenWrite(NamedTuple):
    """A registered write. handle: its queue, with the dialect that its chunks are encoded for, and the events that it
    writes. touched: other keys that it may touch. max_length: of the queue; 0: none. is_kept: whether its staged chunks
    no longer expire.
    """

    id: str
    handle: QueueHandle
    kind: WriteKind
    touched: Sequence[str]
    jobs: int
    max_length: int
    is_kept: bool


def kind_of(fields: Fields) -> WriteKind:
    """The kind of a write with these fields in its record."""
    return next((kind for kind in _KINDS if kind.has(fields)), JOBS)


def read_open(handle: QueueHandle, write_id: str) -> OpenWrite:
    """What is to be known of a registered write to finish it."""
    values = handle.connection.call("HMGET", handle.keys.write(write_id), *_READ)
    fields = {name: value.decode() for name, value in zip(_READ, values, strict=True) if value is not None}
    kind = kind_of(fields)
    named = json.loads(fields.get(kind.queues or "", "[]"))
    return OpenWrite(
        write_id,
        replace(
            handle,
            dialect=DIALECTS[fields["dialect"]] if "dialect" in fields else handle.dialect,
            events=fields.get("events", ALL_EVENTS),
        ),
        kind,
        touched_keys(handle, named, kind.touched) if named else [],
        int(fields.get("jobs", 0)),
        int(fields.get("maxLength", 0)),
        "unkept" not in fields,
    )


def open_writes(handle: QueueHandle) -> list[str]:
    """Ids of registered, unfinished writes, oldest first."""
    return [write_id for write_id, is_open in listed_writes(handle) if is_open]


def listed_writes(handle: QueueHandle) -> list[tuple[str, bool]]:
    """Ids of unfinished writes, and whether each is registered; the others are only prepared."""
    listed = handle.connection.call("ZRANGE", handle.keys["open_writes"], 0, -1, "WITHSCORES")
    return [(write_id.decode(), float(score) >= 0) for write_id, score in listed]


def records(handle: QueueHandle) -> list[WriteRecord]:
    """Records of the queue's writes, the oldest first, unfinished ones last."""
    finished = handle.connection.call("ZRANGE", handle.keys["finished_writes"], 0, -1)
    ids = [write_id.decode() for write_id in finished] + open_writes(handle)
    return _read_records(handle, ids)


def read_record(handle: QueueHandle, write_id: str) -> WriteRecord | None:
    """The record of one write, or None when there is none or it has expired."""
    return next(iter(_read_records(handle, [write_id])), None)


def _read_records(handle: QueueHandle, write_ids: Iterable[str]) -> list[WriteRecord]:
    ids = list(dict.fromkeys(write_ids))
    replies = handle.connection.pipeline([("HGETALL", handle.keys.write(i)) for i in ids])
    return [_record(handle, i, fields) for i, fields in zip(ids, replies, strict=True) if fields]


def _record(handle: QueueHandle, write_id: str, raw: Mapping[bytes, bytes]) -> WriteRecord:
    fields = {name.decode(): value.decode() for name, value in raw.items()}

    def number(name: str) -> int | None:
        return int(fields[name]) if name in fields else None

    return WriteRecord(
        id=write_id,
        queue=handle.keys.queue,
        state=fields["state"],
        delivery=fields["delivery"],
        jobs=number("jobs") or 0,
        done=number("position") or 0,
        added=number("added") or 0,
        duplicates=number("duplicates") or 0,
        deduplicated=number("deduplicated") or 0,
        rejected=number("rejected") or 0,
        dropped=number("dropped") or 0,
        replicas=number("replicas"),
        started_on=number("startedOn"),
        finished_on=number("finishedOn"),
        app_id=fields.get("appId"),
        version=number("version"),
        changed=number("changed") or 0,
        missing=number("missing") or 0,
        locked=number("locked") or 0,
        wrong_state=number("wrongState") or 0,
    )


def read_outcomes(handle: QueueHandle, write_id: str) -> Iterator[Changed]:
    """What became of each change of a write that keeps this, in order; nothing when it has expired."""
    key, start = handle.keys.outcomes(write_id), 0
    while packed := handle.connection.call("LRANGE", key, start, start + _OUTCOMES_PER_CALL - 1):
        for part in packed:
            ids, actions, outcomes = msgpack.unpackb(part, raw=False, unicode_errors="replace")
            for job_id, action, outcome in zip(ids, actions, outcomes, strict=True):
                yield Changed(job_id, action.replace("_", "-"), outcome)
        start += len(packed)

"""Changes many existing jobs, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import uuid4

from spark_bull.core.dialects.base import json_text
from spark_bull.core.dialects.changes import ACTIONS, COLUMNS, encode_changes
from spark_bull.core.dialects.encode.chunks import packed_map
from spark_bull.core.errors import JobError, OptionError, WrongState, encodable
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.jobs import Change, Changed
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.payloads.policy import Kind
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of, touched_keys
from spark_bull.core.queue.jobs.objects import deleting_objects
from spark_bull.core.queue.manage import verbs
from spark_bull.core.queue.manage.manage import job_error
from spark_bull.core.queue.manage.verbs import JobReply

_BATCH: Final = 10_000
#: The texts of a change that are kept as texts of jobs are.
_KINDS: Final[Mapping[str, Kind]] = {"data": "data", "value": "returnvalue"}


class ChangeChunk(NamedTuple):
    """Changes for one script: their number, and the other queues that jobs are moved to."""

    rows: int
    packed: bytes
    queues: tuple[str, ...]


def change_chunks(
    handle: QueueHandle,
    rows: Mapping[str, Sequence[Any]],
    numbers: Sequence[int | str],
    most_jobs: int,
    most_bytes: int,
) -> Iterator[ChangeChunk]:
    """Checks changes and packs them; see `encode_changes`."""

    def base_of(queue: str) -> str:
        if queue == handle.keys.queue:
            raise OptionError(f"expected `to` to be another queue, got the job's own: {queue!r}")
        return keys_of(handle, queue, "a moved job").base

    part: list[dict[str, Any]] = []
    size = 0
    for encoded in encode_changes(handle.dialect, rows, base_of, numbers):
        change = _kept(handle, encoded)
        bytes_of = sum(len(value) for value in change.values() if isinstance(value, str))
        if part and (len(part) >= most_jobs or size + bytes_of > most_bytes):
            yield _chunk(part)
            part, size = [], 0
        part.append(change)
        size += bytes_of
    if part:
        yield _chunk(part)


def _kept(handle: QueueHandle, change: dict[str, Any]) -> dict[str, Any]:
    """A change, with its payload or result as Redis keeps it."""
    keys = QueueKeys(change["to"], handle.keys.prefix) if "to" in change else handle.keys
    texts = {name: kind for name, kind in _KINDS.items() if name in change}
    source = uuid4().hex
    return change | {name: handle.payloads.kept(keys, kind, change[name], source) for name, kind in texts.items()}


def _chunk(changes: Sequence[Mapping[str, Any]]) -> ChangeChunk:
    names = dict.fromkeys(name for change in changes for name in change)
    columns: dict[str, Any] = {name: [change.get(name) for change in changes] for name in names}
    if len(set(columns["action"])) == 1:
        columns["action"] = columns["action"][0]
    queues = tuple(sorted({queue for queue in columns.get("to", ()) if queue is not None}))
    return ChangeChunk(len(changes), packed_map({"n": len(changes), **columns}), queues)


def manage_chunk(handle: QueueHandle, sender: str, number: int | str, chunk: ChangeChunk) -> list[str]:
    """Changes the jobs of a chunk, in as many calls as the script needs; returns the outcomes.

    `sender` and `number` identify the calls.
    """
    outcomes: list[str] = []
    first, touched, calls = 1, touched_keys(handle, chunk.queues), 0
    while first <= chunk.rows:
        receipt = handle.keys.receipt(sender)
        reply = verbs.manage(handle, receipt, f"{number}.{calls}", chunk.packed, first=first, touched=touched)
        outcomes += reply.outcomes
        first, calls = reply.first, calls + 1
    return outcomes


def change_jobs(handle: QueueHandle, changes: Iterable[Change], chunk_size: int, chunk_bytes: int) -> Iterator[Changed]:
    """Changes jobs, and yields what became of each change, in order.

    Raises OptionError or DialectError for a wrong one; changes of earlier batches were made then.
    """
    remaining, first = iter(changes), 0
    while batch := list(islice(remaining, _BATCH)):
        numbers = range(first, first + len(batch))
        chunks = list(change_chunks(handle, _rows_of(batch), numbers, chunk_size, chunk_bytes))
        outcomes = _made(handle, batch, chunks)
        for change, outcome in zip(batch, outcomes, strict=True):
            yield Changed(change.id, change.action, outcome)
        first += len(batch)


def _made(handle: QueueHandle, changes: Sequence[Change], chunks: Sequence[ChangeChunk]) -> Iterator[str]:
    """Makes the changes of chunks as their outcomes are read."""
    removed = [str(change.id).encode() for change in changes if change.action == "remove"]
    with deleting_objects(handle, lambda: removed):
        for chunk in chunks:
            yield from manage_chunk(handle, handle.sender, uuid4().hex, chunk)


def _rows_of(changes: Sequence[Change]) -> dict[str, list[Any]]:
    rows = {name: [*map(attrgetter(QueueOptions.spelled(name)), changes)] for name in COLUMNS}
    for name in ("data", "returnvalue"):
        rows[name] = [None if value is None else json_text(name, value) for value in rows[name]]
    return rows


def change_job(handle: QueueHandle, change: Change) -> None:
    """Changes one job. Raises JobMissing, JobLocked or WrongState when it can't be changed, and OptionError or
    DialectError as `change_jobs` does.
    """
    encodable("job_id", change.id)
    (changed,) = change_jobs(handle, [change], 1, 1)
    if changed.outcome != "done":
        raise error_of(handle, changed, change)


def error_of(handle: QueueHandle, changed: Changed, change: Change | None = None) -> JobError:
    """The error for a change that was not made; `change`: the whole of it, where it is known."""
    if changed.outcome == "exists":
        return WrongState(
            f"expected queue {change and change.to} to have no job {changed.id}, it has one: remove it first, or leave "
            "this one",
            queue=handle.keys.queue,
            job_id=changed.id,
        )
    wanted = (change and change.state) or ACTIONS[changed.action].wanted
    return job_error(handle, changed.id, JobReply(changed.outcome), wanted)

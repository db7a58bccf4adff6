"""Adds jobs to a queue, chunk by chunk. Every call is idempotent."""

from __future__ import annotations

from collections.abc import Iterable

from spark_bull.model import Added
from spark_bull.queue import verbs
from spark_bull.queue.handle import QueueHandle


def add_chunk(
    handle: QueueHandle, sender: str, number: int | str, rows: int, packed: bytes, *, want_ids: bool
) -> Added:
    """Adds one packed chunk of `rows` jobs, in as many calls as the script needs.

    `sender` and `number` identify the calls.
    """
    parts: list[Added] = []
    first = 1
    while first <= rows:
        reply = verbs.add(handle, handle.keys.receipt(sender), number, packed, first=first, want_ids=want_ids)
        first = reply.first
        ids = [_text(job_id) for job_id in reply.ids]
        rejected = {row - 1: reason.decode() for row, reason in reply.rejected}
        parts.append(Added(ids, reply.added, reply.duplicates, reply.deduplicated, rejected))
    return sum_of(parts)


def _text(value: bytes | int) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def sum_of(parts: Iterable[Added]) -> Added:
    """The results of several calls as one. The positions of rejected jobs are not changed."""
    ids: list[str] = []
    added = duplicates = deduplicated = 0
    rejected: dict[int, str] = {}
    for part in parts:
        rejected |= part.rejected
        ids.extend(part.ids)
        added += part.added
        duplicates += part.duplicates
        deduplicated += part.deduplicated
    return Added(ids, added, duplicates, deduplicated, rejected)

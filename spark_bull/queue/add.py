"""Jobs straight into a queue, chunk by chunk; each call has the same effect when sent twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_bull.model import Added
from spark_bull.queue.handle import RECEIPT_TTL_MS, QueueHandle


def add_chunk(
    handle: QueueHandle, sender: str, number: int | str, rows: int, packed: bytes, *, want_ids: bool
) -> Added:
    """Adds one packed chunk of `rows` jobs. `sender` and `number` identify the call."""
    first, added, duplicates = 1, 0, 0
    ids: list[str] = []
    while first <= rows:
        reply: list[Any] = handle.run(
            "add",
            {
                "number": number,
                "from": first,
                "chunk": packed,
                "want_ids": int(want_ids),
                "ttl_ms": RECEIPT_TTL_MS,
            },
            receipt=handle.keys.receipt(sender),
        )
        first = int(reply[0])
        added += int(reply[1])
        duplicates += int(reply[2])
        ids.extend(_text(job_id) for job_id in reply[3])
    return Added(ids, added, duplicates)


def _text(value: bytes | int) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def sum_of(parts: Iterable[Added]) -> Added:
    ids: list[str] = []
    added = duplicates = 0
    for part in parts:
        ids.extend(part.ids)
        added += part.added
        duplicates += part.duplicates
    return Added(ids, added, duplicates)

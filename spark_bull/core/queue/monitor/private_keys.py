"""Finds the ledgers, and the workers of Spark, that a queue has keys of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_bull.core.dialects.fields import text_of
from spark_bull.core.keys import literal_glob
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.monitor.keyspace import scan

#: In place of a name, to get the beginning of a key.
_NOBODY: Final = ""


@dataclass(frozen=True)
class Ledger:
    """The ledger of a reader of results. `entries`: those that are not committed; `expires_in_ms`: None: never."""

    queue: str
    reader: str
    owner: str | None
    entries: int
    expires_in_ms: int | None


def ledgers(handle: QueueHandle) -> list[Ledger]:
    """The ledgers of a queue, by reader. Scans all keys of the database."""
    start, _, end = handle.keys.results(_NOBODY)["track"].rpartition("::")
    keys = _scan(handle, f"{start}:", f":{end}")
    return [_ledger(handle, key[len(start) + 1 : -len(end) - 1]) for key in keys]


def _ledger(handle: QueueHandle, reader: str) -> Ledger:
    keys = handle.keys.results(reader)
    owner, entries, ttl = handle.connection.pipeline(
        [("HGET", keys["track"], "owner"), ("LLEN", keys["ledger"]), ("PTTL", keys["track"])]
    )
    return Ledger(handle.keys.queue, reader, text_of(owner), int(entries), int(ttl) if ttl >= 0 else None)


def workers_of_spark(handle: QueueHandle) -> Sequence[str]:
    """Names of the workers of Spark whose slots have reported. Scans all keys of the database."""
    start = handle.keys.slots(_NOBODY)
    return [key[len(start) :] for key in _scan(handle, start, "")]


def _scan(handle: QueueHandle, start: str, end: str) -> list[str]:
    pattern = f"{literal_glob(start)}*{literal_glob(end)}"
    return sorted({key.decode("utf-8", "replace") for keys in scan(handle.connection, pattern) for key in keys})

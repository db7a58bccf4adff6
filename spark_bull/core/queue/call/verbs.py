"""The verbs of calls: one function for each script, with its name; see core/queue/handle/verbs.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgpack

from spark_bull.core.queue.handle.handle import REMOVE_SIZE, QueueHandle

#: Calls of one script that ends or gathers them: to end 100 takes Redis 2 ms.
CHUNK: Final = 100
#: Calls of one script that adds them.
ADDED: Final = 250
#: Characters of the payloads of one script.
MOST_BYTES: Final = 1 << 20


def chunks(texts: Sequence[str], most: int = CHUNK) -> Iterator[tuple[int, int]]:
    """Splits rows into chunks of limited number and size: their first rows, and the rows after their last ones."""
    start = size = 0
    for stop, text in enumerate(texts):
        if stop > start and (stop - start == most or size + len(text or "") > MOST_BYTES):
            yield start, stop
            start, size = stop, 0
        size += len(text or "")
    if start < len(texts):
        yield start, len(texts)


#: TTL of the lease of a caller: jobs of one without a lease are removed as long as they wait.
CALL_LEASE_MS: Final = 60_000
#: How long the parents of a caller outlive its results until the jobs that it has left are removed.
_SWEPT_WITHIN_MS: Final = 86_400_000


class AddedCalls(NamedTuple):
    """The number of jobs that were added, and the rows of the calls that have ended before, from 0."""

    added: int
    ended: list[int]


def add_calls(handle: QueueHandle, caller: str, packed: bytes, *, keep_ms: int, keeps: bool) -> AddedCalls | None:
    """Adds the calls of a packed chunk that are neither pending nor ended. None: the queue accepts no jobs.

    keeps: whether their jobs are kept when they end, until they are gathered.
    """
    args = {
        "caller": caller,
        "chunk": packed,
        "pending": handle.keys.never_ends,
        "keep_ms": keep_ms,
        "keeps": int(keeps),
        "lease_ms": CALL_LEASE_MS,
        "open_ms": keep_ms + _SWEPT_WITHIN_MS,
    }
    reply = handle.run("add_calls", args)
    if reply[0] == b"closed":
        return None
    return AddedCalls(reply[0], [row - 1 for row in reply[1]])


def hold_calls(handle: QueueHandle, caller: str, parents: Sequence[str], *, keep_ms: int, ended: bool) -> int:
    """Renews the lease of a caller, or gives it up, and keeps its results; returns the time of Redis, ms since 1970.

    parents: the keys of its parents. ended: all its calls have ended; another caller of its name may still need them.
    """
    args = {
        "caller": caller,
        "keep_ms": max(keep_ms, CALL_LEASE_MS) if ended else keep_ms + _SWEPT_WITHIN_MS,
        "lease_ms": CALL_LEASE_MS,
        "ended": int(ended),
        "parents": parents,
    }
    return int(handle.run("hold_calls", args))


def end_calls(handle: QueueHandle, job_ids: Sequence[str], parent_ids: Sequence[str], reason: str) -> int:
    """Ends pending calls with a reason, and removes their jobs; returns how many of the first calls are done."""
    return int(handle.run("end_calls", {"calls": _calls(job_ids, parent_ids), "reason": reason}))


def gather_calls(handle: QueueHandle, job_ids: Sequence[str | bytes], parent_ids: Sequence[str]) -> None:
    """Moves the outcomes and details of calls that have ended to their parents, and removes their jobs."""
    handle.run("gather_calls", {"calls": _calls(job_ids, parent_ids)})


def _calls(job_ids: Sequence[str | bytes], parent_ids: Sequence[str]) -> bytes:
    packed: bytes = msgpack.packb([[*job_ids], [*parent_ids]], use_bin_type=False)
    return packed


class Swept(NamedTuple):
    """The position to go on from, b"" at the end; how many jobs were removed, and how many stay."""

    position: bytes
    removed: int
    stay: int


def sweep_calls(
    handle: QueueHandle, caller: str, parent: str, position: bytes, *, left: int, is_last: bool
) -> Swept | None:
    """Removes pending jobs of one parent of a caller whose lease has lapsed. None: it has not."""
    args = {
        "caller": caller,
        "position": position,
        "limit": REMOVE_SIZE,
        "left": left,
        "is_last": int(is_last),
        "lease_ms": CALL_LEASE_MS,
    }
    reply = handle.run("sweep_calls", args, parent=parent)
    return None if reply[0] == b"held" else Swept(*reply)

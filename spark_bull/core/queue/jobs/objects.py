"""The objects in which payloads and results of jobs are stored are deleted with the jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from spark_bull.core.dialects.base import StateKey
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, REMOVE_SIZE, QueueHandle

#: The fields of a job that may be stored elsewhere.
KEPT_FIELDS: Final = ("data", "returnvalue")
#: Ids of a list that a call looks at for each one that it may remove, as core/lua/lib/remove.lua.
_LOOKS: Final = 5


@contextmanager
def deleting_objects(handle: QueueHandle, ids: Callable[[], Iterable[bytes]]) -> Iterator[None]:
    """After the block, deletes the stored objects of the jobs that the block removed. Keeps a child's result: its
    parent refers to the same object.

    ids: of the jobs that may be removed; called before the block, unless nothing is stored elsewhere.
    """
    if handle.payloads.root is None:
        yield
        return
    base, paths, remaining = handle.keys.base.encode(), dict[bytes, set[str]](), iter(ids())
    while part := list(islice(remaining, CHUNK_SIZE)):
        rows = handle.connection.pipeline(
            [("HMGET", base + job_id, "parentKey", *KEPT_FIELDS) for job_id in part], raw=True
        )
        for job_id, (parent, data, returnvalue) in zip(part, rows, strict=True):
            texts = [data] if parent else [data, returnvalue]
            if stored := handle.payloads.paths(handle.keys, texts):
                paths[job_id] = stored
    yield
    jobs = [*paths]
    for start in range(0, len(jobs), CHUNK_SIZE):
        part = jobs[start : start + CHUNK_SIZE]
        there = handle.connection.pipeline([("EXISTS", base + job_id) for job_id in part], raw=True)
        gone = [job_id for job_id, exists in zip(part, there, strict=True) if not exists]
        handle.payloads.delete(path for job_id in gone for path in paths[job_id])


def swept_ids(handle: QueueHandle, store: StateKey, position: bytes) -> list[bytes]:
    """The jobs of a state among which a call of `clean` or `drain` removes some; see core/lua/lib/remove.lua."""
    key, call = handle.keys[store.key], handle.connection.call
    if store.kind == "set":
        ids: list[bytes] = list(call("SSCAN", key, position, "COUNT", REMOVE_SIZE)[1])
        return ids
    start = int(position)
    if store.kind == "list":
        return list(call("LRANGE", key, -start - _LOOKS * REMOVE_SIZE, -start - 1))
    return list(call("ZRANGE", key, start, start + REMOVE_SIZE - 1))

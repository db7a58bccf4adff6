"""Finds the jobs that an earlier attempt of the same Spark task has settled."""

from __future__ import annotations

from collections.abc import Sequence

from spark_bull.queue.core.handle import RECEIPT_TTL_MS, QueueHandle
from spark_bull.spark.process.settle.rows import Row


def remember_settled(handle: QueueHandle, rows: Sequence[Row]) -> None:
    """Records that these jobs were settled: as they run again, Redis does not show it."""
    by_key: dict[str, list[str]] = {}
    for row in rows:
        by_key.setdefault(handle.keys.settled_again(row.token), []).append(row.id)
    if by_key:
        adds = [("SADD", key, *ids) for key, ids in by_key.items()]
        limits = [("PEXPIRE", key, RECEIPT_TTL_MS) for key in by_key]
        handle.connection.pipeline([*adds, *limits])


def was_settled(handle: QueueHandle, row: Row, why: str) -> bool:
    """Whether an earlier attempt has settled a job whose outcome was rejected. why: one of LOST."""
    if why in ("unlocked", "missing") and _has_ended(handle, row.id):
        return True
    return why in ("unlocked", "missing", "owner") and _is_remembered(handle, row)


def _has_ended(handle: QueueHandle, job_id: str) -> bool:
    keys = handle.keys
    if handle.dialect.has("finish-times"):
        return bool(handle.connection.call("HEXISTS", keys.job(job_id), "finishedOn"))
    checks = [("SISMEMBER", keys["completed"], job_id), ("SISMEMBER", keys["failed"], job_id)]
    return any(handle.connection.pipeline(checks))


def _is_remembered(handle: QueueHandle, row: Row) -> bool:
    return bool(handle.connection.call("SISMEMBER", handle.keys.settled_again(row.token), row.id))

"""The verbs of one job, and of events, for all rooms: one function for each script, with its name.

The modules `verbs` of the rooms have the functions of the other scripts in `lua/<dialect>/` and `lua/job/`. The
contract at the head of a script says what it does; the functions give it types. Every verb handles at most one chunk. A
call that is repeated after a lost reply has the same effect: by what it does, or by a stored reply (a receipt). For a
receipt, the caller or `run_once` names the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_bull.core.queue.handle.handle import QueueHandle

#: Replies of `progress`, `log` and `update_data`: the job does not exist, its lock does not hold the token.
MISSING: Final = -1
LOCK_LOST: Final = -2


def progress(handle: QueueHandle, job_id: str, value: str, *, lock_token: str, of_checkpoint: bool) -> int:
    """Stores and publishes the progress of a job, JSON text. Returns 0, MISSING or LOCK_LOST.

    of_checkpoint: whether a checkpoint is added or removed.
    """
    args = {"job_id": job_id, "progress": value, "lock_token": lock_token, "of_checkpoint": int(of_checkpoint)}
    return int(handle.run("progress", args, job=handle.keys.job(job_id), lock=handle.keys.lock(job_id)))


def log(handle: QueueHandle, job_id: str, row: str, *, keep: int) -> int:
    """Adds a row to a job's log, of which the last `keep` rows stay (0: all). Returns their number, or MISSING."""
    keys = {"job": handle.keys.job(job_id), "logs": handle.keys.logs(job_id)}
    return int(handle.run_once("log", {"row": row, "keep": keep}, **keys))


def update_data(handle: QueueHandle, job_id: str, data: str) -> int:
    """Replaces a job's payload, JSON text. Returns 0 or MISSING."""
    return int(handle.run("update_data", {"data": data}, job=handle.keys.job(job_id)))


def publish(handle: QueueHandle, fields: Sequence[str], *, max_events: int | None) -> str:
    """Adds an event, names and values of fields, to the stream of events; returns its id.

    max_events: about how many events the stream keeps; None: as many as the queue says.
    """
    entry_id: bytes = handle.run_once("publish", {"fields": fields, "max_events": max_events or ""})
    return entry_id.decode()

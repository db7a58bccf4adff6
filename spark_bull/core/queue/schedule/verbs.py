"""The verbs of job schedulers: one function for each script, with its name; see core/queue/handle/verbs.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from spark_bull.core.dialects.base import NextJob
from spark_bull.core.queue.handle.admission import Refusal, refusal_of
from spark_bull.core.queue.handle.handle import RECEIPT_TTL_MS, QueueHandle


def advance(handle: QueueHandle, receipt: str, call: str, jobs: Sequence[NextJob], *, again: bool) -> list[str]:
    """Adds the next jobs of job schedulers; returns what became of each, see the dialects' advance.lua."""
    args = {
        "call": call,
        "ttl_ms": RECEIPT_TTL_MS,
        "again": int(again),
        "jobs": msgpack.packb(
            [{name: value for name, value in job.items() if value is not None} for job in jobs], use_bin_type=False
        ),
    }
    return [outcome.decode() for outcome in handle.run("advance", args, receipt=receipt)]


class ScheduleReply(NamedTuple):
    """`first`: number of the first row that was not processed. `due`: when the next jobs are due, ms. `rejected`: rows,
    counted from 1, of job schedulers whose next job can't be added, and the id of the job that prevents it.
    """

    first: int
    due: list[int]
    rejected: list[tuple[int, str]]


def schedule(handle: QueueHandle, packed: bytes, *, first: int) -> ScheduleReply | Refusal:
    """Creates or changes the job schedulers of a packed chunk from its row `first` on."""
    reply = handle.run_once("schedule", {"from": first, "chunk": packed})
    refusal = refusal_of(reply)
    if refusal is not None:
        return refusal
    reached, due, rejected = reply
    return ScheduleReply(reached, due, [(row, job_id.decode()) for row, job_id in rejected])


def unschedule(handle: QueueHandle, members: Sequence[tuple[str, str]]) -> int:
    """Removes job schedulers and their delayed jobs; returns the number of job schedulers.

    members: of the ZSET of job schedulers, with the start of the ids of their jobs.
    """
    return int(handle.run_once("unschedule", {"members": [part for member in members for part in member]}))

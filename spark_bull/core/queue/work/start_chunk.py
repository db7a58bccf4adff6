"""Starts jobs of a micro-batch. Those that have expired since their claim return to the queue, which fails them."""

from __future__ import annotations

from uuid import uuid4

from spark_bull.core.model.columns import listed
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work import verbs
from spark_bull.core.queue.work.claim import work
from spark_bull.core.queue.work.claimed_fields import ClaimedChunk


def start_chunk(handle: QueueHandle, token: str, chunk: ClaimedChunk) -> ClaimedChunk:
    """Returns the jobs of a claim that start now, or have started before. Repeated calls return the same ones.

    Sends nothing for jobs that can't expire. token: that of their locks. Raises ConnectionLost.
    """
    times = listed(chunk.columns[handle.dialect.claim_fields["expire_at"]], len(chunk.ids))
    may_expire = [job_id for job_id, time in zip(chunk.ids, times, strict=True) if time]
    gone = verbs.start(handle, token, may_expire) if may_expire else []
    if not gone:
        return chunk
    work(handle, ClaimSettings(f"expired:{uuid4().hex}"), Outcomes(token, unstarted=gone), 0)
    return chunk.without(gone)

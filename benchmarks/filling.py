"""Jobs for workers: the payload, and queues filled before the clock starts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from benchmarks.workers import QUEUE
from spark_bull import BullQueue, NewJob, RawJson


def queue_at(url: str, protocol: str = "bullmq") -> BullQueue:
    """Adds more in a call than by default: nobody else is on the server while it is filled."""
    return BullQueue(QUEUE, url=url, protocol=protocol, chunk_size=1_000)


def payload(number: int) -> RawJson:
    """About 200 bytes of JSON, the same as what dispatch adds."""
    fields = {"id": number, "carrier": "UA", "origin": "EWR", "note": "x" * 120, "delay": number % 60}
    return RawJson(json.dumps(fields | {"ratio": number / 7}, separators=(",", ":")))


def plain(jobs: int) -> Iterator[NewJob]:
    return (NewJob(payload(number), "flight") for number in range(jobs))


def passing(jobs: int) -> Iterator[NewJob]:
    """Jobs that leave nothing behind, to warm workers up."""
    return (NewJob(payload(number), "flight", remove_on_complete=True) for number in range(jobs))


def due(moments: Iterable[int], offset_ms: float) -> Iterator[NewJob]:
    """Jobs due at these moments, ms since 1970; their payload's `at` says when that is on another clock."""
    return (NewJob({"at": moment + offset_ms}, "ping", run_at=moment) for moment in moments)


def pending(jobs: int) -> Iterator[NewJob]:
    """Delayed jobs that are due tomorrow."""
    return (NewJob(payload(number), "flight", delay=86_400_000 + number) for number in range(jobs))


def overdue(jobs: int, moment: int) -> Iterator[NewJob]:
    """Delayed jobs that were due before a moment that has passed, ms since 1970: a thousand in a ms, in their order.

    BullMQ keeps the order of 4,096 jobs that are due in one ms, and no more.
    """
    first = moment - jobs // 1_000 - 1_000
    return (NewJob(payload(n), "flight", timestamp=first + n // 1_000, delay=1_000) for n in range(jobs))

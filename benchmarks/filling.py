"""The jobs of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from benchmarks.workers import QUEUE
from spark_bull import BullQueue, NewJob, RawJson
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Claim, Outcomes
from spark_bull.core.queue.work.claim import work

CLAIM_SETTINGS = WorkSettings("finisher")
RETURNVALUE = '{"ok":true,"bytes":1234}'
#: Jobs completed per call.
CHUNK = 500


def queue_at(url: str, protocol: str = "bullmq") -> BullQueue:
    """Opens the queue with a large chunk size, as no other client uses the server while it is filled."""
    return BullQueue(QUEUE, url=url, protocol=protocol, chunk_size=1_000)


def payload(number: int, size: int = 200) -> RawJson:
    """Returns about `size` bytes of JSON, by default the same as the payload of the dispatch benchmark."""
    fields = {"id": number, "carrier": "UA", "origin": "EWR", "note": "x" * (size - 80), "delay": number % 60}
    return RawJson(json.dumps(fields | {"ratio": number / 7}, separators=(",", ":")))


def plain(jobs: int) -> Iterator[NewJob]:
    return (NewJob(payload(number), "flight") for number in range(jobs))


def passing(jobs: int) -> Iterator[NewJob]:
    """Returns jobs that are removed on completion, to warm up workers."""
    return (NewJob(payload(number), "flight", remove_on_complete=True) for number in range(jobs))


def of_tenant(tenant: str, jobs: int) -> Iterator[NewJob]:
    return (NewJob({"tenant": tenant, "at": 0}, "flight") for _ in range(jobs))


def due(moments: Iterable[int], offset_ms: float) -> Iterator[NewJob]:
    """Returns jobs due at these times, ms since 1970. `at` in the payload is the same time on another clock."""
    return (NewJob({"at": moment + offset_ms}, "ping", run_at=moment) for moment in moments)


def pending(jobs: int) -> Iterator[NewJob]:
    """Returns delayed jobs that are due tomorrow."""
    return (NewJob(payload(number), "flight", delay=86_400_000 + number) for number in range(jobs))


def overdue(jobs: int, moment: int) -> Iterator[NewJob]:
    """Returns delayed jobs that were due before a past time, ms since 1970: 1,000 per ms, in order.

    BullMQ preserves the order of at most 4,096 jobs per ms.
    """
    first = moment - jobs // 1_000 - 1_000
    return (NewJob(payload(n), "flight", timestamp=first + n // 1_000, delay=1_000) for n in range(jobs))


def fill_finished(queue: BullQueue, jobs: int) -> None:
    """Adds jobs and completes all waiting jobs."""
    queue.add_many(plain(jobs))
    done = _completed(work(queue.handle, CLAIM_SETTINGS, None, CHUNK))
    while len(done):
        done = _completed(work(queue.handle, CLAIM_SETTINGS, done, CHUNK))


def _completed(claim: Claim) -> Outcomes:
    outcomes = Outcomes(claim.token)
    for job in claim.jobs:
        outcomes.complete(job.id, RETURNVALUE)
    return outcomes

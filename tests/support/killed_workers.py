"""Workers on the queue `q` that run until they are killed, as processes."""

from __future__ import annotations

import threading
import time

from spark_bull import BullQueue, NewJob, Promoter
from spark_bull.model.group_limits import GroupLimits
from spark_bull.worker.job.running_job import RunningJob
from tests.support.worker import OurWorker


def work_on_groups(url: str, prefix: str, protocol: str) -> None:
    """Starts two jobs of each tenant, which do not end."""
    forever, limits = threading.Event(), GroupLimits("tenant", concurrency=2)
    with (
        BullQueue("q", url=url, prefix=prefix, protocol=protocol) as queue,
        OurWorker(queue.handle, lambda job: forever.wait(), concurrency=8, lock_ms=1_000, group=limits),
    ):
        forever.wait()


def work_with_follow_ups(url: str, prefix: str, protocol: str, concurrency: int) -> None:
    """Each job has a follow-up in another queue and one in its own."""

    def processor(job: RunningJob) -> None:
        if "of" not in job.data:
            job.then(NewJob({"of": job.data["n"]}))
            job.then(NewJob({"of": job.data["n"]}), queue="next")
            time.sleep(0.002)

    with (
        BullQueue("q", url=url, prefix=prefix, protocol=protocol) as queue,
        OurWorker(queue.handle, processor, chunk_size=10, concurrency=concurrency, lock_ms=500),
    ):
        threading.Event().wait()


def work(url: str, prefix: str) -> None:
    """Completes each job after 1 ms."""
    with (
        BullQueue("q", url=url, prefix=prefix) as queue,
        OurWorker(queue.handle, lambda job: time.sleep(0.001), chunk_size=5, lock_ms=500),
    ):
        threading.Event().wait()


def promote(url: str, prefix: str) -> None:
    """Promotes jobs, and rescues stalled ones, however often they have stalled."""
    with Promoter(url, queues=["q"], prefix=prefix, check_ms=500, max_stalled=1_000):
        threading.Event().wait()

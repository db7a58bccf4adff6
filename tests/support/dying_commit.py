"""A process that writes jobs exactly once and kills itself at a given point.

`point` is "staged", or the number of commits after which to die: 0 is right after the write was registered.
"""

from __future__ import annotations

import os
import signal
import sys
from random import Random

from spark_bull.model.jobs import NewJob
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.dispatch.registration import register
from spark_bull.queue.dispatch.writes import roll_forward
from tests.support.forked_process import exit_code
from tests.support.jobs import new_job_arguments, random_jobs
from tests.support.writes import stage_all

#: The timestamp of all jobs, in the past, so that two writes of the same jobs are equal.
NOW = 1_700_000_000_000


def partitions_of(seed: int, count: int, dialect: str) -> list[list[NewJob]]:
    """The same jobs for the same seed, in three partitions, one of which is empty."""
    jobs = random_jobs(Random(seed), dialect, count, custom_ids=True, big=False, now=NOW)
    made = [NewJob(**{"timestamp": NOW, **new_job_arguments(job)}) for job in jobs]
    third = count // 3
    return [made[:third], [], made[third:]]


def write(queue: BullQueue, seed: int, count: int, chunk_size: int, die_at: str) -> None:
    def die_if(point: str) -> None:
        if point == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    write_id = f"write-{seed}"
    plan = stage_all(queue.handle, write_id, partitions_of(seed, count, queue.protocol), chunk_size)
    die_if("staged")
    register(write_id, [plan], None)
    die_if("0")
    commits = iter(range(1, sys.maxsize))
    roll_forward(queue.handle, write_id, lambda done, total: die_if(str(next(commits))))


def run(url: str, prefix: str, queue: str, dialect: str, seed: int, count: int, chunk_size: int, point: str) -> int:
    """Writes the jobs in a separate process; returns its exit code."""
    return exit_code(_run, url, prefix, queue, dialect, seed, count, chunk_size, point)


def _run(url: str, prefix: str, name: str, dialect: str, seed: int, count: int, chunk_size: int, point: str) -> None:
    with BullQueue(name, url=url, prefix=prefix, protocol=dialect) as queue:
        write(queue, seed, count, chunk_size, point)

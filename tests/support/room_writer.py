"""Processes that write jobs to a queue with a maximum length."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from spark_bull.errors import QueueFull
from spark_bull.model.jobs import NewJob
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.length_limit import LengthLimit
from spark_bull.queue.dispatch.registration import register
from spark_bull.queue.dispatch.writes import roll_forward
from tests.support.forked_process import CONTEXT
from tests.support.writes import stage_all

CHUNK = 50


def add(queue: BullQueue, jobs: list[NewJob]) -> int:
    """Adds chunk after chunk; returns the number of added jobs."""
    added = 0
    for first in range(0, len(jobs), CHUNK):
        try:
            added += queue.add_many(jobs[first : first + CHUNK]).added
        except QueueFull:
            break
    return added


def write(queue: BullQueue, writer: str, jobs: list[NewJob], limit: LengthLimit) -> int:
    """Adds the jobs as the sink does, exactly once."""
    write_id = f"write-{writer}"
    try:
        register(write_id, [stage_all(queue.handle, write_id, [jobs], CHUNK, **limit.fields)], None)
    except QueueFull:
        return 0
    return roll_forward(queue.handle, write_id).added


def write_jobs(options: dict[str, Any], name: str, writer: str, number: int, how: str) -> int:
    """Writes jobs with the ids `<writer>-<number>`, `direct` or `staged`; returns how many have been added."""
    with BullQueue(name, **options) as queue:
        jobs = [NewJob({"n": n}, job_id=f"{writer}-{n}") for n in range(number)]
        if how == "direct":
            return add(queue, jobs)
        return write(queue, writer, jobs, LengthLimit(options["max_length"], options["when_full"]))


@contextmanager
def processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that run `write_jobs`."""
    with ProcessPoolExecutor(number, mp_context=CONTEXT) as pool:
        yield pool

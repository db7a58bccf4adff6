"""Programs that die while they write, change or process jobs: functions for a forked process."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull import BullQueue, Change, NewJob, RunningJob
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.manage import bulk
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.scripts import Command
from tests.support.forked_programs import ForkedProcess
from tests.support.jobs import new_job_arguments, random_jobs
from tests.support.without_spark import ClaimingQuery, ManageSink, Sink
from tests.support.writes import register_all


def dies_at(number: int, when: str, run: Callable[..., object], *arguments: Any, **named: Any) -> bool:
    """Runs a function in a process that is killed at its call of a script with this number; whether that call came.

    The calls of a pipeline count one by one. when: before or after the call.
    """
    return ForkedProcess(_die_at, number, when, run, *arguments, **named).wait() == -signal.SIGKILL


def _die_at(number: int, when: str, run: Callable[..., object], *arguments: Any, **named: Any) -> None:
    script, pipeline, calls = Connection.script, Connection.pipeline, count(1)

    def dying(self: Connection, *call: Any) -> Any:
        is_last = next(calls) == number
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        reply = script(self, *call)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    def dying_in_a_pipeline(self: Connection, commands: Sequence[Command], *what: str, **how: Any) -> list[Any]:
        for at, command in enumerate(commands):
            if command[0] == "EVAL" and next(calls) == number:
                pipeline(self, commands[: at + (when == "after")])
                os.kill(os.getpid(), signal.SIGKILL)
        return pipeline(self, commands, *what, **how)

    Connection.script, Connection.pipeline = dying, dying_in_a_pipeline
    run(*arguments, **named)


ROWS = StructType().add("n", IntegerType()).add("key", StringType())
CHANGES = StructType().add("id", StringType()).add("data", StringType()).add("to", StringType())
TASKS = 2
KEYS = 3


def rows_of(jobs: int) -> list[dict[str, Any]]:
    return [{"n": n, "key": f"key-{n % KEYS}"} for task in range(TASKS) for n in range(task, jobs, TASKS)]


def staged(options: dict[str, str], jobs: int) -> Sink:
    """The jobs in two tasks, not yet committed; with the option `mode` = manage, changes of the jobs `key-<number>`."""
    rows = rows_of(jobs)
    if options.get("mode") == "manage":
        rows = [{"id": f"key-{row['n']}", "data": f'{{"n": {row["n"]}}}', "to": "later"} for row in rows]
        sink: Sink = ManageSink(options, CHANGES)
    else:
        sink = Sink(options, ROWS)
    half = (jobs + 1) // TASKS
    for task in (rows[:half], rows[half:]):
        sink.task(task)
    return sink


def write_rows(options: dict[str, str], jobs: int) -> None:
    staged(options, jobs).commit()


def kill_and_repeat(options: dict[str, str], jobs: int, call: int, when: str) -> bool:
    """A write is killed, and then repeated, as a scheduler does. Returns whether it was killed."""
    is_killed = dies_at(call, when, write_rows, options, jobs)
    write_rows(options, jobs)
    return is_killed


def move_all(url: str, prefix: str, protocol: str, chunk_size: int) -> None:
    """Moves all waiting jobs of `q` to `later` in one write."""
    bulk.CHUNK_SIZE = chunk_size
    with BullQueue("q", url=url, prefix=prefix, protocol=protocol) as queue:
        bulk.BulkChange(queue.handle, Change("", "move", to="later")).run(bulk.matching_ids(queue.handle, "wait"))


#: The timestamp of all jobs, in the past, so that two writes of the same jobs are equal.
_NOW = 1_700_000_000_000


def partitions_of(seed: int, count: int, dialect: str) -> list[list[NewJob]]:
    """The same jobs for the same seed, in three partitions, one of which is empty."""
    jobs = random_jobs(Random(seed), dialect, count, custom_ids=True, big=False, now=_NOW)
    made = [NewJob(**{"timestamp": _NOW, **new_job_arguments(job)}) for job in jobs]
    third = count // 3
    return [made[:third], [], made[third:]]


def write_partitions(name: str, options: dict[str, Any], seed: int, jobs: int, chunk_size: int) -> None:
    with BullQueue(name, **options) as queue:
        register_all(queue.handle, "w", partitions_of(seed, jobs, queue.protocol), chunk_size)
        roll_forward(queue.handle, "w")


def claim_and_die(file: Path, place: dict[str, str], **options: Any) -> None:
    """Claims the jobs of a batch of `q`. file: for its offsets, as JSON."""
    query = ClaimingQuery(BullQueue("q", **place), **options)
    query.batch()
    file.write_text(json.dumps([query.start, query.end]))
    os.kill(os.getpid(), signal.SIGKILL)


def never_end(job: RunningJob) -> None:
    threading.Event().wait()


def add_follow_ups(job: RunningJob) -> None:
    """Each job has a follow-up in another queue and one in its own, which have none."""
    if "of" not in job.data:
        job.then(NewJob({"of": job.data["n"]}))
        job.then(NewJob({"of": job.data["n"]}), queue="next")
        time.sleep(0.002)

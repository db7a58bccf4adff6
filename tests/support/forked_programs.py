"""Python processes forked from one that has imported their modules, and the programs that tests run in them.

Python and these imports take more CPU to start than what the processes do. Most kill themselves, or are killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from multiprocessing import get_context
from random import Random
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull.core.errors import QueueFull
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.handle.admission import LengthLimit
from spark_bull.core.queue.manage import bulk
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.scripts import Command
from spark_bull.ops.cli.main import main
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.services.promoter import Promoter
from tests.support.jobs import new_job_arguments, random_jobs
from tests.support.wait import PATIENCE_S
from tests.support.without_spark import ManageSink, Sink
from tests.support.worker import OurWorker
from tests.support.writes import stage_all

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])


class ForkedProcess:
    """Runs a function of a module of tests/support; it is killed at the end of the block, if it still runs."""

    def __init__(self, run: Callable[..., object], *arguments: Any, **named: Any) -> None:
        self._process = CONTEXT.Process(target=run, args=arguments, kwargs=named)
        self._process.start()

    def end_by(self, number: int) -> int | None:
        """Sends a signal, and waits for the end; the exit status, or minus the signal that ended the process."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)
        return self.wait(PATIENCE_S)

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status, or minus the signal that ended the process; None if it runs longer than `timeout`, s."""
        self._process.join(timeout)
        return self._process.exitcode

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def was_killed(run: Callable[..., object], *arguments: Any) -> bool:
    """Runs the function until its process ends; whether it has killed itself."""
    return ForkedProcess(run, *arguments).wait() == -signal.SIGKILL


def work(url: str, prefix: str, protocol: str, processor: Callable[[RunningJob], object], **settings: Any) -> None:
    """Runs a slot until the process is killed. processor: a function of a module."""
    queue = BullQueue("q", url=url, prefix=prefix, protocol=protocol)
    OurWorker(queue.handle, processor, **settings).loop.run()


def never_end(job: RunningJob) -> None:
    threading.Event().wait()


def add_follow_ups(job: RunningJob) -> None:
    """Each job has a follow-up in another queue and one in its own, which have none."""
    if "of" not in job.data:
        job.then(NewJob({"of": job.data["n"]}))
        job.then(NewJob({"of": job.data["n"]}), queue="next")
        time.sleep(0.002)


def take_a_ms(job: RunningJob) -> None:
    time.sleep(0.001)


def promote(url: str, prefix: str, **arguments: Any) -> None:
    """Runs a promoter until the process is killed."""
    with Promoter(url, ["q"], prefix=prefix, **arguments) as promoter:
        promoter.await_termination()


def run_command(arguments: Sequence[str]) -> None:
    sys.exit(main(arguments))


ROWS = StructType().add("n", IntegerType()).add("key", StringType())
CHANGES = StructType().add("id", StringType()).add("data", StringType()).add("to", StringType())
TASKS = 2
KEYS = 3


def rows_of_tasks(jobs: int) -> list[list[dict[str, Any]]]:
    return [[{"n": n, "key": f"key-{n % KEYS}"} for n in range(first, jobs, TASKS)] for first in range(TASKS)]


def changes_of_tasks(jobs: int) -> list[list[dict[str, Any]]]:
    return [
        [{"id": f"key-{n}", "data": f'{{"n": {n}}}', "to": "later"} for n in range(first, jobs, TASKS)]
        for first in range(TASKS)
    ]


def write_rows(options: dict[str, str], jobs: int) -> None:
    """Writes the jobs in two tasks; with the option `mode` = manage, changes the jobs `key-<number>`."""
    is_managed = options.get("mode") == "manage"
    sink = ManageSink(options, CHANGES) if is_managed else Sink(options, ROWS)
    for rows in changes_of_tasks(jobs) if is_managed else rows_of_tasks(jobs):
        sink.task(rows)
    sink.commit()


def write_and_die(options: dict[str, str], jobs: int, call: int, when: str) -> None:
    die_at(call, when)
    write_rows(options, jobs)


def move_all_and_die(url: str, prefix: str, protocol: str, chunk_size: int, call: int, when: str) -> None:
    """Moves all waiting jobs of `q` to `later` in one write."""
    setattr(bulk, "CHUNK_SIZE", chunk_size)  # noqa: B010
    die_at(call, when)
    with BullQueue("q", url=url, prefix=prefix, protocol=protocol) as queue:
        bulk.BulkChange(queue.handle, Change("", "move", to="later")).run(bulk.matching_ids(queue.handle, "wait"))


def die_at(number: int, when: str) -> None:
    """Lets the process die at its call of a script with this number; the calls of a pipeline count one by one."""
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

    Connection.script = dying  # type: ignore[method-assign, assignment]
    Connection.pipeline = dying_in_a_pipeline  # type: ignore[method-assign]


#: Its jobs are stalled soon after it has died.
_LOCK_MS = 1_000


def work_and_die(url: str, prefix: str, dialect: str, call: int, when: str) -> None:
    worker = OurWorker(BullQueue("q", url=url, prefix=prefix, protocol=dialect).handle, chunk_size=7, lock_ms=_LOCK_MS)
    die_at(call, when)
    worker.loop.run()


#: The timestamp of all jobs, in the past, so that two writes of the same jobs are equal.
_NOW = 1_700_000_000_000


def partitions_of(seed: int, count: int, dialect: str) -> list[list[NewJob]]:
    """The same jobs for the same seed, in three partitions, one of which is empty."""
    jobs = random_jobs(Random(seed), dialect, count, custom_ids=True, big=False, now=_NOW)
    made = [NewJob(**{"timestamp": _NOW, **new_job_arguments(job)}) for job in jobs]
    third = count // 3
    return [made[:third], [], made[third:]]


def commit_and_die(
    url: str, prefix: str, name: str, dialect: str, seed: int, jobs: int, chunk_size: int, die_at: str
) -> None:
    """Writes jobs exactly once.

    die_at: "staged", or the number of commits after which to die; 0: right after the write was registered.
    """

    def die_if(point: str) -> None:
        if point == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    queue, write_id, commits = BullQueue(name, url=url, prefix=prefix, protocol=dialect), f"write-{seed}", count(1)
    plan = stage_all(queue.handle, write_id, partitions_of(seed, jobs, dialect), chunk_size)
    die_if("staged")
    register(write_id, [plan], None)
    die_if("0")
    roll_forward(queue.handle, write_id, lambda done, total: die_if(str(next(commits))))


_CHUNK = 50


def _add_chunks(queue: BullQueue, jobs: list[NewJob]) -> int:
    added = 0
    for first in range(0, len(jobs), _CHUNK):
        try:
            added += queue.add_many(jobs[first : first + _CHUNK]).added
        except QueueFull:
            break
    return added


def _write_once(queue: BullQueue, writer: str, jobs: list[NewJob], limit: LengthLimit) -> int:
    write_id = f"write-{writer}"
    try:
        fields: dict[str, Any] = {**limit.fields}
        register(write_id, [stage_all(queue.handle, write_id, [jobs], _CHUNK, **fields)], None)
    except QueueFull:
        return 0
    return roll_forward(queue.handle, write_id).added


def write_jobs(options: dict[str, Any], name: str, writer: str, number: int, how: str) -> int:
    """Writes jobs with the ids `<writer>-<number>`, `direct` or `staged`; returns how many have been added."""
    with BullQueue(name, **options) as queue:
        jobs = [NewJob({"n": n}, job_id=f"{writer}-{n}") for n in range(number)]
        if how == "direct":
            return _add_chunks(queue, jobs)
        return _write_once(queue, writer, jobs, LengthLimit(options["max_length"], options["when_full"]))

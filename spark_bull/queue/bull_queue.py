"""BullQueue: one queue from plain Python, no Spark needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from spark_bull.dialects.codec import ChunkBuilder, check_defaults, defaults_of, encode, rows_of
from spark_bull.errors import OptionError, did_you_mean
from spark_bull.model import Added, Job, NewJob, WriteRecord
from spark_bull.options import WRITE, as_texts, parse_options
from spark_bull.queue import manage
from spark_bull.queue.add import add_chunk, sum_of
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.read import counts, get_job, logs, page
from spark_bull.queue.writes import records, recover

#: What `BullQueue.add` takes by name.
PROPERTIES: Final = frozenset(field.name for field in fields(NewJob)) - {"data", "name"}


class BullQueue:
    """A queue of any dialect.

        queue = BullQueue("mail", url="redis://localhost:6379")
        queue.add({"to": "ada@example.org"}, delay=60_000)

    Options are those of the data source (`prefix`, `protocol`, `timeoutMs`, …) as keyword
    arguments; `redis.*` settings go into `redis={"...": "..."}`. Raises OptionError for a bad
    option, ConnectionLost when Redis is away for longer than `retryMs`.

    Those that are properties of jobs (`attempts`, `backoff`, `removeOnComplete`, `opts`, …) are the defaults of jobs
    added here, as those of a Node queue: `BullQueue("mail", attempts=3, backoff={"type": "fixed", "delay": 500})`.
    """

    def __init__(self, queue: str, *, redis: dict[str, str] | None = None, **options: Any) -> None:
        settings = {f"redis.{name}": value for name, value in (redis or {}).items()}
        self._options = parse_options(as_texts(options) | settings, WRITE)
        self.handle: QueueHandle = open_handle(self._options, queue)
        self._defaults = defaults_of(self._options)
        check_defaults(self.handle.dialect, self._defaults)

    @property
    def name(self) -> str:
        return self.handle.keys.queue

    @property
    def protocol(self) -> str:
        """The dialect in use: bull-1, bull or bullmq."""
        return self.handle.dialect.name

    def __repr__(self) -> str:
        where = self.handle.connection.settings.where
        return f"BullQueue({self.name!r}, protocol={self.protocol!r}, url={where!r})"

    def __enter__(self) -> BullQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes this process' connections that are not in use; the next call opens a new one."""
        self.handle.connection.close()

    # dispatch

    def add(self, data: Any, name: str | None = None, **properties: Any) -> str:
        """Adds one job and returns its id; properties as in NewJob. Raises OptionError for a bad one."""
        for unknown in properties.keys() - PROPERTIES:
            raise OptionError(f"unknown property `{unknown}` of a job{did_you_mean(unknown, PROPERTIES)}")
        return self.add_many([NewJob(data, name, **properties)]).ids[0]

    def add_many(self, jobs: Iterable[NewJob]) -> Added:
        """Adds jobs in their order, a chunk in a call. A bad one is an error before its batch is sent."""
        return sum_of(self._add_many(jobs))

    def _add_many(self, jobs: Iterable[NewJob]) -> Iterator[Added]:
        builder = ChunkBuilder(self._options["chunkSize"], self._options["chunkBytes"])
        remaining, first_row = iter(jobs), 0
        while batch := list(islice(remaining, 10_000)):
            numbers = range(first_row, first_row + len(batch))
            columns = encode(self.handle.dialect, rows_of(batch, first_row), self._defaults, numbers)
            first_row += len(batch)
            for rows, packed in (*builder.add(columns), *builder.flush()):
                yield add_chunk(self.handle, self.handle.sender, uuid4().hex, rows, packed, want_ids=True)

    # inspect

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state that the dialect has."""
        return counts(self.handle)

    def get_job(self, job_id: str) -> Job | None:
        """One job with its state, or None when there is none of this id."""
        return get_job(self.handle, job_id)

    def page(self, state: str, start: int = 0, stop: int = -1) -> list[Job]:
        """Jobs start..stop of a state, both included; -1 is the last one.

        In the order in which jobs come next, or have finished; the finished jobs of bull-1 have none.
        """
        return page(self.handle, state, start, stop)

    def logs(self, job_id: str, start: int = 0, stop: int = -1) -> list[str]:
        """Rows start..stop of a job's log, both included; -1 is the last one."""
        return logs(self.handle, job_id, start, stop)

    # manage

    def pause(self) -> None:
        """Stops workers from taking further jobs; those that are active go on."""
        manage.pause(self.handle)

    def resume(self) -> None:
        """Lets workers take jobs again."""
        manage.resume(self.handle)

    def is_paused(self) -> bool:
        """Whether the queue is paused for all workers."""
        return manage.is_paused(self.handle)

    def retry(self, job_id: str, state: str = "failed") -> None:
        """Lets a job that has ended run again: a failed one, or (BullMQ) a completed one.

        Raises JobMissing, JobLocked, or WrongState when it isn't in `state`.
        """
        manage.retry(self.handle, job_id, state)

    def promote(self, job_id: str) -> None:
        """Lets a delayed job run now. Raises JobMissing, or WrongState when it isn't delayed."""
        manage.promote(self.handle, job_id)

    def remove(self, job_id: str, *, with_children: bool = True) -> None:
        """Removes a job, its logs and (BullMQ) its children; a parent that waited for it alone starts.

        Raises JobMissing, JobLocked while a worker holds it or a child, or WrongState when a job scheduler needs it.
        """
        manage.remove(self.handle, job_id, with_children=with_children, chunk_size=self._options["chunkSize"])

    def clean(self, grace_ms: int = 0, limit: int = 0, state: str = "completed") -> list[str]:
        """Removes jobs of a state that are older than `grace_ms`, at most `limit` (0: all); returns their ids.

        Age counts from when a job ended, else started, else was added; in bull-1, and for prioritised jobs of BullMQ,
        always from when it was added. Jobs that a worker holds and the next ones of job schedulers stay.
        """
        return manage.clean(self.handle, grace_ms, limit, state, chunk_size=self._options["chunkSize"])

    def drain(self, *, delayed: bool = False) -> int:
        """Removes all jobs that wait for a worker, with `delayed` also those that wait for their time; how many."""
        return manage.drain(self.handle, delayed=delayed, chunk_size=self._options["chunkSize"])

    def obliterate(self, *, force: bool = False) -> None:
        """Deletes the queue with all its jobs. Raises QueueBusy when jobs are active, unless `force`."""
        manage.obliterate(self.handle, force=force, chunk_size=self._options["chunkSize"])

    # writes of Spark

    def recover(self) -> list[WriteRecord]:
        """Finishes writes whose committing process died, oldest first; their records."""
        return recover(self.handle)

    def writes(self) -> list[WriteRecord]:
        """Records of the writes of the last 30 days, unfinished ones last."""
        return records(self.handle)

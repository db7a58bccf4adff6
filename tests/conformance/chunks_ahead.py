"""A runner that makes a slot claim a chunk while another one runs, as for functions of DataFrames."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from spark_bull import BullQueue, NewJob
from spark_bull.run.job.job_runner import Result, Runner
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot import chunk_loop
from tests.support.forked_programs import work
from tests.support.wait import PATIENCE_S, wait_until

CHUNK = 3


class Frames(Runner):
    """Notes the numbers of each chunk. `meanwhile` is called in the second call; no chunk is claimed ahead before.

    The last job of the second chunk ends with the error that `meanwhile` returns.
    """

    one_by_one = False
    may_end_process = False

    def __init__(self, meanwhile: Callable[[], BaseException | None]) -> None:
        self._meanwhile = meanwhile
        self.calls: list[list[int]] = []

    def __call__(self, jobs: Sequence[RunningJob], _lost: Collection[str]) -> Iterator[Sequence[Result]]:
        left = [job for job in jobs if job.cancellation is None]
        self.calls.append([job.data["n"] for job in left])
        error = self._meanwhile() if len(self.calls) == 2 else None
        yield [Result(job, None, job.cancellation) for job in jobs if job.cancellation is not None]
        yield [Result(job, None, error if job is left[-1] else None) for job in left]

    def interrupt(self, job: RunningJob) -> None:
        """No call of these tests is interrupted."""


def add(queue: BullQueue, count: int) -> Sequence[str]:
    return queue.add_many(NewJob({"n": n}) for n in range(count)).ids


def await_next_chunk(queue: BullQueue, chunk: int = CHUNK) -> None:
    """Waits until the first chunk is settled and the third one claimed, while the second one runs."""
    wait_until(
        lambda: (queue.counts()["completed"], queue.counts()["active"]) == (chunk, 2 * chunk),
        "the next chunk to be claimed",
    )


def work_patiently(*place: Any, **settings: Any) -> None:
    """As `work`, in a process of its own; a chunk that was claimed ahead does not return while another one runs."""
    chunk_loop.RETURN_S = PATIENCE_S  # type: ignore[misc]
    work(*place, **settings)


def claims_ahead() -> bool:
    """Whether a slot of this process claims a chunk, or has claimed one, while another one runs."""
    return any(thread.name == "spark-bull-ahead" for thread in threading.enumerate())

"""Whether the books of the application on several hosts balance, job by job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_bull import BullQueue, Job
from tests.proof.books import FINAL, Cell
from tests.proof.hosts.cluster import Application

#: How long after a fault all jobs may take to end and to be collected, s; what is unfinished then is stuck.
PATIENCE_S: Final = 400.0
TITLES: Final = "| fault | rows | failed writes | jobs | runs | results | books | |\n|---|---|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Books:
    """What has become of all rows since the start of the application.

    acknowledged, failed: the rows of each write. runs, results: how often by id of a job. now: ms since 1970. ended:
    whether the worker and the query that collects have ended.
    """

    acknowledged: Sequence[Sequence[int]]
    failed: Sequence[Sequence[int]]
    jobs: Sequence[Job]
    runs: Counter[str]
    results: Counter[str]
    now: int
    ended: int = 0

    @classmethod
    def read(cls, application: Application, queue: BullQueue) -> Books:
        """Waits for the end and the result of all jobs."""
        said = application.ask("pause")
        _wait(lambda: not any(count for state, count in queue.counts().items() if state not in FINAL))
        jobs = [job for state in queue.counts() for job in queue.page(state)]
        _wait(lambda: len({*application.ask("results")}) >= len(jobs))
        results, now = Counter(application.ask("results")), application.cluster.now_ms()
        ended = (said["worker"] != "running") + bool(said["collect"])
        return cls(said["acknowledged"], said["failed"], jobs, application.runs(), results, now, ended)

    @property
    def cell(self) -> Cell:
        """A write is there as a whole, if it was acknowledged, or else as a whole or not at all."""
        rows = Counter(job.data["n"] for job in self.jobs)
        writes = [*self.acknowledged, *(write for write in self.failed if any(row in rows for row in write))]
        lost = sum(row not in rows for write in writes for row in write)
        lost += sum(self.runs[job.id] == 0 or job.state == "failed" for job in self.jobs)
        lost += sum(self.results[job.id] == 0 for job in self.jobs)
        twice = sum(times - 1 for counts in (rows, self.results) for times in counts.values())
        return Cell(
            repeats=sum(times - 1 for times in self.runs.values()),
            lost=lost,
            twice=twice,
            stuck=sum(job.state not in FINAL for job in self.jobs) + self.ended,
            out_of_order=sum(self._is_out_of_time(job) for job in self.jobs),
        )

    def _is_out_of_time(self, job: Job) -> bool:
        """Whether a job started before its delay was over, or has times that the clock of Redis excludes."""
        if job.finished_on is None:
            return False
        due = (job.timestamp or 0) + int(job.opts.get("delay", 0))
        return not due <= (job.processed_on or 0) <= job.finished_on <= self.now

    def __str__(self) -> str:
        """The cells of the table from `rows` to `books`."""
        rows, runs, results = sum(map(len, self.acknowledged)), self.runs.total(), self.results.total()
        numbers = (rows, len(self.failed), len(self.jobs), runs, results)
        return " | ".join([*(f"{number:,}" for number in numbers), str(self.cell)])


def _wait(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.5)

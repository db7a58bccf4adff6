"""Tasks of coroutine functions: no timer outlives its task."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue
from threading import Event
from typing import Any, cast

import pytest

from spark_bull.errors import JobTimeout
from spark_bull.model.outcomes import ClaimedJob
from spark_bull.worker.job.job_runner import Result
from spark_bull.worker.job.job_tasks import JobTasks
from spark_bull.worker.job.running_job import RunningJob
from tests.support.wait import PATIENCE_S, wait_until


@pytest.mark.parametrize("ends_in_time", [True, False])
def test_a_timer_that_was_renewed_ends_with_its_task(monkeypatch: pytest.MonkeyPatch, ends_in_time: bool) -> None:
    renewals: list[float] = []
    renewed = Event()
    job = RunningJob(ClaimedJob("1"), cast(Any, None))

    def extended_s(_: RunningJob) -> float:
        renewals.append(600.0 if ends_in_time else 0.0)
        renewed.set()
        return renewals[-1]

    monkeypatch.setattr(RunningJob, "extended_s", property(extended_s))
    results: SimpleQueue[Result] = SimpleQueue()
    tasks = JobTasks(results.put)

    async def process(_: RunningJob) -> str:
        while not renewed.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0 if ends_in_time else 600)
        return "done"

    tasks.start(job, process, 1)
    result = results.get(timeout=PATIENCE_S)
    assert result.value == "done" if ends_in_time else isinstance(result.error, JobTimeout)
    timers = cast(Any, tasks._loop)._scheduled
    wait_until(lambda: all(timer.cancelled() for timer in list(timers)), "the timers to be cancelled")
    assert renewals
    tasks.close()

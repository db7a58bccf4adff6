"""Ctrl-C ends a program with a worker although its jobs would run on: it returns them, and prints one line."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from spark_bull import BullQueue, NewJob
from tests.faults.drivers import driver
from tests.support.drivers import DriverProcess
from tests.support.wait import wait_until

JOBS = 5


@pytest.fixture
def program(redis_url: str, prefix: str, tmp_path: Path) -> Callable[[], DriverProcess]:
    """Starts a program with a worker, which makes the file `started`."""
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq", "started": str(tmp_path / "started")}
    return partial(driver, tmp_path / "log", "work", **options)


def ended_by_ctrl_c(process: DriverProcess) -> list[str]:
    """Sends SIGINT, checks the exit status, and returns what the program has printed about it."""
    status, printed = process.end_by(signal.SIGINT), process.output()
    assert status == 128 + signal.SIGINT, printed
    assert "Traceback" not in printed
    assert "KeyboardInterrupt" not in printed
    return [line for line in printed.splitlines() if "Ctrl-C" in line]


@pytest.mark.spark
@pytest.mark.usefixtures("forked_python")
def test_ctrl_c_ends_a_program_whose_jobs_run_on_and_returns_them(
    queue: BullQueue, program: Callable[[], DriverProcess], tmp_path: Path
) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(JOBS))

    def is_held() -> bool:
        jobs = queue.page("active")
        return len(jobs) == JOBS and any(job.progress for job in jobs) and (tmp_path / "started").exists()

    with program() as process:
        wait_until(is_held, "the worker to hold all jobs")
        (line,) = ended_by_ctrl_c(process)
    assert "0 completed" in line
    counts = queue.counts()
    assert (counts["wait"], counts["active"]) == (JOBS, 0)
    assert [job.data["n"] for job in queue.page("wait")] == list(range(JOBS))
    # A job that was running has stalled.
    assert [job.stalled_counter for job in queue.page("wait")] == [1] + [0] * (JOBS - 1)


@pytest.mark.spark
@pytest.mark.usefixtures("forked_python")
def test_a_program_stops_its_worker_on_sigterm(
    queue: BullQueue, program: Callable[[], DriverProcess], tmp_path: Path
) -> None:
    with program() as process:
        queue.add({"n": 1})
        wait_until(lambda: queue.counts()["completed"] == 1, "the worker to process a job")
        wait_until((tmp_path / "started").exists, "the program to wait for its worker")
        assert process.end_by(signal.SIGTERM) == 128 + signal.SIGTERM
    queue.add({"n": 2})
    counts = queue.counts()
    assert (counts["completed"], counts["wait"], counts["active"]) == (1, 1, 0)

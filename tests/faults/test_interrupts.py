"""Ctrl-C ends a program with a worker although its jobs would run on: it returns them, and prints one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_bull import BullQueue, NewJob
from tests.support.wait import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
JOBS = 5

#: A worker that runs until Ctrl-C. The first job never ends.
PROGRAM = """
    import sys
    import time
    from pathlib import Path
    from pyspark.sql import SparkSession
    from spark_bull import Worker
    from tests.support.wait import call_in

    url, prefix, started = sys.argv[1:]
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")


    def first_never_ends(job):
        job.update_progress(1)
        while job.data["n"] == 0:
            time.sleep(0.1)
        return job.data["n"]


    options = {"slots": 1, "url": url, "prefix": prefix, "protocol": "bullmq", "lock_ms": 3_600_000}
    with Worker(spark, "q", first_never_ends, **options) as worker:
        # Ctrl-C ends a program that waits for its worker.
        call_in(type(worker._engine).wait, Path(started).touch)
        worker.await_termination()
"""


@contextmanager
def program(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    file = folder / "program.py"
    file.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(file), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended_by_ctrl_c(process: subprocess.Popen[str]) -> list[str]:
    """Sends SIGINT, checks the exit status, and returns what the program has printed about it."""
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGINT, printed
    assert "Traceback" not in printed
    assert "KeyboardInterrupt" not in printed
    return [line for line in printed.splitlines() if "Ctrl-C" in line]


@pytest.mark.spark
@pytest.mark.usefixtures("forked_python")
def test_ctrl_c_ends_a_program_whose_jobs_run_on_and_returns_them(
    queue: BullQueue, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    arguments = [redis_url, prefix, str(tmp_path / "started")]
    queue.add_many(NewJob({"n": n}) for n in range(JOBS))

    def is_held() -> bool:
        jobs = queue.page("active")
        return len(jobs) == JOBS and any(job.progress for job in jobs) and (tmp_path / "started").exists()

    with program(*arguments, folder=tmp_path) as process:
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
def test_a_program_stops_its_worker_on_sigterm(queue: BullQueue, redis_url: str, prefix: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with program(redis_url, prefix, str(started), folder=tmp_path) as process:
        queue.add({"n": 1})
        wait_until(lambda: queue.counts()["completed"] == 1, "the worker to process a job")
        wait_until(started.exists, "the program to wait for its worker")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    queue.add({"n": 2})
    counts = queue.counts()
    assert (counts["completed"], counts["wait"], counts["active"]) == (1, 1, 0)

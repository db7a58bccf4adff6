"""LocalWorker: what it refuses, that it needs no PySpark, and its methods; also faults/test_local_worker.py."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from spark_bull import BullQueue, LocalWorker, NewJob, OptionError, RunningJob
from tests.support.wait import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
#: Fails when PySpark is imported.
WITHOUT_PYSPARK = """
import sys
sys.modules |= dict.fromkeys(["pyspark", "pyarrow", "pandas"])
from spark_bull import BullQueue, LocalWorker
from spark_bull.run.testing import process_all

queue = BullQueue("q", url=sys.argv[1], prefix=sys.argv[2])
queue.add({})
with LocalWorker("q", lambda job: "done", url=sys.argv[1], prefix=sys.argv[2]) as worker:
    queue.wait("1", 60)
queue.add({})
print([outcome.returnvalue for outcome in process_all(queue, lambda job: "tested")])
"""

#: Its process runs the program again, in which another worker starts.
WITHOUT_MAIN_GUARD = """
import sys
from spark_bull import LocalWorker
from spark_bull.run.worker import slot_group
from tests.support.worker import hold

def process(job): ...

slot_group.MAX_FAILED_STARTS = 1
processor = hold if sys.argv[0] != "-c" else process
with LocalWorker("q", processor, processes=True, url=sys.argv[1], prefix=sys.argv[2]) as worker:
    worker.await_termination()
"""


def of_a_job(job: RunningJob) -> None: ...


def of_frames(jobs: DataFrame) -> DataFrame:
    return jobs


of_columns = udf(lambda value: value)


def test_it_runs_in_a_process_that_cannot_import_pyspark(redis_url: str, prefix: str) -> None:
    command = [sys.executable, "-c", WITHOUT_PYSPARK, redis_url, prefix]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("['tested']\n", 0), ended.stderr


def test_it_says_what_waits_and_ends_when_all_jobs_have_ended(
    queue: BullQueue, place: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_bull")
    queue.add_many([NewJob({"n": n}) for n in range(3)])
    queue.add({"n": 3}, delay=3_600_000)
    with LocalWorker(queues=["mail", "reports"], processor=doubled, slots=1, **place) as worker:
        worker.await_idle(0.2)
    assert (worker.status().completed, worker.status().state) == (3, "stopped")
    messages = [one.getMessage() for one in caplog.records]
    assert [one.partition("; ")[2] for one in messages if "waiting" in one] == ["mail: 3 waiting, reports: 0 waiting"]


def test_ctrl_c_stops_a_worker_that_waits_until_it_is_idle_while_its_status_is_read(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler_of_pyspark(*_: object) -> None:
        raise AssertionError("it would cancel all jobs of Spark")

    handler_of_pyspark.__module__ = "pyspark.core.context"
    previous = signal.signal(signal.SIGINT, handler_of_pyspark)
    monkeypatch.setattr(LocalWorker, "status", lambda _: os.kill(os.getpid(), signal.SIGINT))
    worker = LocalWorker("mail", doubled, **place).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            worker.await_idle(0.2)
    finally:
        signal.signal(signal.SIGINT, previous)
        worker.stop()


def doubled(job: RunningJob) -> int:
    return int(job.data["n"]) * 2


def test_an_argument_that_needs_spark_or_is_wrong_is_refused_by_name(place: dict[str, Any]) -> None:
    for arguments, said in [
        ({"processor": None}, "expected `processor`"),
        ({"processor": of_columns}, "got a UDF: use spark_bull.Worker"),
        ({"processor": {"*": of_a_job, "score": of_frames}}, r"`processor\['score'\]`.*got a function of DataFrames"),
        ({"payload_schema": "n INT"}, "`payload_schema` has no effect without Spark"),
        ({"min_chunk": 5}, "`min_chunk` has no effect without Spark"),
        ({"env": {"A": "b"}}, "`env` has no effect on threads of this program"),
        ({"processes": "false"}, "expected `processes` to be a bool, got: 'false'"),
        ({"slots": 0}, "`slots`"),
        ({"slots": (1, 4)}, "expected `slots` to be one number without Spark"),
        ({"queues": ["a"]}, "expected one of `queue`"),
    ]:
        with pytest.raises(OptionError, match=said):
            LocalWorker(**{"queue": "q", "processor": of_a_job, **place} | arguments)
    worker = LocalWorker("q", lambda job: None, processes=True, **place)
    with pytest.raises(OptionError, match=r"expected `processor` to be picklable.* define it at the top level"):
        worker.start()


@pytest.mark.parametrize("idle_s", [0, 0.2])
def test_a_worker_is_not_idle_while_a_job_runs_for_longer(
    queue: BullQueue, place: dict[str, Any], idle_s: float
) -> None:
    def takes_long(job: RunningJob) -> None:
        time.sleep(1)

    queue.add({})
    with LocalWorker("mail", takes_long, **place) as worker:
        worker.await_idle(idle_s)
        assert queue.counts()["completed"] == 1


def test_failed_jobs_are_copied_to_another_queue_but_not_to_their_own(
    queue: BullQueue, open_queue: Callable[..., BullQueue], place: dict[str, Any]
) -> None:
    queue.add({})
    with LocalWorker("mail", lambda job: job.data["to"], dead_letter_queue="dead", **place) as worker:
        worker.await_idle()
    assert (queue.counts()["failed"], open_queue("dead").counts()["wait"]) == (1, 1)
    with pytest.raises(OptionError, match="expected `dead_letter_queue` to be another queue than q"):
        LocalWorker("q", lambda job: 1, dead_letter_queue="q", **place).start()


@pytest.mark.parametrize("has_file", [False, True])
def test_a_program_whose_processes_cannot_run_its_slots_says_how_to_change_it(
    redis_url: str, prefix: str, tmp_path: Path, has_file: bool
) -> None:
    (program := tmp_path / "program.py").write_text(WITHOUT_MAIN_GUARD)
    command = [sys.executable, *([program] if has_file else ["-c", WITHOUT_MAIN_GUARD]), redis_url, prefix]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    said = {
        False: "defined in a program without a file, such as a notebook; define it at the top level",
        True: "ended with status 1; does the program start under `if __name__ == '__main__':`?",
    }
    assert said[has_file] in ended.stderr
    assert ended.returncode == 1


def test_slots_that_have_started_stop_when_another_one_cannot_start(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, others = SpawnProcess.start, set(active_children())

    def start_one(process: SpawnProcess) -> None:
        if set(active_children()) - others:
            raise OSError("out of memory")
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", start_one)
    worker = LocalWorker("q", of_a_job, slots=3, processes=True, **place)
    with pytest.raises(OSError, match="out of memory"):
        worker.start()
    assert not set(active_children()) - others
    assert worker.status().state == "stopped"


def test_a_process_that_the_program_ends_does_not_start_again(place: dict[str, Any]) -> None:
    with LocalWorker("q", of_a_job, processes=True, **place) as worker:
        [group] = worker._engine._groups
        group.interrupt()
        assert worker.await_termination(PATIENCE_S)
        assert worker.status().restarts == 0


def test_it_pauses_resumes_and_cancels_and_works_several_queues(
    open_queue: Callable[..., BullQueue], place: dict[str, Any]
) -> None:
    begun, go = Event(), Event()

    def endless(_job: RunningJob) -> None:
        begun.set()
        while True:
            go.wait(0.01)

    async def greet(job: RunningJob) -> str:
        return f"{job.state} {job.name}"

    first, second = (open_queue(name, "bullmq") for name in ("first", "second"))
    processor: dict[str, Callable[..., Any]] = {"endless": endless, "*": greet}
    queues = {"queues": ["first", "second"], "weights": {"first": 2}, "protocol": "bullmq"}
    with LocalWorker(None, processor, setup=lambda: "hello", concurrency=2, **queues, **place) as worker:
        job_id = first.add({}, name="endless")
        assert begun.wait(PATIENCE_S)
        worker.cancel(job_id, "enough", queue="first")
        wait_until(lambda: first.counts()["failed"] == 1, "the job to be cancelled")
        assert [job.failed_reason for job in first.page("failed")] == ["cancelled: enough"]
        worker.pause()
        assert worker.status().state == "paused"
        second.add_many([NewJob({}, "ada"), NewJob({}, "alan")])
        worker.resume()
        wait_until(lambda: second.counts()["completed"] == 2, "the jobs after the pause")
        assert {job.returnvalue for job in second.page("completed")} == {"hello ada", "hello alan"}
        assert str(worker.status()).startswith("running: 2 completed, 1 failed")
    assert worker.status().state == "stopped"


def test_the_promoter_of_a_worker_has_its_arguments(place: dict[str, Any]) -> None:
    worker = LocalWorker("q", of_a_job, max_stalled=4, check_ms=5, **place)
    assert (worker._service._max_stalled, worker._service._check_ms) == (4, 5)

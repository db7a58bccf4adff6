"""A process of a LocalWorker is killed, and programs with one are interrupted: no job is lost, all end in order."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence

import pytest
from redis import Redis

from spark_bull import BullQueue, LocalWorker, NewJob, WorkerFailed
from spark_bull.run.worker import slot_group
from tests.support.commands import running_command
from tests.support.wait import wait_until
from tests.support.worker import fail_to_set_up, hold

#: Locks do not expire while a busy machine lets a process wait.
LOCK_MS = 3_600_000


def holders(queue: BullQueue) -> list[int]:
    """The processes that hold jobs."""
    return [job.progress for job in queue.page("active") if job.progress]


def end_locks(client: Redis, queue: BullQueue, process: int) -> None:
    """Lets the locks that a killed process has left behind end at once."""
    for job in queue.page("active"):
        if job.progress == process:
            client.delete(queue.handle.keys.lock(job.id))


def test_jobs_of_a_killed_process_run_again_and_its_slot_starts_again(
    client: Redis, redis_url: str, prefix: str
) -> None:
    connection = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("q", **connection) as queue:
        queue.add_many(NewJob({}) for _ in range(4))
        with LocalWorker(
            "q", hold, slots=2, processes=True, chunk_size=1, lock_ms=LOCK_MS, check_ms=100, **connection
        ) as worker:
            killed, other = wait_until(lambda: found if len(found := holders(queue)) == 2 else [], "both to hold jobs")
            assert os.getpid() not in (killed, other)
            # Ctrl-C in a terminal reaches all processes.
            os.kill(other, signal.SIGINT)
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: worker.status().restarts == 1, "the slot to start again")
            end_locks(client, queue, killed)
            wait_until(lambda: {other, killed} < {*holders(queue), other, killed}, "it to hold a job")
            client.set(f"{queue.handle.keys.base}go", 1)
            wait_until(lambda: queue.counts()["completed"] == 4, "all jobs to complete")
            assert (worker.status().completed, worker.status().restarts) == (4, 1)
        assert worker.status().state == "stopped"
        assert other in [job.returnvalue for job in queue.page("completed")]


def test_a_process_whose_setup_fails_ends_the_worker_with_its_error(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_group, "MAX_FAILED_STARTS", 1)
    worker = LocalWorker("q", hold, processes=True, setup=fail_to_set_up, url=redis_url, prefix=prefix)
    with pytest.raises(WorkerFailed, match="RuntimeError: no model"), worker:
        worker.await_termination()
    assert worker.status().state == "failed"


@pytest.mark.parametrize(
    ("kind", "number"),
    [([], signal.SIGTERM), pytest.param(["--processes"], signal.SIGINT, marks=pytest.mark.rest)],
    ids=["threads", "processes"],
)
def test_a_program_finishes_its_jobs_when_it_is_interrupted(
    queue: BullQueue, client: Redis, redis_url: str, prefix: str, kind: Sequence[str], number: signal.Signals
) -> None:
    queue.add_many(NewJob({}) for _ in range(3))
    given = ["--queue", "q", "--processor", "tests.support.worker:hold", "--url", redis_url]
    options = ["--option", f"prefix={prefix}", "--option", "chunk_size=1", "--slots", "2", "--stop-timeout", "5m"]
    with running_command("work", "--local", *kind, *given, *options) as command:
        wait_until(lambda: len(holders(queue)) == 2, "both slots to hold jobs")
        queue.add({}, delay=1)
        wait_until(lambda: not queue.counts()["delayed"], "the promoter, which starts last, to run")
        command.send(number)
        wait_until(lambda: len(client.keys(f"{prefix}:q:*control*")) == 2, "both slots to be told to stop")
        client.set(f"{queue.handle.keys.base}go", 1)
        assert command.wait() == 0
        assert re.search(r"stopped: 2 completed, 0 failed", command.text)
    assert queue.counts()["wait"] == 2


def test_a_worker_returns_jobs_that_do_not_end_in_time(redis_url: str, prefix: str) -> None:
    connection = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("q", **connection) as queue:
        queue.add({})
        worker = LocalWorker("q", hold, processes=True, **connection).start()
        wait_until(lambda: holders(queue), "the job to run")
        assert not worker.stop(0)
        assert queue.counts()["wait"] == 1


def test_processes_end_when_their_program_is_killed(queue: BullQueue, redis_url: str, prefix: str) -> None:
    queue.add({})
    given = ["--queue", "q", "--processor", "tests.support.worker:hold", "--url", redis_url]
    with running_command("work", "--local", "--processes", *given, "--option", f"prefix={prefix}") as command:
        wait_until(lambda: holders(queue), "the job to run")
        command.send(signal.SIGKILL)
        command.wait()
        wait_until(lambda: queue.counts()["wait"] == 1, "the process to return its job, and end")

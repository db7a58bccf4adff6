"""Crashes of writes to full queues: exactly-once writes add each job once, or drop and count it."""

from __future__ import annotations

import json
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull import BullQueue, NewJob, Promoter
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.store.round_trips import TOGETHER
from spark_bull.ops.cli.main import main
from spark_bull.run.services import service
from tests.faults.programs import kill_and_repeat, write_rows
from tests.support.forked_programs import ForkedProcess
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.writes import register_all

JOBS, MAX_LENGTH, CHUNK = 20, 12, 4
ROWS_BY_QUEUE = StructType().add("n", IntegerType()).add("queue", StringType())
#: Calls of scripts at which a write is killed: at its registration, and while it adds jobs.
POINTS = ((7, "after"), (8, "before"), (10, "after"))


def options_of(queue: BullQueue, redis_url: str, when_full: str, version: int) -> dict[str, str]:
    return {
        "url": redis_url,
        "prefix": queue.handle.keys.prefix,
        "queue": "q",
        "protocol": queue.protocol,
        "chunkSize": str(CHUNK),
        "maxLength": str(MAX_LENGTH),
        "whenFull": when_full,
        "txnAppId": "nightly",
        "txnVersion": str(version),
    }


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_a_killed_write_that_waits_for_room_adds_each_job_once(queue: BullQueue, redis_url: str) -> None:
    started: Counter[int] = Counter()
    over = Event()

    def process() -> None:
        """Takes jobs while there are any, as workers do, and checks the length of the queue."""
        while not over.is_set() or queue.counts()["wait"]:
            waiting = queue.page("wait")
            assert len(waiting) <= MAX_LENGTH
            for job in waiting[: CHUNK + 1]:
                started[job.data["n"]] += 1
                queue.remove(job.id)

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(process)
        try:
            killed = [
                kill_and_repeat(options_of(queue, redis_url, "wait", version), JOBS, *point)
                for version, point in enumerate(POINTS)
            ]
            wait_until(lambda: not recover(queue.handle) and _all_finished(queue), "the writes to end")
        finally:
            over.set()
        worker.result()
    assert all(killed)
    assert started == dict.fromkeys(range(JOBS), len(POINTS))


def test_a_killed_write_that_drops_jobs_adds_or_drops_each_one_once(queue: BullQueue, redis_url: str) -> None:
    killed = []
    for version, point in enumerate(POINTS):
        killed.append(kill_and_repeat(options_of(queue, redis_url, "drop", version), JOBS, *point))
        numbers = [job.data["n"] for job in queue.page("wait")]
        assert len(numbers) == len(set(numbers)) == MAX_LENGTH
        queue.drain()
    assert all(killed)
    assert _all_finished(queue)
    finished: list[Any] = [(record.added, record.dropped) for record in queue.writes()]
    assert finished == [(MAX_LENGTH, JOBS - MAX_LENGTH)] * len(POINTS)


def test_a_promoter_adds_the_rows_of_a_killed_writer_as_soon_as_there_is_room(
    queue: BullQueue, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for interrupted writes once, then whenever the queue may have room: rows need 25 times the room."""
    monkeypatch.setattr(service, "RECOVER_S", 1e9)
    rows = 25 * MAX_LENGTH
    with ForkedProcess(write_rows, options_of(queue, redis_url, "wait", version=1), rows) as driver:
        wait_until(lambda: queue.counts()["wait"] == MAX_LENGTH, "the queue to be full")
        assert driver.end_by(signal.SIGKILL) == -signal.SIGKILL
    started: list[int] = []
    with Promoter(redis_url, "q", prefix=prefix, protocol=queue.protocol) as promoter:
        while len(started) < rows:
            wait_until(lambda: queue.counts()["wait"], "the promoter to add rows")
            waiting = queue.page("wait")
            assert len(waiting) <= MAX_LENGTH
            started += [job.data["n"] for job in waiting]
            for job in waiting:
                queue.remove(job.id)
        wait_until(lambda: promoter.done.recovered, "the write to end")
    assert sorted(started) == [*range(rows)]
    assert [(record.state, record.added) for record in queue.writes()] == [("finished", rows)]


def test_the_command_shows_a_write_that_still_waits_for_room(
    queue: BullQueue, redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    register_all(queue.handle, "w", [[NewJob({"n": n}) for n in range(JOBS)]], maxLength=MAX_LENGTH, whenFull="wait")
    command = ["--url", redis_url, "--prefix", prefix, "recover", "q", "--json"]
    shown = []
    for _ in range(2):
        assert main(command) == 0
        (write,) = json.loads(capsys.readouterr().out)
        shown.append((write["state"], write["done"]))
        queue.drain()
    assert shown == [("open", MAX_LENGTH), ("finished", JOBS)]


def test_a_full_queue_does_not_hold_up_the_other_queues_of_a_write(redis_url: str, prefix: str) -> None:
    """Each task stages its rows for all queues in a shared round trip; the full one is the first of two batches."""
    names = [f"q{n:02}" for n in range(TOGETHER + 2)]
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq", "jobColumns": "queue"}
    sink = Sink(options | {"maxLength": "1", "whenFull": "wait"}, ROWS_BY_QUEUE)
    sink.task([{"n": n, "queue": queue} for n, queue in enumerate(names)])
    with ExitStack() as stack:
        full, *others = (
            stack.enter_context(BullQueue(name, url=redis_url, prefix=prefix, protocol="bullmq")) for name in names
        )
        pool = stack.enter_context(ThreadPoolExecutor(1))
        full.add({"n": -1})
        writer = pool.submit(sink.commit)
        try:
            wait_until(lambda: all(queue.counts()["wait"] for queue in others), "the other queues to have their jobs")
            assert [job.data["n"] for job in full.page("wait")] == [-1]
        finally:
            full.drain()
        writer.result()
        assert [job.data["n"] for job in full.page("wait")] == [0]


def _all_finished(queue: BullQueue) -> bool:
    return all(record.state == "finished" for record in queue.writes())

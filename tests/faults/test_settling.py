"""Claiming queries whose tasks run again at any time, or that lose Redis: an outcome counts once, for its own claim."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob
from spark_bull.core.queue.work.verbs import promote_due
from tests.faults.programs import claim_and_die
from tests.support.forked_programs import ForkedProcess
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.without_spark import ClaimingQuery, Row

OwnRedis = Callable[..., EmbeddedRedis]
JOBS, ATTEMPTS = 12, 4
#: Locks end soon, and not while a busy machine lets a process wait.
SOON_MS, HOUR_MS = 600_000, 3_600_000
#: Columns of the outcomes; a delay does not count as an attempt.
OUTCOMES: tuple[dict[str, Any], ...] = ({"returnvalue": "1"}, {"error": "bad"}, {"error": "bad"}, {"delay": 0})


class Trial:
    """A query whose batches and tasks run again at random, and what must come of its jobs."""

    def __init__(self, queue: BullQueue, client: Redis, seed: int) -> None:
        self.queue, self.client, self.draw = queue, client, random.Random(seed)
        self.ids = queue.add_many(NewJob({"n": n}, attempts=ATTEMPTS) for n in range(JOBS)).ids
        self.query = ClaimingQuery(queue, chunkSize=3, maxJobsPerTrigger=5)
        #: Rows with their outcomes, which count no more.
        self.settled: list[Row] = []
        #: The number of attempts that failed, and of those that completed, by job id.
        self.failed, self.completed = Counter[str](), Counter[str]()

    def held(self) -> dict[str, Any]:
        """The jobs that are active, with the tokens of their locks and the numbers of their attempts."""
        jobs = self.queue.page("active")
        return {job.id: (self.client.get(self.queue.handle.keys.lock(job.id)), job.attempts_made) for job in jobs}

    def run_batch(self) -> None:
        rows = self.query.batch()
        if self.draw.random() < 0.3:
            again = self.query.restart()
            assert [(row["id"], row["token"]) for row in again] == [(row["id"], row["token"]) for row in rows]
        lost = [row for row in rows if self.draw.random() < 0.1]
        self.repeat_old_tasks()
        tasks = [row | self.draw.choice(OUTCOMES) for row in rows if row not in lost]
        self.draw.shuffle(tasks)
        while tasks:
            size = self.draw.randint(1, len(tasks))
            task, tasks = tasks[:size], tasks[size:]
            self.run_task(task)
        for row in lost:
            self.lose(row)

    def run_task(self, rows: list[Row]) -> None:
        """Settles rows; the task may have run before, with some of them."""
        before = self.draw.sample(rows, self.draw.randint(0, len(rows)))
        counts = self.query.settle(*before) + self.query.settle(*rows)
        assert counts.total() == len(rows)
        assert counts["lost"] == 0
        self.failed.update(row["id"] for row in rows if "error" in row)
        self.completed.update(row["id"] for row in rows if "returnvalue" in row)
        self.settled += rows

    def lose(self, row: Row) -> None:
        """Lets a claimed job wait again, as if its lock had expired and it had been rescued."""
        keys = self.queue.handle.keys
        self.client.delete(keys.lock(row["id"]))
        assert self.client.lrem(keys["active"], 1, row["id"]) == 1
        self.client.rpush(keys["wait"], row["id"])
        self.settled.append(row | self.draw.choice(OUTCOMES))

    def repeat_old_tasks(self) -> None:
        held = self.held()
        for row in self.draw.sample(self.settled, min(8, len(self.settled))):
            counts = self.query.settle({name: row[name] for name in ("id", "token")} | self.draw.choice(OUTCOMES))
            assert counts in ({}, {"lost": 1})
            # Further ones are claimed ahead.
            assert held.items() <= self.held().items()

    def run(self) -> None:
        while sum(self.queue.counts()[state] for state in ("completed", "failed")) < JOBS:
            promote_due(self.queue.handle)
            self.run_batch()
        self.repeat_old_tasks()
        attempts = {}
        for state in ("completed", "failed"):
            for job in self.queue.page(state):
                attempts[job.id] = job.attempts_made
                assert (self.completed[job.id], self.failed[job.id] == ATTEMPTS) == (
                    (1, False) if state == "completed" else (0, True)
                )
        counts_success = self.queue.protocol == "bullmq"
        assert attempts == {one: self.failed[one] + (counts_success and self.completed[one]) for one in self.ids}


def test_a_query_with_available_now_waits_for_redis(own_redis: OwnRedis, caplog: pytest.LogCaptureFixture) -> None:
    """For longer than a call is retried. Without a job in its last batch, it would end."""
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    with (
        BullQueue("q", url=server.url, protocol="bullmq") as queue,
        ThreadPoolExecutor(1) as pool,
        # Its thread would warn for ever that the server is gone, also in other tests.
        closing(ClaimingQuery(queue, retryMs=200)) as query,
    ):
        ids = queue.add_many(NewJob({"n": n}) for n in range(3)).ids
        query.reader.prepareForTriggerAvailableNow()
        server.kill()
        rows = pool.submit(query.batch)
        wait_until(lambda: "lost Redis, retrying" in caplog.text or rows.done(), "a call to be given up")
        server.restart()
        assert [row["id"] for row in rows.result(PATIENCE_S)] == ids


def pass_time(client: Redis, queue: BullQueue, ids: list[str], ms: int) -> None:
    """Shortens the locks of jobs as if this time had passed."""
    for lock in map(queue.handle.keys.lock, ids):
        client.pexpire(lock, client.pttl(lock) - ms)


def test_a_batch_of_a_killed_query_is_settled_though_its_locks_end_soon(
    queue: BullQueue, client: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    options = {"readerId": "reader", "lockMs": HOUR_MS}
    ids = queue.add_many(NewJob({}) for _ in range(JOBS)).ids
    place = {"url": redis_url, "prefix": prefix, "protocol": queue.protocol}
    with ForkedProcess(claim_and_die, tmp_path / "offsets", place, **options) as killed:
        assert killed.wait(PATIENCE_S) == -signal.SIGKILL
    pass_time(client, queue, ids, HOUR_MS - SOON_MS)
    query = ClaimingQuery(queue, **options)
    query.start, query.end = json.loads((tmp_path / "offsets").read_text())
    rows = query.restart()
    pass_time(client, queue, ids, SOON_MS)
    assert query.settle(*(row | {"returnvalue": "1"} for row in rows)) == {"completed": JOBS}
    assert queue.counts()["active"] == 0


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
@pytest.mark.parametrize("queue", ["bull", "bullmq", pytest.param("bull-1", marks=pytest.mark.rest)], indirect=True)
def test_tasks_that_run_again_settle_each_claim_once(queue: BullQueue, client: Redis, seed: int) -> None:
    Trial(queue, client, seed).run()

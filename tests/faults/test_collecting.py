"""Queries of results that are killed repeatedly: each finished job is in the table once, and none is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from redis import Redis

from spark_bull import BullQueue, NewJob, RunningJob
from spark_bull.core.keys import literal_glob
from tests.faults.drivers import collect, driver
from tests.support.drivers import DriverProcess
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

#: The fewest kills, and the most ones until one has come within a batch.
KILLS, SOAK_KILLS, MORE_KILLS = 1, 40, 10
#: Time limit for a driver, which starts a JVM and its queries one after the other.
DRIVER_S = 600
#: Number of jobs that are added at a time.
ENOUGH = 100
#: One job in each group of this size fails.
FAILS_EACH = 20


def newest_batch(log: Path) -> int:
    """The number of the last batch in one of Spark's logs, -1 if there is none."""
    return max((int(entry.stem) for entry in log.glob("[0-9]*")), default=-1)


class Fed:
    """A queue whose jobs are processed and collected, and the expected results."""

    def __init__(self, queue: BullQueue, folder: Path) -> None:
        self.queue, self._folder = queue, folder
        self.expected: Counter[tuple[str, str]] = Counter()

    @staticmethod
    def process(job: RunningJob) -> int:
        if job.data["n"] % FAILS_EACH == 0:
            raise ValueError("bad")
        return int(job.data["n"])

    def feed(self) -> None:
        for n, job_id in enumerate(self.queue.add_many(NewJob({"n": n}) for n in range(ENOUGH)).ids):
            self.expected[job_id, "completed" if n % FAILS_EACH else "failed"] += 1

    def progress(self) -> tuple[int, int]:
        """The last batch that was started, and the last one that is committed."""
        checkpoint = self._folder / "checkpoint"
        return newest_batch(checkpoint / "offsets"), newest_batch(checkpoint / "commits")

    def under_way(self) -> bool:
        started, committed = self.progress()
        return started > committed

    def collected(self, spark: SparkSession) -> Counter[tuple[str, str]]:
        rows = spark.read.parquet(str(self._folder / "table")).select("id", "state")
        return Counter(map(tuple, rows.collect()))


def kill_on_the_way(driver: DriverProcess, collected: list[Fed]) -> None:
    """Kills a driver once it has started, or committed, a batch of each of its queues; more jobs come all the time."""
    since = [fed.progress() for fed in collected]

    def have_moved_on() -> bool:
        driver.check()
        for fed in collected:
            if not fed.queue.counts()["wait"]:
                fed.feed()
        return all(fed.progress() != before for fed, before in zip(collected, since, strict=True))

    try:
        wait_until(have_moved_on, "both queries to move on", timeout=DRIVER_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{driver.output()}") from None
    driver.kill()


def traces(client: Redis, queue: BullQueue) -> list[str]:
    """Keys of jobs with numbers for ids: hashes, logs, locks."""
    base = queue.handle.keys.base
    keys = [key.decode() for key in client.scan_iter(match=f"{literal_glob(base)}*", count=1000)]
    return [key for key in keys if key[len(base) :].partition(":")[0].isdigit()]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(20 * DRIVER_S)
@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("kills", [KILLS, pytest.param(SOAK_KILLS, marks=pytest.mark.soak)])
def test_kills_of_the_driver_lose_no_result_and_repeat_none(
    spark: SparkSession, client: Redis, redis_url: str, prefix: str, tmp_path: Path, kills: int
) -> None:
    """With a queue of Bull, and one of BullMQ whose jobs are removed when they are collected."""
    hit, options = 0, {"url": redis_url, "prefix": prefix}

    def plan(trigger: Mapping[str, object], **more: str) -> dict[str, Any]:
        each = {fed.queue.name: options | more | {"removeOnRead": str(fed is archive)} for fed in both}
        return {"folder": str(tmp_path), "trigger": trigger, "queues": each}

    with ExitStack() as stack:
        both = []
        for name, protocol in (("kept", "bull"), ("archive", "bullmq")):
            queue = stack.enter_context(BullQueue(name, **options, protocol=protocol))
            stack.enter_context(OurWorker(queue.handle, Fed.process, chunk_size=20, lock_ms=120_000))
            both.append(Fed(queue, tmp_path / name))
        _, archive = both
        # More if all of these kills came between batches.
        for number in range(kills + MORE_KILLS):
            if hit and number >= kills:
                break
            of_both = plan({"processingTime": "0 seconds"}, maxJobsPerTrigger="20", rowsPerPartition="10")
            with driver(tmp_path / "log", "collect", **of_both) as running:
                kill_on_the_way(running, both)
            hit += sum(fed.under_way() for fed in both)
        assert hit, "the kills came between batches"
        for fed in both:
            wait_until(lambda fed=fed: not fed.queue.counts()["wait"] + fed.queue.counts()["active"], "all jobs to end")
        # The jobs of a batch are removed before the next one.
        for _ in range(2):
            collect(spark, **plan({"availableNow": True}, maxJobsPerTrigger="20000"))
        for fed in both:
            assert fed.collected(spark) == fed.expected, fed.queue.name
        assert not traces(client, archive.queue)
        assert not [state for state, count in archive.queue.counts().items() if count]

"""Queries of results that are killed repeatedly: each finished job is in the table once, and none is missing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.errors import JobLocked, JobMissing
from tests.support.collecting_driver import CollectingDriver, collect_all
from tests.support.dump import escaped
from tests.support.node import NodePeer
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

#: One for each two queues; and of `make soak`.
KILLS = 2
SOAK_KILLS = 40
#: The most kills beside these until one has come within a batch.
MORE_KILLS = 10
#: Time limit for a driver, which starts a JVM and its queries one after the other.
DRIVER_S = 600
#: The look-back window, and the clock skew of the Node workers; the rest is for delays. ms.
LOOKBACK_MS = 30_000
WRONG_MS = 4_000
#: Minimum number of waiting jobs, so that workers always have jobs.
ENOUGH = 100
#: One job out of so many fails at first.
FAILS_EACH = 20
DIALECTS = {"bull-1": "bull-1", "bull": "bull", "bullmq": "bullmq", "archive": "bullmq"}

StartNode = Callable[..., NodePeer]
#: A finished job: id, state, and when, ms since 1970.
Result = tuple[str, str, int | None]


def new_job(n: int) -> NewJob:
    """A job takes some ms, so that the workers do not use all of the CPU."""
    return NewJob({"n": n, "$behaviour": "sleep:60" if n % FAILS_EACH else "log:once;fail:1"})


def newest_batch(log: Path) -> int:
    """The number of the last batch in one of Spark's logs, -1 if there is none."""
    return max((int(entry.stem) for entry in log.glob("[0-9]*")), default=-1)


class Fed:
    """A queue to which jobs are added while it is collected, and its expected results."""

    def __init__(self, queue: BullQueue, folder: Path) -> None:
        self.queue = queue
        self.table, self._checkpoint = folder / "table", folder / "checkpoint"
        self.ids: list[str] = []
        self.retried: dict[str, int | None] = {}
        self._fail: set[str] = set()
        self._reader = ""

    def feed(self) -> None:
        if self.queue.counts()["wait"] < ENOUGH:
            first = len(self.ids)
            ids = self.queue.add_many(new_job(n) for n in range(first, first + ENOUGH)).ids
            self._fail.update(ids[n] for n in range(ENOUGH) if (first + n) % FAILS_EACH == 0)
            self.ids += ids

    def retry(self) -> None:
        """Retries failed jobs that the query has discovered; it may not have delivered them yet."""
        for job_id in self._found_failed():
            (failed_at,) = self._finished_on([job_id])
            with suppress(JobLocked, JobMissing):
                self.queue.retry(job_id)
                self.retried[job_id] = failed_at
                self._fail.remove(job_id)

    def _found_failed(self) -> list[str]:
        self._reader = self._reader or self._reader_of_checkpoint()
        if not self._reader or not self._fail:
            return []
        seen = self.queue.handle.keys.results(self._reader)["seen_failed"]
        command = "SISMEMBER" if self.queue.protocol == "bull-1" else "ZSCORE"
        ids = list(self._fail)
        answers = self.queue.handle.connection.pipeline([(command, seen, job_id) for job_id in ids])
        return [job_id for job_id, answer in zip(ids, answers, strict=True) if answer]

    def _reader_of_checkpoint(self) -> str:
        offsets = self._checkpoint / "offsets"
        batch = newest_batch(offsets)
        return "" if batch < 0 else str(json.loads((offsets / str(batch)).read_text().splitlines()[-1])["reader"])

    def _finished_on(self, ids: Sequence[str]) -> list[int | None]:
        keys = self.queue.handle.keys
        times = self.queue.handle.connection.pipeline([("HGET", keys.job(job_id), "finishedOn") for job_id in ids])
        return [None if time is None else int(time) for time in times]

    def progress(self) -> tuple[int, int]:
        """The last batch that was started, and the last one whose rows are in the table."""
        return newest_batch(self._checkpoint / "offsets"), newest_batch(self.table / "_spark_metadata")

    def under_way(self) -> bool:
        """Whether a batch was started that is not committed."""
        return newest_batch(self._checkpoint / "offsets") > newest_batch(self._checkpoint / "commits")

    def idle(self) -> bool:
        counts = self.queue.counts()
        return not counts["wait"] + counts["active"]

    def expected(self) -> Counter[Result]:
        """All results, as Redis shows them when all jobs have finished."""
        times = self._finished_on(self.ids)
        last = [
            (job_id, "failed" if job_id in self._fail else "completed", time)
            for job_id, time in zip(self.ids, times, strict=True)
        ]
        return Counter([*last, *((job_id, "failed", time) for job_id, time in self.retried.items())])

    def collected(self, spark: SparkSession) -> Counter[Result]:
        """The committed rows of the table."""
        if newest_batch(self.table / "_spark_metadata") < 0:
            return Counter()
        rows = spark.read.parquet(str(self.table)).select("id", "state", f.unix_millis("finishedOn"))
        return Counter(map(tuple, rows.collect()))

    def lost(self, spark: SparkSession) -> set[str]:
        """Jobs that are neither in Redis nor in the table."""
        ids, keys = list(self.ids), self.queue.handle.keys
        there = self.queue.handle.connection.pipeline([("EXISTS", keys.job(job_id)) for job_id in ids])
        gone = {job_id for job_id, exists in zip(ids, there, strict=True) if not exists}
        return gone - {job_id for job_id, _, _ in self.collected(spark)}


def feed_all(queues: Sequence[Fed], over: Event) -> None:
    while not over.wait(0.1):
        for queue in queues:
            queue.feed()
            queue.retry()


def start_node_workers(stack: ExitStack, start: StartNode, url: str, prefix: str, queues: Mapping[str, Fed]) -> None:
    """Bull 1 stores no times; of each other library, one process has a slow clock and one a fast clock."""
    peers = [(start("bull-1.1.3", prefix=prefix), ["bull-1"])]
    for clock_ms in (-WRONG_MS, WRONG_MS):
        for alias, kinds in (("bull-4.16.5", ["bull"]), ("bullmq-6.7.0", ["bullmq", "archive"])):
            peers.append((stack.enter_context(NodePeer(alias, url, prefix, clock_ms=clock_ms)), kinds))
    for peer, kinds in peers:
        for kind in kinds:
            peer.call("process", queue=queues[kind].queue.name, events=[])


def pairs(queues: Sequence[Fed], chance: Random) -> Iterator[Sequence[Fed]]:
    """All queues, two at a time, again and again in other orders."""
    while True:
        mixed = chance.sample(queues, len(queues))
        yield from (mixed[:2], mixed[2:])


def kill_on_the_way(driver: CollectingDriver, collected: Sequence[Fed], chance: Random) -> None:
    """Kills a driver some time after it has started, or written, a batch of each of its queues."""
    since = [fed.progress() for fed in collected]

    def have_moved_on() -> bool:
        driver.check()
        return all(fed.progress() != before for fed, before in zip(collected, since, strict=True))

    try:
        wait_until(have_moved_on, "both queries to move on", timeout=DRIVER_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{driver.output()}") from None
    time.sleep(chance.uniform(0.2, 2.5))
    driver.kill()


def traces(client: Redis, queue: BullQueue) -> list[str]:
    """Keys of jobs with numbers for ids: hashes, logs, locks."""
    base = queue.handle.keys.base
    keys = [key.decode() for key in client.scan_iter(match=f"{escaped(base)}*", count=1000)]
    return [key for key in keys if key[len(base) :].partition(":")[0].isdigit()]


def untimed(results: Counter[Result]) -> Counter[Result]:
    return Counter((job_id, state, None) for job_id, state, _ in results.elements())


def test_a_peer_can_have_a_wrong_clock(node: StartNode, redis_url: str, prefix: str) -> None:
    assert node("bullmq-6.7.0", prefix=prefix).alive
    began = time.time_ns() // 1_000_000
    with NodePeer("bullmq-6.7.0", redis_url, prefix, clock_ms=-WRONG_MS) as peer:
        (ready,) = peer.events("ready")
        assert began <= ready["at"] + WRONG_MS <= ready["heard"] * 1000


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.timeout(20 * DRIVER_S)
@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("kills", [KILLS, pytest.param(SOAK_KILLS, marks=pytest.mark.soak)])
def test_kills_of_the_driver_lose_no_result_and_repeat_none(
    node: StartNode, spark: SparkSession, client: Redis, redis_url: str, prefix: str, tmp_path: Path, kills: int
) -> None:
    """With a queue of each dialect and one with removeOnRead, while Node workers and ours process jobs."""
    chance, over, hit = Random(17), Event(), 0
    options = {"url": redis_url, "prefix": prefix, "lookbackMs": str(LOOKBACK_MS)}

    def plan(collected: Sequence[Fed], trigger: Mapping[str, object], **more: str) -> dict[str, Any]:
        """Queries that start in random order."""
        each = {
            fed.queue.name: options | more | {"removeOnRead": str(fed is archive)}
            for fed in chance.sample(collected, len(collected))
        }
        return {"folder": str(tmp_path), "trigger": trigger, "queues": each}

    with ExitStack() as stack:
        queues: dict[str, Fed] = {}
        for kind, protocol in DIALECTS.items():
            # Bull 1 publishes outside the prefix.
            name = f"{kind}-{prefix}"
            queue = stack.enter_context(BullQueue(name, url=redis_url, prefix=prefix, protocol=protocol))
            queues[kind] = Fed(queue, tmp_path / name)
            stack.enter_context(OurWorker(queue.handle, chunk_size=20, lock_ms=120_000))
        archive = queues["archive"]
        start_node_workers(stack, node, redis_url, prefix, queues)
        feeding = stack.enter_context(ThreadPoolExecutor(1)).submit(feed_all, list(queues.values()), over)
        stack.callback(over.set)

        # More if all of these kills came between batches.
        for number, both in enumerate(islice(pairs([*queues.values()], chance), kills + MORE_KILLS)):
            if hit and number >= kills:
                break
            trigger = {"processingTime": chance.choice(["0 seconds", "200 milliseconds"])}
            of_both = plan(both, trigger, maxJobsPerTrigger="200", rowsPerPartition="80")
            with CollectingDriver(tmp_path / "log", **of_both) as running:
                kill_on_the_way(running, both, chance)
            hit += sum(fed.under_way() for fed in queues.values())
            assert not archive.lost(spark)
            assert not feeding.done(), feeding.result()

        wait_until(lambda: feeding.done() or all(fed.retried for fed in queues.values()), "failed jobs to be retried")
        over.set()
        feeding.result()
        wait_until(lambda: all(fed.idle() for fed in queues.values()), "all jobs to finish")
        collect_all(spark, **plan(list(queues.values()), {"availableNow": True}, maxJobsPerTrigger="20000"))

        assert hit, "the kills came between batches"
        for kind, fed in queues.items():
            expected, collected = fed.expected(), fed.collected(spark)
            if fed is archive:
                expected, collected = untimed(expected), untimed(collected)
            assert not expected - collected, f"{kind}: missing"
            assert not collected - expected, f"{kind}: too many"
        assert not traces(client, archive.queue)
        assert not [state for state, count in archive.queue.counts().items() if count]

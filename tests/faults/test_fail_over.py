"""Primaries are killed in turn, in a cluster and behind a Sentinel, while jobs are added, processed and collected.

A write is repeated, by the ids of its jobs, until it is replicated: what replicas lack at a fail-over is lost in Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

from spark_bull import BullQueue, EmbeddedRedis, NewJob, Promoter
from spark_bull.errors import ConnectionLost, NotReplicated, OptionError
from spark_bull.options.parse import parse_options
from spark_bull.options.table import COLLECT
from spark_bull.services.collector import Collector
from spark_bull.worker.job.running_job import RunningJob
from tests.support.redis_cluster import RedisCluster, sentinels
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

#: In a cluster, each is on another node.
NAMES = ("{a}", "{b}", "{c}")
CHUNK = 20
#: Jobs that end before the next primary is killed.
BETWEEN = 100
KILLS = 2

Kill = Callable[[str], EmbeddedRedis]


@pytest.fixture(params=["cluster", "sentinel"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Kill]]:
    """The URL, and what kills the primary of a key and waits until another one has its place."""
    if request.param == "cluster":
        with RedisCluster(3, 1, {"appendonly": "yes"}) as cluster:
            urls = ",".join(server.url.split("/")[2] for server in cluster.servers)
            yield f"redis://{urls}", cluster.replace_primary
    else:
        with sentinels(tmp_path) as servers:
            yield servers.url, lambda key: servers.replace_primary()


class Writer:
    """Adds numbered jobs to all queues until it is stopped; a tenth of them delayed."""

    def __init__(self, queues: list[BullQueue]) -> None:
        self.queues = queues
        self.added = 0
        self._stop = Event()
        self._thread = Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def _write(self) -> None:
        for first in count(0, CHUNK):
            if self._stop.is_set():
                return
            jobs = [NewJob({}, job_id=f"n{n}", delay=10 if n % 10 == 0 else 0) for n in range(first, first + CHUNK)]
            for queue in self.queues:
                self._add(queue, jobs)
            self.added = first + CHUNK

    def _add(self, queue: BullQueue, jobs: list[NewJob]) -> None:
        while True:
            try:
                queue.add_many(jobs)
                return
            except (NotReplicated, ConnectionLost, OptionError):
                # An OptionError: the new primary has no replica until the old one has started again.
                continue


@pytest.mark.slow
def test_no_job_is_lost_or_added_twice_when_primaries_are_killed(place: tuple[str, Kill]) -> None:
    url, kill = place
    options = {"protocol": "bullmq", "replicas": 1, "replica_timeout_ms": 1_000, "retry_ms": 60_000}
    done: set[tuple[str, str]] = set()

    def processor(job: RunningJob) -> None:
        done.add((job.handle.keys.queue, job.id))

    def completed() -> int:
        return sum(queue.counts()["completed"] for queue in queues)

    with ExitStack() as stack:
        queues = [stack.enter_context(BullQueue(name, url=url, **options)) for name in NAMES]
        stack.enter_context(Promoter(url, NAMES, protocol="bullmq", check_ms=1_000))
        handles = [queue.handle for queue in queues]
        stack.enter_context(OurWorker(handles, processor, chunk_size=10, lock_ms=3_000))
        read = {"url": url, "queue": ",".join(NAMES), "startingOffsets": "earliest"}
        collector = stack.enter_context(closing(Collector(parse_options(read, COLLECT), "reader")))
        with Writer(queues) as writer:
            for number in range(KILLS):
                target = completed() + BETWEEN
                wait_until(lambda target=target: completed() > target, "jobs to be processed")  # type: ignore[misc]
                kill(f"bull:{NAMES[number % 3]}:").start()
        expected = writer.added
        wait_until(lambda: completed() == expected * len(NAMES), "all jobs to be completed")
        ends: dict[str, int] = {}

        def has_collected_all() -> bool:
            ends.update(collector.advance(ends, None))
            return sum(ends.values()) == completed()

        wait_until(has_collected_all, "all results")
        assert ends == dict.fromkeys(NAMES, expected)
        assert done == {(name, f"n{n}") for name in NAMES for n in range(expected)}
        for queue in queues:
            assert {state: n for state, n in queue.counts().items() if n} == {"completed": expected}

"""Primaries are killed in turn, in a cluster and behind a Sentinel, under the load of all verbs.

Jobs are added, some of them delayed, promoted, processed and collected. `make soak` does it for ten minutes.

A write is repeated, by the ids of its jobs, until it is replicated: what replicas lack at a fail-over is lost in Redis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, NewJob, NotReplicated, Promoter, RunningJob
from spark_bull.core.clock import monotonic_s
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.run.services.collector import Collector
from tests.support.redis_servers import RedisCluster, Sentinels
from tests.support.wait import Background, wait_until
from tests.support.worker import OurWorker

#: In a cluster, each is on another node.
NAMES = ("{a}", "{b}", "{c}")
CHUNK = 20
#: Jobs that end before the next primary is killed.
BETWEEN = 100
#: The fewest kills, and for how long `make soak` kills, s.
KILLS = 2
SOAK_S = 600
#: Jobs of a queue by which the writer may be ahead of the worker.
AHEAD = 2_000

#: How often each job, of a queue and with an id, was processed or collected.
Times = Counter[tuple[str, str]]
Kill = Callable[[str], EmbeddedRedis]


@pytest.fixture(params=["cluster", pytest.param("sentinel", marks=pytest.mark.rest)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Kill]]:
    """The URL, and what kills the primary of a key and waits until another one has its place."""
    if request.param == "cluster":
        with RedisCluster(3, 1, {"appendonly": "yes"}) as cluster:
            urls = ",".join(server.url.split("/")[2] for server in cluster.servers)
            yield f"redis://{urls}", cluster.replace_primary
    else:
        with Sentinels(tmp_path) as servers:
            yield servers.url, lambda key: servers.replace_primary()


class Writer(Background):
    """Adds numbered jobs to all queues until it is stopped; a tenth of them delayed. done: those that have run."""

    def __init__(self, queues: list[BullQueue], done: Times) -> None:
        super().__init__()
        self.queues = queues
        self.added = 0
        self._done = done

    def work(self) -> None:
        for first in count(0, CHUNK):
            while self.added - len(self._done) / len(self.queues) > AHEAD and not self.stopping.wait(0.01):
                pass
            if self.stopping.is_set():
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
            except (NotReplicated, ConnectionLost):
                continue


class Reader(Background):
    """Collects the results of all queues in a thread, until the block is left. found: how often each has arrived.

    The entries of a ledger that a fail-over has lost are found again, at other positions.
    """

    def __init__(self, queues: list[BullQueue], url: str, reader: str) -> None:
        super().__init__()
        self.found: Times = Counter()
        options = {"url": url, "queue": ",".join(NAMES), "startingOffsets": "earliest", "retryMs": "60000"}
        options["failOnDataLoss"] = "false"
        self._collector = Collector(parse_options(options, CollectOptions), reader)
        self._rows = {queue.name: ResultLedger(queue.handle, reader).rows([]) for queue in queues}
        self._done: dict[str, int] = {}

    def work(self) -> None:
        with closing(self._collector):
            while not self.stopping.wait(0.05):
                ends = self._collector.advance(self._done, None)
                for name, end in ends.items():
                    self._take(name, self._done.get(name, 0), end)
                self._done = ends

    def _take(self, name: str, position: int, end: int) -> None:
        while position < end:
            after, chunk = self._rows[name].read(position, end)
            if not chunk.rows and after <= position:
                return
            if chunk.rows:
                self.found.update((name, job_id.decode()) for job_id in chunk.columns["id"])
            position = after


def has_its_place(server: EmbeddedRedis) -> bool:
    """Whether a server is a replica that has all data of its primary.

    It may also be the primary again, with such a replica: another one that was busy for too long counts as lost.
    """
    with Redis.from_url(server.url) as client:
        try:
            info = client.info("replication")
        except (RedisConnectionError, RedisTimeoutError):
            # A server that becomes a replica closes the connections of its clients.
            return False
    if info["role"] == "slave":
        return bool(info["master_link_status"] == "up")
    return bool(info.get("slave0", {}).get("state") == "online")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, pytest.param(SOAK_S, marks=pytest.mark.soak)])
def test_no_job_is_lost_or_added_twice_when_primaries_are_killed(place: tuple[str, Kill], seconds: float) -> None:
    url, kill = place
    options = {"protocol": "bullmq", "replicas": 1, "replica_timeout_ms": 1_000, "retry_ms": 60_000}
    done: Times = Counter()

    def processor(job: RunningJob) -> None:
        done[job.handle.keys.queue, job.id] += 1

    def completed() -> int:
        return sum(queue.counts()["completed"] for queue in queues)

    with ExitStack() as stack:
        queues = [stack.enter_context(BullQueue(name, url=url, **options)) for name in NAMES]
        # A job may be active at several fail-overs.
        stack.enter_context(Promoter(url, NAMES, protocol="bullmq", check_ms=1_000, max_stalled=1_000))
        handles = [queue.handle for queue in queues]
        stack.enter_context(OurWorker(handles, processor, chunk_size=10, lock_ms=3_000))
        reader = stack.enter_context(Reader(queues, url, "meanwhile"))
        end_at, kills = monotonic_s() + seconds, 0
        with Writer(queues, done) as writer:
            while kills < KILLS or monotonic_s() < end_at:
                target = completed() + BETWEEN
                wait_until(lambda target=target: completed() > target, "jobs to be processed")
                killed = kill(f"bull:{NAMES[kills % 3]}:").start()
                # Another primary is killed only when this server has what its primary has.
                wait_until(lambda killed=killed: has_its_place(killed), "the killed server to be in place")
                kills += 1
        expected = {(name, f"n{n}") for name in NAMES for n in range(writer.added)}
        wait_until(lambda: completed() == len(expected), f"{len(expected)} jobs to be completed")
        assert set(done) == expected
        wait_until(lambda: reader.error or set(reader.found) >= expected, "the results that were collected meanwhile")
        assert reader.error is None
        results = Reader(queues, url, "afterwards")
        with results:
            wait_until(lambda: results.found.total() >= len(expected), "all results")
        assert results.found == Counter(expected)
        again = [times.total() - len(times) for times in (done, reader.found)]
        print(f"{kills} kills, {len(expected)} jobs; again: {again[0]} runs, {again[1]} results")
        for queue in queues:
            assert {state: n for state, n in queue.counts().items() if n} == {"completed": writer.added}

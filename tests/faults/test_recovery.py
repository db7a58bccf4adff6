"""Crashes during an exactly-once write: each job is added once, in order, and no staged data is left.

The result is compared, key by key, with the same write to another queue without a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from redis import Redis

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, NewJob, StagedDataLost, WriteRecord
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.dispatch.write_records import Identity
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.staging import commit
from tests.faults.drivers import driver
from tests.faults.programs import dies_at, partitions_of, write_partitions
from tests.spark.conftest import Bull
from tests.support.dump import PRIVATE, Window, difference, dump, normalise
from tests.support.network import LosingProxy
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.writes import register_all, stage_all

DIALECTS = ["bull", "bullmq"]
SMALL, SMALL_CHUNKS = 14, 4  # partitions of 4, 0 and 10 jobs, in chunks of at most 4

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@dataclass
class TwoWrites:
    """Two queues with the same writes, one of which is disturbed by crashes."""

    client: Redis
    url: str
    prefix: str
    dialect: str
    window: Window = field(default_factory=Window)

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "prefix": self.prefix, "protocol": self.dialect}

    def open(self, name: str = "disturbed", **options: object) -> BullQueue:
        # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
        return BullQueue(self.name(name), **{**self.options, **options})

    def name(self, name: str) -> str:
        return f"{name}-{self.prefix}"

    def write_and_die(self, seed: int, count: int, chunk_size: int, call: int) -> None:
        assert dies_at(call, "after", write_partitions, self.name("disturbed"), self.options, seed, count, chunk_size)

    def write_undisturbed(self, seed: int, count: int, chunk_size: int) -> WriteRecord:
        write_partitions(self.name("undisturbed"), self.options, seed, count, chunk_size)
        with self.open("undisturbed") as queue:
            (record,) = queue.writes()
        return record

    def assert_alike(self, *, is_staged: bool = True) -> None:
        sides = [dump(self.client, self.prefix, self.name(name)) for name in ("undisturbed", "disturbed")]
        assert sides[0], "nothing to compare with"
        found = difference(*(normalise(side, self.window) for side in sides))
        assert not found, "\n".join(found[:20])
        if not is_staged:
            return
        # No staged chunk and no manifest is left, and all other private keys expire.
        kept = {name: key.expires for name, key in sides[1].items() if name.startswith(PRIVATE)}
        assert not [name for name in kept if "stage" in name or "manifest" in name or "open" in name]
        assert all(kept.values()), kept


@pytest.fixture
def dialect() -> str:
    """Of tests without this parameter."""
    return "bullmq"


@pytest.fixture
def pair(client: Redis, redis_url: str, prefix: str, dialect: str) -> TwoWrites:
    return TwoWrites(client, redis_url, prefix, dialect)


# the committing process dies


@each_dialect
@pytest.mark.parametrize("die_after", [0, 2, SMALL_CHUNKS])
def test_a_write_is_recovered_when_its_committer_dies_after_any_chunk(pair: TwoWrites, die_after: int) -> None:
    reference = pair.write_undisturbed(1, SMALL, 4)
    # One call stages each chunk, and the next one registers the write.
    pair.write_and_die(1, SMALL, 4, SMALL_CHUNKS + 1 + die_after)

    with pair.open() as queue:
        before = queue.writes()
        assert [record.state for record in before] == ["finished" if die_after == SMALL_CHUNKS else "open"]
        recovered = queue.recover()
        assert len(recovered) == (die_after < SMALL_CHUNKS)
        (record,) = queue.writes()
        assert (record.state, record.jobs) == ("finished", SMALL)
        assert (record.added, record.duplicates) == (reference.added, reference.duplicates)
        assert queue.recover() == []
    pair.assert_alike()


# Redis dies


def test_a_write_continues_when_redis_restarts_after_every_chunk(
    own_redis: Callable[..., EmbeddedRedis], dialect: str
) -> None:
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    pair = TwoWrites(Redis.from_url(server.url), server.url, "p", dialect)
    pair.write_undisturbed(8, SMALL, 4)
    deaths: list[int] = []

    def die_and_come_back(done: int, total: int) -> None:
        deaths.append(done)
        server.kill()
        server.start()

    with pair.open() as queue:
        register_all(queue.handle, "w", partitions_of(8, SMALL, dialect), 4)
        assert roll_forward(queue.handle, "w", die_and_come_back).state == "finished"
    assert len(deaths) >= SMALL_CHUNKS
    pair.assert_alike()


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        (0, "None of its rows was committed.*: run the write again"),
        (1, "after 4 of .*check what the queue has before you run"),
    ],
)
def test_a_registered_write_that_was_lost_in_a_fail_over_is_an_error_with_advice(
    own_redis: Callable[..., EmbeddedRedis], dialect: str, chunks: int, said: str
) -> None:
    server = own_redis()
    with Redis.from_url(server.url) as client, BullQueue("q", url=server.url, protocol=dialect) as queue:
        register_all(queue.handle, "w", [[NewJob({"n": n}) for n in range(12)]], 4)

        def forget(*_: int) -> None:
            client.delete(queue.handle.keys.write("w"))

        if chunks == 0:
            forget()
        with pytest.raises(StagedDataLost, match=said):
            roll_forward(queue.handle, "w", forget)


def test_a_write_that_runs_out_of_memory_is_recovered_later(
    own_redis: Callable[..., EmbeddedRedis], dialect: str
) -> None:
    server = own_redis({"maxmemory-policy": "noeviction"})
    pair = TwoWrites(Redis.from_url(server.url), server.url, "p", dialect)
    pair.write_undisturbed(12, SMALL, 4)
    no_memory = "out of memory"
    with pair.open() as queue:
        plan = stage_all(queue.handle, "w", partitions_of(12, SMALL, dialect), 4)
        pair.client.config_set("maxmemory", 1)
        with pytest.raises(ConnectionLost, match=no_memory):
            register("w", [plan], Identity("app", 1))
        # The write was not registered: staged chunks still expire.
        left = dump(pair.client, pair.prefix, pair.name("disturbed"))
        assert set(left) == {f"spark:stage:w.{n}.0" for n in (0, 2)}
        assert all(key.expires for key in left.values())
        pair.client.config_set("maxmemory", 0)
        assert register("w", [plan], Identity("app", 1))

        with pytest.raises(ConnectionLost, match=no_memory):
            roll_forward(queue.handle, "w", lambda done, total: pair.client.config_set("maxmemory", 1))
        (record,) = queue.writes()
        assert record.state == "open"
        assert 0 < record.added < record.jobs
        pair.client.config_set("maxmemory", 0)
        assert [record.state for record in queue.recover()] == ["finished"]
    pair.assert_alike()


# the connection is cut


@each_dialect
@pytest.mark.parametrize("way", ["straight", "staged"])
def test_a_lost_reply_has_no_effect_on_a_write(own_redis: Callable[..., EmbeddedRedis], dialect: str, way: str) -> None:
    """Every second reply of a script is lost, so the client sends the script again."""
    server = own_redis()
    pair = TwoWrites(Redis.from_url(server.url), server.url, "p", dialect)
    jobs = partitions_of(11, 60, dialect)

    def write(queue: BullQueue) -> None:
        if way == "straight":
            queue.add_many([job for partition in jobs for job in partition])
        else:
            register_all(queue.handle, "w", jobs, 4)
            roll_forward(queue.handle, "w")

    with pair.open("undisturbed", chunk_size=4) as queue:
        write(queue)
    with LosingProxy(server.port, each=2) as proxy:
        with pair.open(chunk_size=4, url=proxy.url) as queue:
            write(queue)
        assert proxy.lost >= 10
    pair.assert_alike(is_staged=way == "staged")


# Spark dies

#: Jobs of one chunk of the write below.
COMMITTED = 10


@pytest.mark.spark
@pytest.mark.usefixtures("forked_python")
def test_the_next_write_finishes_the_commit_of_a_killed_driver(
    bull: Bull, own_redis: Callable[..., EmbeddedRedis], tmp_path: Path
) -> None:
    """The proxy holds back the second chunk of the commit."""
    rows, server = 2_000, own_redis()
    client, wait = Redis.from_url(server.url), "p:q:wait"
    with LosingProxy(server.port, each=0, held=lambda: bool(client.llen(wait))) as proxy:
        options = {"url": proxy.url, "prefix": "p", "chunkSize": COMMITTED}
        with driver(tmp_path / "log", "write", rows=rows, **options) as running:
            wait_until(lambda: client.llen(wait) or not running.alive, "the commit to begin")
    assert client.llen(wait) == COMMITTED

    Bull(bull.spark, server.url, "p").write(bull.spark.createDataFrame([(-1,)], "n INT"))

    with BullQueue("q", url=server.url, prefix="p") as queue:
        assert numbers_in(queue) == [*range(rows), -1]
        assert [(record.state, record.jobs) for record in queue.writes()] == [("finished", rows), ("finished", 1)]


def numbers_in(queue: BullQueue) -> list[int]:
    """The numbers of the jobs that wait, in their order."""
    return [job.data["n"] for job in queue.page("wait", stop=10_000)]


NUMBERS = StructType().add("n", IntegerType())


def written(options: dict[str, str], *numbers: int, **more: bool) -> Sink:
    """A write of numbers that is not committed yet."""
    write = Sink(options, NUMBERS, **more)
    write.task([{"n": n} for n in numbers])
    return write


def test_an_unfinished_write_is_an_error_that_advises_against_a_rerun(
    own_redis: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rerun would add its jobs a second time; the next write finishes it."""
    server = own_redis()
    client = Redis.from_url(server.url)
    options = {"url": server.url, "queue": "q", "chunkSize": "2"}

    def write(*numbers: int) -> None:
        written(options, *numbers).commit()

    with monkeypatch.context() as patch:
        patch.setattr(commit, "_log_progress", lambda done, total: client.config_set("maxmemory", 1))
        with pytest.raises(ConnectionLost, match=r"don't run this write again.*the next write to queue q"):
            write(0, 1, 2, 3, 4)
    with BullQueue("q", url=server.url) as queue:
        assert numbers_in(queue) == [0, 1]
        client.config_set("maxmemory", 0)
        write(5)
        assert numbers_in(queue) == [*range(6)]


@pytest.fixture
def several(redis_url: str, prefix: str) -> Sink:
    """A write whose task has staged jobs for three queues."""
    options = {"url": redis_url, "prefix": prefix, "chunkSize": "2", "jobColumns": "queue"}
    write = Sink(options, StructType([*NUMBERS, StructField("queue", StringType())]))
    write.task([{"n": n, "queue": queue} for n, queue in enumerate(["a", "b", "c"] * 3)])
    return write


def fails(write: Sink, error: type[Exception], said: str, **steps: Callable[..., object]) -> None:
    """The commit fails with other steps in place of its own; Spark calls abort() afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name, step in steps.items():
            patch.setattr(commit, name, step)
        with pytest.raises(error, match=said):
            write.commit()
    write.abort()


def test_an_error_names_all_queues_that_it_leaves_unfinished(redis_url: str, prefix: str, several: Sink) -> None:
    def lose(handle: QueueHandle, write_id: str, *rest: Any, **named: Any) -> WriteRecord:
        if handle.keys.queue == "b":
            raise ConnectionLost("the plug is out")
        return roll_forward(handle, write_id, *rest, **named)

    said = "don't run this write again.*queue b, or `spark-bull recover` for each, .* Cause: the plug is out"
    fails(several, ConnectionLost, said, roll_forward=lose)
    for name, states in (("a", ["finished"]), ("b", ["open"]), ("c", ["finished"])):
        with BullQueue(name, url=redis_url, prefix=prefix) as queue:
            assert [record.state for record in queue.writes()] == states
            queue.recover()
            assert queue.counts()["wait"] == 3


def test_a_registration_without_a_reply_is_reported_as_unknown(redis_url: str, prefix: str, several: Sink) -> None:
    def lose(*args: Any) -> bool:
        register(*args)
        raise ConnectionLost("the plug is out")

    fails(several, ConnectionLost, "not known.*`spark-bull writes a`.*Cause: the plug is out", register=lose)
    for name in "abc":
        with BullQueue(name, url=redis_url, prefix=prefix) as queue:
            assert [record.state for record in queue.recover()] == ["finished"]
            assert queue.counts()["wait"] == 3


def test_lost_chunks_of_one_queue_do_not_affect_other_queues(
    client: Redis, redis_url: str, prefix: str, several: Sink
) -> None:
    (left,) = client.scan_iter(match=f"{prefix}:a:spark:stage:*")

    def lose(*args: Any) -> bool:
        done = register(*args)
        client.hdel(left, 0)
        return done

    said = "queue a: chunks were gone.*the rows of the other 2 queues were committed"
    fails(several, StagedDataLost, said, register=lose)
    # The other chunk is kept for an investigation.
    assert client.hkeys(left) == [b"1"]
    for name in "bc":
        with BullQueue(name, url=redis_url, prefix=prefix) as queue:
            assert queue.counts()["wait"] == 3


# mode("overwrite")


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_concurrent_overwrites_of_one_version_keep_all_its_jobs(
    queue: BullQueue, redis_url: str, prefix: str, delivery: str
) -> None:
    queue.add_many([NewJob({"n": -n}) for n in range(1, 10)])
    options = {"url": redis_url, "prefix": prefix, "queue": "q", "chunkSize": "2", "confirmObliterate": "true"}
    options |= {"txnAppId": "app", "txnVersion": "1", "delivery": delivery}
    if delivery == "exactly-once":
        second, first = written(options, 1, 2, overwrite=True), written(options, 1, 2, 3, overwrite=True)
        first.commit()
        second.task([{"n": 3}])
    else:
        # The second has already checked the watermark, and removes the jobs that the first has added since.
        first, second = written(options, 1, 2, 3, overwrite=True), Sink(options, NUMBERS, overwrite=True)
        first.commit()
        second.task([{"n": n} for n in (1, 2, 3)])
    second.commit()
    found = numbers_in(queue)
    assert (found if delivery == "exactly-once" else sorted({*found})) == [1, 2, 3]

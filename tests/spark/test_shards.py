"""Logical queues with shards: on one server, in the slots of a cluster, and on three servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_bull import BullQueue, EmbeddedRedis, OptionError, Promoter, Worker, shard_names, write_results
from spark_bull.spark.dispatch.features.routing import shard_of
from tests.spark.conftest import Bull, Files, collected, refusal
from tests.support.redis_servers import RedisCluster
from tests.support.wait import PATIENCE_S, wait_until

SHARDS, JOBS = 4, 60


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedRedis() as a, EmbeddedRedis() as b, EmbeddedRedis() as c:
        yield " ".join(server.url for server in (a, b, c))


@pytest.fixture(params=["one server", pytest.param("a cluster", marks=pytest.mark.rest), "three servers"])
def sharded(request: pytest.FixtureRequest, spark: SparkSession, prefix: str) -> Bull:
    if request.param == "one server":
        url = request.getfixturevalue("redis_url")
    elif request.param == "a cluster":
        cluster: RedisCluster = request.getfixturevalue("cluster")
        url = cluster.url
    else:
        bull = Bull(spark, "", prefix)
        bull.options = {"shardUrls": request.getfixturevalue("servers"), "prefix": prefix}
        return bull
    return Bull(spark, url, prefix)


def arguments(bull: Bull) -> dict[str, Any]:
    return {{"shardUrls": "shard_urls"}.get(name, name): value for name, value in bull.options.items()}


def queues(bull: Bull, shards: int = SHARDS) -> list[BullQueue]:
    return [BullQueue(name, **arguments(bull), protocol="bullmq") for name in shard_names("q", shards)]


def numbered(bull: Bull, jobs: int = JOBS) -> Any:
    return bull.spark.range(0, jobs, 1, 3).selectExpr("id AS n", "concat('k', id % 7) AS key")


def echo(job: Any) -> Any:
    return job.data["n"]


def test_all_verbs_take_the_logical_queue(sharded: Bull, tmp_path: Path) -> None:
    sharded.write(numbered(sharded), shards=SHARDS, shardBy="key", attempts=2, keepIds=True)
    parts = {queue.name: queue.page("wait", stop=JOBS) for queue in queues(sharded)}
    assert sum(map(len, parts.values())) == JOBS
    for number, jobs in enumerate(parts.values()):
        assert all(shard_of(f'["{job.data["key"]}"]', SHARDS) == number for job in jobs)
        for key in {job.data["key"] for job in jobs}:
            ns = [job.data["n"] for job in jobs if job.data["key"] == key]
            assert ns == sorted(ns), "expected the order of each key"
    read = sharded.read(shards="auto")
    assert read.count() == JOBS
    counts = sharded.read(view="counts", shards=SHARDS).where("state = 'wait'").agg(f.sum("jobs")).first()
    assert counts[0] == JOBS
    assert {row["queue"] for row in sharded.read(view="writes", shards=SHARDS).collect()} >= {
        name for name, jobs in parts.items() if jobs
    }

    queues(sharded)[3].add({"n": -1}, delay=1)
    with Promoter(queues=["q"], shards="auto", **arguments(sharded)):
        wait_until(lambda: queues(sharded)[3].counts()["delayed"] == 0, "the promotion of a job of shard 3")

    with Worker(
        sharded.spark, "q", echo, shards=SHARDS, slots=1, promoter=False, progress=False, **arguments(sharded)
    ) as worker:
        wait_until(
            lambda: sum(queue.counts()["completed"] for queue in queues(sharded)) == JOBS + 1, "the jobs of all shards"
        )
        assert len(worker.handles) == SHARDS
    (record,) = queues(sharded)[0].writes()
    options = {**sharded.options, "shards": SHARDS}
    results = write_results(sharded.spark, record.id, queue="q", timeout_s=PATIENCE_S, options=options)
    assert sorted(int(row["returnvalue"]) for row in results.collect()) == [*range(JOBS)]

    found = collected(sharded.stream(shards=SHARDS), tmp_path)
    assert sorted(int(row["returnvalue"]) for row in found) == [-1, *range(JOBS)]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("sharded", ["three servers"], indirect=True)
def test_a_stream_writes_to_all_shards(sharded: Bull, tmp_path: Path, delivery: str) -> None:
    files = Files(sharded, tmp_path)
    for half in range(2):
        files.put(*({"n": n, "key": f"k{n % 7}"} for n in range(half, JOBS, 2)))
        shards = "auto" if half else "4"
        files.write(files.rows("n LONG, key STRING"), shards=shards, delivery=delivery, shardBy="key")
    found = [job.data["n"] for queue in queues(sharded) for job in queue.page("wait", stop=JOBS)]
    assert sorted(found) == [*range(JOBS)]
    assert all(record.state == "finished" for queue in queues(sharded) for record in queue.writes())


@pytest.mark.parametrize("sharded", ["one server"], indirect=True)
def test_rows_without_a_key_go_to_the_shards_in_turn_and_job_ids_to_theirs(sharded: Bull) -> None:
    sharded.write(numbered(sharded, 40), shards=SHARDS)
    lengths = [queue.counts()["wait"] for queue in queues(sharded)]
    assert sum(lengths) == 40
    assert max(lengths) - min(lengths) <= 3, "each of three tasks deals its rows"
    ids = numbered(sharded, 40).selectExpr("to_json(named_struct('n', n)) AS data", "concat('id-', n) AS jobId")
    for _ in range(2):
        sharded.write(ids, shards=SHARDS)
    assert sum(queue.counts()["wait"] for queue in queues(sharded)) == 80
    before = [queue.counts()["wait"] for queue in queues(sharded)]
    sharded.write(ids.selectExpr("data", "CAST(NULL AS STRING) AS jobId"), shards=SHARDS)
    added = [queue.counts()["wait"] - length for queue, length in zip(queues(sharded), before, strict=True)]
    assert sum(added) == 40
    assert max(added) - min(added) <= 3


@pytest.mark.parametrize("sharded", ["three servers"], indirect=True)
def test_a_replayed_write_adds_nothing_and_overwrite_replaces_all_shards(sharded: Bull) -> None:
    for _ in range(2):
        sharded.write(numbered(sharded), shards=SHARDS, txnAppId="app", txnVersion=1)
    assert sum(queue.counts()["wait"] for queue in queues(sharded)) == JOBS
    writer = numbered(sharded, 1).write.format("bull").mode("overwrite").options(**sharded.options)
    writer.options(queue="q", shards=SHARDS, confirmObliterate=True).save()
    assert sum(queue.counts()["wait"] for queue in queues(sharded)) == 1


def test_what_shards_can_not_keep_is_refused(bull: Bull, own_redis: Callable[..., EmbeddedRedis]) -> None:
    bull.write(numbered(bull), shards=SHARDS)
    rows = numbered(bull)
    for options, said in (
        ({"shards": 8}, "expected `shards` to be 4, as queue q has as many shards, got: 8; `spark-bull reshard q"),
        ({"shards": SHARDS, "priority": 3}, "expected no `priority` with `shards`: workers take the jobs of each"),
        ({"shards": SHARDS, "maxLength": 3}, "expected no `maxLength` with `shards`: each shard has its own length"),
        ({"shards": SHARDS, "sequenceBy": "key", "shardBy": "n"}, "expected `shardBy` to list the columns of `seq"),
        ({"shards": SHARDS, "deduplication": '{"id": "x"}'}, "expected `shardBy` with `shards` and `deduplication`"),
        ({"shards": SHARDS, "onFinish": "{}"}, "expected no `onFinish` with `shards`"),
        ({"shardBy": "key"}, "expected `shards` with `shardBy`, got none"),
        ({"shards": 0}, "expected `shards` to be"),
    ):
        assert said in refusal(bull, rows, **options)
    said = refusal(bull, rows.selectExpr("'{}' AS data", "'q' AS queue"), None, shards=SHARDS)
    assert "expected the option `queue` with `shards`, got a column `queue`" in said
    with pytest.raises(OptionError, match="expected no `limiter` with `shards`: a limit holds within one shard"):
        Worker(bull.spark, "q", echo, shards=SHARDS, limiter={"max": 1, "duration": 1}, **arguments(bull))
    with pytest.raises(Exception, match=r"to have shards, as shards=auto says, found no key of none\{0\}"):
        bull.read("none", shards="auto").count()
    urls = f"{bull.options['url']} {own_redis().url}"
    with pytest.raises(OptionError, match="expected 1 servers in `shard_urls`"):
        Worker(bull.spark, "q", echo, shards=SHARDS, shard_urls=urls, prefix=bull.options["prefix"])
    with pytest.raises(OptionError, match=r"expected a shard, such as q\{0\}, as `shard_urls` has several servers"):
        BullQueue("q", shard_urls=urls).counts()
    assert sum(queue.counts()["wait"] for queue in queues(bull)) == JOBS

"""readStream without a mode: finished jobs as micro-batches, and the errors that users see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.spark.platform.requirements import start_query
from tests.support.redis_servers import STATES, error_replies
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import WorkBench, completed, failed_for

OwnRedis = Callable[..., EmbeddedRedis]


@pytest.fixture
def bench(queue: BullQueue, client: Redis) -> WorkBench:
    return WorkBench(queue, client, twice=False)


each_dialect = pytest.mark.parametrize(
    "queue", ["bull", "bullmq", pytest.param("bull-1", marks=pytest.mark.rest)], indirect=True
)


def finish(bench: WorkBench, count: int, value: str = "1") -> list[str]:
    """Adds jobs and completes them; returns their ids."""
    ids = bench.add(count)
    bench.work(completed(bench.claim(count), value))
    return ids


class Collection:
    """Queries that append results to tables."""

    def __init__(self, spark: SparkSession, options: dict[str, str], folder: Path) -> None:
        self.spark, self.options, self.folder = spark, options, folder
        self.batches: list[Any] = []

    def stream(self, schema: str | None = None, **more: Any) -> DataFrame:
        reader = self.spark.readStream.format("bull").options(**self.options)
        for name, value in more.items():
            reader = reader.option(name, str(value))
        return (reader.schema(schema) if schema else reader).load()

    def start(self, frame: DataFrame, name: str = "results", **trigger: Any) -> Any:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.folder / f"{name}.check"))
        writer = writer.trigger(**trigger)
        return start_query(lambda: writer.start(str(self.folder / name)))

    def run(self, name: str = "results", schema: str | None = None, **more: Any) -> list[Row]:
        """Runs a query with availableNow, and returns all rows of the table."""
        query = self.start(self.stream(schema, **more), name, availableNow=True)
        assert query.awaitTermination(PATIENCE_S)
        self.batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
        return self.rows(name)

    def rows(self, name: str = "results") -> list[Row]:
        return self.spark.read.parquet(str(self.folder / name)).collect()

    def ids(self, name: str = "results", **more: Any) -> list[str]:
        return sorted((row.id for row in self.run(name, **more)), key=int)


@pytest.fixture
def collection(spark: SparkSession, redis_url: str, prefix: str, tmp_path: Path) -> Collection:
    return Collection(spark, {"url": redis_url, "prefix": prefix, "queue": "q"}, tmp_path)


@pytest.fixture
def own_bench(own_redis: OwnRedis, collection: Collection) -> Iterator[tuple[EmbeddedRedis, WorkBench]]:
    """A server of its own, on which the queries are, too, and its queue."""
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    collection.options |= {"url": server.url, "retryMs": "300"}
    prefix = collection.options["prefix"]
    with (
        BullQueue("q", url=server.url, prefix=prefix, protocol="bullmq") as queue,
        Redis.from_url(server.url) as client,
    ):
        yield server, WorkBench(queue, client, twice=False)


def fails(collection: Collection, match: str, **more: Any) -> None:
    with pytest.raises((StreamingQueryException, AnalysisException), match=match):
        collection.run(**more)


# delivery


@each_dialect
def test_finished_jobs_are_delivered_once_with_all_fields(bench: WorkBench, collection: Collection) -> None:
    ids = finish(bench, 5, '{"a":1}')
    bench.queue.add({"n": 9}, name="bad", attempts=1)
    claim = bench.claim(1)
    failed = claim.jobs[0].id
    bench.work(failed_for(claim, "no good"))
    rows = {row.id: row for row in collection.run()}
    assert sorted(rows) == sorted([*ids, failed])
    done = rows[ids[0]]
    assert (done.queue, done.state, done.returnvalue, json.loads(done.data)) == ("q", "completed", '{"a":1}', {"n": 0})
    assert (done.finishedOn is None) == (bench.queue.protocol == "bull-1")
    assert (rows[failed].state, rows[failed].failedReason) == ("failed", "no good")
    more = finish(bench, 3)
    assert collection.ids() == sorted([*ids, failed, *more], key=int)


def test_a_stream_has_the_columns_of_a_read_or_of_a_narrower_schema(
    bench: WorkBench, collection: Collection, spark: SparkSession
) -> None:
    (job_id,) = finish(bench, 1, '"x"')
    table = spark.read.format("bull").options(**collection.options).load()
    assert collection.stream().schema == table.schema
    assert collection.run(schema="returnvalue STRING, id STRING") == [Row(returnvalue='"x"', id=job_id)]


def test_results_have_the_type_that_is_given_and_none_is_inferred(bench: WorkBench, collection: Collection) -> None:
    finish(bench, 3, '{"sent": 7, "to": "ada"}')
    rows = collection.run(returnSchema="sent INT", payloadSchema="MAP<STRING, INT>", startingOffsets="earliest")
    assert [row["returnvalue"].sent for row in rows] == [7] * 3
    assert all(isinstance(row["data"], dict) for row in rows)
    fails(collection, "expected `returnSchema` of a stream to be DDL, got 'infer'", returnSchema="infer")


def test_the_option_states_selects_finished_jobs(bench: WorkBench, collection: Collection) -> None:
    finish(bench, 2)
    bench.add(1)
    bench.work(failed_for(bench.claim(1), "bad"))
    assert {row.state for row in collection.run("failures", states="failed")} == {"failed"}
    assert {row.state for row in collection.run("both")} == {"completed", "failed"}


@pytest.mark.capability("available-now")
def test_limits_hold_and_available_now_ends_with_the_jobs_at_its_start(
    bench: WorkBench, collection: Collection
) -> None:
    finish(bench, 25)
    query = collection.start(collection.stream(maxJobsPerTrigger=10, rowsPerPartition=3), availableNow=True)
    wait_until(lambda: query.recentProgress or not query.isActive, "the first batch")
    late = finish(bench, 5)
    assert query.awaitTermination(PATIENCE_S)
    assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == [10, 10, 5]
    assert not {row.id for row in collection.rows()} & set(late)
    assert set(late) <= set(collection.ids())


def test_rows_per_partition_set_the_number_of_partitions(
    bench: WorkBench, collection: Collection, spark: SparkSession
) -> None:
    finish(bench, 20)
    seen: list[int] = []
    writer = collection.stream(rowsPerPartition=5).writeStream.trigger(availableNow=True)
    writer = writer.foreachBatch(lambda frame, _: seen.append(frame.rdd.getNumPartitions()))
    assert start_query(writer.start).awaitTermination(PATIENCE_S)
    assert seen == [4]


def test_several_queues_and_globs_are_read(
    bench: WorkBench, collection: Collection, redis_url: str, prefix: str
) -> None:
    finish(bench, 3)
    with BullQueue("other-1", url=redis_url, prefix=prefix, protocol="bull") as other:
        finish(WorkBench(other, bench.client, twice=False), 4)
        found = collection.run("named", queue="q,other-1,missing")
        assert sorted(row.queue for row in found) == ["other-1"] * 4 + ["q"] * 3
        assert {row.queue for row in collection.run("globbed", queue="oth*")} == {"other-1"}
    with BullQueue("other-2", url=redis_url, prefix=prefix, protocol="bull-1") as newcomer:
        finish(WorkBench(newcomer, bench.client, twice=False), 2)
    assert sorted(row.queue for row in collection.run("globbed", queue="oth*")) == ["other-1"] * 4 + ["other-2"] * 2


def test_latest_begins_with_jobs_that_finish_from_now_on(bench: WorkBench, collection: Collection) -> None:
    finish(bench, 4)
    new = {"startingOffsets": "latest", "readerId": "mine"}
    frame = collection.stream(**new).writeStream.format("noop")
    frame = frame.option("checkpointLocation", str(collection.folder / "c")).trigger(availableNow=True)
    assert start_query(frame.start).awaitTermination(PATIENCE_S)
    ids = finish(bench, 3)
    assert collection.ids(**new) == ids
    # Another query is independent.
    assert set(collection.ids("other")) > set(ids)


@pytest.mark.capability("progress")
def test_progress_shows_the_lag(bench: WorkBench, collection: Collection) -> None:
    finish(bench, 30)
    collection.run(maxJobsPerTrigger=10)
    first = collection.batches[0]["sources"][0]
    assert json.loads(first["endOffset"])["queues"] == {"q": 10}
    assert json.loads(first["latestOffset"])["queues"] == {"q": 30}


@pytest.mark.capability("available-now")
@each_dialect
def test_remove_on_read_deletes_jobs_after_their_batch(bench: WorkBench, collection: Collection) -> None:
    ids = finish(bench, 7)
    bench.client.rpush(bench.handle.keys.logs(ids[0]), "a line")
    assert collection.ids(removeOnRead=True) == ids
    assert bench.counts() == {}
    left = [key.decode() for key in bench.client.scan_iter(f"{bench.handle.keys.base}*")]
    assert not {key for job_id in ids for key in left if key.startswith(bench.handle.keys.job(job_id))}


@pytest.mark.capability("available-now")
def test_a_failed_batch_deletes_no_jobs(bench: WorkBench, collection: Collection) -> None:
    ids = finish(bench, 3)
    broken = collection.stream(removeOnRead=True).writeStream.option("checkpointLocation", str(collection.folder / "c"))

    def refuse(frame: DataFrame, _: int) -> None:
        frame.collect()
        raise RuntimeError("the lake is closed")

    with pytest.raises(StreamingQueryException, match="the lake is closed"):
        start_query(broken.foreachBatch(refuse).trigger(availableNow=True).start).awaitTermination(PATIENCE_S)
    assert bench.counts() == {"completed": 3}
    got: list[str] = []
    broken.foreachBatch(lambda frame, _: got.extend(row.id for row in frame.collect()))
    assert start_query(broken.trigger(availableNow=True).start).awaitTermination(PATIENCE_S)
    assert sorted(got) == sorted(ids)
    assert bench.counts() == {}


# errors and data loss


#: Options that are wrong, and what is said.
WRONG: list[tuple[dict[str, str], str]] = [
    ({"minJobsPerTrigger": "300001"}, r"`minJobsPerTrigger` to be at most `maxJobsPerTrigger` \(300,000\)"),
    ({"minJobsPerTrigger": "2", "writeId": "w"}, "expected no `minJobsPerTrigger` with `writeId`"),
    ({"startingOffsets": "latest"}, "startingOffsets=latest requires the option `readerId`"),
    (
        {"startingOffsets": "newest"},
        "expected `startingOffsets` to be earliest, latest, an ISO 8601 time or ms since 1970, got: 'newest'",
    ),
    ({"states": "completed,wait"}, "expected `states` of a stream to be some of completed, failed, got: 'wait'"),
    ({"startingOffset": "earliest"}, "did you mean `startingOffsets`"),
    ({"lookbackMs": "1"}, "expected `lookbackMs` to be an integer from 1,000 to 86,400,000, got: '1'"),
    ({"jobIds": "1"}, "option `jobIds` is for reads"),
    ({"mode": "settle"}, "mode=settle is not supported here"),
]


def test_wrong_options_are_refused(bench: WorkBench, collection: Collection, spark: SparkSession) -> None:
    for options, message in WRONG:
        fails(collection, message, **options)
    with pytest.raises(AnalysisException, match="expected the option `queue`"):
        spark.readStream.format("bull").option("url", collection.options["url"]).load()
    with pytest.raises(AnalysisException, match="option `removeOnRead` is for streaming reads, not for reads"):
        spark.read.format("bull").options(**collection.options, removeOnRead="true").load().count()


@pytest.mark.parametrize("queue", ["bull-1"], indirect=True)
def test_bull_1_does_not_support_a_start_at_a_time(bench: WorkBench, collection: Collection) -> None:
    finish(bench, 1)
    fails(collection, "got queue q of dialect bull-1", startingOffsets="2026-01-01")


def test_an_expired_ledger_ends_the_query(bench: WorkBench, collection: Collection) -> None:
    ids = finish(bench, 4)
    collection.run(readerId="mine")
    bench.client.unlink(*bench.handle.keys.results("mine").values())
    fails(collection, "the ledger of reader `mine` is missing, last position 4", readerId="mine")
    more = finish(bench, 1)
    # The query continues with all finished jobs in Redis.
    assert collection.ids(readerId="mine", failOnDataLoss=False) == sorted([*ids, *ids, *more], key=int)


def test_a_flushed_redis_ends_the_query(own_bench: tuple[EmbeddedRedis, WorkBench], collection: Collection) -> None:
    _, bench = own_bench
    finish(bench, 2)
    collection.run()
    bench.client.flushall()
    finish(bench, 3)
    fails(collection, "Redis was flushed")
    assert len(collection.run(failOnDataLoss=False)) == 5


def test_two_queries_cannot_use_one_reader_id_and_one_whose_ledger_is_taken_over_ends(
    bench: WorkBench, collection: Collection
) -> None:
    finish(bench, 2)
    first = collection.start(collection.stream(readerId="mine"), "first", processingTime="200 milliseconds")
    try:
        wait_until(lambda: first.recentProgress, "the first batch")
        fails(collection, "expected `readerId` mine to be used by one query at a time", readerId="mine")
        more = finish(bench, 2)
        wait_until(lambda: {row.id for row in collection.rows("first")} >= set(more), "the first query to go on")
        ledger = ResultLedger(bench.handle, "mine", owner="another")
        ledger.open("earliest", create=False, previous_owner=ledger.holder()[0] or "")
        with pytest.raises(StreamingQueryException, match="expected `readerId` mine to be used by one query at a time"):
            first.awaitTermination(PATIENCE_S)
    finally:
        first.stop()


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_a_job_that_was_removed_before_it_was_read_ends_the_query(bench: WorkBench, collection: Collection) -> None:
    ids = finish(bench, 3, '"v"')
    ledger = ResultLedger(bench.handle, "mine", owner="finder")
    ledger.open("earliest", create=True)
    ledger.discover()
    bench.queue.remove(ids[1])
    fails(collection, f"1 finished jobs were removed before they were read, the first is job {ids[1]}", readerId="mine")
    rows = sorted(collection.run(readerId="mine", failOnDataLoss=False), key=lambda row: int(row.id))
    assert [row.id for row in rows] == ids
    gone = rows[1]
    assert (gone.state, gone.data, gone.finishedOn is not None) == ("completed", None, True)
    # BullMQ's events contain the value; in Bull it is removed with the job.
    assert gone.returnvalue == ('"v"' if bench.bullmq else None)


@pytest.mark.capability("available-now")
def test_a_new_checkpoint_continues_where_the_reader_stopped(bench: WorkBench, collection: Collection) -> None:
    finish(bench, 3)
    ids = collection.ids("one", readerId="mine")
    assert ids
    more = finish(bench, 2)
    # A new checkpoint begins at the position of the reader.
    assert collection.ids("two", readerId="mine") == more


@pytest.mark.parametrize("state", ["killed", "READONLY", pytest.param("NOREPLICAS", marks=pytest.mark.rest)])
def test_a_query_continues_after_an_outage_of_redis_or_refused_writes(
    own_bench: tuple[EmbeddedRedis, WorkBench], collection: Collection, state: str
) -> None:
    """Discovering finished jobs writes to the ledger."""
    server, bench = own_bench
    ids = finish(bench, 2)
    query = collection.start(collection.stream(), processingTime="200 milliseconds")
    try:
        wait_until(lambda: query.recentProgress, "the first batch")
        if state == "killed":
            server.kill()
            wait_until(lambda: query.recentProgress[-1]["durationMs"].get("latestOffset", 0) > 300, "a failed batch")
            server.restart()
        else:
            STATES[state].begin(bench.client)
            refused = error_replies(bench.client) + 5
            wait_until(lambda: error_replies(bench.client) > refused, "the query to be refused")
            STATES[state].end(bench.client)
        ids += finish(bench, 2)
        wait_until(lambda: len(collection.rows()) == 4, "the query to go on")
        assert query.isActive
    finally:
        query.stop()
    assert sorted(row.id for row in collection.rows()) == sorted(ids)

"""readStream without a mode: finished jobs as micro-batches, and the errors that users see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.requirements import start_query
from tests.spark.conftest import Bull, OpenQueue, collected, collecting
from tests.support.redis_servers import STATES, error_replies
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import WorkBench, completed, failed_for


@pytest.fixture
def bench(queue: BullQueue, client: Redis) -> WorkBench:
    return WorkBench(queue, client, twice=False)


def finish(bench: WorkBench, count: int, value: str = "1") -> list[str]:
    """Adds jobs and completes them; returns their ids."""
    ids = bench.add(count)
    bench.work(completed(bench.claim(count), value))
    return ids


class Collection:
    """Queries that append results to tables."""

    def __init__(self, bull: Bull, folder: Path) -> None:
        self.bull, self.stream, self.folder = bull, bull.stream, folder

    def start(self, frame: DataFrame, name: str = "results", **trigger: Any) -> Any:
        return collecting(frame, self.folder / name, **trigger)

    def run(self, name: str = "results", **more: Any) -> list[Row]:
        return collected(self.stream(**more), self.folder / name)

    def rows(self, name: str = "results") -> list[Row]:
        return self.bull.spark.read.parquet(str(self.folder / name / "rows")).collect()

    def ids(self, name: str = "results", **more: Any) -> list[str]:
        return sorted((row.id for row in self.run(name, **more)), key=int)


@pytest.fixture
def collection(bull: Bull, tmp_path: Path) -> Collection:
    return Collection(bull, tmp_path)


def fails(collection: Collection, match: str, **more: Any) -> None:
    with pytest.raises((StreamingQueryException, AnalysisException), match=match):
        collection.run(**more)


# delivery


@pytest.mark.parametrize("queue", ["bull", "bullmq", pytest.param("bull-1", marks=pytest.mark.rest)], indirect=True)
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
    assert collection.ids("failures", states="failed") == [failed]


def test_a_stream_has_the_columns_and_types_of_a_read_or_those_that_are_given(
    bench: WorkBench, collection: Collection
) -> None:
    (job_id,) = finish(bench, 1, '{"sent": 7, "to": "ada"}')
    assert collection.stream().schema == collection.bull.read().schema
    rows = collection.run("narrow", schema="returnvalue STRING, id STRING")
    assert rows == [Row(returnvalue='{"sent": 7, "to": "ada"}', id=job_id)]
    (row,) = collection.run(returnSchema="sent INT", payloadSchema="MAP<STRING, INT>", startingOffsets="earliest")
    assert (row["returnvalue"].sent, row["data"]) == (7, {"n": 0})
    fails(collection, "expected `returnSchema` of a stream to be DDL, got 'infer'", returnSchema="infer")


@pytest.mark.capability("available-now")
def test_limits_hold_and_available_now_ends_with_the_jobs_at_its_start(
    bench: WorkBench, collection: Collection
) -> None:
    finish(bench, 25)
    query = collection.start(collection.stream(maxJobsPerTrigger=10, rowsPerPartition=3), availableNow=True)
    (first, *_) = wait_until(lambda: query.recentProgress or query.exception(), "the first batch")
    offsets = {name: json.loads(first["sources"][0][name])["queues"] for name in ("endOffset", "latestOffset")}
    assert offsets == {"endOffset": {"q": 10}, "latestOffset": {"q": 25}}, "the progress shows the lag"
    late = finish(bench, 5)
    assert query.awaitTermination(PATIENCE_S)
    assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == [10, 10, 5]
    assert not {row.id for row in collection.rows()} & set(late)
    assert set(late) <= set(collection.ids())


def test_several_queues_and_globs_are_read(bench: WorkBench, collection: Collection, open_queue: OpenQueue) -> None:
    finish(bench, 3)
    expected = ["q"] * 3
    for name, protocol, jobs in (("other-1", "bull", 4), ("other-2", "bull-1", 2)):
        finish(WorkBench(open_queue(name, protocol), bench.client, twice=False), jobs)
        expected += [name] * jobs
        assert sorted(row.queue for row in collection.run(queue="q,oth*,missing")) == sorted(expected)


def test_latest_begins_with_jobs_that_finish_from_now_on_and_a_new_checkpoint_where_the_reader_stopped(
    bench: WorkBench, collection: Collection
) -> None:
    finish(bench, 4)
    new = {"startingOffsets": "latest", "readerId": "mine"}
    frame = collection.stream(**new).writeStream.format("noop")
    frame = frame.option("checkpointLocation", str(collection.folder / "c")).trigger(availableNow=True)
    assert start_query(frame.start).awaitTermination(PATIENCE_S)
    ids = finish(bench, 3)
    assert collection.ids(**new) == ids
    # Another query is independent.
    assert set(collection.ids("other")) > set(ids)
    if CAPABILITIES["available-now"].has:
        more = finish(bench, 2)
        assert collection.ids("continued", **new) == more


@pytest.mark.capability("available-now")
def test_remove_on_read_deletes_jobs_after_their_batch_and_not_if_it_fails(
    bench: WorkBench, collection: Collection
) -> None:
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
    ({"jobIds": "1"}, "option `jobIds` is for reads"),
    ({"mode": "settle"}, "mode=settle is not supported here"),
]


def test_wrong_options_are_refused(bench: WorkBench, collection: Collection) -> None:
    for options, message in WRONG:
        fails(collection, message, **options)
    with pytest.raises(AnalysisException, match="expected the option `queue`"):
        collection.stream(None)
    with pytest.raises(AnalysisException, match="option `removeOnRead` is for streaming reads, not for reads"):
        collection.bull.read(removeOnRead=True).count()


def test_an_expired_ledger_ends_the_query(bench: WorkBench, collection: Collection) -> None:
    ids = finish(bench, 4)
    collection.run(readerId="mine")
    bench.client.unlink(*bench.handle.keys.results("mine").values())
    fails(collection, "the ledger of reader `mine` is missing, last position 4", readerId="mine")
    more = finish(bench, 1)
    # The query continues with all finished jobs in Redis.
    assert collection.ids(readerId="mine", failOnDataLoss=False) == sorted([*ids, *ids, *more], key=int)


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


@pytest.mark.parametrize("state", ["killed", "READONLY", pytest.param("NOREPLICAS", marks=pytest.mark.rest)])
def test_a_query_continues_after_an_outage_of_redis_or_refused_writes(
    own_redis: Callable[..., EmbeddedRedis], open_queue: OpenQueue, collection: Collection, state: str
) -> None:
    """Discovering finished jobs writes to the ledger."""
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    collection.bull.options |= {"url": server.url, "retryMs": "300"}
    client = Redis.from_url(server.url)
    bench = WorkBench(open_queue(protocol="bullmq", url=server.url), client, twice=False)
    ids = finish(bench, 2)
    query = collection.start(collection.stream(), processingTime="200 milliseconds")
    try:
        wait_until(lambda: query.recentProgress, "the first batch")
        if state == "killed":
            server.kill()
            wait_until(lambda: query.recentProgress[-1]["durationMs"].get("latestOffset", 0) > 300, "a failed batch")
            server.restart()
        else:
            STATES[state].begin(client)
            refused = error_replies(client) + 5
            wait_until(lambda: error_replies(client) > refused, "the query to be refused")
            STATES[state].end(client)
        ids += finish(bench, 2)
        wait_until(lambda: len(collection.rows()) == 4, "the query to go on")
        assert query.isActive
    finally:
        query.stop()
        client.close()
    assert sorted(row.id for row in collection.rows()) == sorted(ids)

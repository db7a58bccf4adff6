"""Workers of Node process what Spark has written or called, and Spark gets the results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from redis import Redis

import spark_bull
from spark_bull import write_results
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Outcomes, Retried
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from spark_bull.spark.platform.requirements import start_query
from tests.spark.conftest import Bull
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import PATIENCE_S, wait_until

each_peer = each_peer_of("bull-1", "bull", "bullmq")

COLUMNS = "data STRUCT<n: INT, `$behaviour`: STRING>, delay LONG, attempts INT, backoff LONG"
HOUR_MS = 3_600_000

pytestmark = pytest.mark.interop


@each_peer
def test_node_processes_jobs_dispatched_by_spark(theirs: NodePeer, queue: BullQueue, peer: Peer, bull: Bull) -> None:
    rows: list[tuple[Any, ...]] = [((n, "return:true"), None, None, None) for n in range(40)]
    rows += [((n, "return:true"), 400, None, None) for n in range(40, 50)]
    rows += [((50, "fail:2"), None, 3, 10), ((51, "fail"), None, 2, None), ((52, "fail:1"), 100, 2, None)]
    bull.write(bull.spark.createDataFrame(rows, COLUMNS).coalesce(1), protocol=peer.dialect)

    theirs.call("process", queue="q", concurrency=4)
    theirs.wait_for_events("completed", 52)
    wait_until(lambda: queue.counts()["failed"] == 1, "the job that always fails to be in failed")
    assert (queue.counts()["completed"], sum(queue.counts().values())) == (52, 53)
    (failed,) = queue.page("failed", 0, -1)
    assert failed.parsed("data") == {"n": 51, "$behaviour": "fail"}
    assert failed.attempts_made == 2


@each_peer
def test_an_idle_node_worker_wakes_for_our_jobs(
    theirs: NodePeer, client: Redis, redis_url: str, prefix: str, peer: Peer
) -> None:
    """By our signal: without it, these workers would check for jobs after an hour (Bull 1: every five seconds)."""
    others = ids_of_clients(client)
    theirs.call("process", queue="q", concurrency=1, opts=sound_sleep(peer))
    for number, (delay, events) in enumerate([(None, "all"), (None, "none"), (300, "none")], 1):
        wait_until(lambda: ids_of_clients(client, "b") - others, "the worker to wait for jobs")
        with BullQueue("q", url=redis_url, prefix=prefix, protocol=peer.dialect, events=events) as queue:
            queue.add({"$behaviour": "return:1"}, delay=delay)
            theirs.wait_for_events("completed", number)


@each_peer_of("bullmq")
def test_an_idle_node_worker_wakes_for_a_job_that_we_delay_while_we_start_the_next_one(
    theirs: NodePeer, queue: BullQueue, client: Redis, peer: Peer
) -> None:
    """A call of Node that does both leaves the delayed job to its own worker."""
    keys = queue.handle.keys
    first, second = (queue.add({"$behaviour": "return:1"}) for _ in range(2))
    claim = work(queue.handle, WorkSettings("slot"), None, 2)
    client.delete(keys["marker"])
    others = ids_of_clients(client)
    theirs.call("process", queue="q", concurrency=1, opts=sound_sleep(peer))
    wait_until(lambda: ids_of_clients(client, "b") - others, "the worker to wait for jobs")

    # The second job waits again, without a signal to the worker.
    client.delete(keys.lock(second))
    client.lmove(keys["active"], keys["wait"], "LEFT", "RIGHT")
    outcomes = Outcomes(claim.token, retried=[Retried(first, "bad", "[]", 100, False)])
    assert [job.id for job in work(queue.handle, WorkSettings("slot"), outcomes, 1).jobs] == [second]
    (completed,) = theirs.wait_for_events("completed", 1)
    assert completed["jobId"] == first


def sound_sleep(peer: Peer) -> dict[str, Any]:
    """Options of a worker that does not check for jobs without a signal."""
    if peer.dialect == "bull-1":
        return {}
    settings = {"drainDelay": HOUR_MS // 1000, "stalledInterval": HOUR_MS}
    return settings if peer.dialect == "bullmq" else {"settings": {**settings, "guardInterval": HOUR_MS}}


def ids_of_clients(client: Redis, flag: str = "") -> set[str]:
    """The connected clients with a flag; b: those that wait in a blocking command."""
    return {one["id"] for one in client.client_list() if flag in one["flags"]}


def rows(bull: Bull, *behaviours: str) -> DataFrame:
    data = [(n, {"$behaviour": behaviour}) for n, behaviour in enumerate(behaviours)]
    return bull.spark.createDataFrame(data, "n INT, data STRUCT<`$behaviour`: STRING>")


def called(bull: Bull, frame: DataFrame, **arguments: Any) -> list[Row]:
    result = spark_bull.call(frame, "q", **{"protocol": "bullmq", **bull.options, **arguments})
    return sorted(result.collect(), key=lambda row: row["n"])


@each_peer_of("bull-1.1.3", "bull", "bullmq")
def test_results_and_errors_come_back_with_their_rows(
    bull: Bull, theirs: NodePeer, client: Redis, prefix: str, peer: Peer
) -> None:
    theirs.call("process", queue="q", concurrency=4)
    behaviours = ['return:{"ok":true}', 'return:"ada"', "return:null", "fail", "fail:2", "return:3"]
    job = {"attempts": 3, "backoff": 1}
    found = called(bull, rows(bull, *behaviours), job=job, protocol=peer.dialect, details=peer.dialect == "bull")
    results = [(row["result"], row["error"]) for row in found]
    assert [one[0] and json.loads(one[0]) for one in [results[0], results[4], results[5]]] == [
        {"ok": True},
        {"echo": {"$behaviour": "fail:2"}},
        3,
    ]
    assert results[1:4] == [("ada", None), (None, None), (None, "scripted failure 3")]
    assert len({row["jobId"] for row in found}) == len(behaviours)
    # Node has removed the jobs, and knows nothing of their parents.
    counts = theirs.call("counts", queue="q")
    assert not any(counts.values()), counts
    assert client.exists(QueueKeys("q", prefix)["open_callers"]) == 0


@each_peer_of("bullmq-6")
def test_results_have_a_type(bull: Bull, theirs: NodePeer) -> None:
    theirs.call("process", queue="q", concurrency=4)
    frame = rows(bull, 'return:{"text":"ada","score":0.5}', 'return:{"text":7}', "return:1")
    found = called(bull, frame, return_schema="text STRING, score DOUBLE")
    assert found[0]["result"] == Row(text="ada", score=0.5)
    assert [row["result"] for row in found[1:]] == [None, None]
    assert all(row["error"].startswith("return_schema: expected the payload to match") for row in found[1:])


@each_peer_of("bullmq-6")
def test_many_calls_of_several_tasks_run_once(bull: Bull, theirs: NodePeer) -> None:
    theirs.call("process", queue="q", concurrency=50)
    frame = bull.spark.range(3_000).selectExpr("CAST(id % 2500 AS INT) AS n").repartition(3)
    found = called(bull, frame, in_flight=250)
    assert all(json.loads(row["result"]) == {"echo": {"n": row["n"]}} for row in found)
    assert len(found) == 3_000
    assert len({row["jobId"] for row in found}) == 3_000
    # Node emits the event a moment after the job has ended in Redis.
    assert len(theirs.wait_for_events("completed", 3_000, source="worker")) == 3_000


@each_peer_of("bull-4", "bullmq-6")
@pytest.mark.spark
def test_jobs_that_node_removes_on_completion_have_their_results(
    spark: SparkSession,
    bull: Bull,
    node: Callable[..., NodePeer],
    client: Redis,
    prefix: str,
    redis_url: str,
    tmp_path: Path,
    peer: Peer,
) -> None:
    theirs = node(peer.alias, prefix=prefix)
    jobs = [(f'{{"$behaviour": "return:{n}"}}', True) for n in range(3)] + [('{"$behaviour": "fail"}', True)]
    frame = spark.createDataFrame(jobs, "data STRING, removeOnFail BOOLEAN").coalesce(1)
    # Bull keeps no events, so its jobs are kept.
    bullmq = peer.dialect == "bullmq"
    bull.write(frame if bullmq else frame.drop("removeOnFail"), protocol=peer.dialect, removeOnComplete=bullmq)
    theirs.call("process", queue="q")
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=peer.dialect) as queue:
        (record,) = queue.writes()
        wait: dict[str, Any] = {"queue": "q", "timeout_s": PATIENCE_S, "options": bull.options}
        rows = write_results(spark, record.id, **wait).collect()
        stream = write_results(spark, record.id, stream=True, **wait)
        assert sum(queue.counts().values()) == (0 if bullmq else 4)
    found = sorted((row.state, row.returnvalue, row.failedReason) for row in rows)
    assert [state for state, _, _ in found] == ["completed"] * 3 + ["failed"]
    assert [value for _, value, _ in found] == ["0", "1", "2", None]
    assert "scripted failure 1" in found[3][2]

    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
    query: Any = start_query(lambda: writer.trigger(availableNow=True).start(str(tmp_path / "rows")))
    query.awaitTermination()
    streamed = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted((row.state, row.returnvalue, row.failedReason) for row in streamed) == found

"""call(): workers of Node process the rows of a DataFrame, and Spark gets their results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from redis import Redis

import spark_bull
from spark_bull.core.keys import QueueKeys
from tests.spark.conftest import Bull
from tests.support.node import NodePeer, Peer, each_peer_of

pytestmark = pytest.mark.interop


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

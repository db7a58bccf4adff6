"""The results of one write whose jobs a Node worker processes, and removes when they have ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from redis import Redis

from spark_bull import BullQueue, write_results
from spark_bull.spark.platform.query_start import start_query
from tests.spark.conftest import Bull
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import PATIENCE_S

each_peer = each_peer_of("bull-4", "bullmq-6")

pytestmark = [pytest.mark.interop, pytest.mark.spark]


@each_peer
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

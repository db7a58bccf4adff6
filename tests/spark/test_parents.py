"""Workers process parents of Node's children, and children of Node's parents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import BullQueue, NewJob, Worker
from tests.support.node import NodePeer
from tests.support.wait import wait_until


def transform(jobs: DataFrame) -> DataFrame:
    return jobs.select(
        "id",
        "token",
        f.lit("[1,1]").alias("returnvalue"),
        f.when(f.col("id") == "failing", f.lit("no")).alias("error"),
        ((f.col("id") == "waits") & (f.col("attemptsStarted") == 1)).alias("waitForChildren"),
    )


def flow(queue: str, job_id: str, behaviour: str = "", *children: dict[str, Any], **opts: Any) -> dict[str, Any]:
    data = {"$behaviour": behaviour}
    return {"name": "part", "queueName": queue, "data": data, "opts": {"jobId": job_id, **opts}, "children": children}


@pytest.mark.interop
def test_a_worker_shares_flows_with_node(
    spark: SparkSession, node: Callable[..., NodePeer], redis_url: str, prefix: str
) -> None:
    theirs = node("bullmq-6.7.0", prefix=prefix)
    failing = {"ignoreDependencyOnFailure": True}
    parent = flow("q", "sum", "", flow("node", "a", "return:1"), flow("node", "b", "fail", **failing))
    doomed = flow("q", "doomed", "", flow("node", "c", "fail", failParentOnFailure=True))
    total = flow("node", "total", "values", flow("q", "part"), flow("q", "failing", **failing))
    for one in (parent, doomed, total):
        theirs.call("flow", flow=one)
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("q", **options) as ours, BullQueue("node", **options) as of_node:

        def ended() -> tuple[int, int, int]:
            counts = ours.counts()
            return counts["completed"], counts["failed"], of_node.counts()["completed"]

        ours.add_many([NewJob({}, job_id="waits")])
        theirs.call("process", queue="node")
        with Worker(spark, "q", transform, slots=1, progress=False, **options):
            wait_until(lambda: ended() == (3, 2, 2), "all jobs to end")
        found = {job.id: job for state in ("completed", "failed") for job in (*ours.page(state), *of_node.page(state))}
        assert found["sum"].parsed("returnvalue") == [1, 1]
        assert found["doomed"].failed_reason == f"child {prefix}:node:c failed"
        part, failed = (ours.handle.keys.job(job_id) for job_id in ("part", "failing"))
        assert found["total"].parsed("returnvalue")[0].keys() == {part}
        assert found["total"].parsed("returnvalue")[1] == {failed: "no"}
        assert (found["waits"].attempts_made, found["waits"].attempts_started) == (1, 2)

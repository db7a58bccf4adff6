"""The results of one write, as a table and as a stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_bull import BullQueue, write_results
from tests.spark.conftest import Bull, OpenQueue, collected
from tests.support.wait import PATIENCE_S
from tests.support.worker import OurWorker


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_the_results_of_a_write_are_rows_and_other_jobs_are_not(
    spark: SparkSession, bull: Bull, queue: BullQueue, tmp_path: Path
) -> None:
    queue.add({"$behaviour": "return:0"})
    jobs = [('{"$behaviour": "return:[1]"}',), ('{"$behaviour": "fail"}',), ("{}",)]
    bull.write(spark.createDataFrame(jobs, "data STRING").coalesce(1), protocol=queue.protocol)
    (record,) = queue.writes()
    with OurWorker(queue.handle):
        found = write_results(spark, record.id, queue="q", timeout_s=PATIENCE_S, options=bull.options)
        rows = {row.id: row for row in found.collect()}
        wait = {"queue": "q", "timeout_s": PATIENCE_S, "stream": True}
        stream = write_results(spark, record.id, **wait, options=bull.options)
    assert sorted(rows) == ["2", "3", "4"]
    assert (rows["2"].state, rows["2"].returnvalue) == ("completed", "[1]")
    assert (rows["3"].state, rows["3"].failedReason) == ("failed", "scripted failure 1")

    streamed = collected(stream, tmp_path)
    assert {row.id: (row.state, row.returnvalue, row.failedReason) for row in streamed} == {
        row.id: (row.state, row.returnvalue, row.failedReason) for row in rows.values()
    }
    assert len(streamed) == 3

    queue.remove("4")
    if queue.protocol == "bull":
        with pytest.raises(PySparkException, match=r"1 or more jobs of the write are gone.*bull keeps no events"):
            found.collect()
    else:
        assert {row.id: row.state for row in found.collect()} == {"2": "completed", "3": "failed", "4": "completed"}
    with pytest.raises(PySparkException, match="expected `writeId` to be the id of a write to q"):
        write_results(spark, "unknown", queue="q", options=bull.options).collect()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_write_keeps_the_ids_of_flows_and_of_jobs_that_tasks_add(
    bull: Bull, queue: BullQueue, open_queue: OpenQueue, delivery: str
) -> None:
    flows = [("own", [("{}", "c")]), (None, [])]
    frame = bull.spark.createDataFrame(flows, "jobId STRING, children ARRAY<STRUCT<data STRING, queue STRING>>")
    queue.add({})
    bull.write(frame.selectExpr("'{}' AS data", "*"), keepIds=True, delivery=delivery, protocol="bullmq")
    (record,) = queue.writes()
    with OurWorker(queue.handle), OurWorker(open_queue("c").handle):
        found = write_results(bull.spark, record.id, queue="c,q", timeout_s=PATIENCE_S, options=bull.options).collect()
    assert sorted((row.queue, row.state) for row in found) == [("c", "completed"), *[("q", "completed")] * 2]
    assert "own" in {row.id for row in found}

"""Rows become jobs: columns, options and guarantees of batch writes and streams."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from redis import Redis

from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.dispatch.write_records import Identity
from tests.spark.conftest import Bull, Files, OpenQueue, refusal
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.without_spark import Sink

each_delivery = pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
DATA = "named_struct('n', n) AS data"


def numbers(jobs: list[Job]) -> list[int]:
    return [job.parsed("data")["n"] for job in jobs]


def frame_of(bull: Bull, jobs: int, partitions: int = 3) -> DataFrame:
    return bull.spark.range(0, jobs, 1, partitions).selectExpr("named_struct('n', id) AS data")


@each_delivery
def test_every_row_is_a_job_and_an_exactly_once_write_keeps_their_order(
    bull: Bull, open_queue: OpenQueue, delivery: str
) -> None:
    """The view `writes` has a row of the write."""
    rows = frame_of(bull, 3_000).repartition(5).orderBy("data.n")
    bull.write(rows, chunkSize=100, delivery=delivery, txnAppId="nightly", txnVersion=7)
    found = numbers(open_queue().page("wait"))
    assert (found if delivery == "exactly-once" else sorted(found)) == list(range(3_000))
    (row,) = bull.read(view="writes").collect()
    assert (row.queue, row.state, row.jobs, row.added, row.duplicates) == ("q", "finished", 3_000, 3_000, 0)
    assert (row.appId, row.version, row.delivery) == ("nightly", 7, delivery)
    assert row.finishedOn > row.startedOn
    assert row.durationMs > 0


def test_times_are_the_same_in_the_hour_that_the_zone_of_the_session_repeats(bull: Bull) -> None:
    """Half past one, for the second time, in New York."""
    zone, moment = "spark.sql.session.timeZone", "timestamp'2035-11-04 06:30:00.123456 UTC'"
    before = bull.spark.conf.get(zone)
    bull.spark.conf.set(zone, "America/New_York")
    try:
        payload = f"named_struct('t', {moment}, 'v', to_variant_object(named_struct('t', {moment})))"
        bull.write(bull.spark.sql(f"SELECT {payload} AS data, {moment} AS runAt"), protocol="bullmq")
    finally:
        bull.spark.conf.set(zone, before)
    (row,) = bull.read().select("data", f.unix_millis("runAt").alias("due")).collect()
    text = "2035-11-04T06:30:00.123Z"
    assert (json.loads(row["data"]), row["due"]) == ({"t": text, "v": {"t": text}}, 2_077_770_600_123)


#: Payloads of each type, and the JSON that they become.
PAYLOADS = {
    "named_struct('a', 1, 'b', CAST(NULL AS INT), 'c', array('ü', NULL))": '{"a":1,"c":["ü",null]}',
    "map('k', 1.5D, 'l', NULL)": '{"k":1.5,"l":null}',
    "array(1, 2, 3)": "[1,2,3]",
    """parse_json('{"v": [1, "x"]}')""": '{"v":[1,"x"]}',
    "named_struct('t', timestamp'2026-01-02 03:04:05.6', 'd', date'2026-01-02')": (
        '{"t":"2026-01-02T03:04:05.600Z","d":"2026-01-02"}'
    ),
    "named_struct('n', 12345678901234567890.12BD, 'x', X'00ff', 'nan', double('NaN'))": (
        '{"n":12345678901234567890.12,"x":"AP8=","nan":null}'
    ),
}


def test_payloads_of_every_type_become_json(bull: Bull, open_queue: OpenQueue) -> None:
    """Text stays as it is."""
    text = '{"as": "it is",  "null": null}'
    members = ", ".join(f"'p{number}', {column}" for number, column in enumerate(PAYLOADS))
    bull.write(bull.spark.sql(f"SELECT explode(array(to_json(named_struct('n', 1)), '{text}')) AS data"))
    assert [job.data_text for job in open_queue().page("wait")] == ['{"n":1}', text]
    bull.write(bull.spark.sql(f"SELECT named_struct({members}) AS data"), "types")
    found = ",".join(f'"p{number}":{json_text}' for number, json_text in enumerate(PAYLOADS.values()))
    assert open_queue("types").page("wait")[0].data_text == f"{{{found}}}"


@pytest.mark.parametrize(("protocol", "delivery"), [("bull", "exactly-once"), ("bullmq", "at-least-once")])
def test_rows_with_the_same_values_become_one_job(
    bull: Bull, open_queue: OpenQueue, protocol: str, delivery: str
) -> None:
    frame = bull.spark.range(0, 100, 1, 2).selectExpr("id AS n", "concat('to ', id % 60) AS to", "id % 2 AS kind")
    bull.write(frame, protocol=protocol, delivery=delivery, uniqueBy="to,KIND")
    ours = open_queue(protocol=protocol)
    assert ours.counts()["wait"] == 60
    assert ours.deduplication_job_id('["to 7",1]') is not None
    assert {job.deduplication_id for job in ours.page("wait")} == {f'["to {n}",{n % 2}]' for n in range(60)}
    rule = json.dumps({"ttl": 3_600_000})
    bull.write(frame, protocol=protocol, delivery=delivery, uniqueBy="to,kind", deduplication=rule)
    writes = bull.read(view="writes", protocol=protocol).orderBy("startedOn").collect()
    assert [(w.jobs, w.added, w.duplicates, w.deduplicated) for w in writes] == [(100, 60, 0, 40), (100, 0, 0, 100)]


@each_delivery
def test_a_version_is_written_once_to_each_queue_of_a_queue_column(
    bull: Bull, open_queue: OpenQueue, delivery: str
) -> None:
    frame = bull.spark.range(0, 30, 1, 2).selectExpr("named_struct('n', id) AS data", "concat('q', id % 2) AS queue")
    for version, jobs in [(3, 15), (3, 15), (2, 15), (4, 30)]:
        bull.write(frame, None, txnAppId="nightly", txnVersion=version, delivery=delivery)
        assert [open_queue(f"q{n}").counts()["wait"] for n in range(2)] == [jobs, jobs]
    # Each queue has its own watermark.
    bull.write(frame.withColumn("queue", f.lit("q2")), None, txnAppId="nightly", txnVersion=4, delivery=delivery)
    assert [open_queue(f"q{n}").counts()["wait"] for n in range(3)] == [30, 30, 30]
    assert sorted(numbers(open_queue("q1").page("wait"))) == sorted([*range(1, 30, 2)] * 2)
    bull.write(frame, "over", delivery=delivery)
    assert open_queue("over").counts()["wait"] == 30


def test_an_error_in_the_query_leaves_no_job_visible(bull: Bull, client: Redis) -> None:
    frame = bull.spark.range(0, 50_000, 1, 2).selectExpr(
        "named_struct('n', IF(id = 49000, raise_error('upstream'), id)) AS data"
    )
    assert "upstream" in refusal(bull, frame)
    prefix = bull.options["prefix"]
    assert not client.exists(f"{prefix}:q:wait", f"{prefix}:q:id")
    # A task that still ends may delete some meanwhile.
    assert not any(client.pttl(key) == -1 for key in client.scan_iter(match=f"{prefix}:*"))


def test_auto_uses_the_dialect_of_the_queue(bull: Bull, open_queue: OpenQueue, client: Redis) -> None:
    open_queue(protocol="bull").add({"n": -1})
    bull.write(frame_of(bull, 3, 1))
    assert numbers(open_queue(protocol="bull").page("wait")) == [-1, 0, 1, 2]
    assert not client.exists(f"{bull.options['prefix']}:q:events")


def test_an_empty_write_creates_no_queue(bull: Bull, open_queue: OpenQueue, client: Redis) -> None:
    bull.write(frame_of(bull, 0))
    assert not [key for key in client.scan_iter(f"{bull.options['prefix']}:*") if b":spark" not in key]
    assert [(record.jobs, record.state) for record in open_queue().writes()] == [(0, "finished")]


def test_a_catalog_table_is_an_error_with_advice(bull: Bull) -> None:
    """Spark does not pass its options."""
    options = ", ".join(f"{name} '{value}'" for name, value in {**bull.options, "queue": "q"}.items())
    bull.spark.sql("DROP TABLE IF EXISTS lost_options")
    bull.spark.sql(f"CREATE TABLE lost_options (n INT) USING bull OPTIONS ({options})")
    try:
        for statement in ("INSERT INTO lost_options SELECT 1", "SELECT * FROM lost_options"):
            with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
                bull.spark.sql(statement).collect()
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            bull.spark.sql(f"CREATE TABLE as_select USING bull OPTIONS ({options}) AS SELECT 1 AS n")
        assert not bull.spark.catalog.tableExists("as_select")
    finally:
        bull.spark.sql("DROP TABLE IF EXISTS lost_options")


RETRIED = """
import os, sys
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
import spark_bull

url, prefix = sys.argv[1:]
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
spark_bull.register(spark)

def fail_late(batches):
    for number, batch in enumerate(batches):
        if number == 1 and TaskContext.get().attemptNumber() < 2:
            os._exit(1)
        yield batch

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
for delivery in ("exactly-once", "at-least-once"):
    numbers = spark.range(0, 6000, 1, 2).mapInArrow(fail_late, "id LONG")
    (numbers.selectExpr("named_struct('n', id) AS data").write.format("bull")
     .options(url=url, prefix=prefix, queue=delivery, delivery=delivery).mode("append").save())

def wrong_at_the_end(batches):
    is_first = TaskContext.get().attemptNumber() == 0
    for batch in batches:
        numbers = batch.column(0)
        delays = pa.array([-1 if is_first and n == 999 else 0 for n in numbers.to_pylist()])
        yield pa.record_batch([numbers, delays], names=["n", "delay"])

# The task adds the other jobs before it fails because of the last one.
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 300)
rows = spark.range(0, 1000, 1, 1).mapInArrow(wrong_at_the_end, "n LONG, delay LONG")
(rows.selectExpr("struct(n) AS data", "delay").write.format("bull").mode("append")
 .options(url=url, prefix=prefix, queue="members", delivery="at-least-once", onFinish='{"queue": "report"}').save())
"""


@pytest.mark.usefixtures("forked_python")
def test_a_task_that_dies_is_retried_without_loss(bull: Bull, open_queue: OpenQueue) -> None:
    program = [sys.executable, "-c", RETRIED, bull.options["url"], bull.options["prefix"]]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert sorted(numbers(open_queue("exactly-once").page("wait"))) == list(range(6_000))
    assert set(numbers(open_queue("at-least-once").page("wait"))) == set(range(6_000))
    # With a callback, jobs have ids that a repeated task gives again.
    assert sorted(numbers(open_queue("members").page("wait"))) == list(range(1_000))


# streams


@each_delivery
def test_a_stream_writes_each_row_once_over_restarts(open_queue: OpenQueue, files: Files, delivery: str) -> None:
    for number in range(3):
        files.put(*range(number * 100, number * 100 + 100))
    files.write(files.rows().selectExpr(DATA), delivery=delivery)
    files.put(*range(300, 400))
    with open_queue() as written, written.events(timeout_s=0) as events:
        files.write(files.rows().selectExpr(DATA), delivery=delivery, events="ends")
        assert list(events) == []
    assert sorted(numbers(open_queue().page("wait"))) == list(range(400))
    assert [write.version for write in open_queue().writes()] == [0, 1, 2, 3]
    shutil.rmtree(files.checkpoint)
    files.write(files.rows().selectExpr(DATA), delivery=delivery)
    assert open_queue().counts()["wait"] == 800, "a new checkpoint is not a new query"


def test_a_repeated_batch_adds_nothing_also_to_several_queues(open_queue: OpenQueue, files: Files) -> None:
    files.write_with_a_repetition(100, lambda: files.rows().selectExpr(DATA, "concat('q', n % 2) AS queue"), None)
    for odd in range(2):
        assert sorted(numbers(open_queue(f"q{odd}").page("wait"))) == list(range(odd, 300, 2))


def test_the_record_of_a_batch_starts_with_its_tasks(bull: Bull, open_queue: OpenQueue) -> None:
    """Spark creates one writer for the tasks of a batch, and another one for its commit."""
    schema = StructType().add("n", "long")
    options = {**bull.options, "queue": "q"}
    tasks = Sink(options, schema, Identity("query", 0))
    tasks.task([{"n": 1}, {"n": 2}])
    clock = open_queue().handle.connection
    after_tasks = clock.now_ms()
    wait_until(lambda: clock.now_ms() > after_tasks, "the next millisecond")
    Sink(options, schema, Identity("query", 0), tasks.messages).commit()
    (record,) = open_queue().writes()
    assert record.started_on <= after_tasks < record.finished_on


def test_a_stream_refuses_overwrite_and_transaction_options(bull: Bull, files: Files, tmp_path: Path) -> None:
    files.put(*range(5))
    with pytest.raises(PySparkException, match="`txnAppId` is for batch writes"):
        files.write(txnAppId="a", txnVersion=1)
    counted = files.rows().groupBy("n").count()
    writer = counted.writeStream.format("bull").options(**bull.options).option("queue", "q").outputMode("complete")
    with pytest.raises(PySparkException, match="would replace the queue with every batch"):
        writer.option("checkpointLocation", str(tmp_path / "two")).start().awaitTermination(PATIENCE_S)


def test_the_jobs_of_a_write_carry_the_trace_context_that_it_is_given(bull: Bull, open_queue: OpenQueue) -> None:
    context = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
    frame = bull.spark.sql("""
        SELECT named_struct('n', 1) AS data, NULL AS opts
        UNION ALL SELECT named_struct('n', 2), '{"telemetry": {"omitContext": true}}'
    """)
    bull.write(frame, telemetry=context)
    opts = {job.data["n"]: job.opts for job in open_queue().page("wait")}
    assert opts[1]["tm"] == context
    assert ("tm" in opts[2], opts[2]["omc"]) == (False, True)
    bull.write(frame_of(bull, 1), "without", telemetry="{}")
    assert "tm" not in open_queue("without").page("wait")[0].opts
    assert "expected `telemetry` to be a JSON object" in refusal(bull, frame_of(bull, 1), telemetry="")
    said = refusal(bull, frame_of(bull, 1), "of-bull", telemetry=context, protocol="bull")
    assert "jobs of bull carry no trace context" in said

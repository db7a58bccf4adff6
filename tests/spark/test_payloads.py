"""Encrypted and stored payloads and results in Spark: all verbs open what another one has sealed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import StringType
from redis import Redis

import spark_bull
from spark_bull import BullQueue, Worker
from spark_bull.core.options.parts import in_snake_case
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.requirements import start_query
from tests.spark.conftest import Bull, collected, refusal
from tests.support.drivers import processing_query
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

SCHEMA = "n INT, text STRING"


@pytest.fixture
def keeping(tmp_path: Path) -> dict[str, str]:
    """The options that keep payloads of a queue."""
    (tmp_path / "key").write_bytes(b"k" * 32)
    return {"encryptWith": f"a=file:{tmp_path / 'key'}", "offloadTo": str(tmp_path / "jobs"), "offloadAbove": "600b"}


def opening(keeping: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in keeping.items() if name != "offloadAbove"}


def arguments(keeping: dict[str, str]) -> dict[str, Any]:
    return {in_snake_case(name): value for name, value in keeping.items()}


def rows(bull: Bull, count: int = 4) -> DataFrame:
    """Rows of which every second one is large."""
    given = [(n, "private " * (1 + 100 * (n % 2))) for n in range(count)]
    return bull.spark.createDataFrame(given, SCHEMA)


def is_private(client: Redis, prefix: str) -> bool:
    return not any(b"private" in (client.dump(key) or b"") for key in client.keys(f"{prefix}:*"))


@pytest.mark.parametrize(
    ("delivery", "system"),
    # The second one is written as any file system that is not local.
    [("exactly-once", ""), ("at-least-once", "simplecache::file://")],
)
def test_a_write_seals_and_a_read_opens(
    bull: Bull, client: Redis, prefix: str, keeping: dict[str, str], tmp_path: Path, delivery: str, system: str
) -> None:
    (tmp_path / "jobs").mkdir()
    keeping["offloadTo"] = f"{system}{tmp_path / 'jobs'}"
    bull.write(rows(bull), delivery=delivery, protocol="bullmq", **keeping)
    assert is_private(client, prefix)
    assert len([path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]) == 2
    read = bull.read(payloadSchema=SCHEMA, **opening(keeping)).select("data.*").orderBy("n")
    assert read.collect() == rows(bull).collect()
    shown = {name for row in bull.read().select("data").collect() for name in json.loads(row["data"])}
    assert shown == {"$sealed", "$stored"}


def test_flows_and_callbacks_of_a_write_are_sealed(
    bull: Bull, client: Redis, prefix: str, keeping: dict[str, str]
) -> None:
    large = "array(named_struct('data', named_struct('text', repeat('private ', 100)))) AS children"
    frame = bull.spark.sql(f"SELECT named_struct('text', 'private') AS data, {large}")
    finish = json.dumps({"name": "end", "data": {"text": "private"}})
    bull.write(frame, protocol="bullmq", onFinish=finish, **keeping)
    assert is_private(client, prefix)
    texts = [row["data"] for row in bull.read(**opening(keeping)).select("data").collect()]
    assert ["private" in text for text in texts] == [True] * 3


@pandas_udf(StringType())
def upper(text: pd.Series) -> pd.Series:
    return text.str.upper()


def of_job(job: RunningJob) -> str:
    return str(job.data["text"]).upper()


def of_frame(jobs: DataFrame) -> DataFrame:
    # JSON text.
    return jobs.withColumn("returnvalue", f.concat(f.lit('"'), f.upper("data.text"), f.lit('"')))


@pytest.mark.parametrize(
    ("way", "processor", "schema"),
    [
        ("Worker", of_job, None),
        ("Worker", upper, "text STRING"),
        ("Worker", of_frame, SCHEMA),
        pytest.param("query", of_frame, SCHEMA, marks=pytest.mark.rest),
    ],
    ids=["function", "udf", "frames", "query"],
)
def test_workers_open_payloads_and_seal_results_and_a_collect_opens_both(
    bull: Bull,
    client: Redis,
    prefix: str,
    keeping: dict[str, str],
    way: str,
    processor: Callable[..., Any],
    schema: str | None,
    tmp_path: Path,
) -> None:
    bull.write(rows(bull), protocol="bullmq", **keeping)
    with BullQueue("q", protocol="bullmq", **bull.options) as plain:
        # A job that the worker cannot open fails alone.
        forged = plain.add({"$sealed": {"v": 1, "kid": "b", "iv": "", "ct": ""}})
        working: AbstractContextManager[Any]
        if way == "query":
            options, batches = {**bull.options, **opening(keeping)}, tmp_path / "batches"
            working = processing_query(bull.spark, processor, batches, options, payload_schema=schema, settle=keeping)
        else:
            given = {"slots": 1, "payload_schema": schema, **arguments(keeping), **bull.options}
            working = Worker(bull.spark, queue="q", processor=processor, protocol="bullmq", **given)
        with working:
            wait_until(lambda: plain.counts()["completed"] + plain.counts()["failed"] == 5, "all jobs to end")
        assert is_private(client, prefix)
        (failed,) = plain.page("failed")
        assert failed.id == forged
        assert "to be sealed with one of the keys a, got key 'b'" in str(failed.failed_reason)
        plain.remove(forged)
    found = collected(bull.stream(states="completed", **opening(keeping)), tmp_path / "results")
    expected = {(row["text"], row["text"].upper()) for row in rows(bull).collect()}
    assert {(json.loads(row["data"])["text"], json.loads(row["returnvalue"])) for row in found} == expected


def test_a_stream_that_removes_jobs_deletes_their_objects(bull: Bull, keeping: dict[str, str], tmp_path: Path) -> None:
    """Those of payloads and of results, and none of jobs that have not ended."""

    def objects() -> int:
        return sum(path.is_file() for path in (tmp_path / "jobs").rglob("*"))

    bull.write(rows(bull), protocol="bullmq", **keeping)
    with BullQueue("q", protocol="bullmq", **bull.options, **arguments(keeping)) as queue:
        with OurWorker(queue.handle, of_job):
            wait_until(lambda: queue.counts()["completed"] == 4, "all jobs to complete")
        assert objects() == 4
        bull.write(rows(bull, 2), protocol="bullmq", **keeping)
        stream = bull.stream(states="completed", removeOnRead=True, **opening(keeping))
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "check"))
        query = start_query(writer.start)
        try:
            wait_until(lambda: not queue.counts()["completed"], "the query to remove the jobs")
            wait_until(lambda: objects() == 1, "their objects to be deleted")
        finally:
            query.stop()
        assert queue.counts()["wait"] == 2


def test_a_call_seals_its_payloads_and_opens_results(
    bull: Bull, client: Redis, prefix: str, keeping: dict[str, str]
) -> None:
    queue = BullQueue("q", protocol="bullmq", **bull.options, **arguments(keeping))
    with OurWorker(queue.handle, lambda job: job.data["text"].upper(), chunk_size=20):
        given = {**arguments(opening(keeping)), **bull.options}
        found = spark_bull.call(rows(bull), "q", protocol="bullmq", **given).orderBy("n").collect()
        assert [(row["result"], row["error"]) for row in found] == [
            (row["text"].upper(), None) for row in rows(bull).collect()
        ]
        assert is_private(client, prefix)
        if CAPABILITIES["table-function"].has:
            rows(bull).createOrReplaceTempView("texts")
            given_in_sql = ", ".join(
                f"{name} => '{value}'" for name, value in {**bull.options, **opening(keeping)}.items()
            )
            sql = f"SELECT result FROM bull_call(TABLE(texts), 'q', protocol => 'bullmq', {given_in_sql})"
            assert {row["result"] for row in bull.spark.sql(sql).collect()} == {row["result"] for row in found}
        without = spark_bull.call(rows(bull, 1), "q", protocol="bullmq", **bull.options).collect()
        assert [*json.loads(without[0]["result"])] == ["$sealed"]
        # The hashes of payloads in ids have a key, too.
        of_first = {row["jobId"].rpartition("-")[2] for row in (found[0], without[0])}
        assert len(of_first) == 2


def test_a_read_with_a_wrong_key_names_the_job_and_the_key(bull: Bull, keeping: dict[str, str], tmp_path: Path) -> None:
    bull.write(rows(bull, 1), protocol="bullmq", **keeping)
    (tmp_path / "key").write_bytes(b"w" * 32)
    with pytest.raises(PySparkException, match="expected `data` of job 1 of queue q to open with key 'a', it does not"):
        bull.read(**opening(keeping)).collect()


def test_what_cannot_be_kept_is_refused_before_the_first_task(bull: Bull, keeping: dict[str, str]) -> None:
    for missing, options in (
        ("no such variable", {"encryptWith": "a=env:SPARK_BULL_NO_SUCH_KEY"}),
        ("no readable file", {"encryptWith": "a=file:/no/such/key"}),
        ("option `encryptWith` is for writes", {"encryptWith": keeping["encryptWith"], "mode": "schedule"}),
    ):
        assert missing in refusal(bull, rows(bull), protocol="bullmq", **options)

"""Values of each type, and half of an emoji: reads, UDFs, functions of DataFrames and calls get the same."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import spark_bull
from spark_bull import BullQueue, NewJob, Worker
from spark_bull.core.model.jobs import RawJson
from tests.spark.conftest import Bull, work_off
from tests.support.worker import OurWorker

#: The members of a payload: type, JSON, and JSON of what Spark gets if that is another text.
MEMBERS: dict[str, tuple[str, ...]] = {
    "text": ("STRING", r'"half \ud83c, whole \ud83d\ude00, \\ud83c"', r'"half \ufffd, whole \ud83d\ude00, \\ud83c"'),
    "flag": ("BOOLEAN", "true"),
    "tiny": ("TINYINT", "-128"),
    "small": ("SMALLINT", "32767"),
    "whole": ("INT", "-5"),
    "big": ("BIGINT", "9007199254740993"),
    "single": ("FLOAT", "1.5"),
    "double": ("DOUBLE", "1e-7"),
    "exact": ("DECIMAL(10, 2)", "12345678.25"),
    "at": ("TIMESTAMP", '"2026-03-28T12:00:00.000Z"'),
    "clock": ("TIMESTAMP_NTZ", '"2026-03-28T12:00:00.000"'),
    "day": ("DATE", '"2026-03-28"'),
    "bytes": ("BINARY", '"YQBi"'),
    "any": ("VARIANT", r'{"a":[1,"\ud83c"]}', r'{"a":[1,"\ufffd"]}'),
    "none": ("VARIANT", "null"),
    "list": ("ARRAY<VARIANT>", '[1,"x",null]'),
    "map": ("MAP<STRING, INT>", r'{"\udf89":7}', r'{"\ufffd":7}'),
    "inner": ("STRUCT<a: VARIANT, b: ARRAY<STRING>>", '{"a":{"b":2.5},"b":["c"]}'),
}
DDL = ", ".join(f"{name} {kind}" for name, (kind, *_) in MEMBERS.items())
PAYLOAD = "{" + ",".join(f'"{name}":{given[0]}' for name, (_, *given) in MEMBERS.items()) + "}"
EXPECTED = json.loads("{" + ",".join(f'"{name}":{given[-1]}' for name, (_, *given) in MEMBERS.items()) + "}")


def only_json(frame: DataFrame, column: str) -> list[Any]:
    return [json.loads(row[0]) for row in frame.select(f.to_json(column, {"ignoreNullFields": "false"})).collect()]


def test_a_read_and_a_call_get_the_values(bull: Bull, queue: BullQueue) -> None:
    queue.add(RawJson(PAYLOAD))
    assert only_json(bull.read(payloadSchema=DDL), "data") == [EXPECTED]
    # Without a schema the text is what from_json of Spark reads.
    assert only_json(bull.read().select(f.from_json("data", DDL).alias("data")), "data") == [EXPECTED]
    assert bull.read().select("id").count() == 1
    queue.drain()
    payloads = bull.spark.createDataFrame([(PAYLOAD,), ("null",)], "data STRING")
    with OurWorker(queue.handle, lambda job: job.data):
        called = spark_bull.call(payloads, "q", return_schema=DDL, protocol="bullmq", **bull.options).cache()
        assert [row["error"] for row in called.collect()] == [None, None]
        assert only_json(called.where("result IS NOT NULL"), "result") == [EXPECTED]
        given = bull.spark.createDataFrame([('{"n":[1]}',)], "data STRING")
        [row] = spark_bull.call(given, "q", return_schema="VARIANT", protocol="bullmq", **bull.options).collect()
        assert (row["result"].toPython(), row["error"]) == ({"n": [1]}, None)


def processors() -> dict[str, Any]:
    @f.udf(DDL)
    def same(payload: Any) -> Any:
        return payload

    @f.pandas_udf(DDL)
    def pandas(payload: pd.DataFrame) -> pd.DataFrame:
        return payload

    def frame(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", f.col("data").alias("returnvalue"))

    return {"udf": same, "pandas": pandas, "frame": frame}


def test_udfs_and_functions_of_data_frames_get_the_values(bull: Bull, queue: BullQueue) -> None:
    given = processors()
    for processor, schema in ((given, dict.fromkeys(given, DDL)), (given["udf"], DDL)):
        queue.add_many(NewJob(RawJson(PAYLOAD), name) for name in given)
        options = {"slots": 1, "progress": False, "protocol": "bullmq", **bull.options}
        with Worker(bull.spark, "q", processor, payload_schema=schema, **options):
            assert work_off(queue) == {"completed": len(given)}
        assert {job.name: job.returnvalue for job in queue.page("completed")} == dict.fromkeys(given, EXPECTED)
        queue.clean(0, 0, "completed")

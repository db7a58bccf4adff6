"""Errors of writes: their messages, and that no job becomes visible."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull, refusal

OwnRedis = Callable[..., EmbeddedRedis]
TTL_MS = 3_600_000
SECRET = "open-sesame"


def one_row(bull: Bull, columns: str = "'{}' AS data") -> DataFrame:
    return bull.spark.sql(f"SELECT {columns}")


def at(bull: Bull, url: str) -> Bull:
    return Bull(bull.spark, url, bull.options["prefix"])


def keys(client: Redis, bull: Bull) -> list[bytes]:
    return list(client.scan_iter(match=f"{bull.options['prefix']}:*"))


def test_errors_about_a_server_do_not_show_its_password(bull: Bull, own_redis: OwnRedis) -> None:
    server = own_redis({"requirepass": SECRET})
    message = refusal(at(bull, f"redis://:wrong-one@127.0.0.1:{server.port}"), one_row(bull))
    assert "refused the user or password: check `url`, `username` and `password`" in message
    assert "wrong-one" not in message
    at(bull, f"redis://127.0.0.1:{server.port}").write(one_row(bull), password=SECRET)


def test_a_redis_out_of_memory_leaves_no_job_visible_and_staged_jobs_expire(bull: Bull, own_redis: OwnRedis) -> None:
    server = own_redis({"maxmemory": "12mb", "maxmemory-policy": "noeviction"})
    rows = bull.spark.range(100_000, numPartitions=4).selectExpr(
        "named_struct('id', id, 'x', repeat('x', 400)) AS data"
    )
    message = refusal(at(bull, server.url), rows, stageTtlMs=TTL_MS)
    assert "out of memory (maxmemory reached)" in message
    with Redis.from_url(server.url) as client:
        prefix = bull.options["prefix"]
        assert not client.exists(f"{prefix}:q:wait", f"{prefix}:q:id")
        staged = keys(client, bull)
        assert staged
        assert all(0 < client.pttl(key) <= TTL_MS for key in staged)


def test_an_unknown_option_is_refused_but_options_of_spark_are_not(bull: Bull) -> None:
    assert "unknown option `chunksizes` (did you mean `chunkSize`?)" in refusal(bull, one_row(bull), chunkSizes=1)
    assert "expected no path, as a queue has none: call save(), " in refusal(bull, one_row(bull), path="x")
    bull.write(one_row(bull), checkpointLocation="y", queryName="z")


#: Columns that are wrong, and what is said. unit/spark/dispatch/test_rows.py has all types.
WRONG_COLUMNS = [
    ("1 AS data", "expected column `data` to be STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON, got: INT"),
    ("'{}' AS data, 1 AS expireAt", "expected column `expireAt` to be TIMESTAMP, got: INT"),
    ("'{}' AS data, '1h' AS expireAfterMs", "expected column `expireAfterMs` to be an integer (ms), got: STRING"),
    ("'{}' AS data, 17 AS jobId", "to be STRING (a custom id of bullmq may not be an integer)"),
    ("'{}' AS data, 17 AS jobId, 'q' AS queue", "to be STRING (a custom id of bullmq may not be an integer)"),
]


#: Columns of a bad row, and what is said. unit/core/dialects/encode/test_codec.py has all rules.
BAD_ROWS = [
    ("CAST(NULL AS STRING) AS data", "expected `data` to be JSON, got NULL"),
    ("'{\"n\": 2' AS data", "expected `data` to be JSON, got: '{\"n\": 2'"),
    ("'{}' AS data, '17' AS jobId", "expected `jobId` not to be an integer (BullMQ's own ids are), got: '17'"),
    (
        "'{}' AS data, '{\"repeat\": {}}' AS opts",
        "a plain job can't have it; create a job scheduler, with mode=schedule",
    ),
]


def test_a_wrong_column_is_refused_and_a_bad_row_is_named_before_a_job_is_visible(bull: Bull, client: Redis) -> None:
    for columns, said in WRONG_COLUMNS:
        queue = None if "queue" in columns else "q"
        assert said in refusal(bull, one_row(bull, columns), queue, protocol="bullmq")
    assert not keys(client, bull)
    for columns, said in BAD_ROWS:
        message = refusal(bull, one_row(bull, columns), protocol="bullmq")
        assert said in message
        assert "row 0: " in message
    for named, said in (
        ("CAST(NULL AS STRING)", "partition 0, row 2: expected `queue` to name a queue"),
        ("''", "partition 0, row 2: expected `queue` to name a queue"),
        ("'a:b'", "partition 0, row 2: expected `queue` without ':' (BullMQ refuses it), got: 'a:b'"),
    ):
        frame = bull.spark.range(0, 3, 1, 1).selectExpr("'{}' AS data", f"IF(id = 2, {named}, 'q') AS queue")
        assert said in refusal(bull, frame, None)
    assert not [key for key in keys(client, bull) if b":spark:" not in key]


def test_a_payload_that_does_not_match_its_schema_is_named(bull: Bull, client: Redis) -> None:
    schema = "to STRING NOT NULL, items ARRAY<STRUCT<n: INT>>"
    good = '{"to": "ada", "items": [{"n": 1}, {}]}'
    bull.write(bull.spark.createDataFrame([(good,)], "data STRING"), payloadSchema=schema)
    rows = [(good,), ('{"to": "ada", "items": [{"n": 1}, {"n": "many"}]}',)]
    message = refusal(bull, bull.spark.createDataFrame(rows, "data STRING").coalesce(1), payloadSchema=schema)
    assert 'partition 0, row 1: expected `$.items[1].n` to be INT, got a string: "many"' in message
    whole_row = bull.spark.createDataFrame([(1,)], "id INT")
    assert "expected `$.to` to be STRING NOT NULL, got none" in refusal(bull, whole_row, payloadSchema=schema)
    assert "expected a type, got 'what'" in refusal(bull, one_row(bull), payloadSchema="n WHAT")
    assert client.llen(f"{bull.options['prefix']}:q:wait") == 1


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_overwrite_replaces_the_queue_once_it_is_confirmed(bull: Bull, queue: BullQueue, delivery: str) -> None:
    queue.add({"old": True})
    writer = one_row(bull).write.format("bull").options(**bull.options, queue="q", delivery=delivery)
    for mode, said in (
        ("errorifexists", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("ignore", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("overwrite", "expected the option `confirmObliterate` to be true, got false"),
    ):
        with pytest.raises(PySparkException, match=said):
            writer.mode(mode).save()
    assert [job.data for job in queue.page("wait")] == [{"old": True}]
    writer.option("confirmObliterate", "true").save()
    assert [job.data for job in queue.page("wait")] == [{}]
    several = one_row(bull, "'{}' AS data, 'q' AS queue").write.format("bull").mode("overwrite")
    with pytest.raises(PySparkException, match="expects the option `queue`"):
        several.options(**bull.options, confirmObliterate="true").save()


MODES = {
    "schedule": "'a' AS id, 5 AS every",
    "limits": "'a' AS group, 5 AS concurrency",
    "manage": "'1' AS id",
    "settle": "'1' AS id, 't' AS token",
}


def test_modes_of_writes_append_and_are_no_reads(bull: Bull) -> None:
    for mode, columns in MODES.items():
        with pytest.raises(PySparkException, match=f"mode={mode} is not supported here: it requires write"):
            bull.read(mode=mode).collect()
        writer = one_row(bull, columns).write.format("bull").options(**bull.options, queue="q", mode=mode)
        with pytest.raises(PySparkException, match=r'expected mode\("append"\), got mode\("overwrite"\)'):
            writer.mode("overwrite").save()

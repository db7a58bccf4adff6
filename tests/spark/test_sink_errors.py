"""Errors of writes: their messages, and that no job becomes visible."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull
from tests.support.redis_servers import become_cluster
from tests.support.wait import wait_until

OwnRedis = Callable[..., EmbeddedRedis]
TTL_MS = 3_600_000
SECRET = "open-sesame"


def refusal(bull: Bull, frame: DataFrame, queue: str | None = "q", **options: object) -> str:
    """The message of a write that must fail."""
    with pytest.raises(PySparkException) as raised:
        bull.write(frame, queue, **options)
    return str(raised.value)


def one_row(bull: Bull, columns: str = "'{}' AS data") -> DataFrame:
    return bull.spark.sql(f"SELECT {columns}")


def at(bull: Bull, url: str) -> Bull:
    return Bull(bull.spark, url, bull.options["prefix"])


def keys(client: Redis, bull: Bull) -> list[bytes]:
    return list(client.scan_iter(match=f"{bull.options['prefix']}:*"))


def test_errors_about_a_server_do_not_show_its_password(bull: Bull, own_redis: OwnRedis) -> None:
    server = own_redis({"requirepass": SECRET})
    message = refusal(at(bull, f"redis://:{SECRET}@127.0.0.1:1"), one_row(bull), retryMs=100)
    assert "expected Redis at redis://127.0.0.1:1, got none within 0.1 s" in message
    assert SECRET not in message
    message = refusal(at(bull, f"redis://:wrong-one@127.0.0.1:{server.port}"), one_row(bull))
    assert "refused the user or password: check `url`, `username` and `password`" in message
    assert "wrong-one" not in message
    bull_with_password = at(bull, f"redis://127.0.0.1:{server.port}")
    bull_with_password.write(one_row(bull), password=SECRET)


def test_a_cluster_requires_a_hash_tag(bull: Bull, own_redis: OwnRedis) -> None:
    server = own_redis({"cluster-enabled": "yes"})
    with Redis.from_url(server.url) as client:
        become_cluster(client)
        message = refusal(at(bull, server.url), one_row(bull))
        assert "all keys of a queue must share a hash tag" in message
        assert f"prefix={{{bull.options['prefix']}}}" in message
        message = refusal(at(bull, server.url), one_row(bull, "'{}' AS data, 'plain' AS queue"), None)
        assert "expected one in `prefix` or `queue`" in message
        assert "queue=plain" in message
        at(bull, server.url).write(one_row(bull), "{q}")
        assert client.llen(f"{bull.options['prefix']}:{{q}}:wait") == 1


def test_a_read_only_replica_is_refused(bull: Bull, own_redis: OwnRedis) -> None:
    primary = own_redis()
    replica = own_redis({"replicaof": f"127.0.0.1 {primary.port}"})
    with Redis.from_url(replica.url) as client:
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica to follow")
    message = refusal(at(bull, replica.url), one_row(bull), retryMs=100)
    assert "is a read-only replica" in message
    assert "give the address of its primary" in message


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


def test_a_missing_queue_is_an_error(bull: Bull) -> None:
    message = refusal(bull, one_row(bull), None)
    assert "expected an option `queue`, or a column `queue`, got neither" in message
    assert "CREATE TEMPORARY VIEW" in message


def test_an_unknown_option_is_refused_but_options_of_spark_are_not(bull: Bull) -> None:
    assert "unknown option `chunksizes` (did you mean `chunkSize`?)" in refusal(bull, one_row(bull), chunkSizes=1)
    assert "expected no path, as a queue has none: call save(), " in refusal(bull, one_row(bull), path="x")
    said = "expected `txnAppId` and `txnVersion` together, got no `txnVersion`"
    assert said in refusal(bull, one_row(bull), txnAppId="nightly")
    bull.write(one_row(bull), checkpointLocation="y", queryName="z")


#: Columns of a wrong type, and what is said.
WRONG_COLUMNS = [
    ("1 AS data", "expected column `data` to be STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON, got: INT"),
    ("'{}' AS data, 'soon' AS delay", "expected column `delay` to be an integer (ms), got: STRING"),
    ("'{}' AS data, 1 AS runAt", "expected column `runAt` to be TIMESTAMP, got: INT"),
    ("'{}' AS data, 1 AS lifo", "expected column `lifo` to be BOOLEAN, got: INT"),
    ("'{}' AS data, 1 AS expireAt", "expected column `expireAt` to be TIMESTAMP, got: INT"),
    ("'{}' AS data, '1h' AS expireAfterMs", "expected column `expireAfterMs` to be an integer (ms), got: STRING"),
    ("'{}' AS data, 1 AS prioritty", "unknown column `prioritty` (did you mean `priority`?)"),
]


#: Columns of a bad row, and what is said.
BAD_ROWS = [
    ("CAST(NULL AS STRING) AS data", "expected `data` to be JSON, got NULL"),
    ("'{}' AS data, '17' AS jobId", "expected `jobId` not to be an integer (BullMQ's own ids are), got: '17'"),
    ("'{}' AS data, 'a:b' AS jobId", "expected `jobId` without ':'"),
    ("'{}' AS data, -1 AS delay", "expected `delay` to be ms >= 0, got: -1"),
    ("'{}' AS data, 3000000 AS priority", "expected `priority` to be an integer from 0 to 2,097,151, or one of "),
    (
        "'{}' AS data, 'urgent' AS priority",
        "row 0: expected `priority` to be an integer from 0 to 2,097,151, or one",
    ),
    (
        "'{}' AS data, 5 AS expireAfterMs, timestamp'2035-01-01' AS expireAt",
        "row 0: expected one of `expireAfterMs` and ",
    ),
    ("'{}' AS data, 5 AS expireAfterMs, 5 AS delay", "row 0: expected `expireAfterMs` to end after `delay`"),
    ("'{}' AS data, 'exactly-once' AS delivery", "row 0: expected `delivery` to be at-most-once or at-least-once"),
    (
        "'{}' AS data, 'at-most-once' AS delivery, 2 AS attempts",
        "row 0: expected `attempts` to be 1 with `delivery`",
    ),
    ("'{}' AS data, 1 AS lockMs", "row 0: expected `lockMs` to be an integer >= 300 (ms), got: 1"),
    ("'{}' AS data, -1 AS spreadMs", "row 0: expected `spreadMs` to be an integer >= 0 (ms), got: -1"),
    ("'{}' AS data, timestamp'2100-01-01' AS runAt", "before 2039-09-07"),
    ("'{}' AS data, '[1]' AS opts", "expected `opts` to be a JSON object"),
    (
        "'{}' AS data, '{\"repeat\": {}}' AS opts",
        "a plain job can't have it; create a job scheduler, with mode=schedule",
    ),
    ("'{}' AS data, '' AS deduplication", "expected `deduplication` to be an id"),
    (
        "'{}' AS data, named_struct('id', 'x', 'ttl', 0) AS deduplication",
        "expected `deduplication.ttl` to be a pos",
    ),
    (
        '\'{}\' AS data, \'x\' AS deduplication, \'{"parent": {"id": "1", "queue": "bull:p"}}\' AS opts',
        "one of `deduplication` and `parent`",
    ),
]


def test_a_wrong_column_is_refused_and_a_bad_row_is_named_before_a_job_is_visible(bull: Bull, client: Redis) -> None:
    for columns, said in WRONG_COLUMNS:
        assert said in refusal(bull, one_row(bull, columns))
    assert not keys(client, bull)
    for columns, said in BAD_ROWS:
        message = refusal(bull, one_row(bull, columns), protocol="bullmq")
        assert said in message
        assert "row 0: " in message
    for named in ("CAST(NULL AS STRING)", "''"):
        frame = bull.spark.range(0, 3, 1, 1).selectExpr("'{}' AS data", f"IF(id = 2, {named}, 'q') AS queue")
        assert "partition 0, row 2: expected `queue` to name a queue" in refusal(bull, frame, None)
    assert not [key for key in keys(client, bull) if b":spark:" not in key]


def test_an_error_about_invalid_json_names_the_row(bull: Bull, client: Redis) -> None:
    rows = [('{"n": 1}',), ('{"n": 2',), ("{}",)]
    frame = bull.spark.createDataFrame(rows, "data STRING").coalesce(1)
    message = refusal(bull, frame)
    assert "partition 0, row 1: expected `data` to be JSON, got: '{\"n\": 2'" in message
    assert "use to_json()" in message
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


def test_a_column_of_integer_ids_is_refused_for_bullmq_before_any_task(bull: Bull, client: Redis) -> None:
    said = "expected column `jobId` to be STRING (a custom id of bullmq may not be an integer)"
    assert said in refusal(bull, one_row(bull, "'{}' AS data, 17 AS jobId"))
    by_row = one_row(bull, "'{}' AS data, 17 AS jobId, 'q' AS queue")
    assert said in refusal(bull, by_row, queue=None, protocol="bullmq")
    assert not keys(client, bull)
    bull.write(one_row(bull, "'{}' AS data, 17 AS jobId"), protocol="bull")


def test_bull_1_refuses_deduplication_ids_before_any_task_and_a_priority(bull: Bull, client: Redis) -> None:
    said = "bull-1 has no deduplication ids"
    assert said in refusal(bull, one_row(bull, "'{}' AS data, 'x' AS deduplication"), protocol="bull-1")
    assert said in refusal(bull, one_row(bull, "1 AS n"), protocol="bull-1", uniqueBy="n")
    by_row = one_row(bull, "1 AS n, 'q' AS queue")
    assert said in refusal(bull, by_row, queue=None, protocol="bull-1", uniqueBy="n", jobColumns="queue")
    assert not keys(client, bull)
    said = "expected no `priority` 3: jobs of bull-1 have no priority; leave it out"
    assert said in refusal(bull, one_row(bull, "'{}' AS data, 3 AS priority"), protocol="bull-1")
    assert said in refusal(bull, one_row(bull), protocol="bull-1", priority=3)


def test_a_queue_name_that_the_dialect_does_not_allow_is_refused(bull: Bull, client: Redis) -> None:
    said = "expected `queue` without ':' (BullMQ refuses it), got: 'a:b'"
    assert said in refusal(bull, one_row(bull), "a:b")
    assert said in refusal(bull, one_row(bull, "'{}' AS data, 'a:b' AS queue"), None)
    bull.write(one_row(bull), "a:b", protocol="bull")
    assert client.llen(f"{bull.options['prefix']}:a:b:wait") == 1


def test_other_save_modes_are_refused_by_spark(bull: Bull, client: Redis) -> None:
    for mode in ("errorifexists", "ignore"):
        writer = one_row(bull).write.format("bull").options(**bull.options, queue="q").mode(mode)
        with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            writer.save()
    assert not keys(client, bull)


def test_overwrite_requires_confirmation(bull: Bull) -> None:
    with BullQueue("q", url=bull.options["url"], prefix=bull.options["prefix"], protocol="bullmq") as queue:
        queue.add({"old": True})
        writer = one_row(bull).write.format("bull").options(**bull.options, queue="q").mode("overwrite")
        with pytest.raises(PySparkException, match="expected the option `confirmObliterate` to be true, got false"):
            writer.save()
        assert [job.data for job in queue.page("wait")] == [{"old": True}]
        writer.option("confirmObliterate", "true").save()
        assert [job.data for job in queue.page("wait")] == [{}]
        with pytest.raises(PySparkException, match="expects the option `queue`"):
            (
                one_row(bull, "'{}' AS data, 'q' AS queue")
                .write.format("bull")
                .options(**bull.options, confirmObliterate="true")
                .mode("overwrite")
                .save()
            )

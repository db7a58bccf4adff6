"""`spark.read.format("bull")`: the jobs, the other views, and errors before any task."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.model.jobs import NewJob, RawJson
from spark_bull.core.model.read_jobs import FlowJob
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.spark.inspect.source import OpenSlice, batch_reader, slices_of
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.schemas import SCHEMAS
from tests.spark.conftest import Bull, OpenQueue, collected

NOW = 1_700_000_000_000


def ids(frame: DataFrame) -> list[str]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_the_schema_is_fixed(bull: Bull) -> None:
    frame = bull.read("nobody")
    assert frame.schema == SCHEMAS["jobs"]
    assert " ".join(frame.columns) == (
        "queue id state name data opts progress returnvalue failedReason stacktrace attemptsMade attemptsStarted "
        "stalledCounter returnedCounter timestamp processedOn finishedOn delay runAt priority processedBy parentKey "
        "deduplicationId repeatJobKey"
    )
    assert frame.collect() == []


@pytest.mark.parametrize("protocol", ["bull", "bullmq", pytest.param("bull-1", marks=pytest.mark.rest)])
def test_a_job_is_a_row(bull: Bull, open_queue: OpenQueue, client: Redis, protocol: str) -> None:
    mine = open_queue(protocol=protocol)
    mine.add({"to": "ada", "ü": 1}, timestamp=NOW, attempts=3)
    later = mine.add({"to": "bob"}, timestamp=NOW, delay=2_000_000_000_000 - NOW)
    fields = {
        "finishedOn": NOW + 2001,
        "processedOn": NOW + 1001,
        "progress": "50",
        "failedReason": "no paper",
        "stacktrace": '["Error: no paper"]',
        "returnvalue": "null",
    }
    client.hset(mine.handle.keys.job("1"), mapping=fields)
    rows = {row["id"]: row for row in bull.read().collect()}

    row = rows["1"]
    assert (row["queue"], row["state"], row["data"]) == ("q", "wait", '{"to":"ada","ü":1}')
    assert row["timestamp"].astimezone(timezone.utc) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    assert (row["finishedOn"] - row["processedOn"]).total_seconds() == 1
    assert (row["progress"], row["failedReason"], row["returnvalue"]) == ("50", "no paper", None)
    assert (row["stacktrace"], row["attemptsMade"], row["runAt"]) == (["Error: no paper"], 0, None)
    assert row["name"] == (None if protocol == "bull-1" else "__default__")
    assert rows[later]["state"] == "delayed"
    assert rows[later]["runAt"].timestamp() == 2_000_000_000
    assert rows[later]["delay"] == 2_000_000_000_000 - NOW


def test_a_narrower_schema_reads_only_its_fields(bull: Bull, open_queue: OpenQueue, client: Redis) -> None:
    open_queue().add({"n": 1}, name="send")
    frame = bull.read(schema="state STRING, DATA STRING, id STRING")
    assert frame.columns == ["state", "DATA", "id"]
    assert [tuple(row) for row in frame.collect()] == [("wait", '{"n":1}', "1")]

    narrow = bull.read(schema="id STRING, attemptsMade INT").schema
    reader = batch_reader({**bull.options, "queue": "q"}, narrow)
    with client.monitor() as monitor:
        (batch,) = reader.read(OpenSlice(Slice()))
        client.echo("the end")
        commands = list(iter(lambda: monitor.next_command()["command"], "ECHO the end"))
    assert batch.schema == to_arrow_schema(narrow)
    assert batch.to_pylist() == [{"id": "1", "attemptsMade": 0}]
    asked = [command.split()[2:] for command in commands if re.match(r"HMGET \S+:1 ", command)]
    # The first one looks for the version of BullMQ.
    assert asked == [["ats", "attemptsMade"], ["timestamp", "attemptsMade", "atm"]]


def test_payloads_have_the_type_that_is_given_or_inferred(bull: Bull, open_queue: OpenQueue) -> None:
    mine = open_queue()
    mine.add_many([NewJob({"to": "ada", "n": 1}), NewJob({"to": "bob", "n": "many"}), NewJob([1])])
    given = bull.read(payloadSchema="to STRING, n INT", returnSchema="DOUBLE")
    assert dict(given.dtypes)["data"] == "struct<to:string,n:int>"
    assert dict(given.dtypes)["returnvalue"] == "double"
    rows = given.selectExpr("id", "data.to", "data.n", "data IS NULL", "returnvalue").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        ("1", "ada", 1, False, None),
        ("2", "bob", None, False, None),
        ("3", None, None, True, None),
    ]
    in_schema = bull.read(schema="id STRING, data STRUCT<to: STRING>").where("id = '1'")
    assert in_schema.select("data.to").collect() == [("ada",)]
    assert dict(bull.read(payloadSchema="infer").dtypes)["data"] == "string"
    mine.remove("3")
    inferred = bull.read(payloadSchema="infer")
    assert dict(inferred.dtypes)["data"] == "struct<to:string,n:string>"
    assert sorted(row["n"] for row in inferred.select("data.n").collect()) == ["1", "many"]


@pytest.mark.parametrize(
    ("schema", "options"),
    [(None, {"payloadSchema": "VARIANT", "returnSchema": "VARIANT"}), ("id STRING, data VARIANT", {})],
)
def test_payloads_can_be_read_and_written_as_variants(
    bull: Bull, open_queue: OpenQueue, schema: str | None, options: dict[str, object]
) -> None:
    payloads = [{"a": [1, 2.5, {"b": None}]}, "text", [True], 1e300, 10**20]
    open_queue().add_many([NewJob(payload) for payload in payloads])
    frame = bull.read(schema=schema, **options)
    assert dict(frame.dtypes)["data"] == "variant"
    found = frame.orderBy(frame["id"].cast("int")).selectExpr("data", "try_variant_get(data, '$.a[1]', 'DOUBLE')")
    assert [row[0].toPython() for row in found.collect()] == payloads
    assert [row[1] for row in found.collect()] == [2.5, None, None, None, None]
    bull.write(frame.selectExpr("data", "'copy-' || id AS jobId").coalesce(1), "copies", protocol="bullmq")
    with open_queue("copies") as copies:
        assert [copies.job(f"copy-{number}").data for number in range(1, 6)] == payloads


def test_states_and_job_ids_select_jobs(bull: Bull, open_queue: OpenQueue) -> None:
    mine = open_queue()
    mine.add_many([NewJob(n, delay=60_000 if n % 2 else None, priority=1 if n == 4 else None) for n in range(6)])
    assert ids(bull.read(states="delayed")) == ["2", "4", "6"]
    assert ids(bull.read(states="prioritized, wait")) == ["1", "3", "5"]
    assert ids(bull.read(jobIds="5,2,77,2")) == ["2", "5"]
    assert ids(bull.read(jobIds="5,2", states="prioritized")) == ["5"]
    assert [row["state"] for row in bull.read(jobIds="5").collect()] == ["prioritized"]
    assert ids(bull.read(jobIds="1,2,3,4", numPartitions=3)) == ["1", "2", "3", "4"]


def test_several_queues_and_globs_are_read(bull: Bull, open_queue: OpenQueue) -> None:
    for name, protocol in (("mail-eu", "bull"), ("mail-us", "bullmq"), ("sms", "bull-1")):
        open_queue(name, protocol).add(name)

    def queues(frame: DataFrame) -> list[str]:
        return sorted(row["queue"] for row in frame.collect())

    assert queues(bull.read("sms,mail-us,nobody")) == ["mail-us", "sms"]
    assert queues(bull.read("mail-*")) == ["mail-eu", "mail-us"]
    assert queues(bull.read("mail-*, sms,mail-eu")) == ["mail-eu", "mail-us", "sms"]
    both = bull.read("*", numPartitions=3)
    assert queues(both) == ["mail-eu", "mail-us", "sms"]
    open_queue("late", "bull").add("late")
    assert queues(both) == ["late", "mail-eu", "mail-us", "sms"]


def test_a_reused_frame_reads_the_queue_again(bull: Bull, open_queue: OpenQueue, client: Redis) -> None:
    frame = bull.read(numPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 0
    mine = open_queue()
    mine.add_many([NewJob(n) for n in range(100)])
    assert frame.count() == 100
    mine.add_many([NewJob(n) for n in range(100)])
    client.delete(mine.handle.keys.job("7"))
    assert frame.count() == 199
    assert ids(frame) == sorted(str(n) for n in range(1, 201) if n != 7)


@pytest.mark.parametrize(("queues", "jobs", "partitions"), [(1_002, 999, 4), (1_200, 9, 4), (1, 20_000, 100)])
def test_slices_are_about_equal(queues: int, jobs: int, partitions: int) -> None:
    ids = [b"%d" % n for n in range(1, jobs + 1)]
    sizes = [0] * partitions
    for part in slices_of(queues * jobs, queues, partitions):
        for number in range(queues):
            sizes[part.number] += sum(part._replace(queue=f"q{number}").selects(ids))
    assert sum(sizes) == queues * jobs
    assert max(sizes) <= 2 * min(sizes)


def test_the_view_counts_has_a_row_per_queue_and_state(bull: Bull, open_queue: OpenQueue) -> None:
    open_queue("a", "bull-1").add_many([NewJob(1), NewJob(2, delay=60_000)])
    open_queue("b").add_many([NewJob(1)])
    rows = {(row["queue"], row["state"]): row["jobs"] for row in bull.read("a,b", view="counts").collect()}
    assert {key: jobs for key, jobs in rows.items() if jobs} == {
        ("a", "wait"): 1,
        ("a", "delayed"): 1,
        ("b", "wait"): 1,
    }
    assert ("b", "prioritized") in rows
    assert ("a", "prioritized") not in rows
    frame = bull.read("a", view="counts", states="delayed", schema="jobs LONG")
    assert [tuple(row) for row in frame.collect()] == [(1,)]


def test_the_view_queues_has_a_row_per_queue_that_shows_how_busy_it_is(
    bull: Bull, open_queue: OpenQueue, client: Redis
) -> None:
    open_queue("a").add_many([NewJob(1, timestamp=1_700_000_000_000), NewJob(2)])
    open_queue("a").close_intake()
    open_queue("a").set_limits(max=5, duration_ms=1_000)
    open_queue("b", "bull").add(1)
    client.hset(open_queue("a").handle.keys["meta"], mapping={"version": "bullmq:6.7.0", "paused": 1, "concurrency": 4})
    rows = [tuple(row)[:6] for row in bull.read(None, view="queues").orderBy("queue").collect()]
    assert rows == [("a", "bullmq", "bullmq:6.7.0", True, 4, 2), ("b", "bull", None, False, None, 1)]
    (row,) = bull.read("a", view="queues").collect()
    assert (row.intakeOpen, row.ids, row.addedPerMinute, row.finishedPerMinute) == (False, 2, 2.0, 0.0)
    assert row.waitingSince.timestamp() == 1_700_000_000
    assert row.lastActiveOn > row.waitingSince
    assert (row.max, row.durationMs, row.overdue, row.overdueSince) == (5, 1_000, 0, None)


def test_the_view_metrics_has_a_row_per_minute_and_state(bull: Bull, open_queue: OpenQueue, client: Redis) -> None:
    for name, protocol in (("a", "bull"), ("b", "bullmq")):
        open_queue(name, protocol).add(1)
        keys = open_queue(name, protocol).handle.keys
        client.hset(keys["metrics_failed"], mapping={"count": 9, "prevTS": 1_700_000_030_000, "prevCount": 7})
        client.rpush(keys["metrics_failed_data"], 3, 4)
    minutes = [("2023-11-14 22:11", 4), ("2023-11-14 22:12", 3), ("2023-11-14 22:13", 2)]
    frame = bull.read("*", view="metrics").orderBy("queue", "minute")
    rows = [(row.queue, row.state, f"{row.minute:%Y-%m-%d %H:%M}", row.jobs, row.total) for row in frame.collect()]
    assert rows == [(name, "failed", minute, jobs, 9) for name in ("a", "b") for minute, jobs in minutes]
    assert bull.read("a", view="metrics", states="completed").collect() == []


def test_the_view_stats_has_a_row_per_queue_and_name(bull: Bull, open_queue: OpenQueue, client: Redis) -> None:
    for name, protocol in (("a", "bull-1"), ("b", "bullmq")):
        open_queue(name, protocol).add_many(NewJob(n, name="send") for n in range(4))
    handle = open_queue("b").handle
    now = handle.connection.now_ms()
    for n, run_ms in enumerate((100, 300)):
        fields = {"name": "resize", "timestamp": now - 9_000, "processedOn": now - 5_000, "finishedOn": now}
        client.hset(handle.keys.job(f"x{n}"), mapping={**fields, "processedOn": now - run_ms})
        client.zadd(handle.keys["completed"], {f"x{n}": now})
    rows = {(row.queue, row.name): row for row in bull.read("a,b", view="stats", windowMs=3_600_000).collect()}
    assert set(rows) == {("a", None), ("b", None), ("b", "send"), ("b", "resize")}
    assert rows["a", None].jobs["wait"] == rows["b", "send"].jobs["wait"] == 4
    assert (rows["b", "resize"].timed, rows["b", "resize"].runP50, rows["b", "resize"].waitP50) == (2, 200.0, 8_800.0)
    assert (rows["a", None].runP99, rows["a", None].finishedPerSecond) == (None, None)
    assert (rows["b", "send"].addedPerSecond, rows["b", "send"].addedOverMs) == (4 / 3_600, 3_600_000)
    assert rows["b", None].oldestWaitingMs >= 0
    assert not rows["b", None].isEstimate


def test_the_view_logs_has_a_row_per_line(bull: Bull, open_queue: OpenQueue, client: Redis) -> None:
    mine = open_queue()
    mine.add_many([NewJob(1), NewJob(2), NewJob(3)])
    client.rpush(mine.handle.keys.logs("1"), *[f"line {n}" for n in range(2500)])
    client.rpush(mine.handle.keys.logs("3"), "über", b"\xff")
    frame = bull.read(view="logs")
    assert frame.where("id = '1'").count() == 2500
    rows = [tuple(row) for row in frame.where("id = '3'").orderBy("line").collect()]
    assert rows == [("q", "3", 0, "über"), ("q", "3", 1, "\ufffd")]
    assert bull.read(view="logs", jobIds="3").count() == 2
    assert [row["line"] for row in bull.read(view="logs", jobIds="1").orderBy("line").collect()] == list(range(2500))


def test_the_views_dependencies_and_flows_have_a_row_per_child_and_per_job_of_a_flow(
    bull: Bull, open_queue: OpenQueue
) -> None:
    parents = open_queue("a")
    for n in (1, 2):
        words = [FlowJob({}, job_id=f"w{n}", queue="words")]
        parents.add_flow(FlowJob({}, job_id=f"p{n}", children=[FlowJob({}, job_id=f"c{n}", children=words)]))
    parents.add({}, job_id="plain")
    open_queue("old", protocol="bull").add({})
    rows = [tuple(row) for row in bull.read("a,*", view="dependencies").orderBy("id").collect()]
    assert rows == [
        ("a", parent, queue, child, "unprocessed", None)
        for parent, queue, child in (("c1", "words", "w1"), ("c2", "words", "w2"), ("p1", "a", "c1"), ("p2", "a", "c2"))
    ]
    assert bull.read("a", view="dependencies", jobIds="p2", schema="childId STRING").collect() == [("c2",)]
    with pytest.raises(PySparkException, match="jobs of bull have no children"):
        bull.read("old", view="dependencies").collect()

    columns = ("queue", "id", "depth", "jobQueue", "jobId", "parentId", "dependency", "children", "state")
    flows = [tuple(row) for row in bull.read("a", view="flows").select(*columns).orderBy("id", "depth").collect()]
    assert flows == [
        row
        for n in (1, 2)
        for row in (
            ("a", f"p{n}", 0, "a", f"p{n}", None, None, 1, "waiting-children"),
            ("a", f"p{n}", 1, "a", f"c{n}", f"p{n}", "unprocessed", 1, "waiting-children"),
            ("a", f"p{n}", 2, "words", f"w{n}", f"c{n}", "unprocessed", 0, "wait"),
        )
    ]
    for options, count in (({"jobIds": "c1,plain"}, 3), ({"maxDepth": 1}, 2), ({"maxJobs": 2}, 4)):
        assert bull.read("a", view="flows", **options).count() == count


def test_the_view_workers_has_a_row_per_connected_worker(bull: Bull, open_queue: OpenQueue, redis_url: str) -> None:
    name = open_queue().handle.keys.client_name
    others = [name, f"{name}:w:press-1", f"{name}:qe", f"{open_queue('other').handle.keys.client_name}:w:x", "nobody"]
    clients = [Redis.from_url(redis_url, client_name=client_name) for client_name in others]
    for client in clients:
        client.ping()
    rows = bull.read(view="workers").orderBy("name").collect()
    assert [(row["queue"], row["name"]) for row in rows] == [("q", None), ("q", "press-1")]
    assert all(row["age"] >= 0 and ":" in row["address"] for row in rows)
    for client in clients:
        client.close()


def test_the_view_events_has_a_row_per_event_and_each_is_once_in_a_stream_that_is_started_again(
    bull: Bull, open_queue: OpenQueue, tmp_path: Path
) -> None:
    queue = open_queue()
    for n in range(2):
        queue.publish("tick", {"n": n, "jobId": str(n)})
    kept = bull.read(view="events", schema="timestamp TIMESTAMP, jobId STRING, fields MAP<STRING,STRING>").collect()
    assert [(row.jobId, row.fields) for row in kept] == [("0", {"n": "0"}), ("1", {"n": "1"})]
    assert bull.stream(view="events").schema == SCHEMAS["events"]
    for known in (["0", "1"], ["0", "1", "2"]):
        assert sorted(row.fields["n"] for row in collected(bull.stream(view="events"), tmp_path)) == known
        queue.publish("tick", {"n": 2})


#: Options that are wrong, and what is said.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"queue": None}, "expected the option `queue`.*CREATE TEMPORARY VIEW"),
    ({"schema": "attempsMade INT"}, r"no column `attempsMade` \(did you mean `attemptsMade`\?\); it has: queue"),
    ({"schema": "opts STRUCT<a: INT>"}, "expected column `opts` of view `jobs` to be STRING, got: STRUCT<A:INT>"),
    ({"schema": "delay INT"}, "expected column `delay` of view `jobs` to be BIGINT, got: INT"),
    ({"payloadSchema": "infer"}, "expected jobs to infer `payloadSchema` from, got none with `data`"),
    ({"returnSchema": "infer"}, "expected jobs to infer `returnSchema` from, got none with `returnvalue`"),
    ({"payloadSchema": "n INT", "view": "counts"}, "expected no `payloadSchema` with view=counts"),
    ({"payloadSchema": "n WHAT"}, "WHAT"),
    ({"view": "counts", "windowMs": 5}, "expected `windowMs` with `view=stats`, got: view=counts"),
    ({"url": "redis://:s3cret@localhost:1/0", "retryMs": 0}, r"expected Redis at redis://localhost:1/0, got none"),
]


def test_errors_come_before_any_task_and_show_no_password(bull: Bull, own_redis: Callable[..., EmbeddedRedis]) -> None:
    server = own_redis({"requirepass": "right"})
    other = {"url": server.url.replace("right", "s3cret")}
    for options, message in [*WRONG, (other, "refused the user or password")]:
        with pytest.raises(PySparkException, match=message) as caught:
            bull.read(**options).collect()
        assert "s3cret" not in str(caught.value)
        assert "Job aborted" not in str(caught.value)
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        bull.spark.sql("CREATE TABLE lost_options USING bull OPTIONS (queue 'q')")
    assert not bull.spark.catalog.tableExists("lost_options")


def test_a_large_queue_is_read_completely_in_constant_memory(
    bull: Bull, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, padding = 41_000, "x" * 600
    mine = open_queue()
    mine.add_many(NewJob(RawJson(f'{{"n":{n},"padding":"{padding}"}}')) for n in range(count))

    reader = batch_reader({**bull.options, "queue": "q"}, bull.read(schema="id STRING, data STRING").schema)
    tracemalloc.start()
    rows = sum(batch.num_rows for batch in reader.read(OpenSlice(Slice())))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == count
    # The payloads alone take 25 MB; the reader keeps one or two batches and the ids that it has seen.
    assert most < 17 << 20

    frame = bull.read(schema="id STRING, data STRING")
    monkeypatch.setattr("spark_bull.spark.inspect.source.JOBS_PER_PARTITION", 40_000)
    assert len(reader.partitions()) == 2
    assert frame.selectExpr("count(DISTINCT id)", "min(length(data))").collect()[0][:] == (count, 620)

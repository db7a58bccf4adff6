"""mode=schedule: job schedulers from a DataFrame, and view=schedulers."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull, Files
from tests.support.dump import dump

HOUR = 3_600_000


def schedule(bull: Bull, sql: str, **options: object) -> None:
    bull.write(bull.spark.sql(sql), mode="schedule", **options)


each_dialect = pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)


@each_dialect
def test_rows_become_schedulers(bull: Bull, queue: BullQueue) -> None:
    sql = (
        "SELECT * FROM VALUES ('daily', '0 30 9 * * *', CAST(NULL AS STRING), 'report'),"
        " ('hourly', NULL, 'PT1H', 'plan') AS t(id, pattern, every, name)"
    )
    frame = bull.spark.sql(sql).selectExpr(
        "*", "named_struct('of', id) AS data", "'Europe/Berlin' AS tz", "named_struct('attempts', 3) AS opts"
    )
    bull.write(frame, mode="schedule", protocol=queue.protocol)
    found = {one.id: one for one in queue.schedulers()}
    assert (found["daily"].pattern, found["daily"].tz, found["daily"].name) == (
        "0 30 9 * * *",
        "Europe/Berlin",
        "report",
    )
    assert (found["hourly"].every, found["hourly"].name) == (HOUR, "plan")
    jobs = [*queue.page("wait"), *queue.page("delayed")]
    assert sorted(job.data["of"] for job in jobs) == ["daily", "hourly"]
    assert {job.opts["attempts"] for job in jobs} == {3}


@each_dialect
def test_the_view_shows_the_schedulers(bull: Bull, queue: BullQueue) -> None:
    schedule(
        bull,
        "SELECT 'a' AS id, '0 0 * * *' AS pattern, 'UTC' AS tz, '{\"n\": 1}' AS data, 5 AS limit,"
        " TIMESTAMP '2038-01-01' AS endDate",
        protocol=queue.protocol,
    )
    (row,) = bull.read(view="schedulers").collect()
    (found,) = queue.schedulers()
    assert (row.queue, row.id, row.pattern, row.tz, row.every) == ("q", "a", "0 0 * * *", "UTC", None)
    assert row.next.timestamp() * 1000 == found.next
    assert row.endDate.timestamp() * 1000 == found.end_date
    if queue.protocol == "bullmq":
        assert (row.limit, row.iterationCount, row.data, row.name) == (5, 1, '{"n": 1}', "a")
    assert bull.read("*", view="schedulers").selectExpr("id").collect() == [("a",)]


def test_a_column_names_the_queue(bull: Bull) -> None:
    sql = "SELECT concat('s', id) AS id, 3600000 AS every, concat('q', id % 2) AS queue FROM range(10)"
    bull.write(bull.spark.sql(sql), None, mode="schedule", protocol="bullmq")
    rows = bull.read("q0,q1", view="schedulers").groupBy("queue").count().orderBy("queue").collect()
    assert rows == [("q0", 5), ("q1", 5)]


def test_a_stream_writes_schedulers(queue: BullQueue, files: Files) -> None:
    for number in range(2):
        files.put({"id": f"s{number}", "every": HOUR})
        files.write(files.rows("id STRING, every LONG"), mode="schedule")
    assert sorted(found.id for found in queue.schedulers()) == ["s0", "s1"]
    assert [record.version for record in queue.writes()] == [0, 1]


BAD = {
    "SELECT 'a' AS id, 5 AS n, 5 AS every": "unknown column `n` with mode=schedule",
    "SELECT 'a' AS id, 5 AS evry": "unknown column `evry` (did you mean `every`?) with mode=schedule",
    "SELECT 5 AS every": "expected a column `id` with mode=schedule, got none",
    "SELECT 'a' AS id": "expected a column `every` (ms) or `pattern` (cron) with mode=schedule, got neither",
    "SELECT 'a' AS id, 1.5 AS every": "expected column `every` to be an integer (ms), or STRING holding a duration",
    "SELECT 'a' AS id, '1h' AS every": "row 0: expected `every` to be an interval, ms >= 1, or a duration",
    "SELECT 'a' AS id, 'P1Y' AS every": "row 0: expected `every` without years and months",
    "SELECT 'a' AS id, 5 AS every, '0 * * * *' AS pattern": (
        "row 0: expected one of `every` (ms) and `pattern` (cron), got both"
    ),
    "SELECT concat('a', id) AS id, IF(id = 2, NULL, 5) AS every FROM range(0, 3, 1, 1)": (
        "row 2: expected one of `every` (ms) and `pattern` (cron), got neither"
    ),
    "SELECT CAST(NULL AS STRING) AS id, 5 AS every": "row 0: expected `id` to be the id of a job scheduler",
    "SELECT 'a' AS id, 'x' AS pattern": "row 0: `pattern`: expected a cron pattern, got: 'x'",
    "SELECT 'a' AS id, '0 * * * *' AS pattern, 'Here' AS tz": "row 0: `tz`: expected the name of a time zone",
    "SELECT 'a' AS id, 5 AS every, TIMESTAMP '2001-01-01' AS endDate": (
        "row 0: expected `endDate` to be a time in the future, got: 978307200000"
    ),
    "SELECT 'a' AS id, 5 AS every, '[]' AS opts": "row 0: expected `opts` to be a JSON object",
    "SELECT 'a' AS id, 5 AS every, '{' AS data": "row 0: expected `data` to be JSON, got: '{'",
}


def test_an_error_names_the_row_and_the_column(bull: Bull, client: Redis) -> None:
    for sql, said in BAD.items():
        with pytest.raises(PySparkException) as caught:
            schedule(bull, sql, protocol="bullmq")
        assert said in str(caught.value)
    assert [name for name in dump(client, bull.options["prefix"], "q") if not name.startswith("spark:")] == []


def test_modes_that_do_not_fit_are_refused(bull: Bull) -> None:
    frame = bull.spark.sql("SELECT 'a' AS id, 5 AS every")
    with pytest.raises(PySparkException, match="mode=schedule is not supported here: it requires write"):
        bull.read(mode="schedule").collect()
    with pytest.raises(PySparkException, match='expected mode\\("append"\\), got mode\\("overwrite"\\)'):
        frame.write.format("bull").options(**bull.options, queue="q", mode="schedule").mode("overwrite").save()
    with pytest.raises(PySparkException, match="a queue of BullMQ or Bull 3 or 4: bull-1 has no job schedulers"):
        bull.write(frame, mode="schedule", protocol="bull-1")
    with pytest.raises(PySparkException, match="bull-1 has no job schedulers"):
        bull.read(view="schedulers", protocol="bull-1").collect()

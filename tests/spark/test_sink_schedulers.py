"""mode=schedule: job schedulers from a DataFrame, and view=schedulers."""

from __future__ import annotations

import pytest
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull, Files, refusal
from tests.support.dump import dump

HOUR = 3_600_000


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_rows_become_schedulers_that_the_view_shows(bull: Bull, queue: BullQueue) -> None:
    frame = bull.spark.sql(
        "SELECT *, 'Europe/Berlin' AS tz, named_struct('of', id) AS data, named_struct('attempts', 3) AS opts,"
        " 5 AS limit, TIMESTAMP '2038-01-01' AS endDate"
        " FROM VALUES ('daily', '0 30 9 * * *', CAST(NULL AS STRING), 'report'),"
        " ('hourly', NULL, 'PT1H', 'plan') AS t(id, pattern, every, name)"
    )
    bull.write(frame, mode="schedule", protocol=queue.protocol)
    found = {one.id: one for one in queue.schedulers()}
    daily, hourly = found["daily"], found["hourly"]
    assert (daily.pattern, daily.tz, daily.name) == ("0 30 9 * * *", "Europe/Berlin", "report")
    assert (hourly.every, hourly.name) == (HOUR, "plan")
    jobs = [*queue.page("wait"), *queue.page("delayed")]
    assert sorted(job.data["of"] for job in jobs) == ["daily", "hourly"]
    assert {job.opts["attempts"] for job in jobs} == {3}

    row, _ = bull.read("*", view="schedulers").orderBy("id").collect()
    assert (row.queue, row.id, row.pattern, row.tz, row.every) == ("q", "daily", "0 30 9 * * *", "Europe/Berlin", None)
    assert (row.next.timestamp() * 1000, row.endDate.timestamp() * 1000) == (daily.next, daily.end_date)
    if queue.protocol == "bullmq":
        assert (row.limit, row.iterationCount, row.data, row.name) == (5, 1, '{"of":"daily"}', "report")


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


#: Rows that are wrong, and what is said. conformance/test_schedulers.py has all wrong values.
BAD = {
    "SELECT 'a' AS id, 5 AS n, 5 AS every": "unknown column `n` with mode=schedule",
    "SELECT 'a' AS id, 5 AS evry": "unknown column `evry` (did you mean `every`?) with mode=schedule",
    "SELECT 5 AS every": "expected a column `id` with mode=schedule, got none",
    "SELECT 'a' AS id": "expected a column `every` (ms) or `pattern` (cron) with mode=schedule, got neither",
    "SELECT 'a' AS id, 1.5 AS every": "expected column `every` to be an integer (ms), or STRING holding a duration",
    "SELECT concat('a', id) AS id, IF(id = 2, NULL, 5) AS every FROM range(0, 3, 1, 1)": (
        "row 2: expected one of `every` (ms) and `pattern` (cron), got neither"
    ),
    "SELECT 'a' AS id, 5 AS every, '[]' AS opts": "row 0: expected `opts` to be a JSON object",
    "SELECT 'a' AS id, 5 AS every, '{' AS data": "row 0: expected `data` to be JSON, got: '{'",
}


def test_an_error_names_the_row_and_the_column(bull: Bull, client: Redis) -> None:
    for sql, said in BAD.items():
        assert said in refusal(bull, bull.spark.sql(sql), mode="schedule", protocol="bullmq")
    assert [name for name in dump(client, bull.options["prefix"], "q") if not name.startswith("spark:")] == []

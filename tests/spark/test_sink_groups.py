"""mode=limits: limits of groups of jobs from a DataFrame, and view=groups."""

from __future__ import annotations

import pytest

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import GroupLimits, WorkSettings
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from tests.spark.conftest import Bull, Files, OpenQueue, refusal


@pytest.fixture
def queue(open_queue: OpenQueue) -> BullQueue:
    """A queue from which a worker has claimed by groups."""
    queue = open_queue(protocol="bullmq")
    queue.add_many(NewJob({"tenant": name}) for name in "aab")
    work(queue.handle, WorkSettings("slot", group=GroupLimits("tenant", concurrency=1)), None, 10)
    return queue


def limit(bull: Bull, sql: str) -> None:
    bull.write(bull.spark.sql(sql), mode="limits")


def own(queue: BullQueue) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {one.group: (one.max, one.duration_ms, one.concurrency) for one in queue.groups()}


def test_rows_set_and_remove_limits(bull: Bull, queue: BullQueue) -> None:
    limit(
        bull,
        "SELECT * FROM VALUES ('a', 5, 1000L, 2), ('b', NULL, NULL, 3), ('c', 7, 60000, NULL)"
        " AS t(group, max, duration, concurrency)",
    )
    assert own(queue) == {"a": (5, 1_000, 2), "b": (None, None, 3), "c": (7, 60_000, None)}
    limit(bull, "SELECT 'a' AS group, CAST(NULL AS INT) AS concurrency")
    limit(bull, "SELECT 'c' AS group, CAST(NULL AS INT) AS max, CAST(NULL AS INT) AS duration")
    assert own(queue) == {"a": (5, 1_000, None), "b": (None, None, 3)}


def test_the_view_shows_the_groups(bull: Bull, queue: BullQueue) -> None:
    queue.set_group_limit("a", max=5, duration_ms=1_000)
    queue.pause_group("b")
    rows = bull.read(view="groups").orderBy("group").collect()
    assert rows == [("q", "a", 1, 1, 5, 1_000, None, False, None), ("q", "b", 0, 1, None, None, None, True, None)]
    assert bull.read("*", view="groups").select("queue", "group").orderBy("group").collect() == [("q", "a"), ("q", "b")]
    # The view can be written again.
    queue.remove_group_limit("a")
    frame = bull.spark.createDataFrame(rows, bull.read(view="groups").schema)
    bull.write(frame.select("group", "max", "duration", "concurrency"), mode="limits")
    assert own(queue)["a"] == (5, 1_000, None)


def test_a_stream_writes_limits(queue: BullQueue, files: Files) -> None:
    files.put({"group": "a", "concurrency": 4})
    files.write(files.rows("group STRING, concurrency INT"), mode="limits")
    assert own(queue)["a"] == (None, None, 4)


BAD = {
    "SELECT 'a' AS group, 5 AS n, 5 AS concurrency": "unknown column `n` with mode=limits: drop it",
    "SELECT 5 AS concurrency": "expected a column `group` with mode=limits, got none",
    "SELECT 'a' AS group": "expected a column `concurrency`, or `max` and `duration`, with mode=limits, got none",
    "SELECT 'a' AS group, 5 AS max": "expected columns `max` and `duration` together with mode=limits, got one of them",
    "SELECT 'a' AS group, 1.5 AS concurrency": "expected column `concurrency` to be an integer",
    "SELECT 'a' AS group, 5 AS max, CAST(NULL AS INT) AS duration": (
        "row 0: expected `max` and `duration` together, got no `duration`"
    ),
    "SELECT concat('a', id % 2) AS group, 5 AS concurrency FROM range(0, 3, 1, 3)": (
        "expected each `group` once, got 'a0' twice: keep one of the rows, as their order is not defined"
    ),
}


def test_bad_rows_change_nothing(bull: Bull, queue: BullQueue) -> None:
    for sql, said in BAD.items():
        assert said in refusal(bull, bull.spark.sql(sql), mode="limits")
    good = bull.spark.sql("SELECT 'a' AS group, 5 AS concurrency")
    assert "protocol" in refusal(bull, good, mode="limits", protocol="bull")
    assert set(own(queue).values()) == {(None, None, None)}

"""Spark writes the same keys as BullQueue in every dialect."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.model.job_json import camel_case
from spark_bull.core.model.jobs import NewJob, RawJson
from tests.spark.conftest import Bull, OpenQueue
from tests.support.dump import Window, difference, dump, normalise
from tests.support.jobs import HOUR

LONG_AGO = 1_600_000_000_000
LATER = 2_100_000_000_000
#: They take precedence over columns.
OPTS = '{"tenant": "t", "attempts": 9, "keepLogs": 3}'


@pytest.fixture
def assert_alike(client: Redis, open_queue: OpenQueue, prefix: str) -> Callable[..., None]:
    """Compares the queue that Spark wrote with one that BullQueue writes, key by key."""

    def check(dialect: str, jobs: list[NewJob]) -> None:
        open_queue("reference", dialect).add_many(jobs)
        found = difference(*(normalise(dump(client, prefix, name), Window()) for name in ("reference", "q")))
        assert not found, "\n".join(found[:20])

    return check


@pytest.mark.parametrize("dialect", ["bull-1", "bull", "bullmq"])
def test_every_column_becomes_the_property_of_its_name(
    bull: Bull, assert_alike: Callable[..., None], dialect: str
) -> None:
    due = datetime.fromtimestamp(LATER / 1000, timezone.utc)
    made = datetime.fromtimestamp(LONG_AGO / 1000, timezone.utc)
    schema = """data STRUCT<n: INT, text: STRING>, name STRING, jobId STRING, delay LONG, runAt TIMESTAMP, priority INT,
        attempts INT, backoff STRUCT<type: STRING, delay: DECIMAL(10)>, lifo BOOLEAN, removeOnComplete BOOLEAN,
        removeOnFail STRUCT<age: INT, count: INT>, timestamp TIMESTAMP, opts STRING"""
    no = None
    priority = no if dialect == "bull-1" else 3
    name = "__default__" if dialect == "bull-1" else "send"
    rows = [
        ((1, "ü"), name, "a", no, no, priority, 3, ("exponential", Decimal(500)), no, True, (60, 5), made, OPTS),
        ((2, no), no, no, HOUR, no, no, no, no, no, no, no, made, no),
        ((3, no), no, no, no, due, no, no, no, no, no, no, made, no),
        ((4, no), no, no, no, no, no, no, no, True, False, no, made, '{"stackTraceLimit": 7}'),
        ((5, no), no, "a", no, no, no, no, no, no, no, no, made, no),
        ((6, no), no, no, no, no, no, no, no, no, no, no, made, no),
    ]
    bull.write(bull.spark.createDataFrame(rows, schema).coalesce(1), protocol=dialect)
    assert_alike(
        dialect,
        [
            NewJob(
                {"n": 1, "text": "ü"},
                name=name,
                job_id="a",
                priority=priority,
                attempts=3,
                backoff={"type": "exponential", "delay": 500},
                remove_on_complete=True,
                remove_on_fail={"age": 60, "count": 5},
                timestamp=LONG_AGO,
                opts=json.loads(OPTS),
            ),
            NewJob({"n": 2}, delay=HOUR, timestamp=LONG_AGO),
            NewJob({"n": 3}, run_at=LATER, timestamp=LONG_AGO),
            NewJob({"n": 4}, lifo=True, remove_on_complete=False, timestamp=LONG_AGO, opts={"stackTraceLimit": 7}),
            NewJob({"n": 5}, job_id="a", timestamp=LONG_AGO),
            NewJob({"n": 6}, timestamp=LONG_AGO),
        ],
    )


def test_columns_may_be_numbers(bull: Bull, assert_alike: Callable[..., None]) -> None:
    """BullMQ takes no integers for ids."""
    schema = "data STRING, jobId INT, backoff INT, removeOnComplete INT, timestamp LONG, opts MAP<STRING, INT>"
    rows = [('{"n": 1}', 70_000, 500, 10, LONG_AGO, {"stackTraceLimit": 3}), ("[1]", None, None, None, LONG_AGO, None)]
    bull.write(bull.spark.createDataFrame(rows, schema).coalesce(1), protocol="bull")
    text_as_it_is = RawJson('{"n": 1}')
    given = {"backoff": 500, "remove_on_complete": 10, "opts": {"stackTraceLimit": 3}}
    assert_alike(
        "bull",
        [NewJob(text_as_it_is, job_id="70000", timestamp=LONG_AGO, **given), NewJob([1], timestamp=LONG_AGO)],
    )


@pytest.mark.parametrize("dialect", ["bull-1", "bullmq"])
def test_an_option_is_the_default_of_all_rows(bull: Bull, assert_alike: Callable[..., None], dialect: str) -> None:
    rows = [(1, None, None, LONG_AGO), (2, 9, "__default__", LONG_AGO)]
    frame = bull.spark.createDataFrame(rows, "n INT, attempts INT, name STRING, timestamp LONG").coalesce(1)
    more: dict[str, Any] = {"delay": HOUR} if dialect == "bull-1" else {"name": "send", "priority": 4}
    common: dict[str, Any] = {
        **more,
        "backoff": {"type": "fixed", "delay": 7},
        "remove_on_complete": True,
        "remove_on_fail": {"count": 3},
        "opts": {"tenant": "t"},
        "lifo": True,
        "attempts": 2,
    }
    options = {camel_case(name): value if name == "name" else json.dumps(value) for name, value in common.items()}
    bull.write(frame, protocol=dialect, jobColumns="attempts,name,timestamp", **options)
    jobs = {1: common, 2: {**common, "attempts": 9, "name": "__default__"}}
    assert_alike(dialect, [NewJob({"n": n}, timestamp=LONG_AGO, **given) for n, given in jobs.items()])

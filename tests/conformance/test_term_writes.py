"""Terms of jobs as columns and options of a write."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType, TimestampType

from spark_bull.core.dialects.fields import STALLED_PRESET
from spark_bull.core.errors import OptionError
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.spark.dispatch.sink import write_sink
from tests.conformance.written import written
from tests.support.without_spark import Sink
from tests.support.work_bench import each_dialect, options_of

HOUR_MS = 3_600_000
LATER = datetime(2035, 1, 1, tzinfo=timezone.utc)
LATER_MS = int(LATER.timestamp() * 1000)

ROWS = (
    StructType()
    .add("data", StringType())
    .add("expireAfterMs", IntegerType())
    .add("expireAt", TimestampType())
    .add("delivery", StringType())
    .add("lockMs", IntegerType())
    .add("spreadMs", IntegerType())
)
PRIORITIES = StructType().add("data", StringType()).add("priority", StringType())
PLAIN = StructType().add("data", StringType())


bull_1_and_bullmq = pytest.mark.parametrize("queue", ["bull-1", "bullmq"], indirect=True)


@pytest.fixture
def options(queue: BullQueue) -> dict[str, str]:
    return options_of(queue)


def stored(queue: BullQueue, job_id: str) -> dict[str, str]:
    found = queue.handle.connection.call("HGETALL", queue.handle.keys.job(job_id))
    return {name.decode(): value.decode() for name, value in found.items()}


def numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"data": json.dumps({"n": n}), **row} for n, row in enumerate(rows)]


@each_dialect
def test_the_terms_of_a_row_are_stored_with_its_job(queue: BullQueue, options: dict[str, str]) -> None:
    rows = [{"expireAfterMs": 5_000}, {"expireAt": LATER}, {"delivery": "at-most-once"}, {"lockMs": 9_000}, {}]
    written({**options, "expireAfterMs": str(HOUR_MS)}, ROWS, numbered(rows))
    jobs = [stored(queue, str(number)) for number in range(1, 6)]
    after = [int(job["expireAt"]) - int(job["timestamp"]) for job in jobs]
    assert (after[0], after[2:], int(jobs[1]["expireAt"])) == (5_000, [HOUR_MS] * 3, LATER_MS)
    counters = [job.get("stc", job.get("stalledCounter")) for job in jobs]
    assert counters == [None, None, str(STALLED_PRESET), None, None]
    opts = [json.loads(job["opts"]) for job in jobs]
    assert [one.get("delivery") for one in opts] == [None, None, "at-most-once", None, None]
    assert [one.get("lockMs") for one in opts] == [None, None, None, 9_000, None]


def test_a_write_of_jobs_that_may_run_once_is_exactly_once(queue: BullQueue, options: dict[str, str]) -> None:
    written({**options, "delivery": "at-most-once"}, ROWS, numbered([{}, {"delivery": "at-least-once"}]))
    kept = [json.loads(stored(queue, job_id)["opts"]).get("delivery") for job_id in ("1", "2")]
    assert kept == ["at-most-once", None]
    assert [record.delivery for record in queue.writes()] == ["exactly-once"]
    with pytest.raises(OptionError, match="a repeated task would add a job of at-most-once twice"):
        Sink({**options, "delivery": "at-least-once"}, ROWS)


def test_options_that_no_job_can_have_are_refused_before_any_task(options: dict[str, str]) -> None:
    for given, said in (
        ({"expireAfterMs": "5", "delay": "5"}, "`expireAfterMs` to end after `delay`"),
        ({"expireAfterMs": "5", "spreadMs": "5"}, "`expireAfterMs` to end after `delay`"),
        ({"delivery": "at-most-once", "attempts": "3"}, "`attempts` to be 1 with `delivery` at-most-once, got: 3"),
        ({"lockMs": "5"}, "`lockMs` to be an integer >= 300, got: '5'"),
        ({"priority": "hihg"}, "(did you mean `high`?)"),
    ):
        with pytest.raises(OptionError) as error:
            Sink(options | given, PLAIN)
        assert said in str(error.value)


def test_a_wrong_term_is_an_error_of_its_row(queue: BullQueue, options: dict[str, str]) -> None:
    sink = Sink(options, ROWS)
    said = "partition 0, row 1: expected one of `expireAfterMs` and `expireAt`, got both"
    with pytest.raises(OptionError, match=said):
        sink.task(numbered([{}, {"expireAfterMs": 5, "expireAt": LATER}]))
    sink.abort()
    with pytest.raises(OptionError, match=r"row 1: expected `priority` to be .* got: 'urgent'"):
        Sink(options, PRIORITIES).task(numbered([{"priority": "high"}, {"priority": "urgent"}]))
    assert not any(queue.counts().values())


@pytest.mark.parametrize("option", [{"spreadMs": "60000"}, {}])
def test_a_repeated_task_spreads_its_jobs_equally(
    queue: BullQueue, options: dict[str, str], option: dict[str, str]
) -> None:
    """Two writes of the same rows give them the same delays; their partitions differ."""
    rows = numbered([{} if option else {"spreadMs": 60_000}] * 50)
    for _ in range(2):
        written(options | option, ROWS, rows, rows)
    delays = [int(stored(queue, str(number))["delay"]) for number in range(1, 201)]
    assert delays[:100] == delays[100:]
    assert delays[:50] != delays[50:100]
    assert len(set(delays[:50])) > 40
    assert all(0 <= delay < 60_000 for delay in delays)


@bull_1_and_bullmq
def test_priorities_by_name_have_queues_of_their_own_in_bull_1(
    queue: BullQueue, options: dict[str, str], open_queue: Callable[..., BullQueue]
) -> None:
    rows = numbered([{"priority": name} for name in ("high", None, "low", "high")])
    written(options if queue.protocol == "bull-1" else {**options, "priority": "critical"}, PRIORITIES, rows)
    jobs = [queue.job(str(number)) for number in range(1, 5)]
    if queue.protocol == "bullmq":
        assert [job and job.priority for job in jobs] == [2, 1, 5, 2]
        return
    assert jobs == [None] * 4
    for name, numbers in {"high": [0, 3], "normal": [1], "low": [2]}.items():
        waiting = open_queue(f"q:prio:{name}", "bull-1").page("wait")
        assert [(job.data["n"], job.opts.get("priority")) for job in waiting] == [(n, name) for n in numbers]


@bull_1_and_bullmq
@pytest.mark.parametrize(
    ("schema", "option"), [(PRIORITIES, {}), (PLAIN, {"priority": "high"})], ids=["column", "option"]
)
def test_an_overwrite_of_several_queues_is_refused(
    options: dict[str, str], queue: BullQueue, schema: StructType, option: dict[str, str]
) -> None:
    """It would leave the jobs of priorities that no row has."""
    given = {**options, **option, "confirmObliterate": "true"}
    if queue.protocol == "bull-1":
        with pytest.raises(OptionError, match=r"each `priority` of bull-1 is a queue: obliterate q:prio:high and"):
            write_sink(given, schema, True, is_stream=False)
    else:
        write_sink(given, schema, True, is_stream=False)

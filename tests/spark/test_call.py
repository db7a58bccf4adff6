"""call(): a job for each row of a DataFrame, and the rows back with their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from redis import Redis

import spark_bull
from spark_bull import BullQueue
from spark_bull.core.errors import OptionError
from spark_bull.run.job.running_job import RunningJob
from tests.spark.conftest import Bull, Files
from tests.support.worker import OurWorker

Call = Callable[..., DataFrame]


@pytest.fixture
def call(bull: Bull) -> Call:
    def call(frame: DataFrame, **arguments: Any) -> DataFrame:
        return spark_bull.call(frame, "q", **{"protocol": "bullmq", **bull.options, **arguments})

    return call


def square(job: RunningJob) -> Any:
    n = job.data["n"]
    if n < 0:
        raise ValueError(f"{n} is negative")
    return n * n


@pytest.fixture
def squares(queue: BullQueue) -> Iterator[OurWorker]:
    with OurWorker(queue.handle, square, chunk_size=20) as worker:
        yield worker


def numbers(bull: Bull, *given: int) -> DataFrame:
    return bull.spark.createDataFrame([(n,) for n in given], "n INT")


def by_n(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: row["n"])


def jobs(queue: BullQueue) -> int:
    return sum(queue.counts().values())


def test_the_row_or_its_column_data_is_the_payload_and_outcomes_come_back_with_details(
    bull: Bull, call: Call, queue: BullQueue, squares: OurWorker
) -> None:
    found = call(numbers(bull, 3, -1), return_schema="INT", job={"attempts": 2}, details=True)
    kinds = "n:int,result:int,error:string,jobId:string,attemptsMade:int,durationMs:bigint"
    assert found.schema.simpleString() == f"struct<{kinds}>"
    assert [(row["n"], row["result"], row["error"], row["attemptsMade"]) for row in by_n(found)] == [
        (-1, None, "-1 is negative", 2),
        (3, 9, None, 1),
    ]
    frame = numbers(bull, 4, 5).withColumn("data", f.struct((f.col("n") + 1).alias("n"))).withColumn("at", f.lit("x"))
    assert [(row["n"], row["at"], row["data"]["n"], row["result"]) for row in by_n(call(frame))] == [
        (4, "x", 5, "25"),
        (5, "x", 6, "36"),
    ]
    assert jobs(queue) == 0


def test_rows_that_fail_are_dropped_or_fail_the_task_and_are_named(bull: Bull, call: Call, squares: OurWorker) -> None:
    assert call(numbers(bull)).collect() == []
    assert [row["n"] for row in by_n(call(numbers(bull, 3, -1, 1, -7), on_error="drop"))] == [1, 3]
    frame = numbers(bull, 3, -1).coalesce(1)
    with pytest.raises(PySparkException, match=r"row 1 of partition 0 \(job call-\S+ of queue q\): .*-1 is negative"):
        call(frame, on_error="fail").collect()
    with pytest.raises(PySparkException, match=r"row 0 of partition 0 .*return_schema: expected the payload to match"):
        call(numbers(bull, 3).coalesce(1), on_error="fail", return_schema="ARRAY<INT>").collect()


def test_jobs_that_take_too_long_are_removed(bull: Bull, call: Call, queue: BullQueue) -> None:
    found = call(numbers(bull, 1, 2, 2), timeout_ms=200).collect()
    reason = "timeout: the job has not ended within 200 ms; 0 workers are connected to queue q"
    assert [row["error"] for row in found] == [reason] * 3
    assert jobs(queue) == 0


def test_each_action_calls_again_unless_it_is_cached(bull: Bull, call: Call, queue: BullQueue) -> None:
    calls: Counter[int] = Counter()

    def processor(job: RunningJob) -> None:
        calls[job.data["n"]] += 1

    with OurWorker(queue.handle, processor):
        for frame in (call(numbers(bull, 1, 2)), call(numbers(bull, 1, 2)).cache()):
            frame.collect()
            frame.collect()
        frame.unpersist()
    assert calls == {1: 3, 2: 3}


def test_equal_rows_are_jobs_of_their_own_also_when_one_task_has_several_partitions(
    bull: Bull, call: Call, queue: BullQueue
) -> None:
    runs: Counter[str] = Counter()

    def processor(job: RunningJob) -> None:
        runs[job.id] += 1

    equal = bull.spark.range(8, numPartitions=4).select(f.lit(7).alias("n"))
    with OurWorker(queue.handle, processor):
        called = call(equal)
        assert len({row["jobId"] for row in called.coalesce(1).collect()}) == 8
        assert len({row["jobId"] for row in called.union(called).collect()}) == 16
    assert [*runs.values()] == [1] * 24


def test_few_jobs_are_in_flight(bull: Bull, call: Call, queue: BullQueue) -> None:
    most: list[int] = []

    def processor(job: RunningJob) -> None:
        most.append(jobs(queue))

    with OurWorker(queue.handle, processor, chunk_size=5):
        frame = bull.spark.range(200).coalesce(1)
        assert len({row["id"] for row in call(frame, in_flight=7).collect()}) == 200
    assert max(most) <= 7


def test_micro_batches_are_called_and_a_repeated_one_gets_the_results_of_its_jobs(
    call: Call, queue: BullQueue, files: Files
) -> None:
    """Also in another program, which makes the same call."""
    runs: list[int] = []
    found: list[tuple[int, int, str]] = []

    def run(keep: Callable[[DataFrame, int], None]) -> None:
        query = call(files.rows()).writeStream.foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", str(files.checkpoint)).start().awaitTermination()

    def fail(frame: DataFrame, batch: int) -> None:
        frame.collect()
        raise ArithmeticError("the batch fails after its calls")

    def keep(frame: DataFrame, batch: int) -> None:
        found.extend((batch, row["n"], row["error"]) for row in frame.collect())

    files.put(1, 2)
    with OurWorker(queue.handle, lambda job: runs.append(job.data["n"])):
        with pytest.raises(PySparkException, match="the batch fails"):
            run(fail)
        files.put(3)
        run(keep)
    assert sorted(runs) == [1, 2, 3]
    assert sorted(found) == [(0, 1, None), (0, 2, None), (1, 3, None)]


def test_a_limit_is_reached_before_the_other_jobs_are_added(bull: Bull, call: Call, queue: BullQueue) -> None:
    # Spark gets rows when Python has more of them, at least 64 KiB: jobs have to go on to end.
    rows = 1_000_000
    with OurWorker(queue.handle, lambda _: "x" * 1_000):
        frame = call(bull.spark.range(rows).coalesce(1), in_flight=500)
        assert len(frame.limit(5).collect()) == 5
        assert int(queue.handle.connection.call("GET", queue.handle.keys["id"])) < rows


#: Arguments that are wrong, and what is said.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"timeout_ms": 0}, "expected `timeout_ms` to be an integer >= 1, got: 0"),
    ({"in_flight": 0}, "expected `in_flight` to be an integer >= 1, got: 0"),
    ({"in_flight": 100_001}, "expected `in_flight` to be an integer from 1 to 100,000, got: 100001"),
    ({"keep_ms": -1}, "expected `keep_ms` to be an integer >= 0, got: -1"),
    ({"details": 1}, "expected `details` to be True or False, got: 1"),
    ({"on_error": "ignore"}, "expected `on_error` to be one of column, fail, drop, got: 'ignore'"),
    ({"return_schema": "text STRIN"}, "expected `return_schema` to be columns as DDL"),
    ({"job": {"remove_on_fail": 3}}, "expected the properties of `job` to be some of name, "),
    ({"job": {"opts": {"removeOnComplete": True}}}, "expected no `removeOnComplete` in `opts` of `job`"),
    ({"job": {"priority": -1}}, "priority"),
    ({"colour": 1}, "unknown option `colour`"),
    ({"deduplication": "a"}, "unknown option `deduplication` of call(): give properties of its jobs in `job`"),
    ({"offload_above": 1}, "unknown option `offload_above` of call() (did you mean `offload_to`?)"),
    ({"max_length": 1}, "unknown option `max_length` of call()"),
    ({"events": "some"}, "expected `events` to be one of all, ends, none, got: 'some'"),
]


def test_wrong_arguments_are_errors(bull: Bull, call: Call) -> None:
    for arguments, message in WRONG:
        with pytest.raises(OptionError) as caught:
            call(numbers(bull, 1), **arguments)
        assert message in str(caught.value)
    with pytest.raises(OptionError, match="expected no column `Error`: call\\(\\) adds result, error, jobId"):
        call(numbers(bull, 1).withColumn("Error", f.lit(1)))


@pytest.fixture
def sql(bull: Bull) -> Callable[[str], DataFrame]:
    """Calls the queue in SQL for the rows of the view `numbers`, with these further arguments."""

    def sql(arguments: str = "") -> DataFrame:
        options = ", ".join(f"{name} => '{value}'" for name, value in bull.options.items())
        return bull.spark.sql(
            f"SELECT * FROM bull_call(TABLE(numbers), 'q', protocol => 'bullmq', {options}{arguments})"
        )

    return sql


@pytest.mark.capability("table-function")
def test_rows_are_called_in_sql(
    bull: Bull, sql: Callable[..., DataFrame], client: Redis, queue: BullQueue, squares: OurWorker
) -> None:
    frame = numbers(bull, *range(-1, 250), 249).withColumn(
        "an `odd` name", f.struct(f.col("n"), f.map_from_arrays(f.array(f.lit("a")), f.array("n")))
    )
    frame.repartition(3).createOrReplaceTempView("numbers")
    found = sql(""", returnSchema => 'BIGINT', details => true, events => 'ends', job => '{"name": "square"}'""")
    assert found.columns == ["n", "an `odd` name", "result", "error", "jobId", "attemptsMade", "durationMs"]
    rows = by_n(found)
    assert [row["result"] for row in rows] == [None, *(n * n for n in range(250)), 249 * 249]
    assert rows[0]["error"] == "-1 is negative"
    assert rows[7]["an `odd` name"] == Row(6, {"a": 6})
    assert len({row["jobId"] for row in rows}) == 252, "equal rows are jobs of their own"
    events = client.xrange(queue.handle.keys["events"])
    assert b"added" not in {fields[b"event"] for _, fields in events}
    with pytest.raises(PySparkException, match=r"row \d+ of partition \d .*-1 is negative"):
        sql(", onError => 'fail'").collect()


#: The same in SQL.
WRONG_IN_SQL = [
    (", colour => 1", "unknown argument `colour` of bull_call"),
    (", inFlght => 1", "did you mean `inFlight`?"),
    (", inFlight => 0", "expected `in_flight` to be an integer >= 1, got: 0"),
    (", job => '[]'", "expected `job` to be a JSON object"),
    (
        ", onError => concat('a', CAST(rand() AS STRING))",
        "expected the argument `onError` of bull_call to be a constant",
    ),
]


@pytest.mark.capability("table-function")
def test_wrong_arguments_in_sql_are_errors(bull: Bull, sql: Callable[..., DataFrame]) -> None:
    numbers(bull, 1).createOrReplaceTempView("numbers")
    for arguments, message in WRONG_IN_SQL:
        with pytest.raises(PySparkException) as caught:
            sql(arguments)
        assert message in str(caught.value)

"""Spark writes the same keys as BullQueue in every dialect, and writes to several queues are idempotent."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from redis import Redis

from spark_bull.model.jobs import NewJob, RawJson
from spark_bull.queue.bull_queue import BullQueue
from tests.spark.conftest import Bull
from tests.support.dump import PRIVATE, Window, difference, dump, normalise
from tests.support.jobs import HOUR

LONG_AGO = 1_600_000_000_000
LATER = 2_100_000_000_000

each_dialect = pytest.mark.parametrize("dialect", ["bull-1", "bull", "bullmq"])


class Queues:
    """The keys in Redis under the prefix of the test."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self.client = client
        self.prefix = prefix

    def data(self, queue: str = "q", state: str = "wait") -> list[Any]:
        """Payloads of a list, in the order of processing."""
        ids = self.client.lrange(f"{self.prefix}:{queue}:{state}", 0, -1)[::-1]
        return [json.loads(self.client.hget(f"{self.prefix}:{queue}:{i.decode()}", "data") or b"") for i in ids]

    def numbers(self, queue: str = "q") -> list[int]:
        return [data["n"] for data in self.data(queue)]

    def dump(self, queue: str = "q") -> dict[str, Any]:
        return dump(self.client, self.prefix, queue)

    def public(self, queue: str = "q") -> set[str]:
        return {name for name in self.dump(queue) if not name.startswith(PRIVATE)}

    def expiring(self, queue: str = "q") -> bool:
        """Whether all private keys expire."""
        return all(key.expires for name, key in self.dump(queue).items() if name.startswith(PRIVATE))


@pytest.fixture
def queues(client: Redis, prefix: str) -> Queues:
    return Queues(client, prefix)


@pytest.fixture
def python(redis_url: str, prefix: str) -> Callable[..., BullQueue]:
    """Opens a queue of this test with BullQueue."""
    return lambda queue="q", **options: BullQueue(queue, url=redis_url, prefix=prefix, **options)


@pytest.fixture
def assert_alike(queues: Queues, python: Callable[..., BullQueue]) -> Callable[..., None]:
    """Compares the queue that Spark wrote with one that BullQueue writes, key by key."""

    def check(dialect: str, jobs: list[NewJob]) -> None:
        with python("reference", protocol=dialect) as queue:
            queue.add_many(jobs)
        found = difference(*(normalise(queues.dump(name), Window()) for name in ("reference", "q")))
        assert not found, "\n".join(found[:20])

    return check


def numbers(spark: SparkSession, stop: int, start: int = 0) -> DataFrame:
    """One column `n`, in one partition."""
    return spark.range(start, stop, numPartitions=1).toDF("n")


@each_dialect
def test_every_column_becomes_the_property_of_its_name(
    bull: Bull, assert_alike: Callable[..., None], dialect: str
) -> None:
    due = datetime.fromtimestamp(LATER / 1000, timezone.utc)
    made = datetime.fromtimestamp(LONG_AGO / 1000, timezone.utc)
    schema = """data STRUCT<n: INT, text: STRING>, name STRING, jobId STRING, delay LONG, runAt TIMESTAMP, priority INT,
        attempts INT, backoff STRUCT<type: STRING, delay: INT>, lifo BOOLEAN, removeOnComplete BOOLEAN,
        removeOnFail STRUCT<age: INT, count: INT>, timestamp TIMESTAMP, opts STRING"""
    no = None
    priority = no if dialect == "bull-1" else 3
    name = "__default__" if dialect == "bull-1" else "send"
    rows = [
        ((1, "ü"), name, "a", no, no, priority, 3, ("exponential", 500), no, True, (60, 5), made, '{"tenant": "t"}'),
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
                opts={"tenant": "t"},
            ),
            NewJob({"n": 2}, delay=HOUR, timestamp=LONG_AGO),
            NewJob({"n": 3}, run_at=LATER, timestamp=LONG_AGO),
            NewJob({"n": 4}, lifo=True, remove_on_complete=False, timestamp=LONG_AGO, opts={"stackTraceLimit": 7}),
            NewJob({"n": 5}, job_id="a", timestamp=LONG_AGO),
            NewJob({"n": 6}, timestamp=LONG_AGO),
        ],
    )


@each_dialect
def test_columns_may_be_numbers(bull: Bull, assert_alike: Callable[..., None], dialect: str) -> None:
    # BullMQ takes no integers for ids.
    job_id, id_type = (None, "STRING") if dialect == "bullmq" else (70_000, "INT")
    schema = f"data STRING, jobId {id_type}, backoff INT, removeOnComplete INT, timestamp LONG, opts MAP<STRING, INT>"
    rows = [('{"n": 1}', job_id, 500, 10, LONG_AGO, {"stackTraceLimit": 3}), ("[1]", None, None, None, LONG_AGO, None)]
    bull.write(bull.spark.createDataFrame(rows, schema).coalesce(1), protocol=dialect)
    jobs = [
        NewJob(
            RawJson('{"n": 1}'),  # text is sent as it is
            job_id=job_id and str(job_id),
            backoff=500,
            remove_on_complete=10,
            timestamp=LONG_AGO,
            opts={"stackTraceLimit": 3},
        ),
        NewJob([1], timestamp=LONG_AGO),
    ]
    assert_alike(dialect, jobs)


@each_dialect
def test_an_option_is_the_default_of_all_rows(bull: Bull, assert_alike: Callable[..., None], dialect: str) -> None:
    rows = [(1, None, LONG_AGO), (2, 9, LONG_AGO)]
    frame = bull.spark.createDataFrame(rows, "n INT, attempts INT, timestamp LONG").coalesce(1)
    named = {} if dialect == "bull-1" else {"name": "send"}
    more = {} if dialect == "bull-1" else {"priority": 4}
    options: dict[str, Any] = {
        **named,
        **more,
        "attempts": 2,
        "backoff": '{"type": "fixed", "delay": 7}',
        "removeOnComplete": "true",
        "removeOnFail": '{"count": 3}',
        "opts": '{"tenant": "t"}',
        "lifo": "true",
    }
    bull.write(frame, protocol=dialect, jobColumns="attempts,timestamp", **options)
    common: dict[str, Any] = {
        **named,
        **more,
        "backoff": {"type": "fixed", "delay": 7},
        "remove_on_complete": True,
        "remove_on_fail": {"count": 3},
        "opts": {"tenant": "t"},
        "lifo": True,
        "timestamp": LONG_AGO,
    }
    assert_alike(dialect, [NewJob({"n": 1}, attempts=2, **common), NewJob({"n": 2}, attempts=9, **common)])


@each_dialect
@pytest.mark.parametrize("option", [("delay", HOUR), ("runAt", LATER)], ids=str)
def test_delay_and_run_at_may_be_options(
    bull: Bull, assert_alike: Callable[..., None], dialect: str, option: tuple[str, int]
) -> None:
    bull.write(numbers(bull.spark, 2), protocol=dialect, timestamp=LONG_AGO, **dict([option]))
    time = {"delay": HOUR} if option[0] == "delay" else {"run_at": LATER}
    assert_alike(dialect, [NewJob({"n": n}, timestamp=LONG_AGO, **time) for n in range(2)])


@pytest.mark.parametrize("dialect", ["bull-1", "bull", "bullmq", "auto"])
def test_each_row_may_name_its_queue(bull: Bull, queues: Queues, dialect: str) -> None:
    frame = numbers(bull.spark, 9).selectExpr("n", "concat('queue-', n % 3) AS queue")
    bull.write(frame, queue=None, protocol=dialect, chunkSize=2, jobColumns="queue")
    assert [queues.numbers(f"queue-{m}") for m in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_auto_uses_the_dialect_of_the_queue(bull: Bull, queues: Queues, python: Callable[..., BullQueue]) -> None:
    with python(protocol="bull") as queue:
        queue.add({"n": -1})
    bull.write(numbers(bull.spark, 3))
    assert queues.numbers() == [-1, 0, 1, 2]
    assert "events" not in queues.public()


def test_an_empty_write_creates_no_queue(bull: Bull, queues: Queues, python: Callable[..., BullQueue]) -> None:
    bull.write(numbers(bull.spark, 0))
    assert queues.public() == set()
    with python() as queue:
        assert [(record.jobs, record.state) for record in queue.writes()] == [(0, "finished")]


def test_an_error_in_a_udf_leaves_no_job_visible(bull: Bull, queues: Queues) -> None:
    @F.udf("long")
    def fail_late(n):
        if n == 900:
            raise ValueError("row 900 is bad")
        return n

    with pytest.raises(PySparkException, match="row 900 is bad"):
        bull.write(numbers(bull.spark, 1000).select(fail_late("n").alias("n")), chunkSize=10)
    assert queues.public() == set()
    assert queues.expiring()


def test_a_repeated_write_to_several_queues_adds_nothing(bull: Bull, queues: Queues) -> None:
    frame = numbers(bull.spark, 4).selectExpr("n", "concat('queue-', n % 2) AS queue")
    for _ in range(2):
        bull.write(frame, queue=None, txnAppId="etl", txnVersion=1, jobColumns="queue")
    assert [queues.numbers(f"queue-{m}") for m in range(2)] == [[0, 2], [1, 3]]


def test_a_repeated_overwrite_deletes_nothing(bull: Bull, queues: Queues) -> None:
    options = {**bull.options, "queue": "q", "confirmObliterate": "true", "txnAppId": "etl", "txnVersion": "1"}
    for _ in range(2):
        numbers(bull.spark, 3).write.format("bull").options(**options).mode("overwrite").save()
        assert queues.numbers()[:3] == [0, 1, 2]
        bull.write(numbers(bull.spark, 4, 3))
    assert queues.numbers() == [0, 1, 2, 3, 3]


class Source:
    """A folder of JSON files as a stream with one file per batch."""

    def __init__(self, bull: Bull, folder: Path) -> None:
        self.bull = bull
        self.files = folder / "in"
        self.files.mkdir()
        self.checkpoint = folder / "checkpoint"

    def put(self, *numbers: int) -> None:
        number = len(list(self.files.iterdir()))
        lines = "\n".join(json.dumps({"n": n}) for n in numbers)
        (self.files / f"{number:03}.json").write_text(lines)

    @property
    def frame(self) -> DataFrame:
        reader = self.bull.spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.files))

    def run(self, frame: DataFrame | None = None, **options: str) -> StreamingQuery:
        """Writes all files with availableNow."""
        writer = (frame or self.frame).writeStream.format("bull").options(**self.bull.options, **options)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> None:
        """As if Spark had died after our commit and before its own: it repeats the last batch."""
        last = max((path for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit()), key=_number)
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name)


@pytest.fixture
def source(bull: Bull, tmp_path: Path) -> Source:
    return Source(bull, tmp_path)


def test_a_repeated_batch_for_several_queues_adds_nothing(source: Source, queues: Queues) -> None:
    source.put(0, 1, 2, 3)
    source.put(4, 6)
    by_row = "concat('queue-', n % 2) AS queue"
    source.run(source.frame.selectExpr("n", by_row), jobColumns="queue")
    source.forget_last_commit()
    source.run(source.frame.selectExpr("n", by_row), jobColumns="queue")
    # Spark reads the files in any order.
    assert [sorted(queues.numbers(f"queue-{m}")) for m in range(2)] == [[0, 2, 4, 6], [1, 3]]


def test_two_streams_to_one_queue_are_independent(bull: Bull, queues: Queues, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        source = Source(bull, tmp_path / name)
        source.put(1)
        source.run(queue="q")
    assert queues.numbers() == [1, 1]


@pytest.mark.parametrize("named", ["CAST(NULL AS STRING)", "''"])
def test_a_row_without_a_queue_is_an_error_with_its_number(bull: Bull, client: Redis, named: str) -> None:
    frame = numbers(bull.spark, 3).selectExpr("n", f"IF(n = 2, {named}, 'q') AS queue")
    with pytest.raises(PySparkException, match="partition 0, row 2: expected `queue` to name a queue"):
        bull.write(frame, queue=None, jobColumns="queue")
    assert not [key for key in client.scan_iter(match=f"{bull.options['prefix']}:*") if b":spark:" not in key]

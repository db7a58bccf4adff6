"""Random input at the entrances of a queue: it is taken, or refused by an error of this package; no key outside of the
queue is touched, and no bad job stops a worker.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pyspark.sql import types as t
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, SparkBullError
from spark_bull.core.options.arguments import JobProperties
from spark_bull.spark.dispatch.rows import _COLUMNS
from tests.support.bad_input import ODD_TEXTS, each_number, texts, tried, values
from tests.support.damage import key_types
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.worker import OurWorker

PREFIX = "own"
each_dialect = pytest.mark.parametrize("dialect", ["bull-1", "bullmq"])


@pytest.fixture
def own(server: EmbeddedRedis) -> Iterator[Redis]:
    """A server without keys, so that each key is one of the test."""
    with Redis.from_url(server.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def queue(server: EmbeddedRedis, own: Redis, dialect: str) -> Iterator[BullQueue]:
    with BullQueue("q", url=server.url, prefix=PREFIX, protocol=dialect) as queue:
        yield queue


def check_queue(own: Redis, queue: BullQueue) -> None:
    """A worker processes a healthy job, and ends or leaves all others; there are only keys of the prefix."""
    assert [key for key in own.scan_iter(count=1000) if not key.startswith(f"{PREFIX}:".encode())] == []
    with suppress(SparkBullError):
        queue.add({}, job_id="healthy")
    with OurWorker(queue.handle, lambda job: job.data, chunk_size=50) as worker:
        wait_until(lambda: own.hexists(queue.handle.keys.job("healthy"), "finishedOn") or ended(queue), "it to end")
    assert worker.error is None


def ended(queue: BullQueue) -> bool:
    job = queue.job("healthy")
    return job is not None and job.state == "completed"


@each_dialect
@each_number
def test_a_job_of_any_properties_is_added_or_refused(own: Redis, queue: BullQueue, cases: int) -> None:
    @tried(cases)
    @given(values(), st.dictionaries(st.sampled_from([*JobProperties.__annotations__]), values(), max_size=4))
    def add(data: Any, properties: dict[str, Any]) -> None:
        with suppress(SparkBullError):
            queue.add(data, **properties)

    add()
    check_queue(own, queue)


@each_dialect
@each_number
def test_calls_for_a_job_of_any_id_fail_or_succeed(own: Redis, queue: BullQueue, cases: int) -> None:
    calls: list[Callable[[str], object]] = [
        queue.job,
        queue.remove,
        queue.retry,
        queue.promote,
        lambda job_id: queue.add({}, job_id=job_id),
        lambda job_id: queue.add_many([NewJob({}, job_id=job_id)]),
        queue.logs,
    ]

    @tried(cases)
    @given(st.sampled_from(calls), texts() | st.sampled_from([*key_types(queue.protocol), "wait", "1:lock", "1:logs"]))
    def call(one: Callable[[str], object], job_id: str) -> None:
        with suppress(SparkBullError):
            one(job_id)

    queue.add_many(NewJob({}) for _ in range(3))
    call()
    check_queue(own, queue)


@each_dialect
@each_number
def test_a_queue_and_a_prefix_of_any_name_have_keys_of_their_own(
    server: EmbeddedRedis, own: Redis, dialect: str, cases: int
) -> None:
    @tried(cases)
    @given(texts(), texts())
    def use(name: str, prefix: str) -> None:
        own.flushall()
        with suppress(SparkBullError), BullQueue(name, url=server.url, prefix=prefix, protocol=dialect) as queue:
            queue.add({})
            assert queue.counts()["wait"] == 1
            assert [job.data for job in queue.page("wait")] == [{}]
            bases = (queue.handle.keys.base.encode(), f"{prefix}::spark-queues".encode())
            assert [key for key in own.scan_iter() if not key.startswith(bases)] == []

    use()


PLAIN: list[tuple[t.DataType, SearchStrategy[Any]]] = [
    (t.StringType(), st.sampled_from([one for one in ODD_TEXTS if one.isprintable()]) | st.text(string.printable)),
    (t.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (t.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (t.DoubleType(), st.floats()),
    (t.BooleanType(), st.booleans()),
    (t.BinaryType(), st.binary(max_size=9)),
    (t.DateType(), st.dates()),
    (t.TimestampNTZType(), st.datetimes()),
]


@st.composite
def columns(draw: st.DrawFn) -> tuple[t.StructType, list[dict[str, Any]]]:
    """A schema with known and unknown columns, plain and nested ones, and some rows of it."""
    names = st.sampled_from([*_COLUMNS]) | st.text(string.ascii_letters + "_.` ", max_size=8)
    schema, makers = t.StructType(), dict[str, SearchStrategy[Any]]()
    for name in draw(st.lists(names, min_size=1, max_size=4, unique_by=str.lower)):
        kind, maker = draw(st.sampled_from(PLAIN))
        shape = draw(st.sampled_from(["plain", "array", "struct"]))
        if shape == "array":
            kind, maker = t.ArrayType(kind), st.lists(maker | st.none(), max_size=3)
        elif shape == "struct":
            members = draw(st.lists(st.sampled_from(["id", "queue", "type", "delay", "age"]), min_size=1, unique=True))
            kind = t.StructType([t.StructField(member, kind) for member in members])
            maker = st.fixed_dictionaries(dict.fromkeys(members, maker | st.none()))
        schema.add(name, kind)
        makers[name] = maker | st.none()
    return schema, draw(st.lists(st.fixed_dictionaries(makers), max_size=3))


@each_dialect
@each_number
def test_a_frame_of_any_columns_is_written_or_refused(own: Redis, queue: BullQueue, cases: int) -> None:
    keys, url = queue.handle.keys, str(queue.handle.connection.settings.url)
    options = {"url": url, "prefix": keys.prefix, "protocol": queue.protocol}
    written = 0

    @tried(cases)
    @given(columns(), st.sampled_from(["exactly-once", "at-least-once"]))
    def write(frame: tuple[t.StructType, list[dict[str, Any]]], delivery: str) -> None:
        nonlocal written
        schema, rows = frame
        named = {} if "queue" in schema.names else {"queue": "q"}
        with suppress(SparkBullError):
            sink = Sink(options | named | {"delivery": delivery}, schema)
            sink.task(rows)
            sink.commit()
            written += 1

    write()
    assert written
    check_queue(own, queue)

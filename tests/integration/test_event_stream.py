"""Streams of events: of the data source, and of the REST API."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, ConnectionLost, DialectError, EmbeddedRedis, OptionError, QueueEvent, ResultsLost
from spark_bull.core.queue.events.event_log import span_of
from spark_bull.spark.collect.events import EventStreamReader, event_reader
from spark_bull.spark.platform.datasource import ReadAllAvailable, ReadMaxRows
from spark_bull.spark.schemas import SCHEMAS, schema_of
from tests.integration.verbs import redis_of
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import WorkBench


def test_events_of_bullmq_have_no_gap_when_the_connection_is_lost(own_redis: Callable[..., EmbeddedRedis]) -> None:
    server = own_redis()
    with (
        Redis.from_url(server.url) as client,
        BullQueue("q", url=server.url, protocol="bullmq") as queue,
        queue.events(timeout_s=PATIENCE_S) as events,
    ):
        waiting = (event.job_id for event in events if event.event == "waiting")
        for _ in range(3):
            early = queue.add({})
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            late = queue.add({})
            assert [next(waiting), next(waiting)] == [early, late]


def test_a_reader_that_is_slower_than_the_stream_is_trimmed_is_warned(
    stream: Stream, own_log: pytest.LogCaptureFixture
) -> None:
    with stream.queue.events(timeout_s=0) as events, own_log.at_level(logging.WARNING, "spark_bull"):
        first = stream.queue.publish("tick")
        assert [event.id for event in events.read(0)] == [first]
        stream.tick(0, 3_000)
        # Nothing is missing from a stream that was never trimmed, also with as many events as a call reads.
        for never_trimmed in (events, stream.queue.events(start="0", timeout_s=0)):
            assert len(never_trimmed.read(0)) == 1_000
        assert own_log.text == ""
        stream.trim(1_500)
        assert len(events.read(0)) == 1_000
        assert "may be missing: the stream was trimmed faster than it was read" in own_log.text


def test_a_lost_connection_to_channels_is_made_again_with_a_warning(
    own_redis: Callable[..., EmbeddedRedis], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_redis()
    with (
        Redis.from_url(server.url) as client,
        BullQueue("q", url=server.url, protocol="bull") as queue,
        queue.events() as events,
        caplog.at_level(logging.WARNING, "spark_bull"),
    ):
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        missed = queue.add({})
        seen: list[QueueEvent] = []
        warning = "events of q may be missing, as the connection to Redis was lost"
        wait_until(lambda: seen.extend(events.read(0)) or warning in caplog.text, "the warning")
        later = queue.add({})
        while not any(event.job_id == later for event in seen):
            seen += events.read(PATIENCE_S)
        assert not any(event.job_id == missed for event in seen)


def test_the_error_of_a_user_without_the_rights_to_the_channels_lists_them(
    own_redis: Callable[..., EmbeddedRedis],
) -> None:
    server = own_redis({"user": "app on >secret ~* resetchannels &bull:* +@all"})
    url = server.url.replace("redis://", "redis://app:secret@")
    with (
        BullQueue("q", url=url, protocol="bull") as queue,
        pytest.raises(ConnectionLost, match=r"the rights to these channels: &bull:q:completed .*&bull:q:waiting@\*"),
    ):
        queue.events()


class Query:
    """A query with view=events: one batch after the other, with the offsets of a checkpoint."""

    def __init__(self, **options: str) -> None:
        self.options = {"view": "events", **options}
        self.reader = self.open()
        self.start: dict[str, Any] = as_stored(self.reader.initialOffset())

    def open(self) -> EventStreamReader:
        return event_reader(self.options, SCHEMAS["events"])

    def plan(self, most: int | None = None) -> dict[str, Any]:
        """The end of the next batch."""
        return as_stored(self.reader.latestOffset(self.start, ReadMaxRows(most) if most else ReadAllAvailable()))

    def read(self, end: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows of a batch."""
        parts = self.reader.partitions(self.start, dict(end))
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def batch(self, most: int | None = None) -> list[dict[str, Any]]:
        end = self.plan(most)
        rows = self.read(end)
        self.start = end
        return rows


def as_stored(offset: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offset)))


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["fields"][0][1]) for row in rows]


class Stream(WorkBench):
    """The stream of events of a queue, and queries that read it."""

    def tick(self, first: int, count: int) -> None:
        """Adds events with the numbers from `first` on."""
        with self.client.pipeline(transaction=False) as pipeline:
            for n in range(first, first + count):
                pipeline.xadd(self.key("events"), {"event": "tick", "n": n})
            pipeline.execute()

    def trim(self, length: int) -> None:
        self.client.xtrim(self.key("events"), maxlen=length, approximate=False)

    def query(self, queue: str = "q", **options: str) -> Query:
        return Query(**redis_of(self.queue), queue=queue, **options)


@pytest.fixture
def stream(open_queue: Callable[..., BullQueue], client: Redis) -> Stream:
    stream = Stream(open_queue("q", "bullmq"), client)
    stream.queue.publish("first")
    return stream


def test_batches_have_all_events_once_and_in_order(stream: Stream) -> None:
    query = stream.query(rowsPerPartition="30", chunkSize="20")
    assert [row["event"] for row in query.batch()] == ["first"]
    assert query.batch() == []
    stream.tick(0, 250)
    end = query.plan(100)
    rows = query.read(end)
    assert len(query.reader.partitions(query.start, end)) == 4
    stream.tick(250, 50)
    # A task that is repeated, and a query that is started again, read the same events.
    assert query.read(end) == rows
    query.reader = query.open()
    assert query.read(end) == rows
    query.start = end
    sizes = []
    while more := query.batch(100):
        rows += more
        sizes.append(len(more))
    assert sizes == [100, 100]
    assert numbers(rows) == list(range(300))


def test_the_columns_have_what_the_event_says(stream: Stream) -> None:
    (job_id,) = stream.add(delay=3_600_000)
    opened = stream.queue.publish("opened", {"jobId": "7", "data": {"a": 1}, "returnvalue": None, "by": "é"})
    rows = stream.query().batch()
    (delayed,) = [row for row in rows if row["event"] == "delayed"]
    assert (delayed["queue"], delayed["jobId"], delayed["delay"]) == ("q", job_id, stream.queue.job(job_id).run_at)
    last = rows[-1]
    assert (last["id"], last["jobId"], last["data"], last["returnvalue"]) == (opened, "7", '{"a":1}', None)
    assert last["fields"] == [("by", "é")]
    assert int(last["timestamp"].timestamp() * 1000) == int(opened.partition("-")[0])


def test_a_query_starts_where_it_is_told_to(stream: Stream) -> None:
    stream.tick(0, 3)
    latest = stream.query(startingOffsets="latest")
    late = stream.client.xadd(stream.key("events"), {"event": "tick", "n": 3})
    # The first batch is planned, and repeated by a query that is started again: it starts where the plan does.
    end = latest.plan()
    again = stream.query(startingOffsets="latest")
    stream.tick(4, 1)
    assert numbers(again.read(end)) == [3]
    assert numbers(latest.read(end)) == [3]
    since = stream.query(startingOffsets=late.decode().partition("-")[0])
    assert numbers(since.batch())[-2:] == [3, 4]


def test_available_now_ends_with_the_events_of_its_begin(stream: Stream) -> None:
    query = stream.query()
    stream.tick(0, 5)
    query.reader.prepareForTriggerAvailableNow()
    stream.tick(5, 5)
    assert [row["event"] for row in query.batch(4)] == ["first", "tick", "tick", "tick"]
    assert numbers(query.batch()) == [3, 4]
    assert query.batch() == []


@pytest.mark.parametrize("is_counted", [True, False], ids=["Redis counts events", "Redis does not"])
def test_a_batch_waits_for_enough_events_unless_the_query_may_end(stream: Stream, is_counted: bool) -> None:
    query = stream.query(minEventsPerTrigger="4", maxTriggerDelayMs="3600000")
    if not is_counted:
        (position,) = query.start["queues"].values()
        position[1] = None
    stream.tick(0, 2)
    assert query.plan(10) == query.start != query.plan()
    stream.tick(2, 1)
    assert numbers(query.batch(10)[1:]) == [0, 1, 2]
    stream.tick(3, 3)
    assert query.plan(10) == query.start
    assert query.reader.reportLatestOffset()["queues"]["q"] == list(span_of(stream.handle).last)
    query.reader.prepareForTriggerAvailableNow()
    assert numbers(query.batch(10)) == [3, 4, 5]
    assert query.batch(10) == []


def test_a_batch_waits_for_no_more_events_than_all_queues_have_and_have_lost(
    stream: Stream, open_queue: Callable[..., BullQueue]
) -> None:
    open_queue("other", "bullmq").publish("first")
    query = stream.query("q,other", minEventsPerTrigger="60", maxTriggerDelayMs="3600000")
    stream.tick(0, 100)
    assert len(query.batch(100)) == 51, "each queue has its share of 100"
    assert len(query.batch(100)) == 0, "51 are there"
    stream.tick(100, 19)
    stream.trim(20)
    assert query.plan(100) != query.start, "50 of 70 are lost"
    query.start = query.plan()
    stream.client.delete(stream.key("events"))
    stream.tick(0, 59)
    assert query.plan(100) == query.start
    stream.tick(59, 1)
    assert query.plan(100) != query.start


def test_a_batch_has_events_up_to_a_number_of_bytes_one_of_each_queue_at_least(stream: Stream) -> None:
    query = stream.query(maxBytesPerTrigger="1000", minEventsPerTrigger="60", maxTriggerDelayMs="3600000")
    query.start = query.plan()
    for place, size in enumerate((300, 300, 2_000, 500, 500, *[1] * 120), 10**13):
        # The id has 16 bytes, `event` 4.
        stream.client.xadd(stream.key("events"), {"event": "tick", "n": "7" * size}, id=f"{place}-0")
    assert [len(query.batch(200)) for _ in range(7)] == [2, 1, 1, 23, 47, 47, 4]
    stream.tick(0, 130)
    assert len(query.batch()) == 130, "without limits"


def test_queues_share_a_batch_and_join_when_they_exist(
    stream: Stream, open_queue: Callable[..., BullQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.run.services.service.GLOB_S", 0.0)
    open_queue("kept-nothing", "bull").add({})
    query = stream.query("*")
    stream.tick(0, 10)
    other = Stream(open_queue("other", "bullmq"), stream.client)
    other.add()
    rows: list[dict[str, Any]] = []
    wait_until(lambda: rows.extend(query.batch()) or "other" in {row["queue"] for row in rows}, "the queue to join")
    assert [row["event"] for row in rows if row["queue"] == "other"] == ["added", "waiting"]
    assert numbers([row for row in rows if row["event"] == "tick"]) == list(range(10))
    for one in (stream, other):
        one.tick(0, 10)
    assert sorted(row["queue"] for row in query.batch(10)) == ["other"] * 5 + ["q"] * 5


def test_events_that_were_removed_before_they_were_read_fail_the_query(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    query = stream.query()
    query.batch()
    stream.tick(0, 10)
    end = query.plan()
    stream.trim(4)
    said = r"queue q: events after .* (were|may have been) removed before they were read"
    with pytest.raises(ResultsLost, match=said):
        query.read(end)
    query.options["failOnDataLoss"] = "false"
    query.reader = query.open()
    with caplog.at_level(logging.WARNING, "spark_bull"):
        assert numbers(query.batch()) == [6, 7, 8, 9]
    assert "continuing without them" in caplog.text
    # From there on nothing is missing.
    caplog.clear()
    stream.tick(10, 1)
    assert numbers(query.batch()) == [10]
    assert caplog.text == ""


def test_events_that_are_removed_after_they_were_read_are_no_loss(stream: Stream) -> None:
    query = stream.query()
    stream.tick(0, 10)
    query.batch(8)
    # The last event that was read stays: without it, Redis before 7 can't say whether others are missing.
    stream.trim(4)
    assert numbers(query.batch()) == [7, 8, 9]
    if b"entries-added" in stream.client.execute_command("XINFO", "STREAM", stream.key("events")):
        # Redis 7 counts the events.
        stream.trim(0)
        stream.tick(10, 1)
        assert numbers(query.batch()) == [10]


def test_dialects_without_kept_events_and_wrong_options_are_refused(stream: Stream, redis_url: str) -> None:
    for dialect in ("bull", "bull-1"):
        said = f"{dialect} publishes events on channels, and keeps none; .*BullQueue.events"
        with pytest.raises(DialectError, match=said):
            stream.query("none", protocol=dialect)
    with pytest.raises(OptionError, match="option `maxJobsPerTrigger` is for"):
        stream.query(maxJobsPerTrigger="5")
    with pytest.raises(OptionError, match="queue"):
        event_reader({"url": redis_url, "view": "events"}, SCHEMAS["events"])
    assert schema_of({"queue": "q", "view": "Events", "maxEventsPerTrigger": "5"}, str) == SCHEMAS["events"]
    assert schema_of({"queue": "q", "view": "events"}, str) == SCHEMAS["events"]


@pytest.mark.parametrize("total", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_query_that_keeps_up_misses_no_event_of_a_trimmed_stream(
    own_redis: Callable[..., EmbeddedRedis], total: int
) -> None:
    """Programs add events while the query reads; the stream keeps a twentieth of them."""
    server, kept = own_redis(), total // 20
    with Redis.from_url(server.url) as client, BullQueue("q", url=server.url, protocol="bullmq") as queue:
        stream = Stream(queue, client)
        stream.tick(0, 1)
        query = stream.query()
        done = threading.Semaphore(kept // 2)

        def produce() -> None:
            size = 500
            with client.pipeline(transaction=False) as pipeline:
                for first in range(1, total, size):
                    count = min(size, total - first)
                    for _ in range(count):
                        assert done.acquire(timeout=PATIENCE_S)
                    for n in range(first, first + count):
                        pipeline.xadd("bull:q:events", {"event": "tick", "n": n}, maxlen=kept)
                    pipeline.execute()

        producer = threading.Thread(target=produce)
        producer.start()
        seen = 0
        while seen < total:
            found = numbers(wait_until(query.batch, "events"))
            assert found == list(range(seen, seen + len(found)))
            seen += len(found)
            done.release(len(found))
        producer.join()
        assert client.xlen("bull:q:events") < total


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_stream_of_events_that_ends_earlier_than_before_is_a_loss(
    stream: Stream, caplog: pytest.LogCaptureFixture, strict: str
) -> None:
    """As on a new primary that lacks the last events, and whose clock is behind."""

    def replace_by(*ids: str) -> None:
        stream.client.delete(stream.key("events"))
        for entry_id in ids:
            stream.client.xadd(stream.key("events"), {"event": "added", "jobId": entry_id}, entry_id)

    stream.client.delete(stream.key("events"))
    query = stream.query(startingOffsets="earliest", failOnDataLoss=strict)
    replace_by("5-1", "9-1")
    assert [row["jobId"] for row in query.batch()] == ["5-1", "9-1"]
    replace_by("5-1", "8-1")
    if strict == "true":
        with pytest.raises(ResultsLost, match="queue q: its events end at 8-1, before 9-1, which the query has read"):
            query.batch()
    else:
        assert query.batch() == []
        assert [row["jobId"] for row in query.batch()] == ["5-1", "8-1"]
        assert "its events end at 8-1, before 9-1" in caplog.text

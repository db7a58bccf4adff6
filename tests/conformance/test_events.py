"""The events of a queue as an iterator, in every dialect."""

from __future__ import annotations

import threading

import pytest
from redis import Redis

from spark_bull.core.errors import OptionError
from spark_bull.core.model.jobs import QueueEvent
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.events.events import QueueEvents
from tests.conftest import need
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import DIALECTS, WorkBench, only_bullmq

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
not_bullmq = pytest.mark.parametrize("dialect", DIALECTS[:2])


@pytest.fixture(autouse=True)
def _channels(redis_kind: str, request: pytest.FixtureRequest) -> None:
    """Redis allows patterns of channels only by their exact text, which differs from test to test."""
    if redis_kind == "acl" and "dialect" in request.fixturenames:
        need(request.getfixturevalue("dialect") != "bull", "the user may not subscribe to the patterns of Bull 3 and 4")


def queue_of(url: str, prefix: str, dialect: str, name: str = "q") -> BullQueue:
    return BullQueue(name, url=url, prefix=prefix, protocol=dialect)


@each_dialect
def test_no_event_after_the_call_is_missed(redis_url: str, prefix: str, dialect: str) -> None:
    with queue_of(redis_url, prefix, dialect) as queue:
        early = queue.add({})
        with queue.events(timeout_s=PATIENCE_S) as events:
            late = [queue.add({"n": n}) for n in range(3)]
            waiting = (event.job_id for event in events if event.event == "waiting")
            assert [next(waiting) for _ in late] == late
        assert early not in late


@each_dialect
def test_the_iterator_ends_after_the_timeout(redis_url: str, prefix: str, dialect: str) -> None:
    with queue_of(redis_url, prefix, dialect) as queue, queue.events(timeout_s=0.01) as events:
        assert list(events) == []
        with pytest.raises(StopIteration):
            next(events)


@each_dialect
@pytest.mark.parametrize("by", ["close", "stop"])
def test_another_thread_ends_the_iterator(redis_url: str, prefix: str, dialect: str, by: str) -> None:
    stop = threading.Event()
    with queue_of(redis_url, prefix, dialect) as queue:
        events = queue.events(stop=stop)
        seen: list[object] = []
        reader = threading.Thread(target=lambda: seen.extend(events))
        reader.start()
        wait_until(lambda: events._reading.locked(), "the thread to read")
        events.close() if by == "close" else stop.set()
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
        assert seen == []


def test_a_reader_that_is_closed_while_it_gets_events_closes_its_connection(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with queue_of(redis_url, prefix, "bullmq") as queue:
        events = queue.events()
        [source] = events._sources
        read, close, closed = source.read, source.close, threading.Event()

        def read_until_another_thread_closes(wait_s: float) -> list[QueueEvent]:
            found = read(wait_s)
            events.close()
            return found

        def note() -> None:
            close()
            closed.set()

        monkeypatch.setattr(source, "read", read_until_another_thread_closes)
        monkeypatch.setattr(source, "close", note)
        queue.add({})
        assert [event.event for event in events.read(PATIENCE_S)][:1] == ["added"]
        assert closed.is_set()


@only_bullmq
def test_kept_events_are_read_from_the_start_or_after_an_event(bench: WorkBench) -> None:
    bench.add(3)
    with bench.queue.events(start="0", timeout_s=0) as events:
        kept = list(events)
    assert [event.event for event in kept] == ["added", "waiting"] * 3
    assert kept[0].fields == {"name": "__default__"}
    assert kept[0].timestamp == int(str(kept[0].id).partition("-")[0])
    with bench.queue.events(start=kept[3].id, timeout_s=0) as events:
        assert list(events) == kept[4:]


@only_bullmq
def test_a_delayed_event_says_when_the_job_is_due(bench: WorkBench) -> None:
    job_id = bench.queue.add({}, delay=3_600_000)
    with bench.queue.events(start="0", timeout_s=0) as events:
        (delayed,) = [event for event in events if event.event == "delayed"]
    job = bench.queue.job(job_id)
    assert job is not None
    assert delayed.run_at == job.run_at


@not_bullmq
def test_a_start_is_refused_where_no_events_are_kept(redis_url: str, prefix: str, dialect: str) -> None:
    with (
        queue_of(redis_url, prefix, dialect) as queue,
        pytest.raises(OptionError, match=r"expected no `start`: .* keeps no events of q"),
    ):
        queue.events(start="0")


def test_wrong_arguments_are_refused(redis_url: str, prefix: str) -> None:
    with queue_of(redis_url, prefix, "bullmq") as queue:
        with pytest.raises(OptionError, match=r"expected `start` to be .* got: 'yesterday'"):
            queue.events(start="yesterday")
        with pytest.raises(OptionError, match="expected `timeout_s` to be a number of seconds >= 0, got: -1"):
            queue.events(timeout_s=-1)


def test_queues_of_all_dialects_are_read_at_once(redis_url: str, redis_kind: str, prefix: str) -> None:
    dialects = [dialect for dialect in DIALECTS if redis_kind != "acl" or dialect != "bull"]
    queues = [queue_of(redis_url, prefix, dialect, dialect) for dialect in dialects]
    expected = {(queue.name, "waiting") for queue in queues}
    with QueueEvents([queue.handle for queue in queues], timeout_s=PATIENCE_S) as events:
        for queue in queues:
            queue.add({})
        seen = set()
        for event in events:
            seen.add((event.queue, event.event))
            if expected <= seen:
                break


@not_bullmq
def test_a_message_that_cannot_be_read_is_left_out(client: Redis, redis_url: str, prefix: str, dialect: str) -> None:
    with queue_of(redis_url, prefix, dialect) as queue, queue.events(timeout_s=PATIENCE_S) as events:
        for channel in (f"{prefix}:q:completed", f"{prefix}:q:progress", "completed@q", "failed@q"):
            for message in ("", "7", "[1]", '{"jobId', "[1, 2]", '["", {"opts": 1}]', "\xff"):
                client.publish(channel, message)
        job_id = queue.add({})
        event = next(event for event in events if event.job_id == job_id)
        assert event.event == "waiting"

"""Waiting for the end of a job, and events of programs, in every dialect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.errors import DialectError, JobFailed, JobMissing, OptionError, WaitTimeout
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.events import waiting
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import DIALECTS, WorkBench, each_dialect, only_bullmq
from tests.support.worker import OurWorker, end_all


@pytest.fixture
def by_events_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that misses the event of its job does not look again while the test lasts."""
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 2 * PATIENCE_S)


def job(behaviour: str) -> dict[str, str]:
    return {"$behaviour": behaviour}


@contextmanager
def waits(queue: BullQueue, *job_ids: str) -> Iterator[Callable[[], list[Any]]]:
    """Waits for jobs in threads, one each, which have looked at their jobs when the block begins."""
    looked = threading.Semaphore(0)
    look = waiting._end_in_redis

    def counted(*arguments: Any) -> Any:
        end = look(*arguments)
        looked.release()
        return end

    def end_of(job_id: str) -> Any:
        try:
            return queue.wait(job_id, PATIENCE_S)
        except (JobFailed, JobMissing) as error:
            return error

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(job_ids)) as pool:
        patch.setattr(waiting, "_end_in_redis", counted)
        found = [pool.submit(end_of, job_id) for job_id in job_ids]
        for _ in job_ids:
            assert looked.acquire(timeout=PATIENCE_S)
        yield lambda: [one.result(PATIENCE_S) for one in found]


@each_dialect
@pytest.mark.usefixtures("by_events_only")
def test_events_end_the_calls_that_wait(queue: BullQueue) -> None:
    job_ids = [queue.add(job('return:{"ok":[1]}')), queue.add(job("return:7"), remove_on_complete=True)]
    failing = queue.add(job("fail"))
    with waits(queue, *job_ids, job_ids[0], failing) as ends, OurWorker(replace(queue.handle, events="ends")):
        *results, error = ends()
    assert results == [{"ok": [1]}, 7, {"ok": [1]}]
    assert isinstance(error, JobFailed)
    assert (error.job_id, error.queue, error.reason) == (failing, "q", "scripted failure 1")
    assert str(error) == f"job {failing} of q failed: scripted failure 1"


@each_dialect
def test_without_events_calls_find_the_ends_of_jobs_that_are_kept(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.1)
    kept, failing, removed = queue.add(job("return:7")), queue.add(job("fail")), queue.add({}, remove_on_complete=True)
    with waits(queue, kept, failing, removed) as ends, OurWorker(replace(queue.handle, events="none")):
        value, failed, missing = ends()
    assert (value, type(failed), type(missing)) == (7, JobFailed, JobMissing)


@each_dialect
@pytest.mark.usefixtures("by_events_only")
def test_a_job_that_fails_and_runs_again_has_not_ended(queue: BullQueue) -> None:
    job_id = queue.add(job("fail:1;return:2"), attempts=2)
    with waits(queue, job_id) as ends, OurWorker(queue.handle):
        assert ends() == [2]


@each_dialect
def test_a_missing_job_and_one_that_is_removed_are_reported(queue: BullQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobMissing, match="expected job 77 in q, found none"):
        queue.wait("77")
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.1)
    job_id = queue.add({})
    with waits(queue, job_id) as ends:
        queue.remove(job_id)
        (error,) = ends()
    assert isinstance(error, JobMissing)


@pytest.mark.usefixtures("by_events_only")
def test_the_end_of_an_earlier_job_with_the_same_id_is_not_that_of_the_job(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads events is late: it hands out events of the earlier job when the next one is there."""
    is_free, hand_out = threading.Event(), waiting._Listener._hand_out

    def late(listener: Any, events: list[Any]) -> None:
        assert is_free.wait(PATIENCE_S)
        hand_out(listener, events)

    monkeypatch.setattr(waiting._Listener, "_hand_out", late)
    other = queue.add({"n": 0})
    with waits(queue, other) as end_of_other:
        queue.add({"n": 1}, job_id="a")
        queue.remove("a")
        queue.add(job("return:2"), job_id="a")
        with waits(queue, "a") as end:
            is_free.set()
            with OurWorker(queue.handle):
                assert end() == [2]
                end_of_other()


@each_dialect
def test_an_end_whose_event_was_lost_is_found_by_looking_again(
    queue: BullQueue, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.1)
    job_id = queue.add({})
    key = queue.handle.keys["completed"]
    with waits(queue, job_id) as ends:
        client.hset(queue.handle.keys.job(job_id), "returnvalue", "3")
        client.sadd(key, job_id) if queue.protocol == "bull-1" else client.zadd(key, {job_id: 1})
        assert ends() == [3]


@each_dialect
def test_a_wait_ends_after_its_timeout(queue: BullQueue) -> None:
    job_id = queue.add({})
    with pytest.raises(WaitTimeout, match=f"expected job {job_id} of q to end within 0.01 s"):
        queue.wait(job_id, 0.01)
    with pytest.raises(OptionError, match="expected `timeout_s` to be a number of seconds >= 0, got: -1"):
        queue.wait(job_id, -1)


@each_dialect
def test_all_calls_share_a_connection_which_is_closed_some_time_after_the_last(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_ids = [queue.add(job("return:1")) for _ in range(8)]
    with waits(queue, *job_ids) as ends:
        assert len(listeners(queue)) == 1
        with OurWorker(queue.handle):
            assert ends() == [1] * 8
        monkeypatch.setattr(waiting, "LINGER_S", 0.0)
    wait_until(lambda: not listeners(queue), "the connection to be closed")


def listeners(queue: BullQueue) -> list[threading.Thread]:
    base = queue.handle.keys.base
    return [key for key in waiting._listeners if base in key]


@only_bullmq
def test_the_end_of_a_job_that_was_removed_when_it_ended_is_found_in_its_event(bench: WorkBench) -> None:
    queue = bench.queue
    done = queue.add(job("return:[2]"), remove_on_complete=True)
    failed = queue.add(job("fail"), remove_on_fail=True)
    end_all(queue)
    assert bench.counts() == {}
    assert queue.wait(done, 0) == [2]
    with pytest.raises(JobFailed, match="scripted failure 1"):
        queue.wait(failed, 0)
    queue.add({}, job_id="again")
    queue.remove("again")
    with pytest.raises(JobMissing):
        queue.wait("again", 0)


@only_bullmq
def test_an_event_of_a_program_has_its_fields(bench: WorkBench) -> None:
    fields = {"jobId": "7", "data": "plain text", "number": 1.5, "list": [1, "é"], "none": None}
    with bench.queue.events(timeout_s=PATIENCE_S) as events:
        entry_id = bench.queue.publish("opened", fields)
        event = next(events)
        second = bench.queue.publish("opened")
        assert next(events).id == second
    assert (event.id, event.event, event.job_id, event.data) == (entry_id, "opened", "7", "plain text")
    assert event.fields == {"number": "1.5", "list": '[1,"é"]', "none": "null"}


@only_bullmq
def test_events_of_programs_are_limited_in_number(bench: WorkBench) -> None:
    for n in range(300):
        bench.queue.publish("tick", {"n": n}, max_events=10)
    assert bench.client.xlen(bench.key("events")) < 300


@only_bullmq
def test_wrong_events_are_refused(bench: WorkBench) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"event": ""}, "expected `event` to be a name that is not empty, got: ''"),
        ({"event": "completed"}, "expected `event` to be a name of your own, got: 'completed'"),
        ({"event": "a", "fields": {"event": "b"}}, "expected `fields` without `event`"),
        ({"event": "a", "fields": {"x": {1, 2}}}, "expected `fields.x` to be a value that JSON can hold"),
        ({"event": "a", "max_events": 0}, "expected `max_events` to be an integer >= 1, got: 0"),
    ]
    for arguments, message in wrong:
        with pytest.raises(OptionError, match=message):
            bench.queue.publish(**arguments)


@pytest.mark.parametrize("queue", DIALECTS[:2], indirect=True)
def test_a_queue_of_bull_has_no_custom_events(queue: BullQueue) -> None:
    with pytest.raises(DialectError, match=r"bull(-1)? has no custom events; use PUBLISH of Redis"):
        queue.publish("opened")

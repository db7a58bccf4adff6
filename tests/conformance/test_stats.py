"""Metrics of workers and statistics of jobs, in every dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.queues import JobStats, Percentiles, QueueMetrics
from spark_bull.core.queue.events.event_log import recent_events
from spark_bull.core.queue.jobs.read import MAX_IDS
from spark_bull.core.queue.monitor.stats import computing
from spark_bull.core.store.connection import ms_of
from spark_bull.core.store.round_trips import RoundTrips, run
from tests.support.jobs import HOUR
from tests.support.traffic import script_work
from tests.support.wait import wait_until
from tests.support.work_bench import NOW, Filled

T = TypeVar("T")
MINUTE = 60_000


def now_of(filled: Filled) -> int:
    return filled.handle.connection.now_ms()


def finish(filled: Filled, state: str, ids: list[str], finished_on: int, **fields: Any) -> None:
    """Puts finished jobs into a queue, as they are when a worker has ended them."""
    filled.put(state, ids, finishedOn=finished_on, **fields)
    if filled.handle.dialect.has("finish-times"):
        filled.client.zadd(filled.key(state), dict.fromkeys(ids, finished_on))


def by_name(filled: Filled, **arguments: int) -> dict[str | None, JobStats]:
    return {found.name: found for found in filled.queue.stats(**arguments)}


def count_minutes(filled: Filled, state: str, newest_on: int, current: int, *minutes: int) -> None:
    """Writes the metrics of a state: jobs of the current minute, and of those before, the newest first."""
    keys = filled.handle.keys
    total = sum(minutes)
    meta = {"count": total + current, "prevTS": newest_on, "prevCount": total}
    filled.client.hset(keys[f"metrics_{state}"], mapping=meta)
    if minutes:
        filled.client.rpush(keys[f"metrics_{state}_data"], *minutes)


# metrics


def test_metrics_are_those_of_the_workers_by_minute(filled: Filled) -> None:
    if not filled.handle.dialect.has("metrics"):
        with pytest.raises(DialectError, match="expected a queue of Bull 4 or BullMQ: workers of bull-1 keep no metr"):
            filled.queue.metrics("completed")
        return
    count_minutes(filled, "completed", NOW, 4, 7, 0, 9)
    minute = NOW // MINUTE * MINUTE
    found = filled.queue.metrics("completed")
    assert found == QueueMetrics("q", "completed", 20, NOW, 16, (7, 0, 9), 3)
    assert found.minutes == {minute: 4, minute - MINUTE: 7, minute - 2 * MINUTE: 0, minute - 3 * MINUTE: 9}
    page = filled.queue.metrics("completed", -2, 1)
    assert (page.data, page.points, page.start) == ((0,), 3, 1)
    assert page.minutes == {minute - 2 * MINUTE: 0}
    assert filled.queue.metrics("failed") == QueueMetrics("q", "failed", 0, 0, 0, (), 0)
    assert filled.queue.metrics("failed").minutes == {}
    with pytest.raises(OptionError, match="expected `state` to be completed or failed, got: 'wait'"):
        filled.queue.metrics("wait")


# statistics


def test_an_empty_queue_has_statistics_without_values(filled: Filled) -> None:
    (found,) = filled.queue.stats()
    assert set(found.jobs.values()) == {0}
    assert (found.name, found.is_estimate, found.timed) == (None, False, 0)
    assert (found.oldest_waiting_ms, found.wait, found.run) == (None, None, None)
    assert found.added_per_s == 0
    assert found.finished_per_s == (0 if filled.handle.dialect.has("finish-times") else None)


def test_jobs_are_counted_by_state_and_name_and_the_oldest_waiting_one_was_added_first(filled: Filled) -> None:
    now = now_of(filled)
    filled.put("wait", ["1", "2"], name="send", timestamp=now - HOUR)
    filled.put("wait", ["3"], name="resize", timestamp=now - 2 * HOUR)
    filled.put("delayed", ["4"], name="send", timestamp=now - 9 * HOUR)
    filled.put("failed", ["5", "6", "7"], name="send")
    # Jobs without a creation time are counted and not timed.
    filled.put("wait", ["8"], name="odd", timestamp="soon")
    finish(filled, "completed", ["9"], now, name="odd", timestamp="", processedOn=5)
    found, later = by_name(filled), now_of(filled)
    of_names = {"odd": {"wait": 1, "completed": 1}, "resize": {"wait": 1}}
    jobs = {None: filled.queue.counts(), **of_names, "send": {"wait": 2, "delayed": 1, "failed": 3}}
    assert [(name, one.jobs) for name, one in found.items()] == [*jobs.items()]
    assert (found["odd"].oldest_waiting_ms, found["odd"].timed, found[None].timed) == (None, 0, 0)
    assert 2 * HOUR <= (found[None].oldest_waiting_ms or 0) <= 2 * HOUR + later - now
    assert HOUR <= (found["send"].oldest_waiting_ms or 0) <= HOUR + later - now


def test_times_are_those_of_jobs_that_ended_in_the_window(filled: Filled) -> None:
    now = now_of(filled)
    for number, name in enumerate(["send"] * 3 + ["resize"]):
        started = now - 10_000
        created = started - 1_000 * (number + 1)
        finish(filled, "completed", [str(number)], started + 10 * (number + 1), name=name, timestamp=created,
               processedOn=started)  # fmt: skip
    finish(
        filled, "failed", ["late"], now - 2 * HOUR, name="send", timestamp=now - 9 * HOUR, processedOn=now - 3 * HOUR
    )
    found = by_name(filled)
    if not filled.handle.dialect.has("finish-times"):
        known = {(one.timed, one.wait, one.run, one.work_ms, one.finished_per_s) for one in found.values()}
        assert known == {(0, None, None, None, None)}
        return
    assert (found[None].timed, found["send"].timed, found["resize"].timed) == (4, 3, 1)
    assert found["send"].wait == Percentiles(2_000, pytest.approx(2_900), pytest.approx(2_980))
    assert found["send"].run == Percentiles(20, pytest.approx(29), pytest.approx(29.8))
    assert found["resize"].run == Percentiles(40, 40, 40)
    assert (found[None].work_ms, found["send"].work_ms, found["resize"].work_ms) == (100, 60, 40)
    assert by_name(filled, window_ms=24 * HOUR)["send"].work_ms == 60 + HOUR
    assert by_name(filled, window_ms=24 * HOUR)[None].timed == 5


def test_rates_are_those_of_kept_jobs_if_nothing_else_is_kept(filled: Filled) -> None:
    now = now_of(filled)
    filled.put("wait", ["1"], name="send", timestamp=now)
    filled.put("wait", ["2"], name="send", timestamp=now - 2 * HOUR)
    finish(filled, "completed", ["3", "4"], now, name="send", timestamp=now - 5, processedOn=now - 3)
    found, dialect = by_name(filled), filled.handle.dialect
    of_name = found["send"]
    assert found[None].added_per_s == of_name.added_per_s == pytest.approx(3 / 3_600)
    assert of_name.added_over_ms == HOUR
    assert of_name.finished_per_s == (pytest.approx(2 / 3_600) if dialect.has("finish-times") else None)


@pytest.mark.parametrize("filled", ["bullmq"], indirect=True)
def test_rates_of_bullmq_count_removed_jobs_too(filled: Filled) -> None:
    for _ in range(6):
        filled.queue.add({}, name="send")
    filled.queue.add({}, name="resize")
    filled.client.xadd(filled.handle.keys["events"], {"event": "completed", "jobId": "gone"})
    found = by_name(filled)
    assert found[None].added_per_s == pytest.approx(7 / 3_600)
    assert found["send"].added_per_s == pytest.approx(6 / 3_600)
    assert found[None].finished_per_s == pytest.approx(1 / 3_600)


@pytest.mark.parametrize("filled", ["bull", "bullmq"], indirect=True)
def test_the_rate_of_finished_jobs_is_that_of_the_metrics(filled: Filled) -> None:
    now = now_of(filled)
    count_minutes(filled, "completed", now, 5, *[2] * 9, 1_000)
    count_minutes(filled, "failed", now - 3 * MINUTE, 7)
    found = by_name(filled, window_ms=10 * MINUTE)[None]
    # The minute that is partly in the window does not count, the present one does.
    assert 9 * MINUTE <= found.finished_over_ms <= 10 * MINUTE
    jobs = (found.finished_per_s or 0) * found.finished_over_ms / 1_000
    assert round(jobs) in (5 + 2 * 9 + 7, 5 + 2 * 8 + 7), "a minute can begin meanwhile"
    # Metrics that no worker keeps any more give no rate.
    for state in ("completed", "failed"):
        filled.client.hset(filled.handle.keys[f"metrics_{state}"], "prevTS", now - 9 * HOUR)
    finish(filled, "completed", ["1", "2", "3"], now, name="send", timestamp=now - 2_000, processedOn=now - 1_000)
    assert by_name(filled)[None].finished_per_s == pytest.approx(3 / 3_600)


@pytest.mark.parametrize("filled", ["bull", "bullmq"], indirect=True)
def test_the_backlog_is_drained_when_more_jobs_finish_than_are_added(filled: Filled) -> None:
    now = now_of(filled)
    assert by_name(filled)[None].drained_in_ms == 0
    filled.put("wait", ["a", "b"], timestamp=now - 9 * HOUR)
    filled.put("delayed", ["c"], timestamp=now - 9 * HOUR)
    assert by_name(filled)[None].drained_in_ms is None
    ids = [str(n) for n in range(10, 16)]
    finish(filled, "completed", ids, now, timestamp=now - 9 * HOUR, processedOn=now - 1_000)
    # Six jobs per hour, and none is added.
    assert by_name(filled)[None].drained_in_ms == HOUR // 3
    filled.queue.add_many(NewJob({}) for _ in range(3))
    found = by_name(filled)[None]
    assert found.added_per_s == pytest.approx(3 / 3_600)
    assert found.drained_in_ms == HOUR * 5 // 3
    filled.queue.add_many(NewJob({}) for _ in range(3))
    assert by_name(filled)[None].drained_in_ms is None


@pytest.mark.parametrize("filled", ["bullmq"], indirect=True)
def test_a_trimmed_event_stream_gives_the_rate_of_its_time(filled: Filled) -> None:
    keys, now = filled.handle.keys, now_of(filled)
    filled.client.hset(keys["meta"], "opts.maxLenEvents", 50)
    for n in range(50):
        filled.client.xadd(keys["events"], {"event": "added", "jobId": n, "name": "n"}, id=f"{now - 5_000 + n}-0")
    trimmed = run(filled.handle.connection, recent_events(filled.handle, now, HOUR))
    assert (trimmed.over_ms, trimmed.added) == (5_000, {"n": 50})
    filled.client.hset(keys["meta"], "opts.maxLenEvents", 51)
    assert run(filled.handle.connection, recent_events(filled.handle, now, HOUR)).over_ms == HOUR


@pytest.mark.parametrize("filled", ["bull", "bullmq"], indirect=True)
def test_rates_of_all_names_and_their_sum_are_of_one_window(filled: Filled) -> None:
    """What shows the rates of the queue covers a part of the window, in which half of the kept jobs have ended."""
    now = now_of(filled)
    for name, jobs in (("send", 3), ("resize", 1)):
        for age in (MINUTE, 30 * MINUTE):
            ids = [f"{name}-{age}-{n}" for n in range(jobs)]
            finish(filled, "completed", ids, now - age, name=name, timestamp=now - HOUR, processedOn=now - HOUR)
    if filled.handle.dialect.has("event-stream"):
        keys, trimmed = filled.handle.keys, [("added", name) for name in ("send", "send", "gone")]
        filled.client.hset(keys["meta"], "opts.maxLenEvents", 7)
        for n, (event, name) in enumerate([*trimmed, *[("completed", "")] * 4]):
            fields = {"event": event, "jobId": str(n), "name": name}
            filled.client.xadd(keys["events"], fields, id=f"{now - 5 * MINUTE + n}-0")
    else:
        count_minutes(filled, "completed", now, 1, 1, 1, 1)
    found = by_name(filled)
    windows = {(one.added_over_ms, one.finished_over_ms) for one in found.values()}
    assert len(windows) == 1
    assert max(windows)[1] < 6 * MINUTE
    of_queue = found.pop(None)
    assert sum(one.added_per_s or 0 for one in found.values()) == pytest.approx(of_queue.added_per_s)
    assert sum(one.finished_per_s or 0 for one in found.values()) == pytest.approx(of_queue.finished_per_s)
    assert found["send"].finished_per_s == pytest.approx(3_000 / max(windows)[1])


def interrupted(read: RoundTrips[T], meanwhile: Callable[[int], None]) -> RoundTrips[T]:
    """A read whose first step reads the time, which `meanwhile` gets before the other steps."""
    replies = yield next(read)
    meanwhile(ms_of(replies[0]))
    while True:
        try:
            step = read.send(replies)
        except StopIteration as end:
            found: T = end.value
            return found
        replies = yield step


def test_rates_are_those_of_the_window_also_if_its_jobs_are_read_later(filled: Filled) -> None:
    handle = filled.handle

    def add_and_finish(now: int) -> None:
        wait_until(lambda: now_of(filled) > now, "the next ms")
        filled.queue.add({}, name="send")
        filled.put("wait", ["x"], name="send", timestamp=now + 1)
        finish(filled, "completed", ["y"], now + 1, name="send", timestamp=now + 1, processedOn=now + 1)
        if handle.dialect.has("event-stream"):
            filled.client.xadd(handle.keys["events"], {"event": "completed", "jobId": "y"})

    of_queue = run(handle.connection, interrupted(computing(handle), add_and_finish))[0]
    assert (of_queue.jobs["wait"], of_queue.jobs["completed"]) == (2, 1)
    assert of_queue.added_per_s == 0
    assert of_queue.finished_per_s == (0 if handle.dialect.has("finish-times") else None)


@pytest.mark.parametrize("filled", ["bullmq"], indirect=True)
def test_wrong_arguments_of_statistics_are_refused(filled: Filled) -> None:
    for argument in ("window_ms", "sample"):
        for value in (0, -1, 1.5, True):
            with pytest.raises(OptionError, match=f"expected `{argument}` to be a positive integer, got: {value!r}"):
                filled.queue.stats(**{argument: value})


def test_of_many_jobs_a_sample_is_read(filled: Filled) -> None:
    now = now_of(filled)
    names = ["send", "resize", "send", "send"]
    for n in range(4):
        ids = [f"{n}-{i}" for i in range(1_000)]
        filled.put("wait", ids, name=names[n], timestamp=now - HOUR * (4 - n))
        finish(filled, "completed", [f"c{one}" for one in ids], now - n, name=names[n], timestamp=now - 9,
               processedOn=now - 5)  # fmt: skip
    found = by_name(filled, sample=200)
    assert found[None].jobs == filled.queue.counts()
    assert not found[None].is_estimate
    assert found["send"].is_estimate
    for state in ("wait", "completed"):
        estimates = [found[name].jobs.get(state, 0) for name in ("send", "resize")]
        assert sum(estimates) == pytest.approx(4_000, abs=1)
    assert found["send"].jobs["wait"] == pytest.approx(3_000, abs=1_000)
    assert (found[None].oldest_waiting_ms or 0) >= 4 * HOUR, "the jobs that come next are in the sample"
    if filled.handle.dialect.has("finish-times"):
        assert found[None].timed == pytest.approx(200, abs=2)
        assert found["send"].finished_per_s == pytest.approx(3_000 / 3_600, rel=0.4)


def test_nothing_that_statistics_run_reads_more_than_a_portion(filled: Filled) -> None:
    filled.queue.add_many(NewJob({}, name=f"n{n % 3}") for n in range(30_000))
    with script_work(filled.client, commands=True, prefix=filled.handle.keys.base) as works:
        filled.queue.stats(sample=5_000)
    elements = [work.elements for work in works]
    assert max(elements) < MAX_IDS + 10
    assert MAX_IDS < sum(elements) < 40 * MAX_IDS

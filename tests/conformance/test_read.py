"""Reading jobs in every dialect: all states, slices, changing queues, and any values of fields."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.errors import DialectError, JobDamaged, OptionError
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.job_fields import MAX_BYTES, JobFields
from spark_bull.core.queue.handle.walk import MAX_IDS, NEAR, SHIFT, Slice
from spark_bull.core.queue.jobs import read
from spark_bull.core.queue.jobs.read import CHUNKS_PER_CALL, read_ids, read_jobs
from spark_bull.core.queue.monitor.activity import activity
from spark_bull.core.queue.monitor.find import find_queues, select_queues
from tests.support.jobs import HOUR
from tests.support.traffic import script_work
from tests.support.work_bench import DIALECTS, NOW, Filled

only_bullmq = pytest.mark.parametrize("filled", ["bullmq"], indirect=True)
each_dialect = pytest.mark.parametrize("filled", DIALECTS, indirect=True)

ODD_IDS = ["nan", "inf", "-inf", "1e300", "0x1F", "1.5", "-7", " 8", "9007199254740993", "é", "a b", "x" * 300, "07"]


@pytest.fixture(params=["bull-1", "bullmq"])
def filled(request: pytest.FixtureRequest, client: Redis, open_queue: Callable[..., BullQueue]) -> Filled:
    """Only Bull 1 has sets of jobs; the keys of Bull are of the types of BullMQ."""
    return Filled(open_queue(protocol=request.param), client)


def numbered(first: int, last: int) -> list[str]:
    return [str(n) for n in range(first, last + 1)]


def ids_of(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


@each_dialect
def test_every_state_is_read_and_counted(filled: Filled) -> None:
    for number, state in enumerate(filled.states):
        filled.put(state, [f"{state}-{n}" for n in range(number + 1)])

    jobs = filled.read()

    assert sorted((job.state, job.id) for job in jobs) == sorted(
        (state, f"{state}-{n}") for number, state in enumerate(filled.states) for n in range(number + 1)
    )
    assert filled.queue.counts() == {state: number + 1 for number, state in enumerate(filled.states)}
    assert {job.state for job in filled.read("wait", "failed")} == {"wait", "failed"}
    assert all(json.loads(job.data_text) == {"id": job.id} == job.data for job in jobs)
    assert {job.run_at for job in jobs if job.state == "delayed"} == {NOW, NOW + 1, NOW + 2}
    assert all(job.run_at is None for job in jobs if job.state != "delayed")


def test_the_slices_together_are_the_whole_queue(filled: Filled) -> None:
    for state in ("wait", "delayed", "completed"):
        filled.put(state, [*numbered(1, 300), *ODD_IDS] if state == "wait" else [f"{state}-{n}" for n in range(300)])
    whole = ids_of(filled.read())

    for of in (2, 7, 32):
        slices = [ids_of(filled.read(part=Slice(n, of), chunk_size=40)) for n in range(of)]
        assert sorted(chain.from_iterable(slices)) == sorted(whole)
    assert len(set(whole)) == 900 + len(ODD_IDS)
    assert [len(filled.read("wait", part=Slice(n, 3))) for n in range(3)] == pytest.approx([104] * 3, abs=20)

    grouped = [ids_of(filled.read(part=Slice(n, 3, ignored=2))) for n in range(3)]
    assert sorted(chain.from_iterable(grouped)) == sorted(whole)
    groups = [{job_id[:-2] for job_id in ids} for ids in grouped]
    assert sum(map(len, groups)) == len(set().union(*groups)), "each group is in one slice"


@pytest.mark.parametrize(
    ("filled", "state"),
    [("bullmq", "wait"), ("bullmq", "delayed"), ("bullmq", "completed"), ("bull-1", "completed")],
    indirect=["filled"],
)
def test_a_slice_reads_the_ids_of_all_jobs_once_and_few_to_check_that_its_own_have_stayed(
    filled: Filled, client: Redis, prefix: str, state: str
) -> None:
    count, of = 20_000, 16
    filled.enter(state, numbered(1, count))
    with script_work(client, commands=True, prefix=prefix) as work:
        assert filled.read(state, part=Slice(3, of)) == []
    read = sum(command.elements for command in work)
    assert count <= read < 2 * count


def _reads(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[str], list[str]], object]) -> list[str]:
    """The ids of all jobs whose fields are read, and read again; `change` gets them, and those that are read next."""
    read: list[str] = []
    read_fields = JobFields.read

    def changing_first(fields: JobFields, ids: Sequence[bytes], *checks: Any) -> Any:
        names = [job_id.decode() for job_id in ids]
        change(read, names)
        read.extend(names)
        return read_fields(fields, ids, *checks)

    monkeypatch.setattr(JobFields, "read", changing_first)
    return read


@only_bullmq
@pytest.mark.parametrize(("entering", "reads_of_a_job"), [(NEAR - 10, 1), (SHIFT + 50, 2)])
def test_jobs_that_enter_between_the_chunks_of_a_window_cause_no_reads_by_id(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, entering: int, reads_of_a_job: int
) -> None:
    count, size = 4_000, 500
    filled.put("wait", numbered(1, count))
    read = _reads(monkeypatch, lambda *_: None)
    found: list[bytes] = []
    with script_work(filled.client, prefix=filled.handle.keys.base) as scripts:
        for chunk in read_jobs(filled.handle, ["wait"], chunk_size=size):
            found += chunk.ids
            if len(chunk.ids) == size:
                filled.enter("wait", [f"new{len(found)}-{n}" for n in range(entering)])
    assert [job_id.decode() for job_id in found] == numbered(1, count)[::-1]
    assert scripts == []
    assert max(Counter(read).values()) == reads_of_a_job


@only_bullmq
@pytest.mark.parametrize("state", ["wait", "delayed"])
def test_a_job_that_moves_to_the_other_end_after_its_window_hides_no_others(filled: Filled, state: str) -> None:
    """It is the last one of the second window, so the third one starts behind it."""
    size, windows = 50, 2
    ids = numbered(1, 500)
    filled.put(state, ids)
    last = ids[-windows * CHUNKS_PER_CALL * size]
    found: list[str] = []
    for chunk in read_jobs(filled.handle, [state], chunk_size=size):
        found += [job_id.decode() for job_id in chunk.ids]
        if found[-1] == last:
            assert len(found) == windows * CHUNKS_PER_CALL * size
            if state == "wait":
                filled.client.lrem(filled.key(state), 1, last)
                filled.client.rpush(filled.key(state), last)
            else:
                filled.client.zadd(filled.key(state), {last: NOW - 1})
    assert sorted(found) == sorted(ids)


@pytest.mark.parametrize("leaving", [["200"], ["1", "2", "3"], ["400", "399"], ["7", "203", "391"]])
@only_bullmq
def test_jobs_that_leave_a_list_anywhere_while_it_is_read_have_the_fields_of_their_state(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, leaving: list[str]
) -> None:
    filled.put("wait", numbered(1, 400))
    waited: set[str] = set()

    def leave(read: list[str], _: list[str]) -> None:
        if not waited and len(read) > 50:
            waited.update(read)
            for job_id in leaving:
                start(filled, job_id, "wait")

    _reads(monkeypatch, leave)
    jobs = {job.id: (job.state, job.processed_on) for job in filled.read(chunk_size=400)}
    assert 50 < len(waited) < 150
    started = set(leaving) - waited
    assert jobs == {job_id: ("active", NOW) if job_id in started else ("wait", None) for job_id in numbered(1, 400)}


def start(filled: Filled, job_id: str, state: str) -> None:
    filled.client.hset(filled.handle.keys.job(job_id), "processedOn", NOW)
    filled.move(job_id, state, "active")


def test_large_jobs_come_in_smaller_chunks(filled: Filled) -> None:
    big = json.dumps("x" * (MAX_BYTES // 4))
    for state in ("wait", "delayed", "completed"):
        filled.put(state, [f"{state}{n}" for n in range(11)], data=big)

    for part in (Slice(), Slice(0, 2)):
        chunks = list(read_jobs(filled.handle, part=part))
        assert max(len(chunk.ids) for chunk in chunks) <= 4
    assert len({job_id for chunk in read_jobs(filled.handle) for job_id in chunk.ids}) == 33
    by_id = list(read_ids(filled.handle, [f"wait{n}" for n in range(11)]))
    assert [len(chunk.ids) for chunk in by_id] == [4, 4, 3]


def test_an_empty_queue_a_state_of_another_dialect_and_an_id_alone_have_no_jobs(filled: Filled) -> None:
    assert (filled.read(), filled.read("prioritized"), filled.queue.page("wait")) == ([], [], [])
    assert set(filled.queue.counts().values()) == {0}
    filled.put("wait", ["1", "2"])
    filled.put("completed", ["3", "4"])
    filled.client.delete(filled.handle.keys.job("1"), filled.handle.keys.job("3"))

    assert sorted(ids_of(filled.read())) == ["2", "4"]
    assert filled.queue.job("3") is None
    assert ids_of(filled.queue.page("completed")) == ["4"]


def test_a_job_that_moves_while_its_fields_are_read_has_the_fields_of_its_state(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job moves between the script that finds its id and the command that reads its hash."""
    states = [state for state in filled.states if state != "active"]
    for state in states:
        filled.put(state, [f"{state}-{n}" for n in range(3)])
    moving = {f"{state}-1": state for state in states}

    def move(_: list[str], ids: list[str]) -> None:
        for job_id in moving.keys() & ids:
            start(filled, job_id, moving.pop(job_id))

    _reads(monkeypatch, move)
    jobs = filled.read()
    assert not moving
    assert sorted(ids_of(jobs)) == sorted(f"{state}-{n}" for state in states for n in range(3))
    for job in jobs:
        state, number = job.id.rsplit("-", 1)
        assert (job.state, job.processed_on) == (("active", NOW) if number == "1" else (state, None))


def test_a_job_that_ends_while_the_lists_are_searched_has_the_fields_of_its_end(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.put("active", ["1", "2"])
    search = read._find_in_lists

    def ending_first(handle: QueueHandle, ids: list[bytes]) -> dict[bytes, str]:
        monkeypatch.undo()
        filled.client.hset(filled.handle.keys.job("1"), mapping={"failedReason": "late", "finishedOn": NOW})
        filled.move("1", "active", "failed")
        return search(handle, ids)

    monkeypatch.setattr(read, "_find_in_lists", ending_first)
    jobs = [job for chunk in read_ids(filled.handle, ["1", "2"]) for job in chunk.jobs("q")]
    assert [(job.id, job.state, job.failed_reason) for job in jobs] == [("1", "failed", "late"), ("2", "active", None)]


@only_bullmq
def test_a_job_that_leaves_for_a_state_that_was_not_asked_for_is_not_read(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.put("wait", numbered(1, 3))
    _reads(monkeypatch, lambda read, _: None if read else filled.move("2", "wait", "active"))
    assert sorted(ids_of(filled.read("wait", "failed"))) == ["1", "3"]


def test_reading_a_changing_queue_misses_no_job_that_stays(filled: Filled) -> None:
    """Between any two chunks, jobs are added at both ends, and jobs that were read are moved."""
    for state in ("wait", "failed"):
        filled.put(state, [f"{state}{n}" for n in range(400)])
    moved: set[str] = set()
    read: list[str] = []
    fresh = iter(range(1000))
    for chunk in read_jobs(filled.handle, chunk_size=20):
        read += [job_id.decode() for job_id in chunk.ids]
        state = chunk.states[0]
        assert state is not None
        filled.put(state, [f"new{next(fresh)}" for _ in range(3)])
        behind = [i for i in read if i.startswith(state) and i not in moved][:5]
        for job_id in behind:
            filled.move(job_id, state, "active")
        moved.update(behind)
    assert len(read) == len(set(read))
    assert {i for i in read if not i.startswith("new")} == {f"{s}{n}" for s in ("wait", "failed") for n in range(400)}


def test_jobs_are_read_by_their_ids(filled: Filled) -> None:
    for state in filled.states:
        filled.put(state, [f"{state}-{n}" for n in range(3)])
    filled.put("wait", ["orphan"])
    filled.client.lrem(filled.key("wait"), 0, "orphan")
    asked = ["orphan", *[f"{state}-2" for state in filled.states], "nobody", "orphan"]

    def read(*states: str) -> list[tuple[str, str | None]]:
        chunks = read_ids(filled.handle, asked, states, chunk_size=3)
        return [(job.id, job.state) for chunk in chunks for job in chunk.jobs("q")]

    assert read() == [("orphan", None), *[(f"{state}-2", state) for state in filled.states]]
    assert read("active", "failed") == [("active-2", "active"), ("failed-2", "failed")]


@only_bullmq
def test_a_job_deep_in_a_long_list_is_found(filled: Filled) -> None:
    filled.put("wait", ["first"])
    ids = numbered(1, 3 * MAX_IDS - 1)
    filled.client.lpush(filled.key("wait"), *ids)
    (chunk,) = read_ids(filled.handle, ["first"])
    assert chunk.states == ["wait"]


def test_a_page_of_all_jobs_or_of_a_name_has_indexes_as_in_redis_and_the_order_of_processing(
    filled: Filled,
) -> None:
    for state in filled.states:
        filled.put(state, numbered(1, 9))

        def page(start: int, stop: int, state: str = state, **more: Any) -> list[str]:
            return ids_of(filled.queue.page(state, start, stop, **more))

        for odd in numbered(1, 9)[::2]:
            filled.client.hset(filled.handle.keys.job(odd), "name", "odd")
        assert sorted(page(0, -1, name="odd")) == ["1", "3", "5", "7", "9"]
        assert page(0, -1, name="none") == []
        assert sorted(page(0, -1)) == numbered(1, 9)
        assert len(page(0, 3)) == 4
        assert sorted(page(0, 3) + page(4, 20)) == numbered(1, 9)
        assert page(20, 30) == page(5, 4) == page(0, -20) == []
        if filled.handle.dialect.states[state].kind != "set":
            assert page(0, -1) == numbered(1, 9)
            assert page(1, 2) == ["2", "3"]
            assert page(-2, -1) == ["8", "9"]
            assert page(-100, 0) == ["1"]
            for start, stop in ((0, -1), (0, 3), (2, 4), (-3, -2), (7, 20), (20, 30), (5, 4)):
                # As slices in Python, whose end is not included.
                reversed_slice = numbered(1, 9)[::-1][start : None if stop == -1 else stop + 1]
                assert page(start, stop, descending=True) == reversed_slice, (state, start, stop)
            assert page(1, 2, name="odd") == ["3", "5"]
            assert page(-2, -1, name="odd") == ["7", "9"]
            assert page(0, 1, name="odd", descending=True) == ["9", "7"]
            assert page(5, 9, name="odd") == []
        filled.client.delete(filled.key(state))
    with pytest.raises(DialectError, match="expected a state of"):
        filled.queue.page("nowhere")


def test_jobs_are_counted_by_name_and_by_priority(filled: Filled) -> None:
    for state in filled.states:
        filled.put(state, [f"{state}-{n}" for n in range(5)], name="a", priority=0)
        for number in (1, 2):
            job = filled.handle.keys.job(f"{state}-{number}")
            filled.client.hset(job, mapping={"name": "b", "priority": 7})
    assert filled.queue.counts_by("name") == {state: {"a": 3, "b": 2} for state in filled.states}
    assert filled.queue.counts_by("priority", ["failed", "active"]) == {
        state: {0: 3, 7: 2} for state in ("active", "failed")
    }
    with pytest.raises(OptionError, match="expected `by` to be one of priority, name, got: 'state'"):
        filled.queue.counts_by("state")
    with pytest.raises(DialectError, match="expected a state of"):
        filled.queue.counts_by("name", ["nowhere"])


@only_bullmq
def test_prioritised_jobs_are_counted_by_redis(filled: Filled) -> None:
    for priority, jobs in ((0, 4), (1, 3), (2, 1), (2**21 - 1, 2)):
        filled.queue.add_many(NewJob({}, priority=priority) for _ in range(jobs))
    expected = {"wait": {0: 4}, "prioritized": {1: 3, 2: 1, 2**21 - 1: 2}}
    assert filled.queue.counts_by("priority") == expected


@each_dialect
def test_the_activity_of_a_queue_is_what_its_dialect_keeps(filled: Filled) -> None:
    queue, dialect = filled.queue, filled.handle.dialect
    nothing = activity(queue.handle)
    assert (nothing.ids, nothing.waiting_since, nothing.last_active_on) == (0, None, None)
    assert (nothing.overdue, nothing.overdue_since) == (0, None)
    now = queue.handle.connection.now_ms()
    queue.add_many(NewJob({}, timestamp=now - 5_000 + n) for n in range(4))
    for state in ("completed", "failed"):
        if dialect.has("event-stream"):
            filled.client.xadd(filled.key("events"), {"event": state, "jobId": "x"})
        elif dialect.has("finish-times"):
            filled.client.zadd(filled.key(state), {state: now, "earlier": now - HOUR})
    found = activity(queue.handle)
    assert (found.ids, found.waiting_since) == (4, now - 5_000)
    assert found.added_per_minute == (4 if dialect.has("event-stream") else None)
    assert found.finished_per_minute == (2 if dialect.has("finish-times") else None)
    if dialect.has("finish-times"):
        assert found.last_active_on >= now


@only_bullmq
def test_delayed_jobs_that_are_due_are_overdue_until_they_are_promoted(filled: Filled) -> None:
    now = filled.handle.connection.now_ms()
    filled.put("delayed", ["1", "2"])
    found = activity(filled.handle)
    assert (found.overdue, found.overdue_since) == (2, NOW)
    filled.client.zadd(filled.key("delayed"), {"1": (now + HOUR) * 4096 + 4095, "2": now * 4096 + 4095})
    found = activity(filled.handle)
    assert (found.overdue, found.overdue_since) == (1, now)


@only_bullmq
def test_rates_of_many_events_are_extrapolated(filled: Filled) -> None:
    events, now = filled.key("events"), filled.handle.connection.now_ms()
    pipeline = filled.client.pipeline(transaction=False)
    # One per ms, up to the present.
    for n in range(12_000):
        pipeline.xadd(events, {"event": "added" if n % 2 else "waiting", "jobId": n}, id=f"{now - 12_000 + n}-0")
    pipeline.execute()
    # Of a minute, but the clock goes on until the events are read.
    assert 0 < (activity(filled.handle).added_per_minute or 0) <= 31_000


#: Fields of the hash of a job, and the attribute of the job that each becomes.
FIELDS: list[tuple[str, Any, str, Any]] = [
    ("data", '{"id": 1}', "data", {"id": 1}),
    ("opts", "{}", "opts", {}),
    ("progress", '{"done":3}', "progress", {"done": 3}),
    ("returnvalue", "[1,2]", "returnvalue", [1, 2]),
    ("failedReason", "out of paper", "failed_reason", "out of paper"),
    ("stacktrace", '["Error: 1", null, {"not": "text"}]', "stacktrace", ("Error: 1", '{"not": "text"}')),
    ("timestamp", NOW, "timestamp", NOW),
    ("processedOn", NOW + 1, "processed_on", NOW + 1),
    ("finishedOn", NOW + 2, "finished_on", NOW + 2),
    ("delay", 5000, "delay", 5000),
    ("priority", 7, "priority", 7),
    ("parentKey", "bull:p:1", "parent_key", "bull:p:1"),
    ("pb", "worker-1", "processed_by", "worker-1"),
    ("deid", "once", "deduplication_id", "once"),
    ("rjk", "every", "repeat_job_key", "every"),
    ("ats", 4, "attempts_started", 4),
    ("returned", 2, "returned_counter", 2),
]


@each_dialect
def test_all_fields_of_a_job_are_read(filled: Filled) -> None:
    counters = ("atm", "stc") if filled.queue.protocol == "bullmq" else ("attemptsMade", "stalledCounter")
    fields = [*FIELDS, *zip(counters, (3, 1), ("attempts_made", "stalled_counter"), (3, 1), strict=True)]
    filled.put("failed", ["1"], **{name: stored for name, stored, _, _ in fields})
    (job,) = filled.read()
    assert {name: getattr(job, name) for *_, name, _ in fields} == {name: value for *_, name, value in fields}
    assert (job.queue, job.id, job.state, job.name) == ("q", "1", "failed", "n")
    assert filled.queue.job("1") == job


@only_bullmq
def test_invalid_json_is_an_error_that_names_the_field(filled: Filled) -> None:
    filled.put("failed", ["1"], data="{no", opts="[]", progress="half", returnvalue="done")
    job = filled.read()[0]
    assert (job.progress, job.returnvalue) == ("half", "done")
    with pytest.raises(JobDamaged, match=r"expected `data` of job 1 to be JSON .*, got: '{no'"):
        assert job.data
    with pytest.raises(JobDamaged, match=r"expected `opts` of job 1 to be a JSON object, got: '\[\]'"):
        assert job.opts


@pytest.mark.parametrize("filled", ["bull"], indirect=True)
def test_whatever_value_a_field_has_it_can_be_read(filled: Filled) -> None:
    for name, raw, attribute, value in (
        ("stacktrace", b"no JSON [", "stacktrace", ("no JSON [",)),
        ("stacktrace", b'"a string"', "stacktrace", ('"a string"',)),
        ("stacktrace", b"null", "stacktrace", ()),
        ("stacktrace", b"", "stacktrace", ()),
        ("data", b'"\xff"', "data", "\ufffd"),
        ("name", b"", "name", ""),
        ("delay", b"NaN", "delay", 0),
        ("delay", b"12.7", "delay", 12),
        ("finishedOn", b"undefined", "finished_on", None),
        ("finishedOn", b"", "finished_on", None),
        ("attemptsMade", b"1e999", "attempts_made", 0),
        ("returnvalue", b"null", "returnvalue", None),
        ("returnvalue", b"", "returnvalue", None),
    ):
        filled.queue.obliterate()
        filled.put("wait", ["1"], **{name: raw})
        (job,) = filled.read()
        assert getattr(job, attribute) == value, (name, raw)


@only_bullmq
def test_logs_are_read_by_range(filled: Filled) -> None:
    filled.client.rpush(filled.handle.keys.logs("1"), *[f"line {n}" for n in range(5)])
    assert filled.queue.logs("1") == [f"line {n}" for n in range(5)]
    assert filled.queue.logs("1", -2) == ["line 3", "line 4"]
    assert filled.queue.logs("1", 0, 0) == ["line 0"]
    assert filled.queue.logs("2") == []


def test_queues_are_found_by_their_keys(client: Redis, open_queue: Callable[..., BullQueue], prefix: str) -> None:
    for name in ("mail-eu", "mail-us", "mail:old", "sms"):
        queue = open_queue(name, "bull")
        queue.add({})
    connection = queue.handle.connection
    client.zadd(f"{prefix}:ended:completed", {"1": 1})
    client.sadd(f"{prefix}:ended1:failed", "1")
    client.hset(f"{prefix}:parents:7:failed", "child", "reason")
    client.hset(f"{prefix}:sms:metrics:completed", "count", "1")
    client.hset(f"{prefix}x:other:meta", "version", "bullmq:6.0.0")

    everyone = ["ended", "ended1", "mail-eu", "mail-us", "mail:old", "sms"]
    assert find_queues(connection, prefix) == everyone
    assert find_queues(connection, prefix, "mail-*") == ["mail-eu", "mail-us"]
    assert find_queues(connection, prefix, "m*l") == []
    assert find_queues(connection, prefix, "sm[!t]") == ["sms"]
    selection = ["absent", "sms", "mail-*", "*-us", "none-*", "absent"]
    assert select_queues(connection, prefix, selection) == ["absent", "sms", "mail-eu", "mail-us"]

"""Ledgers of results: each finish of a job is discovered once, despite clock skew and trimmed events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from redis import Redis

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.collect.result_rows import ResultChunk
from spark_bull.core.queue.handle.handle import CHUNK_SIZE
from spark_bull.core.queue.handle.job_fields import FIRST, MAX_BYTES
from spark_bull.core.queue.handle.report import add_log
from tests.support.dump import dump
from tests.support.jobs import HOUR
from tests.support.traffic import script_work
from tests.support.wait import wait_until
from tests.support.work_bench import (
    AT_ONCE,
    DIALECTS,
    Finisher,
    column,
    completed,
    discover_all,
    entries,
    not_bull_1,
    of,
)

#: A short look-back window that a test can wait for, ms.
SHORT_MS = 1_000
#: A worker whose clock is so far ahead stamps jobs in another time slice, with the default window of 60 s.
ANOTHER_SLICE_MS = 5_000


@pytest.fixture
def bench(request: pytest.FixtureRequest, client: Redis, open_queue: Callable[..., BullQueue]) -> Finisher:
    return Finisher(open_queue(protocol=getattr(request, "param", "bullmq")), client, twice=False)


each_dialect = pytest.mark.parametrize("bench", DIALECTS, indirect=True)


def private(bench: Finisher) -> dict[str, object]:
    """The keys of the ledger in Redis, without the floor of the window."""
    kept: dict[str, object] = {}
    for name, key in dump(bench.client, bench.queue.handle.keys.prefix, "q").items():
        if name.startswith("spark:results:"):
            value = key.value
            if isinstance(value, dict):
                value = {field: text for field, text in value.items() if not field.endswith(":floor")}
            kept[name] = (key.expires, value)
    return kept


def texts(ledger: ResultLedger, position: int, *fields: str) -> list[bytes | None]:
    """These fields of the job at a position; None for missing ones."""
    _, rows = ledger.rows(fields).read(position, position + 1)
    return [column(rows, name)[0] or None for name in fields]


# discovery


@each_dialect
def test_each_finished_job_is_discovered_once_at_an_increasing_position(bench: Finisher) -> None:
    ledger, failures = bench.ledger(), ResultLedger(bench.handle, "failures", owner="me", states=("failed",))
    assert failures.open("earliest", create=True).state == "ok"
    assert discover_all(ledger).end == 0
    first = of("completed", bench.finish(3))
    assert ledger.unseen() == 3
    assert discover_all(ledger).end == 3
    second = of("failed", bench.finish(2, "failed"))
    bench.add(4)
    bench.claim(2)
    assert ledger.unseen() == 2
    assert discover_all(ledger).end == 5
    assert sorted(entries(ledger)[:3]) == sorted(first)
    assert sorted(entries(ledger, 3)) == sorted(second)
    assert (discover_all(failures).end, sorted(entries(failures))) == (2, sorted(second))
    assert ledger.unseen() == 0
    found, kept = entries(ledger), private(bench)
    assert discover_all(ledger).end == 5
    assert (entries(ledger), private(bench)) == (found, kept)


@not_bull_1
def test_a_job_from_before_the_window_is_examined_once_also_where_many_have_finished_at_once(
    bench: Finisher, client: Redis
) -> None:
    first_ms = bench.handle.connection.now_ms() - 300_000
    groups = [700, 1, 499, 1_000, 2, 800, 300]
    ids = bench.crowd([first_ms + number for number, count in enumerate(groups) for _ in range(count)])
    ledger = bench.ledger()
    with script_work(client, prefix=bench.handle.keys.base) as scripts:
        discover_all(ledger)
    assert entries(ledger) == of("completed", sorted(ids, key=lambda i: (bench.score("completed", i), i.encode())))
    # ZRANGE reads each job once, and RPUSH writes it; a script has some 50 arguments more.
    assert sum(script.elements - 50 for script in scripts) <= 3 * len(ids)


@not_bull_1
def test_clock_skew_of_a_worker_is_tolerated_without_events(bench: Finisher) -> None:
    ledger = bench.ledger()
    ids = bench.finish(1)
    discover_all(ledger)
    for offset_ms in (-55_000, -55_000, 0, 500_000, 55_000):
        ids += bench.finish(1, "completed", offset_ms)
        bench.forget_events()
        discover_all(ledger)
    assert [job_id for job_id, _ in entries(ledger)] == ids


def test_a_late_job_in_a_slice_of_unchanged_size_is_discovered_when_the_slice_closes(bench: Finisher) -> None:
    ledger = bench.ledger(lookback_ms=SHORT_MS)
    (first,) = bench.finish(1)
    discover_all(ledger)
    ms = bench.score("completed", first)
    assert ms is not None
    bench.queue.remove(first)
    (second,) = bench.finish(1)
    bench.stamp("completed", second, ms)
    bench.forget_events()
    wait_until(lambda: discover_all(ledger).end == 2, "the slice to close")
    wait_until(lambda: bench.handle.connection.now_ms() > ms + 2 * SHORT_MS, "the window to pass")
    assert discover_all(ledger).end == 2
    assert entries(ledger) == of("completed", [first, second])


@each_dialect
def test_discovery_without_changes_scans_and_writes_nothing(bench: Finisher) -> None:
    for state in ("completed", "failed"):
        bench.crowd([bench.handle.connection.now_ms()] * 3_000, state)
    ledger = bench.ledger()
    discover_all(ledger)
    kept = private(bench)
    with script_work(bench.client, prefix=bench.handle.keys.base) as scripts:
        discover_all(ledger)
    assert sum(script.elements for script in scripts) < 1_000, "it counts each slice of the window"
    assert private(bench) == kept


@pytest.mark.parametrize("bench", ["bull-1"], indirect=True)
def test_jobs_that_were_removed_from_their_set_are_forgotten(bench: Finisher) -> None:
    ids = bench.finish(10)
    ledger = bench.ledger()
    discover_all(ledger)
    for job_id in ids[:7]:
        bench.queue.remove(job_id)
    discover_all(ledger)
    seen = bench.client.smembers(bench.handle.keys.results("reader")["seen_completed"])
    assert seen == {job_id.encode() for job_id in ids[7:]}


@each_dialect
def test_a_query_discovers_all_jobs_after_another_one_stopped_during_a_scan(bench: Finisher) -> None:
    now = bench.handle.connection.now_ms()
    ids = bench.crowd(range(now - 2_500, now))
    first = bench.ledger()
    assert first.discover(first.horizon(), most=50).more
    ids += bench.finish(5)
    bench.forget_events()
    ledger = replace(first, owner="next")
    assert ledger.open("earliest", create=False, previous_owner=first.owner).state == "ok"
    discover_all(ledger, ledger.horizon(), most=50)
    assert sorted(entries(ledger)) == sorted(of("completed", ids))


# jobs that are retried or removed


@each_dialect
def test_a_job_that_fails_and_completes_after_a_retry_is_discovered_both_times(bench: Finisher) -> None:
    fields = ("failedReason", "finishedOn", "state", "there")
    ledger = bench.ledger()
    (job_id,) = bench.finish(1, "failed", reason="no luck")
    discover_all(ledger)
    before = texts(ledger, 0, *fields)
    assert (before[0], before[2:]) == (b"no luck", [b"failed", b"there"])
    bench.queue.retry(job_id)
    assert texts(ledger, 0, *fields) == before
    discover_all(ledger)
    claim = bench.claim()
    assert texts(ledger, 0, *fields) == before
    bench.work(completed(claim, "42"))
    discover_all(ledger)
    assert entries(ledger) == [(job_id, "failed"), (job_id, "completed")]
    assert texts(ledger, 0, "failedReason", "finishedOn") == before[:2]
    assert texts(ledger, 1, "returnvalue") == [b"42"]
    if bench.handle.dialect.name != "bull-1":
        assert texts(ledger, 0, "returnvalue") == [None]
        assert texts(ledger, 1, "failedReason") == [None]


@not_bull_1
def test_a_job_that_fails_twice_is_discovered_twice_with_both_reasons(bench: Finisher) -> None:
    ledger = bench.ledger()
    (job_id,) = bench.finish(1, "failed", reason="first")
    discover_all(ledger)
    bench.queue.retry(job_id)
    bench.end("failed", ANOTHER_SLICE_MS, reason="second")
    discover_all(ledger)
    assert entries(ledger) == of("failed", [job_id] * 2)
    assert [texts(ledger, n, "failedReason") for n in (0, 1)] == [[b"first"], [b"second"]]


def test_bullmq_events_show_all_finishes_between_two_discoveries(bench: Finisher) -> None:
    ledger = bench.ledger()
    (job_id,) = bench.finish(1, "failed", reason="first")
    bench.queue.retry(job_id)
    bench.end("failed", reason="second")
    bench.queue.retry(job_id)
    # At another time than the failures, to distinguish them.
    bench.end("completed", ANOTHER_SLICE_MS, value="3")
    discover_all(ledger)
    assert entries(ledger) == [*of("failed", [job_id] * 2), (job_id, "completed")]
    assert [texts(ledger, n, "failedReason") for n in range(3)] == [[b"first"], [b"second"], [None]]
    assert [texts(ledger, n, "returnvalue") for n in range(3)] == [[None], [None], [b"3"]]


def test_jobs_removed_on_completion_are_discovered_with_the_values_of_their_event(bench: Finisher) -> None:
    ledger = bench.ledger()
    now = bench.handle.connection.now_ms()
    (done,) = bench.finish(1, value='"é"', keep=AT_ONCE)
    (broken,) = bench.finish(1, "failed", reason="no luck", keep=AT_ONCE)
    assert bench.counts() == {}
    discover_all(ledger)
    assert entries(ledger) == [(done, "completed"), (broken, "failed")]
    assert texts(ledger, 0, "returnvalue", "failedReason", "there") == ['"é"'.encode(), None, b"gone"]
    assert texts(ledger, 1, "returnvalue", "failedReason", "there") == [None, b"no luck", b"gone"]
    (finished_on,) = texts(ledger, 0, "finishedOn")
    assert finished_on is not None
    assert now <= int(finished_on) <= bench.handle.connection.now_ms()


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_jobs_that_were_removed_with_their_events_are_counted_until_the_loss_is_accepted(
    bench: Finisher, state: str
) -> None:
    ledger = bench.ledger()
    kept = bench.finish(2)
    discover_all(ledger)
    bench.add(3, delay=60_000)
    kept += bench.finish(4)
    bench.forget_events()
    found = discover_all(ledger, strict=True)
    assert (found.end, found.missed) == (6, 0)
    assert sorted(entries(ledger)) == sorted(of("completed", kept))
    bench.finish(1)
    bench.finish(5, state, keep=AT_ONCE)
    bench.forget_events()
    assert discover_all(ledger, strict=True).missed == 5
    bench.finish(1, keep=AT_ONCE)
    assert discover_all(ledger, strict=True).missed == 5
    assert discover_all(ledger).missed == 5
    assert discover_all(ledger, strict=True).missed == 0
    bench.finish(1)
    assert discover_all(ledger).missed == 0


def test_jobs_in_other_states_than_those_read_are_not_missing(bench: Finisher) -> None:
    ledger = bench.ledger(states=("completed",))
    discover_all(ledger)
    bench.finish(3, "failed")
    bench.finish(2)
    bench.forget_events()
    assert discover_all(ledger, strict=True).missed == 0
    bench.finish(1, keep=AT_ONCE)
    bench.forget_events()
    assert discover_all(ledger, strict=True).missed == 1


@pytest.mark.parametrize(("starting", "found", "unseen"), [("earliest", 8, 0), ("0", 8, 0), ("latest", 0, 3)])
def test_missing_jobs_are_counted_before_the_first_scan_is_complete(
    bench: Finisher, starting: str, found: int, unseen: int
) -> None:
    """A reader that starts at latest cannot distinguish jobs without events from earlier jobs."""
    bench.finish(5)
    bench.finish(4, keep=AT_ONCE)
    bench.forget_events()
    ledger = bench.ledger(starting)
    assert ledger.discover(most=2).more
    bench.finish(3)
    bench.finish(2, keep=AT_ONCE)
    bench.forget_events()
    seen = discover_all(ledger, strict=True)
    assert (seen.end, seen.missed) == (found, 2 + unseen)


def test_missing_jobs_are_counted_from_one_horizon_to_the_next(bench: Finisher) -> None:
    ledger = bench.ledger()
    bench.finish(2)
    horizon = ledger.horizon()
    # By their clock they are before the first horizon, although they finish after it.
    bench.finish(3, offset_ms=-2_000)
    assert discover_all(ledger, horizon, strict=True).missed == 0
    bench.finish(4)
    bench.finish(5, keep=AT_ONCE)
    bench.forget_events()
    ledger.open("earliest", create=False)
    assert discover_all(ledger, ledger.horizon(), strict=True).missed == 5


def test_events_can_be_read_by_themselves(bench: Finisher) -> None:
    ledger = bench.ledger()
    discover_all(ledger)
    gone = bench.finish(3, keep=AT_ONCE)
    found = ledger.discover(events_only=True)
    assert (found.end, found.more) == (3, False)
    assert found.cursor == bench.client.xrevrange(bench.key("events"), count=1)[0][0].decode()
    crowd = bench.crowd([bench.handle.connection.now_ms()])
    assert ledger.discover(events_only=True).end == 3
    assert discover_all(ledger).end == 4
    assert sorted(entries(ledger)) == sorted(of("completed", [*gone, *crowd]))


def test_jobs_are_kept_for_late_events_only_if_events_follow_the_horizon(bench: Finisher) -> None:
    ledger = bench.ledger()
    early = bench.handle.keys.results("reader")["delivered_early"]
    found = bench.crowd([bench.handle.connection.now_ms()] * 3)
    assert discover_all(ledger, ledger.horizon()).end == 3
    assert not bench.client.exists(early)
    horizon = ledger.horizon()
    late = bench.finish(1, "completed", -500)
    assert discover_all(ledger, horizon).end == 4
    assert bench.client.hlen(early) == 1
    discover_all(ledger)
    assert sorted(entries(ledger)) == sorted(of("completed", [*found, *late]))


@not_bull_1
def test_jobs_outside_the_look_back_window_are_forgotten_in_portions(bench: Finisher) -> None:
    # They leave the window when it is made smaller, so the time to create them does not matter.
    ledger, keys = bench.ledger(lookback_ms=HOUR), bench.handle.keys.results("reader")
    bench.crowd([bench.handle.connection.now_ms()] * 12_000)
    bench.finish(20, "failed")
    discover_all(ledger)
    bench.client.delete(bench.key("completed"))
    kept = [keys[f"{kept}_{state}"] for kept in ("seen", "slices") for state in ("completed", "failed")]
    assert bench.client.exists(*kept) == 4
    sizes = [bench.client.zcard(keys["seen_completed"])]
    small = replace(ledger, lookback_ms=1)

    def all_forgotten() -> bool:
        assert small.discover().end == 12_020
        sizes.append(bench.client.zcard(keys["seen_completed"]))
        return not bench.client.exists(*kept)

    wait_until(all_forgotten, "the window to pass")
    assert sizes[0] == 12_000
    assert max(before - after for before, after in pairwise(sizes)) <= 10_000
    bench.finish(1)
    assert discover_all(small).end == 12_021


# start and horizon


@each_dialect
def test_a_reader_that_starts_at_latest_discovers_jobs_that_finish_from_now_on(bench: Finisher) -> None:
    bench.finish(3)
    bench.finish(2, "failed")
    ledger = bench.ledger("latest")
    if not bench.bullmq:
        assert discover_all(ledger).end == 0
    ids = bench.finish(2)
    discover_all(ledger)
    assert sorted(entries(ledger)) == sorted(of("completed", ids))


@not_bull_1
def test_a_reader_may_start_at_a_time(bench: Finisher) -> None:
    since = bench.handle.connection.now_ms() - 10_000
    bench.finish(2, "completed", -20_000)
    ids = bench.finish(2, "completed", -5_000)
    ledger = bench.ledger(str(since))
    bench.finish(1, "failed", -20_000)
    ids += bench.finish(2)
    discover_all(ledger)
    assert sorted(entries(ledger)) == sorted(of("completed", ids))
    assert discover_all(ledger).end == 4


@not_bull_1
def test_jobs_that_finish_after_the_horizon_are_discovered_later(bench: Finisher) -> None:
    ledger = bench.ledger()
    empty = ledger.horizon()
    assert empty[:3] == ("0", "0", "0-0")
    first = of("completed", bench.finish(3))
    assert discover_all(ledger, empty).end == 0
    horizon = ledger.horizon()
    wait_until(lambda: bench.handle.connection.now_ms() > int(horizon.completed), "the next millisecond")
    second = of("completed", bench.finish(2)) + of("failed", bench.finish(1, "failed"))
    assert discover_all(ledger, horizon).end == 3
    assert discover_all(ledger, horizon, most=1).end == 3
    assert sorted(entries(ledger)) == sorted(first)
    discover_all(ledger, ledger.horizon())
    assert sorted(entries(ledger, 3)) == sorted(second)
    assert discover_all(ledger).end == 6


# ownership


def test_another_query_cannot_open_the_ledger_unless_it_names_the_owner(bench: Finisher) -> None:
    bench.finish(1)
    mine = bench.ledger()
    other = replace(mine, owner="other")
    taken = other.open("earliest", create=True)
    assert (taken.state, taken.owner) == ("taken", "me")
    refused = other.discover()
    assert (refused.state, refused.owner) == ("taken", "me")
    assert discover_all(mine).end == 1
    assert other.open("earliest", create=True, previous_owner="me") == ("ok", 0, 1, "")
    refused = mine.discover()
    assert (refused.state, refused.owner) == ("taken", "other")
    bench.finish(1)
    assert discover_all(other).end == 2


def test_a_missing_ledger_is_lost_unless_it_is_recreated(bench: Finisher) -> None:
    ids = bench.finish(2)
    ledger = replace(bench.ledger(), reader="nobody")
    assert (ledger.start(), ledger.holder()) == (None, (None, None))
    assert ledger.open("earliest", create=False).state == "lost"
    assert ledger.discover().state == "lost"
    ledger.cut(5)
    ledger.archive(5)
    assert ledger.open("earliest", create=True, recreate=True, base=40) == ("ok", 40, 40, "")
    assert discover_all(ledger).end == 42
    assert sorted(entries(ledger, 40)) == sorted(of("completed", ids))
    assert ledger.open("earliest", create=True, recreate=True, base=50) == ("ok", 50, 50, "")
    assert discover_all(ledger).end == 52


def test_opening_twice_has_no_further_effect(bench: Finisher) -> None:
    bench.finish(3)
    ledger = bench.ledger()
    kept = private(bench)
    assert ledger.open("earliest", create=True) == ("ok", 0, 0, "")
    assert private(bench) == kept
    discover_all(ledger)
    ledger.cut(1)
    kept = private(bench)
    assert ledger.open("latest", create=False) == ("ok", 1, 3, "")
    assert private(bench) == kept
    assert (ledger.start(), ledger.holder()) == (1, ("me", bench.queue.protocol))
    # A wider window discovers no job again.
    wider = replace(ledger, lookback_ms=600_000)
    assert wider.open("earliest", create=False) == ("ok", 1, 3, "")
    bench.finish(1)
    assert discover_all(wider).end == 4


@each_dialect
@pytest.mark.parametrize("jobs", [2, 5])
def test_a_recreated_queue_is_detected_and_can_be_accepted(bench: Finisher, jobs: int) -> None:
    ledger = bench.ledger()
    # Nothing is lost with a queue that had no jobs.
    bench.queue.obliterate()
    bench.finish(3)
    discover_all(ledger)
    bench.queue.obliterate(force=True)
    ids = bench.finish(jobs)
    assert ledger.discover().state == "recreated"
    assert ledger.discover().state == "recreated"
    assert ledger.discover(accept_recreated=True).state == "ok"
    discover_all(ledger)
    assert sorted(entries(ledger, 3)) == sorted(of("completed", ids))


# reading


@each_dialect
def test_rows_have_the_requested_fields(bench: Finisher) -> None:
    ids = bench.finish(3, value="7")
    ledger = bench.ledger()
    discover_all(ledger)
    _, rows = ledger.rows(["returnvalue"]).read(0, 3)
    assert rows.rows == 3
    assert rows.columns.keys() == {"timestamp", "finishedOn", "returnvalue", "id", "state", "there"}
    assert column(rows, "returnvalue") == [b"7"] * 3
    assert rows.columns["there"] == [b"there"] * 3
    bench.queue.remove(ids[1])
    _, rows = ledger.rows(["data"]).read(0, 3)
    there = dict(zip(column(rows, "id"), column(rows, "there"), strict=True))
    assert there == {job_id.encode(): b"missing" if job_id == ids[1] else b"there" for job_id in ids}


def test_the_sizes_of_jobs_limit_how_many_the_next_read_takes(bench: Finisher) -> None:
    bench.queue.add_many([NewJob("x" * (MAX_BYTES * 3 // 10)) for _ in range(FIRST + 5)])
    while bench.end("completed"):
        pass
    bench.finish(100)
    ledger = bench.ledger()
    end = discover_all(ledger).end
    large, small = ledger.rows(["data"]), ledger.rows([])
    positions = [0]
    while positions[-1] < FIRST + 5:
        position, rows = large.read(positions[-1], FIRST + 5)
        assert rows.rows == position - positions[-1]
        positions.append(position)
    assert positions == [0, FIRST, FIRST + 3, FIRST + 5]
    first, _ = small.read(0, end)
    second, _ = small.read(first, end)
    assert first == FIRST
    assert second - first > first, "reads of small jobs grow"


# cutting and archiving


def test_entries_that_are_cut_off_are_deleted_their_jobs_are_not_and_a_reader_goes_on(bench: Finisher) -> None:
    bench.finish(6)
    ledger = bench.ledger()
    discover_all(ledger)
    found, reader = [job_id.encode() for job_id, _ in entries(ledger)], ledger.rows(["data"])
    position, rows = reader.read(1, 3)
    assert (position, column(rows, "id")) == (3, found[1:3])
    ledger.cut(2)
    assert column(reader.read(2, 4)[1], "id") == found[2:4]
    ledger.cut(4)
    kept = private(bench)
    for earlier in (4, 1):
        ledger.cut(earlier)
    assert (ledger.start(), private(bench)) == (4, kept)
    assert reader.read(3, 5) == reader.read(1, 6) == (4, ResultChunk(0, {}))
    position, rows = reader.read(4, 99)
    assert (position, column(rows, "id")) == (6, found[4:])
    assert reader.read(6, 9) == (6, ResultChunk(0, {}))
    ledger.cut(99)
    assert (ledger.start(), discover_all(ledger).end) == (6, 6)
    assert bench.counts() == {"completed": 6}


@each_dialect
def test_a_retried_job_is_not_archived(bench: Finisher) -> None:
    ids = bench.finish(3, "failed")
    ledger = bench.ledger()
    discover_all(ledger)
    bench.queue.retry(ids[1])
    ledger.archive(3)
    assert bench.counts() == {"wait": 1}
    assert bench.queue.job(ids[1]) is not None
    bench.end("completed")
    discover_all(ledger)
    assert entries(ledger, 3) == of("completed", [ids[1]])
    ledger.archive(4)
    assert bench.counts() == {}
    if bench.queue.protocol == "bull-1":
        return
    (job_id,) = bench.finish(1, "failed")
    discover_all(ledger)
    bench.queue.retry(job_id)
    bench.end("failed", ANOTHER_SLICE_MS, reason="again")
    ledger.archive(5)
    discover_all(ledger)
    assert entries(ledger, 5) == of("failed", [job_id])
    assert texts(ledger, 5, "failedReason") == [b"again"]


@each_dialect
@pytest.mark.parametrize("state", ["completed", "failed"])
def test_many_jobs_are_archived(bench: Finisher, state: str) -> None:
    """Their keys are deleted, once."""
    count = 2 * CHUNK_SIZE + 10
    for job_id in bench.crowd([bench.handle.connection.now_ms()] * count, state):
        add_log(bench.handle, job_id, "a line")
    ledger = bench.ledger()
    discover_all(ledger)
    (last,) = entries(ledger, count - 1)
    ledger.archive(count - 1)
    kept = dump(bench.client, bench.handle.keys.prefix, "q")
    assert {name for name in kept if name.startswith("crowd")} == {last[0], f"{last[0]}:logs"}
    ledger.archive(count - 1)
    assert dump(bench.client, bench.handle.keys.prefix, "q") == kept
    assert (ledger.start(), entries(ledger, count - 1), bench.counts()) == (count - 1, [last], {state: 1})
    ledger.archive(count)
    assert (bench.counts(), discover_all(ledger).end) == ({}, count)

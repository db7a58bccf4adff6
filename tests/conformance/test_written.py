"""Writes that keep the ids of their jobs, and the jobs that are found by them, in every dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest

from spark_bull.core.dialects.fields import Raw
from spark_bull.core.errors import OptionError, QueueBusy, ResultsLost, WaitTimeout
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.outcomes import Failed, Outcomes
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import commit, roll_forward
from spark_bull.core.queue.dispatch.written import (
    WrittenEnds,
    WrittenIds,
    find_written,
    read_written,
    wait_for_written,
    written_ids,
)
from spark_bull.core.queue.handle.handle import WRITES_SIZE
from spark_bull.core.queue.handle.walk import Slice
from tests.support.wait import PATIENCE_S
from tests.support.work_bench import DIALECTS, WorkBench, completed, failed_for, only_bullmq
from tests.support.writes import register_all, stage_all

not_bullmq = pytest.mark.parametrize("bench", DIALECTS[:2], indirect=True)


def write(bench: WorkBench, write_id: str, jobs: list[NewJob], **fields: int | str) -> None:
    register(write_id, [stage_all(bench.handle, write_id, [jobs], 10, **fields)], None)
    roll_forward(bench.handle, write_id)


def test_a_write_keeps_the_ids_of_its_jobs_in_order_only_if_it_is_told_to(bench: WorkBench) -> None:
    bench.queue.add({}, job_id="own-3")
    jobs = [NewJob({"n": n}, job_id=f"own-{n}" if n % 5 == 3 else None) for n in range(25)]
    write(bench, "w", jobs, keepsIds=1)
    ids = list(written_ids(bench.handle, "w"))
    assert len(ids) == 25
    assert [ids[n] for n in range(3, 25, 5)] == [f"own-{n}" for n in range(3, 25, 5)]
    numbers = [int(job_id) for job_id in ids if job_id.isdigit()]
    assert numbers == sorted(numbers)
    assert all(bench.queue.job(job_id) for job_id in ids)
    written = find_written([bench.handle], "w")
    assert (written.jobs, 0 <= written.since_ms <= bench.handle.connection.now_ms()) == (25, True)
    assert 0 < bench.client.pttl(bench.handle.keys.kept_ids("w")) <= 30 * 86_400_000
    write(bench, "plain", jobs[:4])
    assert not bench.client.exists(bench.handle.keys.kept_ids("plain"))
    with pytest.raises(OptionError, match=r"write plain of q to have kept the ids .* keepIds=true"):
        find_written([bench.handle], "plain")
    with pytest.raises(OptionError, match="expected `writeId` to be the id of a write to q of the last 30 days"):
        find_written([bench.handle], "unknown")


def test_numbers_that_follow_each_other_are_known_without_being_kept(bench: WorkBench) -> None:
    jobs = [NewJob({"n": n}) for n in range(30)]
    register_all(bench.handle, "w", [jobs], 10)
    assert commit(bench.handle, "w", 0).position == 10
    # Others add jobs between two chunks.
    bench.add(3)
    roll_forward(bench.handle, "w")
    ids = list(written_ids(bench.handle, "w"))
    assert ids == [str(n) for n in (*range(1, 11), *range(14, 34))]
    assert all(bench.queue.job(job_id) for job_id in ids)
    assert find_written([bench.handle], "w").jobs == 30
    # The second and the third chunk are one entry.
    assert bench.client.llen(bench.handle.keys.kept_ids("w")) == 2
    known = WrittenIds(bench.handle, "w")
    assert [known.has(job_id) for job_id in (b"10", b"11", b"33", b"34", b"x")] == [True, False, True, False, False]
    parts = [list(written_ids(bench.handle, "w", Slice(number, 3))) for number in range(3)]
    assert sorted(job_id for part in parts for job_id in part) == sorted(ids)


def test_jobs_of_a_write_with_many_ranges_are_told_from_others(bench: WorkBench) -> None:
    ranges = [(10, 20), (25, 25), (30, 60), (40, 45), (5, 6)]
    for first, last in ranges:
        bench.client.rpush(bench.handle.keys.kept_ids("w"), msgpack.packb({"first": first, "last": last}))
    bench.client.rpush(bench.handle.keys.kept_ids("w"), msgpack.packb([b"own", b"70"]))
    known = WrittenIds(bench.handle, "w")
    numbers = {*(number for first, last in ranges for number in range(first, last + 1)), 70}
    assert [number for number in range(80) if known.has(b"%d" % number)] == sorted(numbers)
    assert (known.has(b"own"), known.has(b"other"), known.has(b"")) == (True, False, False)


@not_bullmq
def test_a_number_that_is_the_id_of_another_job_is_no_part_of_a_range(bench: WorkBench) -> None:
    bench.queue.add({}, job_id="7")
    write(bench, "plain", [NewJob({"n": n}) for n in range(10)])
    with pytest.raises(OptionError, match="keepIds=true"):
        find_written([bench.handle], "plain")
    write(bench, "w", [NewJob({"n": n}) for n in range(10)], keepsIds=1)
    ids = list(written_ids(bench.handle, "w"))
    assert len({*ids}) == 10
    assert "7" not in ids


@pytest.mark.parametrize("by", ["obliterate", "a write that replaces the queue"])
def test_the_jobs_of_a_new_queue_are_not_of_a_write_to_the_one_before(bench: WorkBench, by: str) -> None:
    """Their ids are the same. Other writes follow, more than one call looks at."""
    handle, jobs = bench.handle, [NewJob({"n": n}) for n in range(3)]
    write(bench, "old", jobs)
    write(bench, "own", jobs, keepsIds=1)
    latest = handle.connection.now_ms() + 1_000
    bench.client.zadd(handle.keys["finished_writes"], {f"other-{n}": latest for n in range(WRITES_SIZE)})
    for write_id in ("old", "own"):
        find_written([handle], write_id)
    if by == "obliterate":
        bench.claim(1)
        with pytest.raises(QueueBusy):
            bench.queue.obliterate()
        assert find_written([handle], "old").jobs == 3
        bench.queue.obliterate(force=True)
        write(bench, "new", jobs * 2)
    else:
        assert register_all(handle, "new", [jobs * 2], replace=True)
        roll_forward(handle, "new")
    assert list(written_ids(handle, "new")) == [*map(str, range(1, 7))]
    assert find_written([handle], "new").jobs == 6
    for write_id in ("old", "own"):
        with pytest.raises(OptionError, match="The queue was deleted after the write"):
            find_written([handle], write_id)
        assert list(written_ids(handle, write_id)) == []


def test_a_write_whose_queue_was_deleted_before_its_last_job_has_not_kept_all_ids(bench: WorkBench) -> None:
    register_all(bench.handle, "w", [[NewJob({}, job_id=f"own-{n}") for n in range(4)]], 2, keepsIds=1)
    assert commit(bench.handle, "w", 0).position == 2
    bench.queue.obliterate()
    roll_forward(bench.handle, "w")
    with pytest.raises(OptionError, match="The queue was deleted after the write"):
        find_written([bench.handle], "w")


def test_jobs_that_are_gone_have_ended_as_their_events_tell_or_are_lost(bench: WorkBench) -> None:
    since_ms = bench.handle.connection.now_ms()
    write(bench, "w", [NewJob({"n": n}) for n in range(4)])
    ids = list(written_ids(bench.handle, "w"))
    bench.work(completed(bench.claim(1), "7", count=0))
    claim = bench.claim(1)
    bench.work(Outcomes(claim.token, failed=[Failed(claim.jobs[0].id, "bad", "[]", {"count": 0}, 1)]))
    bench.queue.remove(ids[2])
    # Bull 1 keeps all failed jobs.
    keeps_failed = bench.queue.protocol == "bull-1"
    assert [bench.queue.job(job_id) is None for job_id in ids] == [True, not keeps_failed, True, False]

    def found(states: Sequence[str] = (), *, strict: bool = True) -> dict[str, tuple[str | None, Raw, Raw]]:
        ends = WrittenEnds(bench.handle, since_ms, strict=strict)
        return {
            job_id.decode(): (state, value, reason)
            for chunk in read_written(bench.handle, ids, states, ["returnvalue", "failedReason"], 2, ends)
            for job_id, state, value, reason in zip(
                chunk.ids, chunk.states, chunk.column("returnvalue"), chunk.column("failedReason"), strict=True
            )
        }

    if bench.bullmq:
        all_found = found()
        assert [all_found[job_id] for job_id in ids[:3]] == [
            ("completed", b"7", None),
            ("failed", None, b"bad"),
            (None, None, None),
        ]
        assert found(["failed"]) == {ids[1]: ("failed", None, b"bad")}
        bench.client.xtrim(bench.key("events"), maxlen=0, approximate=False)
    lost = "the event stream was trimmed" if bench.bullmq else "keeps no events"
    with pytest.raises(ResultsLost, match=rf"queue q: [12] or more jobs of the write are gone, .* {lost}"):
        found()
    unknown = found(strict=False)
    assert [unknown[job_id][0] for job_id in ids] == [None, "failed" if keeps_failed else None, None, "wait"]


@only_bullmq
@pytest.mark.parametrize("events", ["ends", "none"])
def test_jobs_that_are_gone_are_lost_if_no_event_tells_of_them(
    bench: WorkBench, open_queue: Callable[..., BullQueue], events: str
) -> None:
    quiet = WorkBench(open_queue(protocol="bullmq", events=events), bench.client, bench.twice)
    write(quiet, "w", [NewJob({"n": n}) for n in range(3)], events=events)
    ids = list(written_ids(quiet.handle, "w"))
    quiet.work(completed(quiet.claim(1), "7", count=0))
    quiet.queue.remove(ids[1])
    ends = WrittenEnds(bench.handle, 0, strict=True)
    if events == "ends":
        (end,) = ends.of([ids[0].encode()])
        assert end.state == "completed"
    for job_id in ids[events == "ends" : 2]:
        with pytest.raises(ResultsLost, match="or their events were left out"):
            ends.of([job_id.encode()])


def test_one_can_wait_until_all_jobs_of_a_write_have_ended(bench: WorkBench) -> None:
    register_all(bench.handle, "w", [[NewJob({"n": n}) for n in range(12)]], 10, keepsIds=1)
    with pytest.raises(WaitTimeout, match=r"expected write w of q to add all its 12 jobs within 0\.01 s"):
        wait_for_written([bench.handle], "w", 0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_for_written, [bench.handle], "w", PATIENCE_S)
        roll_forward(bench.handle, "w")
        with pytest.raises(WaitTimeout):
            wait_for_written([bench.handle], "w", 0)
        bench.work(completed(bench.claim(12)))
        waiting.result(PATIENCE_S)
    wait_for_written([bench.handle], "w", 0)


@only_bullmq
def test_the_end_of_a_write_counts_its_jobs_and_their_reasons(bench: WorkBench) -> None:
    write(bench, "w", [NewJob({"n": n}) for n in range(6)], keepsIds=1)
    bench.queue.remove(list(written_ids(bench.handle, "w"))[5])
    bench.work(failed_for(bench.claim(2), "late"))
    bench.work(failed_for(bench.claim(1), "no"))
    last = bench.claim(2)
    with pytest.raises(WaitTimeout):
        bench.queue.wait_for_write("w", 0)
    bench.work(completed(last))
    end = bench.queue.wait_for_write("w")
    assert (end.completed, end.failed, end.unknown) == (2, 3, 1)
    assert [*end.reasons.items()] == [("late", 2), ("no", 1)]
    with pytest.raises(OptionError, match="expected `writeId` to be the id of a write"):
        bench.queue.wait_for_write("unknown", 0)

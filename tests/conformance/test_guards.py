"""Guards pause and resume queues of every dialect.

Tests give the time. Each one runs with scripts sent once and twice.
"""

from __future__ import annotations

from redis import Redis

from spark_bull.core.model.guards import Guard
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.monitor.find import describe
from spark_bull.core.queue.work.verbs import GuardReply, guard
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, completed, failed_for, not_bull_1, only_bullmq

GUARD = Guard("q", "failedRate > 0.5 over 1m", resume_after_s=300, min_jobs=4)
NOTHING = GuardReply("", "", False)
WHY = "failedRate > 0.5 over 1m: 3 of 4 jobs failed"
S, START = 1_000, 1_700_000_000_000


def look(bench: WorkBench, at_s: float, rule: Guard = GUARD) -> GuardReply:
    return guard(bench.handle, rule, now=START + round(at_s * S))


def end_jobs(bench: WorkBench, *, failing: int = 0, completing: int = 0, removed: bool = False) -> None:
    """Adds jobs, and settles them; removed: those that complete are removed at once."""
    bench.add(failing + completing)
    if failing:
        bench.work(failed_for(bench.claim(failing), "bad"))
    if completing:
        bench.work(completed(bench.claim(completing), **({"count": 0} if removed else {})))


def pause_by_guard(bench: WorkBench) -> None:
    """At 2 s, for 300 s."""
    assert look(bench, 0) == NOTHING
    end_jobs(bench, failing=3, completing=1)
    assert look(bench, 2) == GuardReply("paused", WHY, False)


def test_a_guard_pauses_once_and_resumes_after_its_time(bench: WorkBench, redis_url: str, prefix: str) -> None:
    pause_by_guard(bench)
    ids = bench.add(3)
    assert bench.queue.is_paused()
    assert not bench.claim().jobs
    assert describe(bench.handle).pause_reason == f"a guard until 2023-11-14 22:18:22Z: {WHY}"
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=bench.queue.protocol) as other:
        for at_s in (2, 2.5, 301.9):
            assert guard(other.handle, GUARD, now=START + round(at_s * S)).done == ""
        assert guard(other.handle, GUARD, now=START + 302 * S) == GuardReply("resumed", WHY, False)
    assert look(bench, 302) == NOTHING
    assert (bench.queue.is_paused(), describe(bench.handle).pause_reason) == (False, None)
    assert [job.id for job in bench.claim().jobs] == ids


def test_the_window_of_a_guard_begins_anew_after_its_pause(bench: WorkBench) -> None:
    pause_by_guard(bench)
    assert look(bench, 302).done == "resumed"
    assert [look(bench, at_s) for at_s in (302, 304)] == [NOTHING] * 2
    end_jobs(bench, failing=3)
    assert look(bench, 306) == NOTHING, "three jobs are too few"
    end_jobs(bench, failing=1)
    assert look(bench, 308).why == "failedRate > 0.5 over 1m: 4 of 4 jobs failed"


def test_a_guard_does_not_resume_what_somebody_has_paused(bench: WorkBench) -> None:
    look(bench, 0)
    bench.queue.pause()
    assert [look(bench, at_s) for at_s in (2, 1_000)] == [NOTHING] * 2
    bench.queue.resume()
    look(bench, 1_001)
    end_jobs(bench, failing=3, completing=1)
    assert look(bench, 1_003).done == "paused"
    # Somebody takes the pause over.
    bench.queue.pause()
    assert describe(bench.handle).pause_reason is None
    assert look(bench, 5_000) == NOTHING
    assert bench.queue.is_paused()


def test_a_guard_respects_that_somebody_resumes_the_queue(bench: WorkBench) -> None:
    pause_by_guard(bench)
    bench.queue.resume()
    end_jobs(bench, failing=5)
    assert [look(bench, at_s) for at_s in (4, 6, 301)] == [NOTHING] * 3
    assert look(bench, 303) == NOTHING, "its window begins when the pause would have ended"
    end_jobs(bench, failing=5)
    assert look(bench, 305).done == "paused"
    bench.queue.resume()
    bench.queue.pause()
    assert look(bench, 5_000) == NOTHING
    assert bench.queue.is_paused()


def test_only_jobs_that_have_ended_in_the_window_count(bench: WorkBench) -> None:
    look(bench, 0)
    end_jobs(bench, failing=3)
    # Real times of finished jobs are after the window of the test.
    for at_s in range(10, 71, 10):
        assert look(bench, at_s) == NOTHING
    end_jobs(bench, failing=3)
    assert look(bench, 80) == NOTHING, "the first three failed before the window"
    assert look(bench, 1_000) == NOTHING
    end_jobs(bench, failing=4)
    assert look(bench, 1_001).done == "paused"


def test_completed_jobs_count_although_they_are_removed(bench: WorkBench) -> None:
    look(bench, 0)
    end_jobs(bench, failing=5, completing=5, removed=True)
    assert look(bench, 2) == NOTHING
    end_jobs(bench, failing=1)
    assert look(bench, 4).why == "failedRate > 0.5 over 1m: 6 of 11 jobs failed"


@not_bull_1
def test_duplicates_do_not_count_as_completed_if_jobs_are_kept_for_longer_than_the_window(bench: WorkBench) -> None:
    end_jobs(bench, completing=1)
    [before] = bench.queue.page("completed")
    assert before.finished_on is not None
    rule = Guard("q", "failedRate > 0.5 over 1d", min_jobs=4)
    assert guard(bench.handle, rule, now=before.finished_on) == NOTHING
    wait_until(lambda: bench.handle.connection.now_ms() > before.finished_on, "the next millisecond")
    end_jobs(bench, failing=3, completing=1)
    bench.queue.add_many(NewJob({}, job_id="same") for _ in range(50))
    assert guard(bench.handle, rule, now=before.finished_on + 80_000 * S).why.endswith("3 of 4 jobs failed")


def test_a_number_of_failed_jobs_pauses_the_queue(bench: WorkBench) -> None:
    many, more = Guard("q", "failed >= 3 over 1m"), Guard("q", "failed > 3 over 1m", resume_after_s=2)
    for rule in (many, more):
        look(bench, 0, rule)
    end_jobs(bench, failing=3, completing=30)
    assert look(bench, 2, more) == NOTHING
    assert look(bench, 2, many).why == "failed >= 3 over 1m: 3 of 33 jobs failed"
    assert look(bench, 400, more).done == "resumed", "any guard ends the pause of another one"


@only_bullmq
def test_failed_jobs_that_are_retried_begin_the_window_anew(bench: WorkBench) -> None:
    end_jobs(bench, failing=40)
    look(bench, 0)
    end_jobs(bench, failing=1, completing=20, removed=True)
    look(bench, 2)
    for job in bench.queue.page("failed", 0, 29):
        bench.queue.retry(job.id)
    assert look(bench, 4) == NOTHING
    bench.work(failed_for(bench.claim(4), "bad"))
    assert look(bench, 6).why == "failedRate > 0.5 over 1m: 4 of 4 jobs failed"


def test_looks_leave_a_key_that_expires_and_no_receipt(bench: WorkBench, client: Redis) -> None:
    end_jobs(bench, completing=1)
    before = set(client.keys(f"{bench.handle.keys.base}*"))
    for at_s in range(100):
        look(bench, at_s)
    (added,) = set(client.keys(f"{bench.handle.keys.base}*")) - before
    assert added.decode() == bench.handle.keys.guard(GUARD.id)
    assert client.pttl(added) > 0
    assert client.strlen(added) < 8_000

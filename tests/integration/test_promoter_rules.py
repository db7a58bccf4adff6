"""Guards and the ageing of priorities, which a Promoter applies."""

from __future__ import annotations

import logging
import signal
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, Guard, LocalWorker, NewJob, OptionError, Promoter
from spark_bull.core.clock import epoch_ms
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.work import verbs
from spark_bull.ops.cli.main import main
from spark_bull.run.services.guarding import Ageing
from tests.integration.conftest import Run
from tests.support.forked_programs import ForkedProcess, promote
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, completed, failed_for

CONDITION = "failed >= 3 over 1m"


@pytest.fixture
def bench(bench: WorkBench) -> WorkBench:
    """A promoter looks at queues that exist."""
    bench.add()
    bench.work(completed(bench.claim()))
    return bench


def fail_jobs(bench: WorkBench, guard: Guard) -> None:
    """Fails enough jobs for the guard, after its first look."""
    wait_until(lambda: bench.client.exists(bench.handle.keys.guard(guard.id)), "the guard to look")
    bench.add(3)
    bench.work(failed_for(bench.claim(3), "the service is away"))
    bench.add(1)


def test_of_two_promoters_one_pauses_the_queue_and_one_resumes_it(
    bench: WorkBench, place: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard("mai*", CONDITION, resume_after_s=0.5)
    caplog.set_level(logging.INFO, "spark_bull")
    one, other = (Promoter(queues="mail", rescue=False, guards=[guard], **place) for _ in range(2))
    with one, other:
        fail_jobs(bench, guard)
        wait_until(lambda: one.done.resumed + other.done.resumed, "a promoter to resume the queue")
        assert not bench.queue.is_paused()
    assert (one.done.paused + other.done.paused, one.done.resumed + other.done.resumed) == (1, 1)
    events = [event[b"event"] for _, event in bench.client.xrange(bench.key("events"))]
    assert (events.count(b"paused"), events.count(b"resumed")) == (1, 1)
    said = [record.getMessage() for record in caplog.records if "guard" in record.getMessage()]
    why = f"{CONDITION}: 3 of 3 jobs failed"
    assert said == [
        f"queue mail: a guard has paused it for 0.5 s: {why}",
        f"queue mail: a guard has resumed it, which was paused: {why}",
    ]


def test_another_promoter_resumes_the_queue_of_one_that_was_killed(bench: WorkBench, place: dict[str, Any]) -> None:
    guard = Guard("mail", CONDITION, resume_after_s=3)
    with ForkedProcess(promote, *place.values(), "mail", guards=guard) as promoter:
        fail_jobs(bench, guard)
        wait_until(bench.queue.is_paused, "the guard to pause the queue")
        promoter.end_by(signal.SIGKILL)
    with Promoter(queues="mail", guards=Guard("mail", "failedRate > 0.9 over 1h"), **place) as another:
        wait_until(lambda: another.done.resumed == 1, "another guard to resume the queue")
    assert not bench.queue.is_paused()


def test_a_queue_with_many_waiting_jobs_is_paused_and_resumed_in_parts(
    bench: WorkBench, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.core.queue.work.verbs.MOVE_SIZE", 2)
    guard = Guard("mail", CONDITION, resume_after_s=0.1)
    promoter = Promoter(queues="mail", rescue=False, guards=[guard], **place)
    # What an earlier pause has left behind.
    older = [str(n).encode() for n in range(100, 104)]
    bench.client.rpush(bench.key("paused"), *older)
    promoter.once()
    fail_jobs(bench, guard)
    ids = [*bench.client.lrange(bench.key("wait"), 0, -1), *older]
    wait_until(lambda: promoter.once().paused, "the guard to pause the queue")
    wait_until(lambda: promoter.once().resumed, "the guard to resume the queue")
    assert bench.client.lrange(bench.key("wait"), 0, -1) == ids
    assert not bench.client.exists(bench.key("paused"))


def test_the_command_has_the_guards_of_its_queue(run: Run, bench: WorkBench) -> None:
    run("promote", "mail", "--guard", CONDITION, "--guard", "failedRate>0.5 over 1m", "--resume-after", "2m", "--once")
    for condition in (CONDITION, "failedRate > 0.5 over 1m"):
        assert bench.client.exists(bench.handle.keys.guard(Guard("mail", condition, 120.0).id))


def test_a_worker_of_the_command_runs_the_guards_of_its_queues(bench: WorkBench, run: Run) -> None:
    # Parses its job as a text, and so fails.
    given = ["work", "--local", "--queue", "post,mail", "--processor", "json:loads", "--guard", CONDITION]
    with ForkedProcess(main, [*run.common, *given, "--resume-after", "2m"]) as worker:
        guard = bench.handle.keys.guard(Guard("mail", CONDITION, 120.0).id)
        wait_until(lambda: bench.client.exists(guard), "the guard to look")
        bench.add(5)
        wait_until(bench.queue.is_paused, "the guard to pause the queue")
        assert worker.end_by(signal.SIGTERM) == 0


def test_a_guard_of_another_queue_is_refused(redis_url: str) -> None:
    with pytest.raises(OptionError, match=r"one of the promoter's \(mail, post\), got: 'mial'"):
        Promoter(redis_url, ["mail", "post"], guards=[Guard("mial", CONDITION)])
    with pytest.raises(OptionError, match=r"expected `guards` to be a list of Guard\(queue, pause_when\), got: 'mail'"):
        Promoter(redis_url, guards=["mail"])
    with pytest.raises(OptionError, match="`guards` has no effect with promoter=False: leave it out, or pass it to"):
        LocalWorker("mail", print, url=redis_url, promoter=False, guards=Guard("mail", CONDITION))
    LocalWorker("mail", print, shards=2, url=redis_url, guards=Guard("mail", CONDITION))
    for queues in (["mail*"], []):
        Promoter(redis_url, queues, guards=[Guard("mail", CONDITION), Guard("*", CONDITION)])


HOUR = 3_600_000


def aged(place: dict[str, Any], **ageing: Any) -> int:
    return Promoter(queues="mail", rescue=False, ageing=ageing, **place).once().aged


@pytest.mark.parametrize(("after_ms", "interval_s"), [(1, 1), (30_000, 3), (HOUR, 60)])
def test_jobs_are_looked_at_ten_times_until_they_age(after_ms: int, interval_s: float) -> None:
    assert Ageing(after_ms, priority=1).interval_s == interval_s


def test_jobs_that_have_waited_for_long_get_a_higher_priority(queue: BullQueue, place: dict[str, Any]) -> None:
    now = epoch_ms()
    old, young = now - 2 * HOUR, now - HOUR // 2
    low = [("old low", old), ("older low", old), ("young low", young), ("behind it", old)]
    queue.add_many(
        [
            NewJob("urgent", priority="critical", timestamp=old),
            NewJob("old high", priority="high", timestamp=old),
            *(NewJob(data, priority="low", timestamp=timestamp) for data, timestamp in low),
            NewJob("young normal", priority="normal", timestamp=young),
        ]
    )
    assert aged(place, after_ms=HOUR, priority="high") == 2
    # The payload and the priority, in the order in which workers take jobs.
    waiting = [(job.data, job.priority) for job in queue.page("prioritized")]
    assert waiting[:4] == [("urgent", 1), ("old high", 2), ("old low", 2), ("older low", 2)]
    assert waiting[4:] == [("young normal", 4), ("young low", 5), ("behind it", 5)]
    assert aged(place, after_ms=HOUR, priority="high") == 0
    # The first one of its priority has now waited for so long, too.
    assert aged(place, after_ms=HOUR // 4, priority="high") == 3
    assert aged(place, after_ms=HOUR // 4) == 6
    assert {job.priority for job in queue.page("prioritized")} == {1}


def test_a_delay_is_no_waiting_time(queue: BullQueue, place: dict[str, Any]) -> None:
    old = epoch_ms() - 10 * HOUR
    delayed = queue.add("delayed", priority=7, timestamp=old, delay=9 * HOUR + HOUR // 2 + HOUR // 4)
    queue.promote(delayed)
    assert aged(place, after_ms=HOUR) == 0
    assert aged(place, after_ms=HOUR // 10) == 1


def test_all_jobs_of_many_priorities_age(queue: BullQueue, client: Redis) -> None:
    old = epoch_ms() - 2 * HOUR
    queue.add_many(NewJob(n, priority=2 + n // 3, timestamp=old if n % 2 else None) for n in range(90))
    client.zadd(queue.handle.keys["prioritized"], {f"gone{n}": 3 * 2**32 for n in range(20)})
    moved, first, calls = 0, 1, 0
    while first:
        some, first = verbs.age(queue.handle, 1, HOUR, first=first, limit=7)
        moved, calls = moved + some, calls + 1
    # Of each three jobs of a priority, an old one comes first, or is behind a young one.
    assert moved == 15
    assert calls >= 90 // 3 // 7
    assert client.zcard(queue.handle.keys["prioritized"]) == 110


def test_jobs_that_were_put_back_age_in_their_order(queue: BullQueue, bench: WorkBench) -> None:
    old = epoch_ms() - 2 * HOUR
    ids = queue.add_many(NewJob(n, priority=2, timestamp=old) for n in range(10)).ids
    claim = bench.claim(10)
    queue.add("young", priority=2)
    bench.work(Outcomes(claim.token, unstarted=ids))
    assert verbs.age(queue.handle, 1, HOUR, first=1, limit=100).moved == 10
    assert [job.id for job in queue.page("prioritized")][:10] == ids


def test_a_job_of_the_priority_ages_no_further_also_after_very_many(queue: BullQueue, client: Redis) -> None:
    """From this number on, the scores of a priority look like the scores of jobs put back before the next one."""
    client.set(queue.handle.keys["pc"], 2**31)
    queue.add("old", priority=1, timestamp=epoch_ms() - 2 * HOUR)
    assert verbs.age(queue.handle, 1, HOUR, first=1, limit=100).moved == 0


def test_a_running_promoter_ages_jobs(queue: BullQueue, place: dict[str, Any]) -> None:
    queue.add("late", priority=9, timestamp=epoch_ms() - HOUR)
    with Promoter(queues="mail", ageing={"after_ms": HOUR // 2}, **place) as promoter:
        wait_until(lambda: promoter.done.aged == 1, "the job to age")
    assert [job.priority for job in queue.page("prioritized")] == [1]


@pytest.mark.parametrize("queue", ["bull"], indirect=True)
def test_jobs_of_bull_do_not_age(queue: BullQueue, place: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    queue.add("old", priority=9, timestamp=epoch_ms() - HOUR)
    assert aged(place, after_ms=1) == 0
    said = "expected no `ageing`: bull keeps jobs with a priority among the others, so that they do not age"
    assert said in caplog.text


def test_wrong_rules_are_refused(redis_url: str) -> None:
    no_objects = ({}, {"after_ms": 0}, {"after_ms": "1h"}, {"after_ms": 5, "to": 1}, "1h")
    for ageing, message in [
        *((one, "expected `ageing` to be an object such as") for one in no_objects),
        ({"after_ms": 5, "priority": "urgent"}, "`ageing`: expected `priority` to be .* got: 'urgent'"),
        ({"after_ms": 5, "priority": 0}, "expected the priority of `ageing` to be at least 1, got: 0"),
    ]:
        with pytest.raises(OptionError, match=message):
            Promoter(redis_url, ["mail"], ageing=ageing)

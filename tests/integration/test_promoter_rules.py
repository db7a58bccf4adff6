"""Guards and the ageing of priorities, which a Promoter applies."""

from __future__ import annotations

import logging
import signal
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, Guard, LocalWorker, NewJob, OptionError, Promoter
from spark_bull.core.clock import epoch_ms
from spark_bull.core.queue.work import verbs
from spark_bull.ops.cli.main import main, parser
from spark_bull.run.services.guarding import Ageing
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
    bench: WorkBench, redis_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard("mai*", CONDITION, resume_after_s=0.5)
    caplog.set_level(logging.INFO, "spark_bull")
    one, other = (Promoter(redis_url, ["mail"], prefix=prefix, rescue=False, guards=[guard]) for _ in range(2))
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


def test_another_promoter_resumes_the_queue_of_one_that_was_killed(
    bench: WorkBench, redis_url: str, prefix: str
) -> None:
    guard = Guard("mail", CONDITION, resume_after_s=3)
    with ForkedProcess(promote, redis_url, prefix, "mail", guards=guard) as promoter:
        fail_jobs(bench, guard)
        wait_until(bench.queue.is_paused, "the guard to pause the queue")
        promoter.end_by(signal.SIGKILL)
    with Promoter(redis_url, ["mail"], prefix=prefix, guards=Guard("mail", "failedRate > 0.9 over 1h")) as another:
        wait_until(lambda: another.done.resumed == 1, "another guard to resume the queue")
    assert not bench.queue.is_paused()


def test_a_queue_with_many_waiting_jobs_is_paused_and_resumed_in_parts(
    bench: WorkBench, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.core.queue.work.verbs.MOVE_SIZE", 2)
    guard = Guard("mail", CONDITION, resume_after_s=0.1)
    promoter = Promoter(redis_url, ["mail"], prefix=prefix, rescue=False, guards=[guard])
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


def test_the_guards_of_the_command_are_those_of_its_queue(redis_url: str, prefix: str, bench: WorkBench) -> None:
    given = ["promote", "mail", "--guard", CONDITION, "--guard", "failedRate>0.5 over 1m", "--resume-after", "2m"]
    assert parser().parse_args(given).resume_after == 120
    assert main([*given, "--once", "--url", redis_url, "--prefix", prefix]) == 0
    for condition in (CONDITION, "failedRate > 0.5 over 1m"):
        assert bench.client.exists(bench.handle.keys.guard(Guard("mail", condition, 120.0).id))


def test_a_worker_of_the_command_runs_the_guards_of_its_queues(bench: WorkBench, redis_url: str, prefix: str) -> None:
    # Parses its job as a text, and so fails.
    given = ["work", "--local", "--queue", "post,mail", "--processor", "json:loads", "--guard", CONDITION]
    given += ["--resume-after", "2m", "--url", redis_url, "--prefix", prefix]
    with ForkedProcess(main, given) as worker:
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
    with pytest.raises(
        OptionError, match="`guards` has no effect with promoter=False: leave it out, or pass it to the"
    ):
        LocalWorker("mail", print, url=redis_url, promoter=False, guards=Guard("mail", CONDITION))
    LocalWorker("mail", print, shards=2, url=redis_url, guards=Guard("mail", CONDITION))
    for queues in (["mail*"], []):
        Promoter(redis_url, queues, guards=[Guard("mail", CONDITION), Guard("*", CONDITION)])


HOUR = 3_600_000


def waiting(queue: BullQueue) -> list[tuple[Any, int]]:
    """The payload and the priority of the jobs, in the order in which workers take them."""
    return [(job.data, job.priority) for job in queue.page("prioritized")]


def aged(queue: BullQueue, **ageing: Any) -> int:
    settings = queue.handle.connection.settings
    promoter = Promoter(settings.url, ["mail"], prefix=queue.handle.keys.prefix, rescue=False, ageing=ageing)
    return promoter.once().aged


@pytest.mark.parametrize(("after_ms", "interval_s"), [(1, 1), (30_000, 3), (HOUR, 60)])
def test_jobs_are_looked_at_ten_times_until_they_age(after_ms: int, interval_s: float) -> None:
    assert Ageing(after_ms, priority=1).interval_s == interval_s


def test_jobs_that_have_waited_for_long_get_a_higher_priority(queue: BullQueue) -> None:
    now = epoch_ms()
    old, young = now - 2 * HOUR, now - HOUR // 2
    queue.add_many(
        [
            NewJob("urgent", priority="critical", timestamp=old),
            NewJob("old high", priority="high", timestamp=old),
            NewJob("old low", priority="low", timestamp=old),
            NewJob("older low", priority="low", timestamp=old),
            NewJob("young low", priority="low", timestamp=young),
            NewJob("behind it", priority="low", timestamp=old),
            NewJob("young normal", priority="normal", timestamp=young),
        ]
    )
    assert aged(queue, after_ms=HOUR, priority="high") == 2
    assert waiting(queue) == [
        ("urgent", 1),
        ("old high", 2),
        ("old low", 2),
        ("older low", 2),
        ("young normal", 4),
        ("young low", 5),
        ("behind it", 5),
    ]
    assert aged(queue, after_ms=HOUR, priority="high") == 0
    # The first one of its priority has now waited for so long, too.
    assert aged(queue, after_ms=HOUR // 4, priority="high") == 3
    assert aged(queue, after_ms=HOUR // 4) == 6
    assert {priority for _, priority in waiting(queue)} == {1}


def test_a_delay_is_no_waiting_time(queue: BullQueue, client: Redis) -> None:
    old = epoch_ms() - 10 * HOUR
    delayed = queue.add("delayed", priority=7, timestamp=old, delay=9 * HOUR + HOUR // 2 + HOUR // 4)
    queue.promote(delayed)
    assert aged(queue, after_ms=HOUR) == 0
    assert aged(queue, after_ms=HOUR // 10) == 1


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


def test_a_running_promoter_ages_jobs(queue: BullQueue) -> None:
    queue.add("late", priority=9, timestamp=epoch_ms() - HOUR)
    settings = queue.handle.connection.settings
    ageing = {"after_ms": HOUR // 2}
    with Promoter(settings.url, ["mail"], prefix=queue.handle.keys.prefix, ageing=ageing) as promoter:
        wait_until(lambda: promoter.done.aged == 1, "the job to age")
    assert waiting(queue) == [("late", 1)]


@pytest.mark.parametrize("queue", ["bull"], indirect=True)
def test_jobs_of_bull_do_not_age(queue: BullQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.add("old", priority=9, timestamp=epoch_ms() - HOUR)
    assert aged(queue, after_ms=1) == 0
    assert (
        "expected no `ageing`: bull keeps jobs with a priority among the others, so that they do not age" in caplog.text
    )


def test_wrong_rules_are_refused(redis_url: str) -> None:
    for ageing, message in [
        ({}, "expected `ageing` to be an object such as"),
        ({"after_ms": 0}, "expected `ageing` to be an object such as"),
        ({"after_ms": "1h"}, "expected `ageing` to be an object such as"),
        ({"after_ms": 5, "to": 1}, "expected `ageing` to be an object such as"),
        ("1h", "expected `ageing` to be an object such as"),
        ({"after_ms": 5, "priority": "urgent"}, "`ageing`: expected `priority` to be .* got: 'urgent'"),
        ({"after_ms": 5, "priority": 0}, "expected the priority of `ageing` to be at least 1, got: 0"),
    ]:
        with pytest.raises(OptionError, match=message):
            Promoter(redis_url, ["mail"], ageing=ageing)

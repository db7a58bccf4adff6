"""Job schedulers that we create, change and remove leave the same keys as in Node, and Node's workers continue them.

Jobs are promoted before they are due, so that no test waits; the next job is due an interval later anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spark_bull import BullQueue, DialectError, JobMissing, NewJob, OptionError, Scheduler, WrongState
from spark_bull.core.model.jobs import RawJson
from spark_bull.run.job.running_job import RunningJob
from tests.conformance.pair import Pair
from tests.conformance.schedule_rounds import (
    TODAY,
    Rounds,
    Schedule,
    each_bullmq,
    each_peer,
    each_schedule,
    our_worker,
)
from tests.support.jobs import DAY, HOUR
from tests.support.node import Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, not_bull_1, only_bullmq
from tests.support.worker import OurWorker

NOON = "0 0 12 * * *"

SCHEDULES = {
    "every hour": Schedule({"every": HOUR}, rounds=6),
    "a duration": Schedule({"every": HOUR}, ours={"every": "PT1H"}),
    "a duration and an offset": Schedule(
        {"every": DAY, "offset": 90_500}, bullmq_only=True, ours={"every": "P1D", "offset": "PT1M30.5S"}
    ),
    "a pattern": Schedule({"pattern": NOON, "tz": "America/New_York"}, rounds=6),
    "a pattern of five fields": Schedule({"pattern": "30 2 * * 1-5", "tz": "Europe/Berlin"}),
    "a pattern of seconds": Schedule({"pattern": "*/7 30 4 1 1 *"}),
    "a pattern with a limit": Schedule({"pattern": "0 12 * * 1-5", "limit": 2}),
    "a pattern in the zone of the machine": Schedule({"pattern": NOON}),
    "a limit": Schedule({"every": HOUR, "limit": 2}),
    "a start": Schedule({"pattern": NOON, "startDate": TODAY + 10 * DAY}),
    "an end": Schedule({"pattern": NOON, "endDate": TODAY + 3 * DAY}, rounds=4),
    "an interval with an end": Schedule({"every": HOUR, "endDate": TODAY + 3 * DAY}),
    "an interval with a start": Schedule({"every": HOUR, "startDate": TODAY + 10 * DAY}, bullmq_only=True),
    "an interval with a start that is over": Schedule(
        {"every": HOUR, "startDate": 1_600_000_000_000}, bullmq_only=True
    ),
    "an offset": Schedule({"every": HOUR, "offset": 300_000}, bullmq_only=True),
    "an offset of 0": Schedule({"every": HOUR, "offset": 0}, bullmq_only=True),
    "options": Schedule(
        {"every": HOUR},
        opts={"priority": 3, "attempts": 2, "backoff": {"type": "fixed", "delay": 5}, "removeOnFail": {"count": 7}},
    ),
    "a backoff in ms": Schedule({"every": HOUR}, opts={"attempts": 2, "backoff": 5}),
    "lifo": Schedule({"pattern": NOON}, opts={"removeOnComplete": True, "lifo": True}),
    "texts to escape": Schedule({"every": HOUR}, {"$behaviour": "", "text": 'é "/" \\', "list": [], "no": None}),
    "no data": Schedule({"every": HOUR}, {}),
    "kept logs": Schedule({"every": HOUR}, opts={"keepLogs": 3}, bullmq_only=True),
}


@each_schedule(SCHEDULES)
def test_a_scheduler_of_ours_has_the_keys_of_nodes_and_both_continue_it(pair: Pair, peer: Peer, name: str) -> None:
    one = Rounds(pair, SCHEDULES[name])
    one.make_one_each()
    one.assert_alike()
    for worker in (our_worker, pair.node_working):
        one.stay_alike(one.schedule.rounds, worker)


#: What a job scheduler becomes, step by step. BullMQ only: Bull makes a second job scheduler of a changed one.
CHANGES: dict[str, list[Schedule | str]] = {
    "the same again": [Schedule({"every": HOUR}), "settle", Schedule({"every": HOUR})],
    "the same pattern again": [Schedule({"pattern": NOON}), Schedule({"pattern": NOON})],
    "another template": [
        Schedule({"every": HOUR}),
        "settle",
        Schedule({"every": HOUR}, {"n": 2}, {"priority": 2}),
        "promote",
        "settle",
    ],
    "another interval": [Schedule({"every": HOUR}), "settle", Schedule({"every": DAY})],
    "another interval with the same start": [
        Schedule({"every": HOUR, "startDate": TODAY + 10 * DAY}),
        Schedule({"every": DAY, "startDate": TODAY + 10 * DAY}),
    ],
    "a pattern in place of an interval": [Schedule({"every": HOUR}), "settle", Schedule({"pattern": NOON})],
    "an interval in place of a pattern": [Schedule({"pattern": NOON, "tz": "UTC"}), Schedule({"every": HOUR})],
    "a waiting job": [Schedule({"every": HOUR}), Schedule({"every": HOUR}, {"n": 2})],
    "a promoted job": [Schedule({"pattern": NOON}), "promote", Schedule({"pattern": NOON}, {"n": 2})],
    "a prioritized job": [
        Schedule({"every": HOUR}, opts={"priority": 4}),
        Schedule({"every": HOUR}, opts={"priority": 5}),
    ],
    "a changed offset": [
        Schedule({"every": HOUR, "offset": 60_000}),
        Schedule({"every": HOUR, "offset": 120_000}),
        "promote",
        "settle",
    ],
    "a limit added": [Schedule({"every": HOUR}), "settle", Schedule({"every": HOUR, "limit": 1}), "promote", "settle"],
    "removed": [Schedule({"every": HOUR}), "settle", "remove"],
    "removed while its job waits": [Schedule({"every": HOUR}), "remove", "settle"],
    "removed and made again": [Schedule({"pattern": NOON}), "remove", Schedule({"pattern": NOON})],
}


@pytest.mark.parametrize("name", CHANGES)
@each_bullmq
def test_a_change_has_the_effect_of_nodes(pair: Pair, peer: Peer, name: str) -> None:
    one = Rounds(pair, Schedule({}))
    for step in CHANGES[name]:
        match step:
            case "promote":
                one.promote()
            case "settle":
                with one.workers():
                    one.settled()
            case "remove":
                one.remove_one_each()
            case Schedule():
                one.make_one_each(step)
        one.assert_alike()


def schedule(rhythm: str) -> Schedule:
    return Schedule({"pattern": NOON} if rhythm == NOON else {"every": int(rhythm)}, {"$behaviour": "hang"})


@pytest.mark.parametrize(("first", "changed"), [(NOON, f"{HOUR}"), (f"{HOUR}", NOON), (f"{HOUR}", f"{HOUR}")])
@each_bullmq
def test_a_change_while_the_promoted_job_is_active_has_the_effect_of_nodes(
    pair: Pair, peer: Peer, first: str, changed: str
) -> None:
    one = Rounds(pair, schedule(first))
    one.make_one_each()
    one.promote()
    pair.by_node("process", concurrency=1)
    for queue in one.queues.values():
        wait_until(lambda queue=queue: queue.counts()["active"] and queue.counts()["delayed"], "the job to be active")
    one.make_one_each(schedule(changed))
    one.assert_alike()
    pair.by_node("stop", force=True)


@pytest.mark.parametrize(
    ("first", "changed"), [(NOON, NOON), (NOON, f"{HOUR}"), (f"{HOUR}", NOON), (f"{HOUR}", f"{DAY}")]
)
@each_bullmq
def test_a_change_of_a_paused_queue_replaces_the_job_that_waits(
    pair: Pair, peer: Peer, first: str, changed: str
) -> None:
    """An intended difference to BullMQ 6, which looks for the job where BullMQ 5 had it: it keeps it, or refuses."""
    one = Rounds(pair, schedule(first))
    one.make_one_each()
    for queue in one.queues.values():
        queue.pause()
    one.promote()
    ours = one.queues["right"]
    if peer.alias.startswith("bullmq-5"):
        one.make_one_each(schedule(changed))
        one.assert_alike()
    else:
        ours.upsert_scheduler("report", name="task", data={"n": 2}, **schedule(changed).repeat)
    (scheduler,) = ours.schedulers()
    jobs = [job.id for state in ("wait", "paused", "delayed") for job in ours.page(state)]
    assert jobs == [f"repeat:report:{scheduler.next}"]


@each_peer_of("bull")
def test_a_removal_has_the_effect_of_that_of_bull(pair: Pair, peer: Peer) -> None:
    """Also if the next job waits already: it runs, and is the last one."""
    one = Rounds(pair, Schedule({}))
    for name in ("every hour", "a pattern", "an end"):
        for is_waiting in (False, True):
            one.make_one_each(SCHEDULES[name])
            if is_waiting:
                one.promote()
            one.remove_one_each(SCHEDULES[name])
            with one.workers():
                one.settled()
            one.assert_alike()
            assert one.queues["right"].schedulers() == []
            assert [one.delayed(queue) for queue in one.queues.values()] == [[], []]


@each_peer
def test_node_lists_and_removes_our_schedulers_and_we_node_s(pair: Pair, peer: Peer) -> None:
    one = Rounds(pair, Schedule({"pattern": NOON, "tz": "Europe/Berlin", "endDate": TODAY + 3 * DAY}, {"n": 1}))
    one.make_one_each()
    theirs, ours = one.queues.values()
    bullmq = peer.dialect == "bullmq"
    method = "getJobSchedulers" if bullmq else "getRepeatableJobs"
    left, right = (one.pair.node.call("invoke", queue=queue.name, method=method, args=[]) for queue in (theirs, ours))
    assert len(right) == 1
    assert left == right
    remove = "removeJobScheduler" if bullmq else "removeRepeatableByKey"
    one.pair.node.call("invoke", queue=ours.name, method=remove, args=[right[0]["key"]])
    assert (ours.schedulers(), one.delayed(ours)) == ([], [])

    (found,) = theirs.schedulers()
    assert (found.name, found.pattern, found.tz, found.every) == ("task", NOON, "Europe/Berlin", None)
    assert found.end_date > found.next
    if bullmq:
        assert (found.id, found.data, found.iteration_count) == ("report", {"n": 1}, 1)
    assert theirs.scheduler(found.id) == found
    assert theirs.remove_scheduler(found.id)
    assert one.delayed(theirs) == []


# without a comparison with Node


@not_bull_1
def test_a_scheduler_is_created_listed_changed_and_removed(bench: WorkBench) -> None:
    queue = bench.queue
    data = RawJson('{"n": 1.0, "é": "/"}')
    due = queue.upsert_scheduler("daily", pattern=NOON, tz="UTC", name="report", data=data, opts={"attempts": 3})
    (found,) = queue.schedulers()
    assert (found.id, found.name, found.pattern, found.tz, found.next) == ("daily", "report", NOON, "UTC", due)
    assert due % DAY == DAY / 2
    (job,) = queue.page("delayed")
    assert (job.name, job.data_text, job.opts["attempts"], job.run_at) == ("report", data.text, 3, due)
    assert queue.scheduler("daily") == found
    assert queue.scheduler("other") is None
    queue.upsert_scheduler("daily", pattern="0 0 6 * * *", tz="Europe/Berlin", name="new", data={"n": 2})
    (found,), (job,) = queue.schedulers(), queue.page("delayed")
    assert (found.pattern, found.name, job.name, job.data) == ("0 0 6 * * *", "new", "new", {"n": 2})
    assert queue.remove_scheduler("other") is False
    assert queue.remove_scheduler("daily") is True
    assert (queue.schedulers(), queue.page("delayed")) == ([], [])


@not_bull_1
def test_a_job_of_a_scheduler_runs_now_and_the_schedule_stays(bench: WorkBench) -> None:
    queue = bench.queue
    opts = {"attempts": 3, "priority": 2, "backoff": {"type": "fixed", "delay": 5}}
    queue.upsert_scheduler("daily", pattern=NOON, tz="UTC", name="report", data={"n": 1}, opts=opts)
    before, delayed = queue.schedulers(), queue.page("delayed")
    job = queue.job(queue.run_scheduler("daily"))
    assert (job.name, job.data, job.priority, job.opts["attempts"]) == ("report", {"n": 1}, 2, 3)
    assert (job.delay, job.repeat_job_key, "repeat" in job.opts) == (0, None, False)
    assert (queue.schedulers(), queue.page("delayed")) == (before, delayed)
    (claimed,) = bench.claim().jobs
    assert claimed.id == job.id
    assert (queue.schedulers(), queue.page("delayed")) == (before, delayed)
    with pytest.raises(JobMissing, match=r"job scheduler other of queue .* has no next job"):
        queue.run_scheduler("other")


@not_bull_1
def test_a_scheduler_is_not_changed_if_its_next_job_exists(bench: WorkBench) -> None:
    """An intended difference: Node overwrites the active job, and adds it a second time."""
    queue = bench.queue
    queue.upsert_scheduler("daily", pattern=NOON, tz="UTC")
    queue.promote(queue.page("delayed")[0].id)
    (claimed,) = bench.claim().jobs
    queue.remove_scheduler("daily")
    before = bench.public()
    with pytest.raises(WrongState, match=f"expected no job {claimed.id}"):
        queue.upsert_scheduler("daily", pattern=NOON, tz="UTC")
    assert bench.public() == before


@only_bullmq
def test_a_time_that_is_taken_is_skipped(bench: WorkBench) -> None:
    queue = bench.queue
    start = TODAY + 10 * DAY
    due = queue.upsert_scheduler("hourly", every=HOUR, start_date=start)
    (job,) = queue.page("delayed")
    bench.client.zrem(bench.handle.keys["delayed"], job.id)
    assert due == start
    assert queue.upsert_scheduler("hourly", every=2 * HOUR, start_date=start) == start + 2 * HOUR


@not_bull_1
def test_the_defaults_of_the_queue_apply_to_the_jobs(bench: WorkBench, open_queue: Callable[..., BullQueue]) -> None:
    defaults: dict[str, Any] = {"name": "mail", "attempts": 4, "delay": 5_000, "opts": {"stackTraceLimit": 2}}
    open_queue("q", bench.queue.protocol, **defaults).upsert_scheduler("a", pattern=NOON, opts={"attempts": 5})
    (job,) = bench.queue.page("delayed")
    assert (job.name, job.opts["attempts"], job.opts["stackTraceLimit"]) == ("mail", 5, 2)


@not_bull_1
def test_a_plan_skips_a_time_while_its_unique_job_is_unfinished_and_goes_on(
    bench: WorkBench, open_queue: Callable[..., BullQueue]
) -> None:
    """As a plan of resqu: the job of the job scheduler adds a job with a deduplication id."""

    def follow_plan(job: RunningJob) -> None:
        job.then(NewJob({"of": job.id}, deduplication=job.data["unique"]), queue="work")

    plans, work = bench.queue, open_queue("work", bench.queue.protocol)
    plans.upsert_scheduler("a", every=HOUR, data={"unique": "uid"})
    for number, added in ((1, 1), (2, 0), (3, 0), (4, 1)):
        if number == 4:
            (blocking,) = work.page("wait")
            work.remove(blocking.id)
        for job in plans.page("delayed"):
            plans.promote(job.id)
        with OurWorker(bench.handle, follow_plan):
            wait_until(lambda number=number: plans.counts()["completed"] == number, "the job of the plan")
        assert (work.counts()["wait"], len(plans.page("delayed"))) == (1, 1)
        newest = max(job.id for job in plans.page("completed"))
        assert [job.data["of"] == newest for job in work.page("wait")] == [bool(added)]


@pytest.mark.parametrize("bench", ["bull-1"], indirect=True)
def test_bull_1_has_no_schedulers(bench: WorkBench) -> None:
    queue = bench.queue
    calls: list[Callable[[], object]] = [
        lambda: queue.upsert_scheduler("a", every=HOUR),
        queue.schedulers,
        lambda: queue.scheduler("a"),
        lambda: queue.remove_scheduler("a"),
    ]
    for call in calls:
        with pytest.raises(DialectError, match="a queue of BullMQ or Bull 3 or 4: bull-1 has no job schedulers"):
            call()


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "expected one of `every` (ms) and `pattern` (cron), got neither"),
    "both": ({"every": HOUR, "pattern": NOON}, "expected one of `every` (ms) and `pattern` (cron), got both"),
    "no interval": ({"every": 0}, "expected `every` to be an interval, ms >= 1, or a duration such as PT15M, got: 0"),
    "an interval of a wrong type": ({"every": "1h"}, "ms >= 1, or a duration such as PT15M, got: '1h'"),
    "no duration": ({"every": "PT0S"}, "ms >= 1, or a duration such as PT15M, got: 0"),
    "an interval of months": (
        {"every": "P1M"},
        "expected `every` without years and months, which have no fixed length, got: 'P1M'; use `pattern`",
    ),
    "a pattern of a wrong type": ({"pattern": 5}, "expected `pattern` to be a text, got: 5"),
    "a bad pattern": ({"pattern": "at noon"}, "`pattern`: expected a cron pattern, got: 'at noon'"),
    "a pattern that never matches": ({"pattern": "0 0 30 2 *"}, "expected `pattern` to have a next time, got"),
    "a bad zone": ({"pattern": NOON, "tz": "Mars/Olympus"}, "`tz`: expected the name of a time zone"),
    "a bad zone of an interval": ({"every": HOUR, "tz": "Mars/Olympus"}, "`tz`: expected the name of a time zone"),
    "an end that is over": ({"every": HOUR, "end_date": 1}, "expected `endDate` to be a time in the future, got: 1"),
    "an end before the start": (
        {"pattern": NOON, "start_date": 2_000_000_000_000, "end_date": 1_999_999_999_999},
        "expected `endDate` after `startDate`",
    ),
    "an end before the first job": (
        {"pattern": "0 0 1 1 *", "tz": "UTC", "start_date": 1_893_500_000_000, "end_date": 1_893_500_000_001},
        "expected `pattern` to have a next time before `endDate` (1893500000001)",
    ),
    "a start out of range": ({"pattern": NOON, "start_date": 2**51}, "expected `startDate` to be a time before 2039"),
    "no jobs": ({"every": HOUR, "limit": 0}, "expected `limit` to be a number of jobs >= 1, got: 0"),
    "an offset of a pattern": ({"pattern": NOON, "offset": 5}, "expected no `offset` with `pattern`, got: 5"),
    "an offset beyond the interval": ({"every": HOUR, "offset": HOUR}, "expected `offset` below `every`"),
    "an empty id": ({"scheduler_id": "", "every": HOUR}, "expected `id` to be the id of a job scheduler"),
    "an id of a job": ({"scheduler_id": "a:5", "every": HOUR}, "expected `id` not to end with ':' and a number"),
    "an own job id": (
        {"every": HOUR, "opts": {"jobId": "a"}},
        "expected no `jobId` in `opts`: the job scheduler sets it",
    ),
    "a delay": ({"every": HOUR, "opts": {"delay": 5}}, "expected no `delay` in `opts`: the job scheduler sets it"),
    "a deduplication id": (
        {"every": HOUR, "opts": {"deduplication": {"id": "a"}}},
        "expected no `deduplication` in `opts`: it has no effect",
    ),
    "a bad option": ({"every": HOUR, "opts": {"attempts": -1}}, "expected `attempts` to be an integer >= 0, got: -1"),
    "options of a wrong type": ({"every": HOUR, "opts": "[]"}, "expected `opts` to be a JSON object, got"),
    "bad data": ({"every": HOUR, "data": float("nan")}, "expected `data` to be a value that JSON can hold"),
}


@only_bullmq
def test_a_bad_scheduler_is_refused_and_changes_nothing(bench: WorkBench) -> None:
    for name, (arguments, message) in BAD.items():
        with pytest.raises(OptionError) as caught:
            bench.queue.upsert_scheduler(**{"scheduler_id": "a", **arguments})
        assert message in str(caught.value), name
    assert bench.client.keys(f"{bench.handle.keys.base}*") == []


@pytest.mark.parametrize("bench", ["bull"], indirect=True)
def test_bull_refuses_what_it_can_not_store(bench: WorkBench) -> None:
    for arguments, message in (
        ({"offset": 5}, "expected no `offset`: an interval of bull has no offset; leave it out"),
        (
            {"start_date": 2_000_000_000_000},
            "expected no `startDate` with `every`: an interval of bull has no start; leave it out",
        ),
        ({"scheduler_id": "a:b"}, "expected `id` without ':'"),
        ({"name": "a:b"}, "expected `name` without ':'"),
    ):
        with pytest.raises((OptionError, DialectError), match=message):
            bench.queue.upsert_scheduler(**{"scheduler_id": "a", "every": HOUR, **arguments})
    assert bench.client.keys(f"{bench.handle.keys.base}*") == []


@not_bull_1
def test_a_very_short_interval_is_warned_about(bench: WorkBench, own_log: pytest.LogCaptureFixture) -> None:
    bench.queue.upsert_scheduler("fine", every=100)
    assert own_log.records == []
    bench.queue.upsert_scheduler("quick", every=99)
    (record,) = own_log.records
    assert "more often than every 100 ms, such as quick" in record.getMessage()


@not_bull_1
def test_a_scheduler_that_is_damaged_is_listed(bench: WorkBench) -> None:
    bench.client.zadd(bench.handle.keys["repeats"], {"a": 5, "b::::0 0 * * *": 7})
    bench.client.hset(bench.handle.keys.scheduler("a"), mapping={"name": "x", "every": "often", "data": "{"})
    found = bench.queue.schedulers()
    assert [one.next for one in found] == [5, 7]
    assert found[0].every is None
    assert json.dumps([one.data for one in found])
    assert isinstance(found[1], Scheduler)

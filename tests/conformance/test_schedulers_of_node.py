"""Job schedulers made by Node continue with our worker as with a Node worker: after each iteration all keys are equal.

Jobs are promoted before they are due, so that no test waits; the next job is due an interval later anyway.
"""

from __future__ import annotations

import json
from hashlib import md5
from typing import Any

import pytest
from redis import Redis

from spark_bull import WrongState
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.schedule.schedulers import encoder_of, without_next_job
from tests.conformance.pair import Pair
from tests.conformance.schedule_rounds import (
    SCHEDULING,
    TODAY,
    Rounds,
    Schedule,
    each_peer,
    each_schedule,
)
from tests.support.jobs import DAY, HOUR
from tests.support.node import Peer

#: Member, options of `repeat`, payload.
OlderJob = tuple[str, dict[str, Any], dict[str, Any]]


def make_older(client: Redis, handle: QueueHandle, job: OlderJob) -> str:
    """Makes a repeatable job and its next job, whose id is returned."""
    member, repeat, data = job
    # Later, as a worker would start it at once.
    due = TODAY + 2 * DAY
    keys, name = handle.keys, member.split(":")[0]
    own = repeat.get("key") or md5_of(f"{name}{repeat.get('jobId', '')}{md5_of(member)}")
    job_id = f"repeat:{own}:{due}"
    opts = {"repeat": {**repeat, "count": 1}, "prevMillis": due, "jobId": job_id, "delay": 5, "attempts": 0}
    fields = {
        "name": name,
        "data": json.dumps(data, separators=(",", ":")),
        "opts": json.dumps(opts),
        "timestamp": 1,
        "delay": 5,
    }
    client.hset(keys.job(job_id), mapping={**fields, "priority": 0, "rjk": member})
    client.zadd(keys["delayed"], {job_id: due * 4096})
    client.zadd(keys["repeats"], {member: due})
    return job_id


def md5_of(text: str) -> str:
    return md5(text.encode()).hexdigest()


#: What only Node makes; test_schedulers.py compares all others.
SCHEDULES = {
    "every hour": Schedule({"every": HOUR}),
    "at once": Schedule({"pattern": "0 0 12 * * *", "immediately": True}, bullmq_only=True),
    "what fails once": Schedule({"every": HOUR}, {"$behaviour": "fail:1"}, {"attempts": 2}),
    "an own id": Schedule({"every": HOUR}, {}, opts={"keepLogs": 3, "jobId": "own"}, bullmq_only=True),
    # It has no effect in Node, so we refuse it: a job that is dropped could not continue its job scheduler.
    "a deduplication id": Schedule({"every": HOUR}, opts={"deduplication": {"id": "same"}}, bullmq_only=True),
}


#: Repeatable jobs as BullMQ 5.9 stores them: member, options of `repeat`, payload.
OLDER: dict[str, OlderJob] = {
    "an interval": ("task::::3600000", {"every": HOUR}, {}),
    "a limit": ("task::::3600000", {"every": HOUR, "limit": 2}, {}),
    "an own id": (
        "task:mine::Europe/Berlin:0 3 * * *",
        {"pattern": "0 3 * * *", "tz": "Europe/Berlin", "jobId": "mine"},
        {},
    ),
    "a custom key": ("task::::0 0 4 * * *", {"pattern": "0 0 4 * * *", "key": "custom"}, {"id": "of data"}),
    "an end": ("task::4102444800000::0 0 4 * * *", {"pattern": "0 0 4 * * *", "endDate": 4102444800000}, {"id": 7}),
    "immediately": ("task::::3600000", {"every": HOUR, "offset": 1_234_567}, {}),
}


@each_schedule(SCHEDULES)
def test_a_scheduler_continues_as_in_node(pair: Pair, peer: Peer, name: str) -> None:
    one = Rounds(pair, SCHEDULES[name])
    one.make()
    one.stay_alike(one.schedule.rounds)


@pytest.mark.parametrize("peer", [peer for peer in SCHEDULING if peer.alias.startswith("bullmq-5")], ids=str)
def test_a_repeatable_job_of_bullmq_5_continues_as_in_node(pair: Pair, peer: Peer) -> None:
    """Its `add` with the option `repeat` creates keys that its workers treat as a job scheduler."""
    one = Rounds(pair, Schedule({"every": HOUR}))
    job = {"name": "task", "data": {"$behaviour": "return:1"}, "opts": {"repeat": {"every": HOUR, "limit": 4}}}
    pair.by_node("add", jobs=[job])
    one.stay_alike(5)


@pytest.mark.parametrize("peer", [peer for peer in SCHEDULING if peer.alias.startswith("bullmq-5")], ids=str)
@pytest.mark.parametrize("older", OLDER)
def test_a_repeatable_job_of_bullmq_5_9_continues_as_in_node(pair: Pair, peer: Peer, older: str) -> None:
    one = Rounds(pair, Schedule({}))
    for queue in one.queues.values():
        make_older(one.pair.client, queue.handle, OLDER[older])
    one.stay_alike(3)


@pytest.mark.parametrize("older", OLDER)
def test_a_repeatable_job_of_bullmq_5_9_can_be_run_changed_and_removed(
    queue: BullQueue, client: Redis, prefix: str, older: str
) -> None:
    member, repeat, _ = OLDER[older]
    for change in (True, False):
        next_id = make_older(client, queue.handle, OLDER[older])
        [shown] = queue.schedulers()
        assert shown.id == repeat.get("jobId", member)
        assert [*without_next_job(queue.handle)] == []
        with pytest.raises(WrongState, match="scheduler"):
            queue.remove(next_id)
        copy = queue.job(queue.run_scheduler(shown.id))
        assert copy.name == "task"
        if change:
            replaced = encoder_of(queue.handle).encode({"id": shown.id, "every": DAY}, 1)[1]["replaces"]
            assert [each for each, _ in replaced] == [member] * (shown.id != member)
            queue.upsert_scheduler(shown.id, every=DAY, offset=1)
            assert [(one.id, one.every) for one in queue.schedulers()] == [(shown.id, DAY)]
            assert queue.job(next_id) is None
        assert queue.remove_scheduler(shown.id)
        assert [*queue.schedulers()] == []
        assert queue.counts()["delayed"] == 0
        assert not client.keys(f"{prefix}:q:repeat*")


@each_peer
def test_an_existing_next_job_is_not_changed(pair: Pair, peer: Peer) -> None:
    """Another job has its id."""
    one = Rounds(pair, Schedule({"pattern": "0 0 12 * * *", "tz": "UTC"}))
    one.make()
    for queue in one.queues.values():
        head, _, due = one.delayed(queue)[0].rpartition(":")
        opts = {"jobId": f"{head}:{int(due) + DAY}"}
        one.pair.node.call(
            "add", queue=queue.name, jobs=[{"name": "other", "data": {"$behaviour": "return:9"}, "opts": opts}]
        )
    one.promote()
    with one.workers():
        one.settled()
    one.assert_alike()

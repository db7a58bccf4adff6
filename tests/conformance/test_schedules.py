"""Schedules made by Node go on in our hands as they do in Node's: after each iteration every key is alike.

Jobs are promoted before they are due, so that no test waits for a clock: the next one is due an interval later anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from spark_bull.bull_queue import BullQueue
from tests.support.dump import difference, dump
from tests.support.node_peer import NodePeer
from tests.support.pair import Pair
from tests.support.peers import PEERS, Peer
from tests.support.schedules import told_schedules
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

StartNode = Callable[..., NodePeer]

SCHEDULING = [peer for peer in PEERS if peer.dialect != "bull-1"]
HOUR = 3_600_000
DAY = 24 * HOUR
SIDES = ("left", "right")
PATIENCE_S = 120

each_peer = pytest.mark.parametrize("peer", SCHEDULING, ids=str)
each_bullmq = pytest.mark.parametrize("peer", [peer for peer in SCHEDULING if peer.dialect == "bullmq"], ids=str)


@dataclass(frozen=True)
class Schedule:
    """What Node is asked for. `repeat` has BullMQ's names; `rounds`: how often its job is run."""

    repeat: dict[str, Any]
    data: Any = field(default_factory=lambda: {"$behaviour": "return:1"})
    opts: dict[str, Any] = field(default_factory=dict)
    rounds: int = 3
    bullmq_only: bool = False


SCHEDULES = {
    "every hour": Schedule({"every": HOUR}, rounds=10),
    "a pattern of seconds": Schedule({"pattern": "*/7 * * * * *"}, rounds=10),
    "a pattern in a zone": Schedule({"pattern": "30 2 * * *", "tz": "Europe/Berlin"}, rounds=10),
    "a limit": Schedule({"every": HOUR, "limit": 3}, rounds=4),
    "a pattern with a limit": Schedule({"pattern": "0 12 * * 1-5", "limit": 2}, rounds=3),
    "a start": Schedule({"pattern": "0 0 12 * * *", "startDate": "<in ten days>"}),
    "an end that the pattern reaches": Schedule({"pattern": "0 0 12 * * *", "endDate": "<in three days>"}, rounds=4),
    "an offset": Schedule({"every": HOUR, "offset": 300_000}, bullmq_only=True),
    "at once": Schedule({"pattern": "0 0 12 * * *", "immediately": True}, bullmq_only=True),
    "a priority and attempts": Schedule(
        {"every": HOUR}, opts={"priority": 3, "attempts": 2, "backoff": 5, "removeOnFail": True}
    ),
    "what fails once": Schedule({"every": HOUR}, {"$behaviour": "fail:1"}, {"attempts": 2}),
    "what is removed": Schedule({"pattern": "0 0 12 * * *"}, opts={"removeOnComplete": True, "lifo": True}),
    "a name and data to escape": Schedule(
        {"every": HOUR}, {"$behaviour": "", "text": 'é "/" \\', "list": [], "no": None}
    ),
    "no data": Schedule({"every": HOUR}, {}),
    "kept logs": Schedule({"every": HOUR}, opts={"keepLogs": 3, "jobId": "own"}, bullmq_only=True),
}


@dataclass
class Rounds:
    """The same schedule in two queues, whose jobs are run one after the other."""

    pair: Pair
    queues: dict[str, BullQueue]
    schedule: Schedule
    scheduler: str = "report"

    @property
    def _bullmq(self) -> bool:
        return self.pair.peer.dialect == "bullmq"

    def invoke(self, method: str, *args: Any) -> None:
        for queue in self.queues.values():
            self.pair.node.call("invoke", queue=queue.name, method=method, args=list(args))

    def make(self, schedule: Schedule | None = None) -> None:
        one = schedule or self.schedule
        repeat = {name: _MOMENTS.get(str(value), lambda value=value: value)() for name, value in one.repeat.items()}
        if self._bullmq:
            template = {"name": "task", "data": one.data, "opts": one.opts}
            self.invoke("upsertJobScheduler", self.scheduler, repeat, template)
        else:
            pattern = {"cron": repeat.pop("pattern")} if "pattern" in repeat else {}
            opts = {**one.opts, "repeat": {**repeat, **pattern}}
            for queue in self.queues.values():
                self.pair.node.call("add", queue=queue.name, jobs=[{"name": "task", "data": one.data, "opts": opts}])

    def remove(self) -> None:
        if self._bullmq:
            self.invoke("removeJobScheduler", self.scheduler)
        else:
            self.invoke("removeRepeatable", "task", self.schedule.repeat)

    def promote(self) -> None:
        """Lets the next job of each queue wait, if there is one."""
        for queue in self.queues.values():
            for job_id in self.delayed(queue):
                self.pair.node.call("promote", queue=queue.name, jobId=job_id)

    def delayed(self, queue: BullQueue) -> list[str]:
        ids = self.pair.client.zrange(queue.handle.keys["delayed"], 0, -1)
        return [job_id.decode() for job_id in ids]

    def settled(self) -> None:
        for side, queue in self.queues.items():
            wait_until(lambda queue=queue: self._is_idle(queue), PATIENCE_S, f"the jobs of the {side} queue to finish")

    def _is_idle(self, queue: BullQueue) -> bool:
        counts = queue.counts()
        return not any(counts.get(state) for state in ("wait", "active", "prioritized", "paused"))

    @contextmanager
    def workers(self) -> Iterator[None]:
        left, right = self.queues["left"], self.queues["right"]
        self.pair.node.call("process", queue=left.name, concurrency=1)
        with OurWorker(right.handle):
            yield
        self.pair.node.call("stop", queue=left.name)

    def assert_alike(self) -> None:
        left, right = (
            told_schedules(dump(self.pair.client, self.pair.prefix, queue.name), self.pair.window, queue.name)
            for queue in self.queues.values()
        )
        assert "\n".join(difference(left, right)) == ""

    def jobs(self, side: str = "right") -> list[bytes]:
        """Keys of all jobs that the schedule has made and that are still there."""
        found = self.pair.client.keys(self.queues[side].handle.keys.job("repeat:*:*"))
        return [key for key in found if not key.endswith((b":lock", b":logs"))]


_MOMENTS: dict[str, Callable[[], Any]] = {
    "<in ten days>": lambda: (int(time.time() * 1000) // DAY + 10) * DAY,
    "<in three days>": lambda: (int(time.time() * 1000) // DAY + 3) * DAY,
}


@pytest.fixture
def rounds(
    peer: Peer, node: StartNode, client: Redis, redis_url: str, prefix: str
) -> Iterator[Callable[[Schedule], Rounds]]:
    pair = Pair(peer, node(peer.alias, prefix=prefix), client, redis_url, prefix)
    with ExitStack() as queues:
        opened = {side: queues.enter_context(pair.queue(side)) for side in SIDES}
        yield lambda schedule: Rounds(pair, opened, schedule)


StartRounds = Callable[[Schedule], Rounds]


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        (peer, name)
        for peer in SCHEDULING
        for name, schedule in SCHEDULES.items()
        if peer.dialect == "bullmq" or not schedule.bullmq_only
    ],
    ids=str,
)
def test_a_schedule_goes_on_as_in_node(rounds: StartRounds, peer: Peer, name: str) -> None:
    one = rounds(SCHEDULES[name])
    one.make()
    with one.workers():
        one.settled()
        for _ in range(one.schedule.rounds):
            one.promote()
            one.settled()
            one.assert_alike()


@each_peer
def test_a_schedule_ends_with_its_last_day(rounds: StartRounds, peer: Peer) -> None:
    end = int(time.time() * 1000) + 1500
    one = rounds(Schedule({"every": HOUR, "endDate": end}))
    one.make()
    one.promote()
    wait_until(lambda: time.time() * 1000 > end + 50, PATIENCE_S, "the last day to be over")
    with one.workers():
        one.settled()
    one.assert_alike()
    assert [one.delayed(queue) for queue in one.queues.values()] == [[], []]


@each_peer
def test_a_schedule_that_was_removed_is_over(rounds: StartRounds, peer: Peer) -> None:
    one = rounds(Schedule({"every": HOUR}))
    one.make()
    one.promote()
    one.remove()
    with one.workers():
        one.settled()
    one.assert_alike()
    assert [one.delayed(queue) for queue in one.queues.values()] == [[], []]


@each_bullmq
def test_a_changed_template_counts_from_the_next_job_on(rounds: StartRounds, peer: Peer) -> None:
    one = rounds(Schedule({"every": HOUR}))
    one.make()
    one.promote()
    one.make(Schedule({"every": HOUR}, {"$behaviour": "return:2"}, {"attempts": 4, "priority": 7}))
    with one.workers():
        one.settled()
        for _ in range(3):
            one.promote()
            one.settled()
            one.assert_alike()


@each_peer
def test_a_queue_that_was_paused_goes_on(rounds: StartRounds, peer: Peer) -> None:
    one = rounds(Schedule({"every": HOUR}))
    one.make()
    one.invoke("pause")
    one.promote()
    one.invoke("resume")
    with one.workers():
        one.settled()
        one.assert_alike()
        one.promote()
        one.settled()
    one.assert_alike()


@each_peer
def test_a_next_job_that_exists_is_left_alone(rounds: StartRounds, peer: Peer) -> None:
    """Some other job has its id."""
    one = rounds(Schedule({"pattern": "0 0 12 * * *", "tz": "UTC"}))
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

"""A job scheduler that Node has made in two queues: a Node worker processes one queue, ours the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_bull import BullQueue
from tests.support.dump import difference, dump
from tests.support.node import NEWEST, PEERS, Peer, each_peer_of
from tests.support.pair import Pair
from tests.support.schedulers import comparable_schedulers
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

HOUR = 3_600_000
DAY = 24 * HOUR
SIDES = ("left", "right")
#: The peers that have job schedulers.
SCHEDULING = [peer for peer in PEERS if peer.dialect != "bull-1"]

each_peer = each_peer_of("bull", "bullmq")
each_bullmq = each_peer_of("bullmq")


@dataclass(frozen=True)
class Schedule:
    """The arguments of a job scheduler. `repeat` has BullMQ's names; `rounds`: how often its job is run.

    ours: values in place of Node's, when we make it.
    """

    repeat: dict[str, Any]
    data: Any = field(default_factory=lambda: {"$behaviour": "return:1"})
    opts: dict[str, Any] = field(default_factory=dict)
    rounds: int = 3
    bullmq_only: bool = False
    ours: dict[str, Any] = field(default_factory=dict)


def each_schedule(schedules: Mapping[str, Schedule]) -> pytest.MarkDecorator:
    """Runs a test with each `peer` and the `name` of each of its schedules; with older peers only the first ones."""

    def mark(peer: Peer, number: int) -> Any:
        return () if peer.alias in NEWEST else pytest.mark.rest if number < 2 else pytest.mark.soak

    cases = [
        pytest.param(peer, name, marks=mark(peer, number))
        for peer in SCHEDULING
        for number, (name, schedule) in enumerate(schedules.items())
        if peer.dialect == "bullmq" or not schedule.bullmq_only
    ]
    return pytest.mark.parametrize(("peer", "name"), cases, ids=str)


def our_worker(queue: BullQueue) -> OurWorker:
    return OurWorker(queue.handle)


@dataclass
class Rounds:
    """The same job scheduler in two queues, whose jobs are run one after the other."""

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
        """Node makes the job scheduler in both queues."""
        for side in SIDES:
            self._make_by_node(side, schedule or self.schedule)

    def make_one_each(self, schedule: Schedule | None = None) -> None:
        """Node makes the job scheduler in the left queue, we in the right one."""
        one = schedule or self.schedule
        self._make_by_node("left", one, jobId=self.scheduler)
        repeat = _at_moments(one)
        dates = {"start_date": repeat.pop("startDate", None), "end_date": repeat.pop("endDate", None)}
        given = {"name": "task", "data": one.data, "opts": one.opts, **repeat | one.ours, **dates}
        self.queues["right"].upsert_scheduler(self.scheduler, **given)

    def _make_by_node(self, side: str, one: Schedule, **bull_opts: str) -> None:
        repeat, queue = _at_moments(one), self.queues[side].name
        if self._bullmq:
            args = [self.scheduler, repeat, {"name": "task", "data": one.data, "opts": one.opts}]
            self.pair.node.call("invoke", queue=queue, method="upsertJobScheduler", args=args)
        else:
            opts = {**one.opts, "repeat": _as_in_bull(repeat), **bull_opts}
            self.pair.node.call("add", queue=queue, jobs=[{"name": "task", "data": one.data, "opts": opts}])

    def remove_one_each(self, schedule: Schedule | None = None) -> None:
        """Node removes the job scheduler of the left queue, we the one of the right queue."""
        method, args = "removeJobScheduler", [self.scheduler]
        if not self._bullmq:
            repeat = _as_in_bull(_at_moments(schedule or self.schedule))
            method, args = "removeRepeatable", ["task", {**repeat, "jobId": self.scheduler}]
        self.pair.node.call("invoke", queue=self.queues["left"].name, method=method, args=args)
        assert self.queues["right"].remove_scheduler(self.scheduler)

    def remove(self) -> None:
        if self._bullmq:
            self.invoke("removeJobScheduler", self.scheduler)
        else:
            self.invoke("removeRepeatable", "task", self.schedule.repeat)

    def promote(self) -> None:
        """Promotes the delayed jobs of both queues."""
        for queue in self.queues.values():
            for job_id in self.delayed(queue):
                self.pair.node.call("promote", queue=queue.name, jobId=job_id)

    def delayed(self, queue: BullQueue) -> list[str]:
        ids = self.pair.client.zrange(queue.handle.keys["delayed"], 0, -1)
        return [job_id.decode() for job_id in ids]

    def settled(self) -> None:
        for side, queue in self.queues.items():
            wait_until(lambda queue=queue: self._is_idle(queue), f"the jobs of the {side} queue to finish")

    def _is_idle(self, queue: BullQueue) -> bool:
        counts = queue.counts()
        return not any(counts.get(state) for state in ("wait", "active", "prioritized", "paused"))

    @contextmanager
    def workers(self, ours: Callable[[BullQueue], AbstractContextManager[Any]] = our_worker) -> Iterator[None]:
        """Node's worker and `ours` run in the block."""
        left, right = self.queues["left"], self.queues["right"]
        self.pair.node.call("process", queue=left.name, concurrency=1)
        with ours(right):
            yield
        self.pair.node.call("stop", queue=left.name)

    def stay_alike(self, count: int) -> None:
        """Both workers end the next `count` jobs, after each of which the keys are compared."""
        with self.workers():
            self.settled()
            for _ in range(count):
                self.promote()
                self.settled()
                self.assert_alike()

    def assert_alike(self) -> None:
        left, right = (
            comparable_schedulers(dump(self.pair.client, self.pair.prefix, queue.name), self.pair.window, queue.name)
            for queue in self.queues.values()
        )
        assert not (differences := difference(left, right)), "\n".join(differences)

    def jobs(self, side: str = "right") -> list[bytes]:
        """Keys of all jobs that the job scheduler has made and that are still there."""
        found = self.pair.client.keys(self.queues[side].handle.keys.job("repeat:*:*"))
        return [key for key in found if not key.endswith((b":lock", b":logs"))]


_MOMENTS: dict[str, Callable[[], Any]] = {
    "<in ten days>": lambda: (int(time.time() * 1000) // DAY + 10) * DAY,
    "<in three days>": lambda: (int(time.time() * 1000) // DAY + 3) * DAY,
}


def _at_moments(schedule: Schedule) -> dict[str, Any]:
    """The repeat options with times in place of the names of moments."""
    return {name: _MOMENTS.get(str(value), lambda value=value: value)() for name, value in schedule.repeat.items()}


def _as_in_bull(repeat: dict[str, Any]) -> dict[str, Any]:
    return {"cron" if name == "pattern" else name: value for name, value in repeat.items()}


StartRounds = Callable[[Schedule], Rounds]


@contextmanager
def opened(pair: Pair) -> Iterator[StartRounds]:
    with ExitStack() as queues:
        both = {side: queues.enter_context(pair.queue(side)) for side in SIDES}
        yield lambda schedule: Rounds(pair, both, schedule)

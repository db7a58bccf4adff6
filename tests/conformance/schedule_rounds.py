"""The same job scheduler in two queues: a Node worker processes one queue, ours the other.

Their keys are compared with the times and the numbers in job ids replaced by their order.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from spark_bull import BullQueue
from tests.conformance.pair import SIDES, Pair
from tests.support.dump import DELAYED_SCALE, Dump, Key, Window, comparable, is_job
from tests.support.jobs import DAY
from tests.support.node import NEWEST, PEERS, Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.worker import OurWorker, settled

#: The peers that have job schedulers.
SCHEDULING = [peer for peer in PEERS if peer.dialect != "bull-1"]

#: The beginning of the day, in ms since 1970: the tests take less than a day.
TODAY = int(time.time() * 1000) // DAY * DAY

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
    schedule: Schedule
    #: Its id.
    scheduler = "report"

    def __post_init__(self) -> None:
        self.queues = self.pair.queues
        self._bullmq = self.pair.peer.dialect == "bullmq"
        # Node writes its version, which decides about some fields.
        self.pair.by_node("counts")

    def make(self) -> None:
        for side in SIDES:
            self._make_by_node(side, self.schedule)

    def make_one_each(self, schedule: Schedule | None = None) -> None:
        """Node makes the job scheduler in the left queue, we in the right one."""
        one = schedule or self.schedule
        self._make_by_node("left", one, jobId=self.scheduler)
        dates = {"startDate": "start_date", "endDate": "end_date"}
        repeat = {dates.get(name, name): value for name, value in one.repeat.items()}
        given = {"name": "task", "data": one.data, "opts": one.opts, **repeat | one.ours}
        self.queues["right"].upsert_scheduler(self.scheduler, **given)

    def _make_by_node(self, side: str, one: Schedule, **bull_opts: str) -> None:
        repeat, queue = one.repeat, self.queues[side].name
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
            repeat = _as_in_bull((schedule or self.schedule).repeat)
            method, args = "removeRepeatable", ["task", {**repeat, "jobId": self.scheduler}]
        self.pair.node.call("invoke", queue=self.queues["left"].name, method=method, args=args)
        assert self.queues["right"].remove_scheduler(self.scheduler)

    def promote(self) -> None:
        for queue in self.queues.values():
            for job_id in self.delayed(queue):
                self.pair.node.call("promote", queue=queue.name, jobId=job_id)

    def delayed(self, queue: BullQueue) -> list[str]:
        ids = self.pair.client.zrange(queue.handle.keys["delayed"], 0, -1)
        return [job_id.decode() for job_id in ids]

    def settled(self) -> None:
        for side, queue in self.queues.items():
            wait_until(lambda queue=queue: settled(queue, "delayed"), f"the jobs of the {side} queue to finish")

    @contextmanager
    def workers(self, ours: Callable[[BullQueue], AbstractContextManager[Any]] = our_worker) -> Iterator[None]:
        """Node's worker and `ours` run in the block."""
        with self.pair.node_working(self.queues["left"]), ours(self.queues["right"]):
            yield

    def stay_alike(self, count: int, ours: Callable[[BullQueue], AbstractContextManager[Any]] = our_worker) -> None:
        """Both workers end the next `count` jobs, after each of which the keys are compared."""
        with self.workers(ours):
            self.settled()
            for _ in range(count):
                self.promote()
                self.settled()
                self.assert_alike()

    def assert_alike(self) -> None:
        assert not (differences := self.pair.differences(comparable_schedulers)), "\n".join(differences)


def _as_in_bull(repeat: dict[str, Any]) -> dict[str, Any]:
    return {"cron" if name == "pattern" else name: value for name, value in repeat.items()}


_SCHEDULED = re.compile(r"repeat:.+:(\d{13})")
#: Times are replaced by numbers from here on, in the order of the jobs, which are not times of a test.
_FIRST_LABEL = 7_000_000_000_001


def comparable_schedulers(raw: Dump, window: Window) -> Dump:
    """The comparable values of two queues with the same job schedulers, including the id counter."""
    times = sorted({match[1] for name in [*raw, *_members(raw)] if (match := _SCHEDULED.fullmatch(name))})

    def renamed(value: Any) -> Any:
        """Replaces the times, which are values or parts of ids."""
        text = json.dumps(value)
        for number, time_ms in enumerate(times):
            for start in ":", '"':
                text = text.replace(f"{start}{time_ms}", f"{start}{_FIRST_LABEL + number}")
        return json.loads(text)

    made = {renamed(name): replace(key, value=_without_times(name, key, renamed)) for name, key in raw.items()}
    apart = {name: made.pop(name) for name in ("id", "delayed", "repeat") if name in made}
    return comparable(made, window) | apart


def _members(raw: Dump) -> list[str]:
    members = [str(member) for name in ("delayed", "repeat") if name in raw for member, _ in raw[name].value]
    # Jobs that were removed are only there.
    events = raw["events"].value if "events" in raw else []
    return members + [fields["jobId"] for _, fields in events if "jobId" in fields]


def _without_times(name: str, key: Key, renamed: Callable[[Any], Any]) -> Any:
    if name in ("delayed", "repeat"):
        scale = DELAYED_SCALE if name == "delayed" else 1
        return renamed([(member, f"{int(score) // scale}") for member, score in key.value])
    if is_job(key) and "timestamp" in key.value:
        opts = json.loads(key.value["opts"])
        # Node's workers have no name in these tests, Spark's always have one.
        named = {name: value for name, value in key.value.items() if name != "pb"}
        opts["delay"] = "<delay>"
        if "prevMillis" in opts:
            opts["prevMillis"] = renamed(str(opts["prevMillis"]))
        if "offset" in opts.get("repeat", {}):
            opts["repeat"]["offset"] = "<offset>"
        # These may equal the time of a job scheduler that began immediately.
        stamps = {name: named.pop(name) for name in ("timestamp", "processedOn", "finishedOn") if name in named}
        return renamed({**named, "opts": json.dumps(opts), "delay": "<delay>"}) | stamps
    made = renamed(key.value)
    return {**made, "offset": "<offset>"} if key.type == "hash" and "offset" in made else made

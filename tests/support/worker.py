"""Our worker without Spark: one slot in a thread, with the behaviours of tests/node/behaviours.js."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

from spark_bull.core.errors import DelayedError, RateLimitError, ReturnedError, UnrecoverableError, WaitingForChildren
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.job.job_runner import FunctionRunner, JobFunction, Runner
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.slot import loop_of
from spark_bull.run.slot.slot_control import SlotControl
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan, start_limit
from spark_bull.run.slot.slot_report import SlotStats
from tests.support.wait import Background, wait_until

_POSTPONING = {"delay": DelayedError(1), "limit": RateLimitError(1), "giveBack": ReturnedError()}


def behave(job: RunningJob) -> Any:
    """Behaves as `data.$behaviour` requests, like tests/node/behaviours.js."""
    result: Any = {"echo": job.data}
    for step in str(job.data.get("$behaviour", "")).split(";"):
        name, _, rest = step.partition(":")
        if name == "fail" and (not rest or job.attempts_made < int(rest)):
            raise RuntimeError(f"scripted failure {job.attempts_made + 1}")
        if name == "discard":
            raise UnrecoverableError("discarded")
        if name == "sleep":
            time.sleep(int(rest) / 1000)
        if name == "progress":
            job.update_progress(json.loads(rest))
        if name == "log":
            job.log(rest)
        if name == "return":
            result = json.loads(rest)
        if name == "child" and not job.children_values():
            job.add_child(NewJob({"$behaviour": "return:7"}, "child", job_id=f"child-of-{job.id}"), queue=rest)
        if name == "wait" and job.handle.connection.call("EXISTS", job.handle.keys.children(job.id)):
            raise WaitingForChildren
        if name == "postpone" and job.attempts_started == 1:
            raise _POSTPONING[rest]
        if name == "prune":
            job.remove_unprocessed_children()
        if name == "values":
            result = [job.children_values(), job.children_failures()]
    return result


class OurWorker(Background):
    """Processes queues until the block is left, by default one job at a time like a Node worker with concurrency 1.

    settings: further fields of WorkSettings and SlotPlan.
    """

    def __init__(
        self,
        handle: QueueHandle | Sequence[QueueHandle],
        processor: JobFunction | Mapping[str, JobFunction] = behave,
        *,
        chunk_size: int | None = None,
        concurrency: int = 1,
        timeout_ms: int = 0,
        weights: Sequence[int] = (),
        max_started: int = 0,
        runner: Runner | None = None,
        policy: OutcomePolicy | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.id = uuid4().hex[:8]
        handles = [handle] if isinstance(handle, QueueHandle) else handle
        claims = {name: settings.pop(name) for name in [*settings] if name in WorkSettings._fields}

        def queue_plan(one: QueueHandle, weight: int) -> SlotQueuePlan:
            own = {"control": one.keys.control(self.id), "counters": one.keys.counters(self.id), **claims}
            return SlotQueuePlan(one, WorkSettings(self.id, **own), weight, start_limit(one, max_started))

        self.plan = plan = SlotPlan(
            tuple(map(queue_plan, handles, weights or [0] * len(handles))),
            self.id,
            runner or FunctionRunner(processor, timeout_ms),
            concurrency if chunk_size is None else chunk_size,
            policy or OutcomePolicy(),
            concurrency,
            **settings,
        )
        self.control = SlotControl(plan)
        self.loop = loop_of(plan, 0)
        self.stats: SlotStats | None = None

    def work(self) -> None:
        self.stats = self.loop.run()

    def waits(self) -> int:
        """How many blocking commands of the slot wait for jobs."""
        clients = self.plan.queues[0].handle.connection.clients()
        return sum(int(one["id"]) in self.loop.clients and "b" in one["flags"] for one in clients)

    def run_here(self, meanwhile: Callable[[], object]) -> None:
        """Runs in this thread, the main one as in Spark's tasks, until `meanwhile` has ended in another thread."""
        over = threading.Event()

        def attend() -> None:
            try:
                meanwhile()
            finally:
                assert self.control.request("stop")
                while not over.wait(0.05):
                    self.control.unblock()

        with ThreadPoolExecutor(1) as pool:
            attended = pool.submit(attend)
            try:
                self.stats = self.loop.run()
            finally:
                over.set()
        attended.result()

    def stop(self) -> None:
        assert self.control.request("stop")
        wait_until(self._has_ended, "the worker to stop")
        super().stop()

    def _has_ended(self) -> bool:
        self.control.unblock()
        return not self._thread.is_alive()


def settled(queue: BullQueue, *but: str) -> bool:
    """Whether all jobs have ended, except in some states."""
    return not any(count for state, count in queue.counts().items() if state not in ("completed", "failed", *but))


def end_all(queue: BullQueue, processor: JobFunction | Mapping[str, JobFunction] = behave, **settings: Any) -> None:
    """Processes a queue until all of its jobs have ended. settings: see `OurWorker`."""
    with OurWorker(queue.handle, processor, **settings):
        wait_until(lambda: settled(queue), "all jobs to end")


def hold(job: RunningJob) -> int:
    """Reports its process as progress, and waits until the key `go` exists; an attempt after a stall does not wait."""
    job.update_progress(os.getpid())
    connection, keys = job.handle.connection, job.handle.keys
    while not job.claimed.stalled_counter and not connection.call("EXISTS", f"{keys.base}go"):
        time.sleep(0.02)
    return os.getpid()


def fail_to_set_up() -> None:
    raise RuntimeError("no model")

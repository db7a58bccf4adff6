"""A slot that processes several jobs at a time: each is settled when it ends, and its place is filled again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from spark_bull.core.errors import UnrecoverableError
from spark_bull.core.model.outcomes import Claim, Outcomes
from spark_bull.run.job.job_runner import FunctionRunner, Result
from spark_bull.run.job.job_threads import JobTasks, JobThreads, is_coroutine_function
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.slot_loop import Event, SlotLoop, StateEnded, in_order
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_queue import SlotQueue
from spark_bull.run.slot.termination import Cancelled


class _Place(NamedTuple):
    """Which job of which queue is processed."""

    queue: SlotQueue
    job_id: str


class ConcurrentLoop(SlotLoop):
    """Runs functions in threads and coroutine functions in one event loop, `concurrency` jobs at a time."""

    def __init__(self, plan: SlotPlan, slot: int, runner: FunctionRunner) -> None:
        super().__init__(plan, slot, at_once=None)
        self._runner = runner
        self._token = f"{plan.worker}:{slot}:{uuid4().hex}"
        self._running: dict[_Place, RunningJob] = {}
        self._stalled: deque[tuple[SlotQueue, RunningJob]] = deque()
        self._isolating = False
        #: What is to be settled, in parts, each by one script.
        self._ended: dict[SlotQueue, list[Outcomes]] = {}
        self._threads = JobThreads(self._post)
        self._tasks: JobTasks | None = None

    def _loop(self) -> None:
        try:
            while not self._is_over():
                self._settle_and_claim()
                if self._is_stopping:
                    self._end_waits()
                    self._return_stalled()
                else:
                    self._start_stalled()
                self._report_state()
                if not self._ended and not self._is_over():
                    self._take_events()
        finally:
            self._threads.close()

    @contextmanager
    def _state(self) -> Iterator[Any]:
        """As in a slot of functions; with coroutine functions, `setup` runs in their event loop."""
        if any(map(is_coroutine_function, self._runner.functions.values())):
            self._tasks = JobTasks(self._post)
        try:
            with self._setup(self._tasks, partial(self._inbox.put, StateEnded())) as state:
                yield state
        finally:
            if self._tasks is not None:
                self._tasks.close()

    def _is_over(self) -> bool:
        return self._is_stopping and not (self._running or self._ended or self._stalled)

    def _settle_and_claim(self) -> None:
        """Settles what has ended, and fills the places that are free."""
        for queue in in_order(self.queues):
            while True:
                outcomes, room = self._last_part(queue), self._room()
                may_claim = room > 0 and not queue.wait.is_on
                if not (outcomes or may_claim or queue.wait.has_woken):
                    break
                claim = queue.work(outcomes, min(room, self._plan.chunk_size), self._token)
                self._is_stopping = self._is_stopping or claim.stop
                self._start(queue, claim)
                if self._room() > 0 and not claim.more and not queue.wait.is_on:
                    queue.wait.begin(claim)

    def _last_part(self, queue: SlotQueue) -> Outcomes | None:
        """Settles what has ended, except for the last part, which is settled with the next claim."""
        *parts, last = self._ended.pop(queue, [None])
        for part in parts:
            queue.work(part, 0)
        return last

    def _room(self) -> int:
        """How many jobs may start."""
        if self._is_stopping or self._stalled or self._isolating:
            return 0
        # Threads that were abandoned hold no place, unless there are too many of them.
        too_many = max(0, self._threads.abandoned - self._plan.concurrency)
        return max(0, self._plan.concurrency - len(self._running) - too_many)

    def _start(self, queue: SlotQueue, claim: Claim) -> None:
        for job in queue.running(claim.jobs, self._token):
            claimed = job.claimed
            # A job that runs here lost its lock before it was claimed again: the result of that run is dropped.
            previous = self._running.pop(_Place(queue, job.id), None)
            if previous is not None:
                previous.lose_lock()
            if claimed.deferred_failure is not None:
                self._record(queue, Result(job, None, UnrecoverableError(claimed.deferred_failure)))
            elif not claimed.stalled_counter:
                self._run(queue, job)
            elif not self._stalled:
                self._stalled.append((queue, job))
            else:
                # Other slots need not wait until this one has run the first of them alone.
                self._outcomes(queue).unstarted.append(job.id)

    def _run(self, queue: SlotQueue, job: RunningJob) -> None:
        self._running[_Place(queue, job.id)] = job
        try:
            function = self._runner.function_for(job)
        except BaseException as error:
            self._post(Result(job, None, error))
            return
        limit_ms = self._runner.begin(job)
        if queue.keeper.has_given_up:
            # As the process is to end, another thread has returned the job before it began.
            return
        if self._tasks is not None and is_coroutine_function(function):
            self._tasks.start(job, function, limit_ms)
        else:
            self._threads.start(job, function, limit_ms)

    def _start_stalled(self) -> None:
        """Runs a job that has stalled before alone, as it may have killed its worker."""
        while self._stalled and not self._running:
            queue, job = self._stalled.popleft()
            if job.lock_lost:
                queue.keeper.release([job.id])
            else:
                self._isolating = True
                self._run(queue, job)

    def _return_stalled(self) -> None:
        while self._stalled:
            queue, job = self._stalled.popleft()
            self._outcomes(queue).unstarted.append(job.id)

    def _post(self, event: Event) -> None:
        """Hands an event to the loop, in the thread in which it happens: also when the loop will not take it."""
        if isinstance(event, Result):
            queue = self._queue_of(event)
            with queue.unsettled.recording:
                queue.unsettled.ended[event.job.id] = event
        self._inbox.put(event)

    def _queue_of(self, result: Result) -> SlotQueue:
        return next(queue for queue in self.queues if queue.handle is result.job.handle)

    def _take(self, event: Event) -> None:
        super()._take(event)
        if isinstance(event, Result):
            queue = self._queue_of(event)
            with queue.unsettled.recording:
                # At the end of the process, another thread has recorded it.
                if queue.unsettled.ended.pop(event.job.id, None) is None:
                    return
            event.job.lose_lock()
            place = _Place(queue, event.job.id)
            if self._running.get(place) is event.job:
                del self._running[place]
                self._isolating = False
                self._record(queue, event)
        elif isinstance(event, Cancelled) and event.is_current:
            self._end(event)
        elif isinstance(event, StateEnded):
            self._is_stopping = True

    def _cancel(self, cancelled: Cancelled) -> None:
        self._inbox.put(cancelled)

    def _end(self, cancelled: Cancelled) -> None:
        """Cancels the function or coroutine of a job; a job that has not started fails."""
        queue, job_id, _, error = cancelled
        job = self._running.get(_Place(queue, job_id))
        if job is not None and job.cancellation is None:
            job.cancellation = error
            self._threads.cancel(job, error)
            if self._tasks is not None:
                self._tasks.cancel(job, error)
        for stalled in [one for one in self._stalled if one[0] is queue and one[1].id == job_id]:
            self._stalled.remove(stalled)
            self._record(queue, Result(stalled[1], None, error))

    def _record(self, queue: SlotQueue, result: Result) -> None:
        with queue.unsettled.recording:
            self._plan.policy.record(self._outcomes(queue), queue.handle.dialect, result, queue.now)

    def _outcomes(self, queue: SlotQueue) -> Outcomes:
        """The part to which an outcome is to be added: no script settles more than a chunk."""
        parts = self._ended.setdefault(queue, [])
        if not parts or len(parts[-1]) >= self._plan.chunk_size or parts[-1].is_large(self._plan.chunk_bytes):
            parts.append(queue.unsettled.new_outcomes(self._token))
        return parts[-1]

    def _report_state(self) -> None:
        if self._running:
            self._report.publish_busy(self.clients)
        else:
            self._report.publish("idle", self.clients)

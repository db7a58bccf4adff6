"""A slot that processes a chunk of jobs at a time: a script settles a part of one chunk, and claims one of the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import UnrecoverableError
from spark_bull.core.model.outcomes import Claim, Outcomes
from spark_bull.core.queue.work.claim import parts_to_return
from spark_bull.run.job.job_runner import Result, Runner
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.cancel_reader import Cancelled
from spark_bull.run.slot.chunk_parts import ChunkSize, GrowingChunk, Processed, Recorder
from spark_bull.run.slot.queue_order import Turns
from spark_bull.run.slot.slot_loop import SlotLoop
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_queue import SlotQueue
from spark_bull.run.slot.unsettled import SCRIPT_JOBS

#: Interval at which a chunk is settled in parts, as its jobs end. It is also settled in parts when its outcomes exceed
#: `chunk_bytes`.
SETTLE_S: Final = 0.5
#: Duration after which the rest of a chunk of jobs that run one by one is returned to the queue.
RETURN_S: Final = 2.0


class _Chunk(NamedTuple):
    """Claimed jobs of a queue."""

    queue: SlotQueue
    claim: Claim


class _Current(NamedTuple):
    """The jobs that are processed, and the token of their claim."""

    token: str
    jobs: Sequence[RunningJob]


class _Deferred(Runner):
    """Fails jobs that must not be run."""

    one_by_one = False
    may_end_process = False

    def __call__(self, jobs: Sequence[RunningJob], _lost: Collection[str]) -> Iterator[Sequence[Result]]:
        yield [Result(job, None, UnrecoverableError(job.claimed.deferred_failure)) for job in jobs]

    def interrupt(self, job: RunningJob) -> None:
        """No job runs."""


_DEFERRED: Final = _Deferred()


class ChunkLoop(SlotLoop):
    """Runs the jobs of a chunk in the main thread, one by one or, for UDFs, together."""

    def __init__(self, plan: SlotPlan, slot: int) -> None:
        self._has_one_queue = len(plan.queues) == 1
        at_once = 1 if plan.runner.one_by_one else None
        super().__init__(plan, slot, at_once=at_once, waits_in_thread=not self._has_one_queue)
        self._turns = Turns(self.queues)
        self._size = ChunkSize(plan.chunk_size)
        self._isolating = False
        self._current = _Current("", ())

    def _loop(self) -> None:
        processed: Processed | None = None
        while not self._is_stopping:
            chunk = self._claim(processed)
            processed = None
            if chunk is not None:
                self._end_waits()
                self._report.publish_now_and_then("busy", self.clients)
                processed = self._run(chunk.queue, self._isolate_stalled(chunk))
                self._report.publish_now_and_then("busy", self.clients)
            elif not self._is_stopping:
                self._report.publish("idle", self.clients)
                self._wait()
        if processed is not None:
            processed.settle()
        self._end_waits()

    def _claim(self, processed: Processed | None) -> _Chunk | None:
        """Settles a chunk and claims the next one of the first queue that has jobs; None when no queue has any."""
        order = self._turns.order()
        processed = processed or Processed(order[0], [])
        if processed.queue is not order[0] or any(part.limited_ms for part in processed.parts):
            processed.settle()
        for queue in order:
            while not queue.wait.is_on:
                claim = queue.work(processed.next_part(), self._claim_limit())
                if claim.jobs and not claim.stop:
                    self._turns.claimed(queue)
                    return _Chunk(queue, self._filled(queue, claim, processed))
                processed.settle()
                if claim.stop:
                    self._is_stopping = True
                    return None
                if not claim.more:
                    queue.wait.begin(claim)
        return None

    def _filled(self, queue: SlotQueue, claim: Claim, processed: Processed) -> Claim:
        """Claims more jobs for a UDF: those there are, then until `min_chunk`, for `chunk_wait_ms` at most.

        Settles what is left of the last chunk.
        """
        if self._plan.runner.one_by_one:
            processed.settle()
            return claim
        deadline = monotonic_s() + self._plan.chunk_wait_ms / 1000
        chunk = GrowingChunk(self._plan, claim, 1 if self._isolating else self._plan.chunk_size)
        while chunk.may_grow:
            if chunk.is_short:
                left_s = deadline - monotonic_s()
                if left_s <= 0:
                    break
                if not chunk.last.more:
                    processed.settle()
                    self._wait_for_more(queue, chunk.last, left_s)
            elif not (chunk.last.more and chunk.last.jobs):
                break
            more = queue.work(processed.next_part(), min(chunk.room, SCRIPT_JOBS), claim.token, chunk.size)
            if not chunk.add(more, queue.handle.keys):
                _return_unstarted(queue, claim.token, [job.id for job in more.jobs])
                break
        processed.settle()
        self._is_stopping = chunk.last.stop
        return claim._replace(jobs=[*chunk.jobs.values()])

    def _wait_for_more(self, queue: SlotQueue, last: Claim, timeout_s: float) -> None:
        if not queue.wait.is_on:
            queue.wait.begin(last, timeout_s)
        self._wait(timeout_s)

    def _wait(self, timeout_s: float | None = None) -> None:
        """Waits until there may be a job in one of the queues, `timeout_s` at most if they wait in threads."""
        if self._has_one_queue:
            self.queues[0].wait.run()
        else:
            self._take_events(timeout_s)

    def _claim_limit(self) -> int:
        if self._isolating:
            return 1
        return self._size.current if self._plan.runner.one_by_one else min(SCRIPT_JOBS, self._plan.chunk_size)

    def _isolate_stalled(self, chunk: _Chunk) -> Claim:
        """Reduces the claim to its first job that has stalled before, as this job may have killed its worker."""
        claim = chunk.claim
        stalled = next((job for job in claim.jobs if job.stalled_counter), None)
        if not self._plan.runner.may_end_process:
            stalled = None
        self._isolating = stalled is not None
        if stalled is None or len(claim.jobs) == 1:
            return claim
        _return_unstarted(chunk.queue, claim.token, [job.id for job in claim.jobs if job is not stalled])
        return claim._replace(jobs=[stalled])

    def _run(self, queue: SlotQueue, claim: Claim) -> Processed:
        """Runs a chunk and returns the outcomes that are not settled yet, whose jobs keep their locks until then."""
        started = settled_at = monotonic_s()
        done, recorder = 0, Recorder(self._plan, queue, claim.token)
        running = queue.running(claim.jobs, claim.token)
        self._current = _Current(claim.token, running)
        for runner, jobs in self._divided(running):
            begun, one_by_one = monotonic_s(), runner.one_by_one
            for results in runner(jobs, queue.keeper.lost):
                now_s = monotonic_s()
                now = claim.now + int(1000 * (now_s - started))
                recorder.add(results, now)
                done += len(results)
                is_long = now_s - settled_at > SETTLE_S
                if one_by_one and (recorder.part.limited_ms or (is_long and now_s - begun > RETURN_S)):
                    self._return_rest(queue, recorder.part, jobs[jobs.index(results[-1].job) + 1 :], claim.now)
                    break
                if (is_long or recorder.is_large) and done < len(running):
                    recorder.settle()
                    settled_at = monotonic_s()
                    self._report.publish_now_and_then("busy", self.clients)
        if done < len(running):
            # Some have lost their locks, and have no outcome. Others may wait until a damaged queue is repaired.
            queue.keeper.release([job.id for job in claim.jobs if job.id in queue.keeper.lost])
        self._size.update(done, monotonic_s() - started)
        return Processed(queue, recorder.parts)

    def _divided(self, jobs: Sequence[RunningJob]) -> Iterable[tuple[Runner, Sequence[RunningJob]]]:
        """The runners of these jobs, in the order in which they are called; first, of those that must not be run."""
        deferred = [job for job in jobs if job.claimed.deferred_failure is not None]
        if deferred:
            yield _DEFERRED, deferred
            jobs = [job for job in jobs if job.claimed.deferred_failure is None]
        yield from self._plan.runner.divided(jobs)

    def _return_rest(self, queue: SlotQueue, outcomes: Outcomes, jobs: Sequence[RunningJob], now: int) -> None:
        """Returns jobs that have not started to the queue; those that were cancelled fail."""
        for job in jobs:
            if job.id in queue.keeper.lost:
                continue
            if job.cancellation is None:
                outcomes.unstarted.append(job.id)
            else:
                self._plan.policy.record(outcomes, queue.handle.dialect, Result(job, None, job.cancellation), now)

    def _cancel(self, cancelled: Cancelled) -> None:
        current = self._current
        # Each claim has its own token, so a different token means that the cancelled chunk is over.
        if current.token != cancelled.hold.token:
            return
        for job in current.jobs:
            if job.id == cancelled.job_id:
                job.cancellation = cancelled.error
                self._plan.runner.interrupt(job)


def _return_unstarted(queue: SlotQueue, token: str, ids: Sequence[str]) -> None:
    for part in parts_to_return(ids, SCRIPT_JOBS):
        queue.work(Outcomes(token, unstarted=[*part]), 0)

"""A slot that processes a chunk of jobs at a time, by a chunk's size, its growth, and its outcomes.

A script settles a part of one chunk, and claims one of the next. A thread sends it while a function of DataFrames runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from threading import Event
from typing import Final, NamedTuple

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import UnrecoverableError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.outcomes import Claim, ClaimedJob, Outcomes
from spark_bull.core.queue.manage.manage import is_paused
from spark_bull.core.queue.work.claim import parts_to_return
from spark_bull.core.threads import started
from spark_bull.run.job.job_runner import Result, Runner, Texts
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.queue_calls import SCRIPT_JOBS
from spark_bull.run.slot.slot_loop import SlotLoop, Turns
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_queue import SlotQueue
from spark_bull.run.slot.termination import Cancelled

#: Target duration of a chunk of jobs that run one by one, s.
TARGET_S: Final = 0.2
_FIRST_JOBS: Final = 16


class ChunkSize:
    """The number of jobs to claim next, `current`: at most `maximum`, and at most twice the previous number."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.current = min(_FIRST_JOBS, maximum)

    def update(self, jobs: int, seconds: float) -> None:
        """Adapts to the last chunk: its number of jobs and its duration."""
        fitting = self._maximum if seconds <= 0 else int(TARGET_S * jobs / seconds)
        self.current = max(1, min(fitting, 2 * self.current, self._maximum))


class GrowingChunk:
    """A claimed chunk to which further claims add jobs, by their ids: a lost job may be claimed again. last: a claim.

    most: the number of jobs at which it is full, unless `min_chunk` is larger.
    """

    def __init__(self, plan: SlotPlan, first: Claim, most: int) -> None:
        self._plan = plan
        self._most = max(plan.min_chunk, most)
        self._parents: set[str] = set()
        self.jobs: dict[str, ClaimedJob] = {}
        #: Size of the payloads, bytes.
        self.size = 0
        self._take(first)

    @property
    def room(self) -> int:
        """How many jobs it can still take."""
        return self._most - len(self.jobs)

    @property
    def is_short(self) -> bool:
        """Whether it has fewer jobs than `min_chunk`."""
        return len(self.jobs) < self._plan.min_chunk

    @property
    def may_grow(self) -> bool:
        """Whether another claim may add jobs: not after a job that has stalled before."""
        is_open = not (self.last.stop or self.last.paused) and not any(job.stalled_counter for job in self.last.jobs)
        return is_open and self.room > 0 and self.size < self._plan.most_bytes

    def add(self, claim: Claim, keys: QueueKeys) -> bool:
        """Adds claimed jobs, unless one of them is a parent of a job of the chunk: it needs that job's result."""
        if self._parents and any(keys.job(job.id) in self._parents for job in claim.jobs):
            self.last = claim
            return False
        self._take(claim)
        return True

    def _take(self, claim: Claim) -> None:
        self.last = claim
        self.jobs.update((job.id, job) for job in claim.jobs)
        self.size += sum([len(job.data) for job in claim.jobs])
        self._parents |= {job.parent_key for job in claim.jobs if job.parent_key is not None}


class Processed(NamedTuple):
    """What of a chunk is to be settled, in parts, each by one script."""

    queue: SlotQueue
    parts: list[Outcomes]

    def next_part(self) -> Outcomes | None:
        """Removes and returns a part; None when all are settled."""
        return self.parts.pop(0) if self.parts else None

    def settle(self) -> None:
        """Settles all parts that are left."""
        while (part := self.next_part()) is not None:
            self.queue.work(part, 0)


class Recorder:
    """Records the outcomes of a chunk in parts: a script settles SCRIPT_JOBS and `chunk_bytes` at most."""

    #: The last part.
    part: Outcomes

    def __init__(self, plan: SlotPlan, queue: SlotQueue, token: str) -> None:
        self._queue = queue
        self._token = token
        self._policy = plan.policy
        self._record = plan.policy.record
        self._dialect = queue.handle.dialect
        self._most_bytes = plan.chunk_bytes
        self._room = 0
        self.parts: list[Outcomes] = []
        #: Whether a part was filled by the size of its outcomes.
        self.is_large = False

    def add(self, results: Sequence[Result], now: int) -> None:
        """Adds outcomes to the last part, or to further ones. now: time of Redis, ms since 1970."""
        with self._queue.unsettled.recording:
            # Functions have one result at a time, and `isinstance` of an abstract class takes a tenth of their time.
            while type(results) is Texts and results:
                part = self.part if self._room else self._new_part()
                fitting = results[: self._room]
                if not self._policy.record_together(part, self._dialect, fitting, self._most_bytes):
                    break
                self._room -= len(fitting)
                results = results[len(fitting) :]
            for result in results:
                part = self.part if self._room else self._new_part()
                self._record(part, self._dialect, result, now)
                self._room -= 1
                if part.is_large(self._most_bytes):
                    self._room, self.is_large = 0, True

    def _new_part(self) -> Outcomes:
        self.part = self._queue.unsettled.new_outcomes(self._token)
        self.parts.append(self.part)
        self._room = SCRIPT_JOBS
        return self.part

    def settle(self) -> None:
        """Settles what is recorded."""
        Processed(self._queue, self.parts).settle()
        self._room, self.is_large = 0, False


#: Interval at which a chunk is settled in parts, as its jobs end. It is also settled in parts when its outcomes exceed
#: `chunk_bytes`.
SETTLE_S: Final = 0.5
#: Duration after which jobs that have not started return to the queue: the rest of a chunk of jobs that run one by one,
#: and the next chunk of a function of DataFrames.
RETURN_S: Final = 2.0


class _Chunk(NamedTuple):
    """Claimed jobs of a queue, and the token of their claim. more: whether further jobs can be claimed."""

    queue: SlotQueue
    token: str
    jobs: Sequence[RunningJob]
    more: bool


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
        #: The chunks that the slot holds: one that runs, and the next one.
        self._held: tuple[_Chunk, ...] = ()
        #: Whether the next chunk may be claimed while Spark runs one, in other processes.
        self._claims_ahead = self._has_one_queue and not plan.runner.may_end_process and plan.min_chunk <= 1
        #: Duration of the last chunk, s; none is claimed while the first one runs.
        self._ran_s = RETURN_S
        self._may_go_on = False

    def _loop(self) -> None:
        processed = Processed(self.queues[0], [])
        chunk: _Chunk | None = None
        while not self._is_stopping:
            chunk = chunk or self._claim(processed)
            if chunk is not None:
                self._end_waits()
                self._report.publish_busy(self.clients)
                processed, chunk = self._run_and_claim(chunk, processed)
                self._report.publish_busy(self.clients)
            elif not self._is_stopping:
                self._report.publish("idle", self.clients)
                self._wait()
        processed.settle()
        self._end_waits()

    def _run_and_claim(self, chunk: _Chunk, last: Processed) -> tuple[Processed, _Chunk | None]:
        """Runs a chunk, and settles the last one; returns the next one, too, if a thread has claimed it meanwhile."""
        queue, self._held = chunk.queue, (chunk,)
        if not self._may_claim_ahead(chunk):
            last.settle()
            return self._run(chunk), None
        queue.calls.is_ahead = True
        has_run, self._may_go_on = Event(), False
        claiming = started("ahead", partial(self._claim_ahead, queue, last, has_run))
        try:
            processed = self._run(chunk)
            self._may_go_on = self._is_open(queue, processed)
        finally:
            has_run.set()
            ahead = claiming.result()
        queue.calls.is_ahead = False
        return processed, ahead

    def _may_claim_ahead(self, chunk: _Chunk) -> bool:
        """Whether the next chunk may be claimed while this one runs.

        Not after a long one, as other slots could start its jobs earlier. Nor beside a job that has stalled, which may
        end the process again, or a child, as its parent may be among the next jobs and needs its result.
        """
        may_follow = self._claims_ahead and chunk.more and self._ran_s < RETURN_S
        return may_follow and not any(job.claimed.stalled_counter or job.parent_key for job in chunk.jobs)

    def _claim_ahead(self, queue: SlotQueue, last: Processed, has_run: Event) -> _Chunk | None:
        """Settles a chunk and claims the next one, which returns to the queue unless it may start within RETURN_S."""
        claim = queue.work(last.next_part(), self._claim_limit())
        if not claim.jobs:
            last.settle()
            return None
        chunk = self._filled(queue, claim, last)
        self._held = (*self._held, chunk)
        if has_run.wait(RETURN_S) and self._may_go_on and not self._is_stopping:
            return chunk
        for part in parts_to_return(chunk.jobs, SCRIPT_JOBS):
            outcomes = Outcomes(chunk.token)
            self._return_rest(queue, outcomes, part)
            queue.work(outcomes, 0)
        queue.keeper.release([job.id for job in chunk.jobs if job.lock_lost])
        return None

    def _is_open(self, queue: SlotQueue, processed: Processed) -> bool:
        """Whether claimed jobs may start: neither a pause, nor a limit, nor a stop has begun. Settles a part."""
        reply = queue.work(processed.next_part(), 0)
        is_limited = reply.limited_ms or any(part.limited_ms for part in processed.parts)
        return not (is_limited or reply.stop or reply.paused or queue.calls.retry(partial(is_paused, queue.handle)))

    def _claim(self, processed: Processed) -> _Chunk | None:
        """Settles a chunk and claims the next one of the first queue that has jobs; None when no queue has any."""
        order = self._turns.order()
        if processed.queue is not order[0] or any(part.limited_ms for part in processed.parts):
            processed.settle()
        for queue in order:
            while not queue.wait.is_on:
                claim = queue.work(processed.next_part(), self._claim_limit())
                if claim.jobs and not claim.stop:
                    self._turns.claimed(queue)
                    return self._filled(queue, claim, processed)
                processed.settle()
                if claim.stop:
                    self._is_stopping = True
                    return None
                if not claim.more:
                    queue.wait.begin(claim)
        return None

    def _filled(self, queue: SlotQueue, claim: Claim, processed: Processed) -> _Chunk:
        """The chunk that begins with a claim. Settles what is left of the last one."""
        claim = self._isolate_stalled(queue, self._grown(queue, claim, processed))
        return _Chunk(queue, claim.token, queue.running(claim.jobs, claim.token), claim.more)

    def _grown(self, queue: SlotQueue, claim: Claim, processed: Processed) -> Claim:
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
        return claim._replace(jobs=[*chunk.jobs.values()], more=chunk.last.more)

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

    def _isolate_stalled(self, queue: SlotQueue, claim: Claim) -> Claim:
        """Reduces the claim to its first job that has stalled before, as this job may have killed its worker."""
        stalled = next((job for job in claim.jobs if job.stalled_counter), None)
        if not self._plan.runner.may_end_process:
            stalled = None
        self._isolating = stalled is not None
        if stalled is None or len(claim.jobs) == 1:
            return claim
        _return_unstarted(queue, claim.token, [job.id for job in claim.jobs if job is not stalled])
        return claim._replace(jobs=[stalled])

    def _run(self, chunk: _Chunk) -> Processed:
        """Runs a chunk and returns the outcomes that are not settled yet, whose jobs keep their locks until then."""
        started = settled_at = monotonic_s()
        queue, running = chunk.queue, chunk.jobs
        started_ms, done, recorder = queue.now, 0, Recorder(self._plan, queue, chunk.token)
        for runner, jobs in self._divided(running):
            begun, one_by_one = monotonic_s(), runner.one_by_one
            for results in runner(jobs, queue.keeper.lost):
                now_s = monotonic_s()
                now = started_ms + int(1000 * (now_s - started))
                recorder.add(results, now)
                done += len(results)
                is_long = now_s - settled_at > SETTLE_S
                if one_by_one and (recorder.part.limited_ms or (is_long and now_s - begun > RETURN_S)):
                    self._return_rest(queue, recorder.part, jobs[jobs.index(results[-1].job) + 1 :])
                    break
                if (is_long or recorder.is_large) and done < len(running):
                    recorder.settle()
                    settled_at = monotonic_s()
                    self._report.publish_busy(self.clients)
        if done < len(running):
            # Some have lost their locks, and have no outcome. Others may wait until a damaged queue is repaired.
            queue.keeper.release([job.id for job in running if job.lock_lost])
        self._ran_s = monotonic_s() - started
        self._size.update(done, self._ran_s)
        return Processed(queue, recorder.parts)

    def _divided(self, jobs: Sequence[RunningJob]) -> Iterable[tuple[Runner, Sequence[RunningJob]]]:
        """The runners of these jobs, in the order in which they are called; first, of those that must not be run."""
        deferred = [job for job in jobs if job.claimed.deferred_failure is not None]
        if deferred:
            yield _DEFERRED, deferred
            jobs = [job for job in jobs if job.claimed.deferred_failure is None]
        yield from self._plan.runner.divided(jobs)

    def _return_rest(self, queue: SlotQueue, outcomes: Outcomes, jobs: Sequence[RunningJob]) -> None:
        """Returns jobs that have not started to the queue; those that were cancelled fail."""
        for job in jobs:
            if job.id in queue.keeper.lost:
                continue
            if job.cancellation is None:
                outcomes.unstarted.append(job.id)
            else:
                self._plan.policy.record(outcomes, queue.handle.dialect, Result(job, None, job.cancellation), queue.now)

    def _cancel(self, cancelled: Cancelled) -> None:
        # Each claim has its own token, so a token that is not held means that the cancelled chunk is over.
        for chunk in self._held:
            for job in chunk.jobs:
                if job.id == cancelled.job_id and job.token == cancelled.hold.token:
                    job.cancellation = cancelled.error
                    self._plan.runner.interrupt(job)


def _return_unstarted(queue: SlotQueue, token: str, ids: Sequence[str]) -> None:
    for part in parts_to_return(ids, SCRIPT_JOBS):
        queue.work(Outcomes(token, unstarted=[*part]), 0)

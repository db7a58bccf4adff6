"""The parts of a chunk of jobs: its size, its growth, and its outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.outcomes import Claim, ClaimedJob, Outcomes
from spark_bull.run.job.job_runner import Result
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_queue import SlotQueue
from spark_bull.run.slot.unsettled import SCRIPT_JOBS

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
        self._record = plan.policy.record
        self._dialect = queue.handle.dialect
        self._most_bytes = plan.chunk_bytes
        self._room = 0
        self.parts: list[Outcomes] = []
        #: Whether a part was filled by the size of its outcomes.
        self.is_large = False

    def add(self, results: Iterable[Result], now: int) -> None:
        """Adds outcomes to the last part, or to further ones. now: time of Redis, ms since 1970."""
        unsettled = self._queue.unsettled
        with unsettled.recording:
            for result in results:
                if not self._room:
                    self.part = unsettled.new_outcomes(self._token)
                    self.parts.append(self.part)
                    self._room = SCRIPT_JOBS
                part = self.part
                self._record(part, self._dialect, result, now)
                self._room -= 1
                if part.is_large(self._most_bytes):
                    self._room, self.is_large = 0, True

    def settle(self) -> None:
        """Settles what is recorded."""
        Processed(self._queue, self.parts).settle()
        self._room, self.is_large = 0, False

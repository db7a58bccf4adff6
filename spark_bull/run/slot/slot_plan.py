"""What a slot is to do, and how often its jobs may start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.schedule.advance import version_of
from spark_bull.core.tracing.tracer import MeterSource, TracerSource
from spark_bull.run.job.job_runner import Runner
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.slot.slot_state import Setup


@dataclass(frozen=True)
class StartLimit:
    """Jobs that have started more than `most` times fail without being run.

    retries_last: whether a job that fails at its last permitted start is retried, as by BullMQ 5: the retry fails.
    """

    most: int
    retries_last: bool = False

    def checked(self, jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """Returns the jobs; those that have started too often with a `deferred_failure`."""
        return [
            job._replace(deferred_failure="job started more than allowable limit")
            if job.attempts_started > self.most and job.deferred_failure is None
            else job
            for job in jobs
        ]

    def is_last(self, job: ClaimedJob) -> bool:
        """Whether the job must not be retried should this attempt fail."""
        return not self.retries_last and job.attempts_started >= self.most


def start_limit(handle: QueueHandle, most: int) -> StartLimit | None:
    """Returns the limit for jobs of a queue; None if `most` is 0: unlimited. Reads the queue's version of BullMQ."""
    if not most:
        return None
    return StartLimit(most, retries_last=handle.dialect.has("retry-at-limit", version_of(handle)))


@dataclass(frozen=True)
class SlotQueuePlan:
    """One queue of a slot.

    weight: how often it is asked first, in proportion to the others; 0: in the listed order. start_limit: how often its
    jobs may start; None: unlimited.
    """

    handle: QueueHandle
    work_settings: WorkSettings
    weight: int = 0
    start_limit: StartLimit | None = None


@dataclass(frozen=True)
class SlotPlan:
    """Picklable.

    Parameters:
      queues: the queues whose jobs are processed; the first one has the slots' reports.
      worker: id of the worker.
      runner: what processes the jobs.
      policy: defaults for the outcomes.
      concurrency: maximum number of jobs that are processed at the same time; 1 processes chunks of jobs in the main
        thread.
      chunk_size: maximum number of jobs that are processed at a time.
      chunk_bytes: maximum size of the payloads that a script claims, and of the outcomes that it settles.
      batch_bytes: maximum size of the payloads of a chunk; 0: `chunk_bytes`.
      min_chunk: number of jobs for which a UDF waits, `chunk_wait_ms` at most.
      chunk_wait_ms: see `min_chunk`; ms.
      tracer: the tracer of the slots: see `spark_bull.core.tracing.tracer.spans_of`.
      meter: the provider of the slots' meters: see `spark_bull.core.tracing.tracer.meter_of`.
      setup: makes the state of a slot: see `spark_bull.run.slot.slot_state`.
      env: environment variables of the slots' processes.
      run: number of the start of the slots; each starts all slots of the worker.
      max_stalled: how often a job may stall before it fails.
    """

    queues: tuple[SlotQueuePlan, ...]
    worker: str
    runner: Runner
    chunk_size: int
    policy: OutcomePolicy = field(default_factory=OutcomePolicy)
    concurrency: int = 1
    chunk_bytes: int = 1 << 20
    batch_bytes: int = 0
    min_chunk: int = 1
    chunk_wait_ms: int = 0
    tracer: TracerSource = None
    meter: MeterSource = None
    setup: Setup | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    run: int = 0
    max_stalled: int = 1

    @property
    def most_bytes(self) -> int:
        """Maximum size of the payloads of a chunk."""
        return self.batch_bytes or self.chunk_bytes

    @property
    def handle(self) -> QueueHandle:
        """The first queue."""
        return self.queues[0].handle

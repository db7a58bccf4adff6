"""Processes all jobs of a queue in the calling thread, and keeps their outcomes, as a test reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.error_text import reason_of
from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.job_runner import FunctionRunner, Result
from spark_bull.run.job.job_threads import is_coroutine_function
from spark_bull.run.job.outcome_policy import BackoffStrategy, OutcomePolicy
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.chunk_loop import ChunkLoop
from spark_bull.run.slot.concurrent_loop import ConcurrentLoop
from spark_bull.run.slot.slot_control import SlotControl
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import Setup
from spark_bull.run.slot.status import lag_of
from spark_bull.run.worker.local_worker import function_runner, local_options
from spark_bull.run.worker.slots_plan import OpenedQueue, plan_slots
from spark_bull.run.worker.worker_options import Processor, processing_of


@dataclass(frozen=True)
class JobOutcome:
    """What became of a job in its last attempt.

    Parameters:
      id: id of the job.
      name: its name.
      state: where it is afterwards: completed, failed, delayed, wait (it runs again at once) or waiting-children.
      returnvalue: what Redis stores for a completed job, opened and parsed; None for others.
      error: what the processor raised, with its trace; None for a completed job.
      attempts: number of calls of the processor in this call of `process_all`.
    """

    id: str
    name: str | None
    state: str
    returnvalue: Any = None
    error: BaseException | None = None
    attempts: int = 1

    @property
    def failed_reason(self) -> str | None:
        """The message of the error, as Redis stores it; None without an error."""
        return None if self.error is None else reason_of(self.error)


@dataclass
class Record:
    """The last outcome of each job, in the order in which they ended. attempts: of all jobs together."""

    by_id: dict[str, JobOutcome] = field(default_factory=dict)
    attempts: int = 0

    def add(self, outcome: JobOutcome) -> None:
        """Adds the outcome of one attempt."""
        before = self.by_id.pop(outcome.id, None)
        self.by_id[outcome.id] = outcome if before is None else replace(outcome, attempts=before.attempts + 1)
        self.attempts += 1


@dataclass(frozen=True)
class RecordingPolicy(OutcomePolicy):
    """Keeps the outcomes in `recorded`. stop: called after `most` attempts."""

    most: int = 0
    stop: Callable[[], object] = lambda: None
    recorded: Record = field(default_factory=Record)

    @property
    def is_full(self) -> bool:
        """Whether there were `most` attempts."""
        return self.recorded.attempts >= self.most

    def record(self, outcomes: Outcomes, dialect: Dialect, result: Result, now: int) -> None:
        super().record(outcomes, dialect, result, now)
        job = result.job
        self.recorded.add(
            JobOutcome(job.id, job.name, _state_in(outcomes, job.id), _returnvalue_in(outcomes, job), result.error)
        )
        if self.is_full:
            self.stop()


def _returnvalue_in(outcomes: Outcomes, job: RunningJob) -> Any:
    text = dict(zip(outcomes.completed_ids, outcomes.returnvalues, strict=True)).get(job.id)
    return json.loads(job.handle.opened("returnvalue", job.id, text)) if text else None


def _state_in(outcomes: Outcomes, job_id: str) -> str:
    """The state that the outcome of a job leads to."""
    if job_id in outcomes.completed_ids:
        return "completed"
    if any(job.id == job_id for job in outcomes.failed):
        return "failed"
    if job_id in outcomes.waiting_for_children:
        return "waiting-children"
    is_delayed = any(job.id == job_id for job in outcomes.delayed)
    return "delayed" if is_delayed or any(job.id == job_id and job.delay for job in outcomes.retried) else "wait"


class ChunkDrain(ChunkLoop):
    """Calls functions in this thread."""

    def __init__(self, plan: SlotPlan, slot: int, _runner: FunctionRunner) -> None:
        super().__init__(plan, slot)

    def _wait(self, timeout_s: float | None = None) -> None:
        self._is_stopping = True
        for queue in self.queues:
            queue.wait.end(b"")


class ConcurrentDrain(ConcurrentLoop):
    """Calls coroutine functions in an event loop, one at a time."""

    def _take_events(self, timeout_s: float | None = None) -> None:
        if timeout_s is None and not self._running:
            self._is_stopping = True
            self._end_waits()
        else:
            super()._take_events(timeout_s)


def process_all(
    queue: BullQueue,
    processor: Processor | Mapping[str, Processor],
    *,
    delayed: bool = False,
    setup: Setup | None = None,
    backoff_strategy: BackoffStrategy | None = None,
    retry: Mapping[str, int] | None = None,
    most_attempts: int = 10_000,
) -> list[JobOutcome]:
    """Processes the jobs of a queue, also those that are added meanwhile, until none can be claimed.

        queue.add({"to": "ada@example.org"})
        [outcome] = process_all(queue, send)
        assert outcome.returnvalue == {"sent": "ada@example.org"}

    Functions run in the calling thread, so that debuggers, mocks and context variables work; coroutine functions run
    in an event loop. Their outcomes are stored as a worker stores them.

    Parameters:
      queue: the queue.
      processor: a function or coroutine function of a RunningJob, or a mapping of job names to functions, with "*" for
        all other names.
      delayed: whether delayed jobs, also those that wait for another attempt, run at once.
      setup: see LocalWorker.
      backoff_strategy: see LocalWorker.
      retry: maximum attempts of a job by the class of its error; see LocalWorkerArguments.
      most_attempts: number of calls of the processor after which it is an error that there are still jobs.

    Returns:
      The outcome of each job that was processed, in the order in which they ended last.

    Raises:
      OptionError: for an invalid argument, or a processor that needs Spark.
      SparkBullError: when there are still jobs after `most_attempts`, such as one that always returns itself.
      ConnectionLost: if Redis cannot be reached.
    """
    options = local_options({} if retry is None else {"retry": retry}, processor)
    processing = processing_of(
        processor, backoff_strategy=backoff_strategy, setup=setup, env=None, tracer=None, meter=None
    )
    worker, queues, runner = uuid4().hex[:12], [OpenedQueue(queue.handle, 0)], function_runner(processor, options)
    # One job per chunk: what a job has done is in Redis before the next one starts.
    plan = plan_slots(worker, queues, options, processing, runner, 1)
    stop = partial(SlotControl(plan).request, "stop")
    policy = RecordingPolicy(**vars(plan.policy), most=most_attempts, stop=stop)
    drain = ConcurrentDrain if any(map(is_coroutine_function, runner.functions.values())) else ChunkDrain
    while True:
        drain(replace(plan, policy=policy), 0, runner).run()
        waiting = queue.page("delayed") if delayed else []
        if policy.is_full and (waiting or lag_of(queue.handle)):
            raise SparkBullError(
                f"expected no job in queue {queue.name} after {most_attempts:,} attempts (`most_attempts`), got "
                f"{queue.counts()}: does a job return or delay itself each time?"
            )
        if not waiting:
            return list(policy.recorded.by_id.values())
        for job in waiting:
            queue.promote(job.id)

"""Processes all jobs of a queue in the calling thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from uuid import uuid4

from spark_bull.core.errors import SparkBullError
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.job_runner import FunctionRunner
from spark_bull.run.job.job_tasks import is_coroutine_function
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.chunk_loop import ChunkLoop
from spark_bull.run.slot.concurrent_loop import ConcurrentLoop
from spark_bull.run.slot.slot_control import SlotControl
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import Setup
from spark_bull.run.slot.status import lag_of
from spark_bull.run.testing.outcomes import JobOutcome, RecordingPolicy
from spark_bull.run.worker.kinds import Processor
from spark_bull.run.worker.local_options import function_runner, local_options
from spark_bull.run.worker.slots_plan import plan_slots
from spark_bull.run.worker.worker_options import processing_of
from spark_bull.run.worker.worker_queues import OpenedQueue


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
            return list(policy.kept.by_id.values())
        for job in waiting:
            queue.promote(job.id)

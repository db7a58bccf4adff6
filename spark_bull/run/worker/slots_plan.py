"""The queues of a worker, how often each is asked first, and the plan of its slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_bull.core.errors import OptionError, did_you_mean, expected
from spark_bull.core.model.limits import WorkSettings, default_worker
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.queue.handle.handle import QueueHandle, keys_of
from spark_bull.core.queue.shards.layout import queues_of
from spark_bull.run.job.job_options import keep_rule
from spark_bull.run.job.job_runner import Runner
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan, start_limit
from spark_bull.run.worker.worker_options import Processing


@dataclass(frozen=True)
class WorkedQueue:
    """A queue of a Worker. weight: how often it is asked first, in proportion to the others; 0: in the listed order."""

    name: str
    weight: int = 0


def worked_queues(
    queue: str | None, queues: Sequence[str] | None, weights: Mapping[str, int] | None
) -> tuple[WorkedQueue, ...]:
    """Returns the queues in their order. Raises OptionError for arguments that are wrong or contradict each other."""
    names = _names(queue, queues)
    if weights is None or weights == {}:
        return tuple(WorkedQueue(name) for name in names)
    if not isinstance(weights, Mapping):
        raise expected("weights", "a mapping of queues to numbers, such as {'urgent': 3, 'mail': 1}", weights)
    for name, weight in weights.items():
        if name not in names:
            raise OptionError(f"expected `weights` of queues of this worker, got: {name!r}{did_you_mean(name, names)}")
        if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
            raise expected(f"weights[{name!r}]", "a positive integer", weight)
    return tuple(WorkedQueue(name, weights.get(name, 1)) for name in names)


class OpenedQueue(NamedTuple):
    """A queue of a Worker, or a shard of one, and its weight."""

    handle: QueueHandle
    weight: int


def opened(options: WorkOptions, worked: Sequence[WorkedQueue]) -> list[OpenedQueue]:
    """Opens queues; with the option `shards`, all shards of each, which are asked first in turns."""
    turns = 0 if options.shards is None else 1
    return [OpenedQueue(handle, one.weight or turns) for one in worked for handle in queues_of(options, one.name)]


def _names(queue: str | None, queues: Sequence[str] | None) -> tuple[str, ...]:
    if (queue is None) == (queues is None):
        raise OptionError("expected one of `queue` (a name) and `queues` (a list of names)")
    if queue is not None:
        if not isinstance(queue, str):
            raise OptionError(f"expected `queue` to be the name of a queue, got: {queue!r}; give several as `queues`")
        return (queue,)
    if isinstance(queues, str):
        queues = [part.strip() for part in queues.split(",")]
    names = tuple(queues) if isinstance(queues, Sequence) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise expected("queues", "a list of names", queues)
    if len(set(names)) < len(names):
        raise expected("queues", "different names", queues)
    return names


#: Default size of the chunks of functions. A script for more jobs blocks Redis for longer.
FUNCTION_CHUNK: Final = 100


def check_dead_letter_queue(handle: QueueHandle, queue: str) -> None:
    """Raises OptionError or DialectError if the queue cannot take the failed jobs of the queue of `handle`."""
    if keys_of(handle, queue, "`dead_letter_queue`") == handle.keys:
        raise OptionError(
            f"expected `dead_letter_queue` to be another queue than {queue}, which the worker processes: a copy that "
            "fails would be copied again"
        )


def plan_slots(
    worker: str,
    queues: Sequence[OpenedQueue],
    options: WorkOptions,
    processing: Processing,
    runner: Runner,
    chunk_size: int,
) -> SlotPlan:
    """Returns the plan of the slots of a worker. runner, chunk_size: of its processors."""

    def queue_plan(queue: OpenedQueue) -> SlotQueuePlan:
        handle = queue.handle
        if options.dead_letter_queue is not None:
            check_dead_letter_queue(handle, options.dead_letter_queue)
        settings = WorkSettings(
            sender=worker,
            lock_ms=options.lock_ms,
            worker=options.worker_name or default_worker(worker),
            limiter=options.limiter,
            group=options.group,
            max_metrics=options.metrics_minutes,
            control=handle.keys.control(worker),
            counters=handle.keys.counters(worker),
        )
        return SlotQueuePlan(handle, settings, queue.weight, start_limit(handle, options.max_started))

    keep = keep_rule(options.remove_on_complete), keep_rule(options.remove_on_fail)
    return SlotPlan(
        tuple(map(queue_plan, queues)),
        worker,
        runner,
        chunk_size,
        OutcomePolicy(*keep, processing.backoff_strategy, options.retry or {}, options.dead_letter_queue),
        options.concurrency,
        min_chunk=options.min_chunk,
        chunk_wait_ms=options.chunk_wait_ms,
        tracer=processing.tracer,
        meter=processing.meter,
        setup=processing.setup,
        env=processing.env,
        max_stalled=options.max_stalled,
    )

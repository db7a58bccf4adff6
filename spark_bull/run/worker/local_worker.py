"""LocalWorker: processes the jobs of a queue in this program, without Spark. It refuses arguments that need Spark."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError, expected
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.limits import SlotRange
from spark_bull.core.options.arguments import LocalWorkerArguments, connection_of, with_options
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.tracing.tracer import MeterSource, TracerSource
from spark_bull.run.job.job_runner import FunctionRunner
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import Setup
from spark_bull.run.worker.base_worker import BaseWorker
from spark_bull.run.worker.process_slot import ProcessSlot
from spark_bull.run.worker.slot_engine import SlotEngine
from spark_bull.run.worker.slot_group import SlotGroup, ThreadSlot
from spark_bull.run.worker.slots_plan import FUNCTION_CHUNK, opened, plan_slots, worked_queues
from spark_bull.run.worker.worker_options import (
    Processor,
    by_name,
    check_picklable_plan,
    check_processors,
    kind_of,
    processing_of,
    worker_options,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


#: Arguments of a Worker that need Spark.
SPARK_ONLY: Final = ("targetWaitS", "minChunk", "chunkWaitMs")
_WHAT: Final = {"UDF": "a UDF", "frames": "a function of DataFrames"}


def local_options(arguments: Mapping[str, Any], processor: Processor | Mapping[str, Processor]) -> WorkOptions:
    """Parses the arguments. Raises OptionError for an invalid one, one without effect, or another processor."""
    check_processors(processor)
    for name, one in by_name(processor).items():
        kind = kind_of(one)
        if kind != "function":
            argument = f"processor[{name!r}]" if isinstance(processor, Mapping) else "processor"
            raise OptionError(
                f"expected `{argument}` to be a function or coroutine function of a job, as there is no Spark here, "
                f"got {_WHAT[kind]}: use spark_bull.Worker, or give a function of a job"
            )
    if "payload_schema" in arguments:
        raise _needs_spark("payload_schema")
    given = parse_arguments(arguments, WorkOptions)
    for name in SPARK_ONLY:
        if name in given.given:
            raise _needs_spark(given.spelled(name))
    if isinstance(given.slots, SlotRange):
        raise OptionError("expected `slots` to be one number without Spark, got a range: use spark_bull.Worker")
    return worker_options(arguments, processor)


def function_runner(processor: Processor | Mapping[str, Processor], options: WorkOptions) -> FunctionRunner:
    """Returns the runner of functions of a job."""
    return FunctionRunner(processor, options.timeout_ms, options.extend_timeout_on_progress)


def _needs_spark(name: str) -> OptionError:
    return OptionError(f"`{name}` has no effect without Spark: leave it out, or use spark_bull.Worker")


_IN_MODULE: Final = "define it at the top level of a module, or use threads (processes=False)"


class LocalEngine(SlotEngine):
    """Each slot is a group, so that one that fails leaves the others alone."""

    def __init__(self, plan: SlotPlan, slots: int, *, processes: bool) -> None:
        super().__init__(plan)
        self._given = slots
        self._processes = processes

    def _start_slots(self) -> None:
        if self._processes:
            check_picklable_plan(_pickled, _IN_MODULE, self._plan)
        for _ in range(self._given):
            self._add_slots(1)

    def _new_group(self, plan: SlotPlan, numbers: range) -> SlotGroup:
        kind = ProcessSlot if self._processes else ThreadSlot
        return kind(plan, numbers, self._request_stop)


def _pickled(function: Any) -> bytes:
    """Pickles a function by its module, which a process must be able to import. Raises what prevents that."""
    pickled = pickle.dumps(function)
    if b"__main__" in pickled and not hasattr(sys.modules["__main__"], "__file__"):
        raise pickle.PicklingError("it is defined in a program without a file, such as a notebook")
    return pickled


@short_errors
@with_options(LocalWorkerArguments, WorkOptions)
class LocalWorker(BaseWorker):
    """Processes the jobs of a queue in threads or processes of this program, without Spark, until it is stopped.

        def send(job):
            return {"sent": deliver(job.data["to"])}

        with LocalWorker("mail", send, slots=2) as worker:
            worker.await_termination()

    It has the methods of a Worker, and the same outcomes of jobs. Plain values may also be given as strings.

    Parameters:
      queue: name of the queue.
      processor: a function or coroutine function of a RunningJob, or a mapping of job names to functions, with "*" for
        all other names. Required.
      slots: number of slots; each processes `concurrency` jobs at the same time.
      processes: whether each slot has a process of its own, and with it a core, instead of a thread. Its functions must
        be defined at the top level of a module, and the program start under `if __name__ == "__main__":`.
      queues: names of several queues, instead of `queue`; jobs of the first are claimed before jobs of the others.
      weights: how often each queue is asked first, instead of the order of `queues`: {"urgent": 3, "mail": 1}.
      backoff_strategy: f(attempts made, type, error, job) -> ms, for types of backoff that are not built in.
      setup: a function without parameters that each slot calls once, before it claims jobs. `job.state` is what it
        returns or yields, or the value of the context manager that it returns. That is closed when the slot ends. May
        be a coroutine function if the processor is one.
      env: environment variables of the processes; set before `setup`, `tracer` and `meter` are called, but after the
        modules of the functions were imported. With `processes` only.
      tracer: makes a span for each attempt of a job, in the trace of the span that added it. True for the global tracer
        of the process, or a function that each slot calls once, and that returns a tracer of OpenTelemetry.
      meter: counts jobs by what becomes of them, and records how long they are processed, as BullMQ does. True for the
        global MeterProvider of the process, or a function that each slot calls once. It returns a MeterProvider of
        OpenTelemetry, which is shut down when the slot ends.
      guards: rules of its promoter that pause a queue while its jobs fail, such as Guard("mail", "failedRate > 0.2 over
        1m"). Of several workers and promoters with equal guards, one pauses a queue; any of them resumes it.
      options: options of the connection, the slots and the jobs; see LocalWorkerArguments.

    Raises:
      OptionError: for an invalid or unknown argument, or one that needs Spark, such as a UDF.
      DialectError: for an argument that the queue's dialect does not support.
      ConnectionLost: if Redis cannot be reached.
    """

    def __init__(
        self,
        queue: str | None = None,
        processor: Processor | Mapping[str, Processor] | None = None,
        *,
        slots: int = 1,
        processes: bool = False,
        queues: Sequence[str] | None = None,
        weights: Mapping[str, int] | None = None,
        backoff_strategy: BackoffStrategy | None = None,
        setup: Setup | None = None,
        env: Mapping[str, str] | None = None,
        tracer: TracerSource = None,
        meter: MeterSource = None,
        guards: Guard | Iterable[Guard] = (),
        **options: Unpack[LocalWorkerArguments],
    ) -> None:
        if processor is None:
            raise OptionError("expected `processor`: a function of a job, or functions by name; got none")
        if not isinstance(processes, bool):
            raise expected("processes", "a bool", processes)
        if env is not None and not processes:
            raise OptionError(
                "`env` has no effect on threads of this program: set os.environ before the worker starts, or give "
                "processes=True"
            )
        parsed = local_options({**options, "slots": slots}, processor)
        processing = processing_of(
            processor,
            backoff_strategy=backoff_strategy,
            setup=setup,
            env=env,
            tracer=tracer,
            meter=meter,
        )
        worked = opened(parsed, worked_queues(queue, queues, weights))
        super().__init__(worked, parsed, connection_of(options), guards)
        runner = function_runner(processor, parsed)
        plan = plan_slots(self.id, worked, parsed, processing, runner, parsed.chunk_size or FUNCTION_CHUNK)
        self._engine = LocalEngine(plan, parsed.slots if isinstance(parsed.slots, int) else 1, processes=processes)

"""Parses the arguments of a worker, and checks them against its processor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from spark_bull.core.errors import OptionError, expected
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.limits import SlotRange
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.tracing.tracer import MeterSource, TracerSource, check_sendable
from spark_bull.run.job.job_runner import ANY_NAME
from spark_bull.run.job.job_threads import is_coroutine_function
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import Setup

Processor = Callable[..., Any]
#: A function of a job; a UDF; a function of DataFrames.
Kind = Literal["function", "UDF", "frames"]


def by_name(processor: Processor | Mapping[str, Processor]) -> Mapping[str, Processor]:
    """The processors by the names of their jobs."""
    return processor if isinstance(processor, Mapping) else {ANY_NAME: processor}


def check_processors(processor: Processor | Mapping[str, Processor]) -> None:
    """Raises OptionError for what is no processor."""
    processors = by_name(processor)
    if not isinstance(processor, Mapping) and not callable(processor):
        raise expected("processor", "a function of a job, functions by name, or a UDF", processor)
    if not processors:
        raise expected("processor", "a mapping of job names to functions", dict(processors))
    for name, function in processors.items():
        if not isinstance(name, str) or not callable(function):
            raise expected(f"processor[{name!r}]", "a processor, under the name of the jobs or '*'", function)


def kinds_of(processor: Processor | Mapping[str, Processor]) -> set[Kind]:
    """The kinds of all processors of a worker."""
    return set(map(kind_of, by_name(processor).values()))


def kind_of(processor: Processor) -> Kind:
    """The kind of a processor; what is no processor counts as a function."""
    if is_udf(processor):
        return "UDF"
    return "frames" if _takes_frames(processor) else "function"


def is_udf(processor: object) -> bool:
    """Whether a processor was created by @udf, @pandas_udf or @arrow_udf."""
    return callable(processor) and hasattr(processor, "evalType") and hasattr(processor, "returnType")


def _takes_frames(processor: Processor) -> bool:
    """Whether this is a function whose first parameter is annotated as a DataFrame."""
    try:
        parameters = list(inspect.signature(processor).parameters.values())
    except (TypeError, ValueError):
        return False
    annotation = parameters[0].annotation if parameters else None
    if isinstance(annotation, str):
        return annotation.split(".")[-1] == "DataFrame"
    # Without an import of PySpark, which not every worker needs.
    return getattr(annotation, "__name__", "") == "DataFrame" and annotation.__module__.startswith("pyspark.")


#: What to do with a function that even cloudpickle cannot pickle.
OPEN_INSIDE: Final = "open connections, locks and files inside the function"


def check_picklable(dumps: Callable[[Any], bytes], what_to_do: str, **arguments: Any) -> None:
    """Raises OptionError if a function among these arguments of a worker cannot be pickled by `dumps`."""
    for name, argument in arguments.items():
        try:
            dumps(argument)
        except Exception as error:
            raise OptionError(
                f"expected `{name}` to be picklable, as it is sent to other processes, "
                f"got {type(error).__name__}: {error}; {what_to_do}"
            ) from error


def check_picklable_plan(dumps: Callable[[Any], bytes], what_to_do: str, plan: SlotPlan) -> None:
    """The same for all functions of a plan."""
    check_picklable(
        dumps,
        what_to_do,
        processor=plan.runner,
        setup=plan.setup,
        tracer=plan.tracer,
        meter=plan.meter,
        backoff_strategy=plan.policy.strategy,
    )


#: The largest chunk of functions and UDFs: a script for more jobs blocks Redis for long.
MOST_JOBS: Final = 2_000


@dataclass(frozen=True)
class Processing:
    """The arguments of a worker that are no options: what it calls to process jobs, and with what."""

    processor: Processor | Mapping[str, Processor]
    backoff_strategy: BackoffStrategy | None
    setup: Setup | None
    env: Mapping[str, str]
    tracer: TracerSource
    meter: MeterSource


def worker_options(arguments: Mapping[str, Any], processor: Processor | Mapping[str, Processor]) -> WorkOptions:
    """Parses the arguments. Raises OptionError for an invalid one, or one without effect."""
    options = parse_arguments(arguments, WorkOptions)
    check_combinations(options)
    kinds = kinds_of(processor)
    if kinds != {"frames"} and (options.chunk_size or 0) > MOST_JOBS:
        raise OptionError(
            f"expected `chunk_size` to be an integer from 1 to {MOST_JOBS:,}, unless the processor is a function of "
            f"DataFrames, got: {options.chunk_size}"
        )
    if "minChunk" in options.given and kinds == {"function"}:
        raise OptionError("`min_chunk` has no effect on functions of a job: leave it out, or use a UDF")
    if options.extend_timeout_on_progress and "function" not in kinds:
        raise OptionError(
            "`extend_timeout_on_progress` has no effect on UDFs and functions of DataFrames, which report no progress: "
            "leave it out, or use a function of a job"
        )
    return options


def check_combinations(options: WorkOptions) -> None:
    """Raises OptionError for arguments that contradict each other with any processor."""
    for name in ("limiter", "group") if options.shards is not None else ():
        if options.value(name) is not None:
            raise OptionError(
                f"expected no `{name}` with `shards`: a limit holds within one shard, not over all; leave it out, or "
                "use a queue without shards"
            )
    if "targetWaitS" in options.given and not isinstance(options.slots, SlotRange):
        name = options.spelled("targetWaitS")
        raise OptionError(
            f"`{name}` has no effect without a range of `slots`, such as (1, 40): give both, or leave it out"
        )
    # Slots need `max_stalled`, too: a process that ends returns its jobs.
    if not options.promoter and "checkMs" in options.given:
        raise OptionError(
            f"`{options.spelled('checkMs')}` has no effect with promoter=False: leave it out, or pass it to the "
            "Promoter of the queue"
        )
    most = options.chunk_size
    if most is not None and options.min_chunk > most:
        raise OptionError(f"expected `min_chunk` to be at most `chunk_size` ({most}), got: {options.min_chunk}")
    if "chunkWaitMs" in options.given and "minChunk" not in options.given:
        raise OptionError("`chunk_wait_ms` has no effect without `min_chunk`: give both, or leave it out")


def check_guards(options: WorkOptions, guards: Guard | Iterable[Guard]) -> None:
    """Raises OptionError for guards without a promoter."""
    if guards and not options.promoter:
        raise OptionError(
            "`guards` has no effect with promoter=False: leave it out, or pass it to the Promoter of the queue"
        )


def processing_of(
    processor: Processor | Mapping[str, Processor],
    *,
    backoff_strategy: BackoffStrategy | None,
    setup: Setup | None,
    env: Mapping[str, str] | None,
    tracer: TracerSource,
    meter: MeterSource,
) -> Processing:
    """Returns these arguments. Raises OptionError for one that is invalid, or has no effect."""
    check_sendable(tracer, meter)
    check_setup(setup, processor)
    variables = checked_env(env, processor)
    return Processing(processor, backoff_strategy, setup, variables, tracer, meter)


def check_setup(setup: Setup | None, processor: Processor | Mapping[str, Processor]) -> None:
    """Raises OptionError for a `setup` that cannot be called, or has no effect."""
    if setup is None:
        return
    if "function" not in kinds_of(processor):
        raise OptionError(
            "`setup` has no effect on UDFs and functions of DataFrames: leave it out, or use a function of a job. A "
            "UDF over iterators can set up its state before its loop"
        )
    if not callable(setup):
        raise expected("setup", "a function without parameters", setup)
    if not (inspect.iscoroutinefunction(setup) or inspect.isasyncgenfunction(setup)):
        return
    why = ""
    if not any(map(is_coroutine_function, by_name(processor).values())):
        why = "no processor is a coroutine function"
    elif kinds_of(processor) != {"function"}:
        why = "beside UDFs and functions of DataFrames, it runs in no event loop"
    if why:
        raise OptionError(f"expected `setup` to be a plain function, as {why}, got a coroutine function")


def checked_env(
    env: Mapping[str, str] | None, processor: Processor | Mapping[str, Processor] | None = None
) -> Mapping[str, str]:
    """Returns the environment variables. Raises OptionError if one is invalid, or has no effect."""
    if env is None:
        return {}
    if processor is not None and "frames" in kinds_of(processor):
        raise OptionError(
            "`env` has no effect here: a function of DataFrames runs on the driver, and what it calls in the tasks of "
            "queries; set spark.executorEnv.<name>"
        )
    if not isinstance(env, Mapping):
        raise expected("env", "a mapping of names of environment variables to their texts", type(env).__name__)
    for name, value in env.items():
        if not isinstance(name, str) or not name or set(name) & {"=", "\0"}:
            raise expected("env", "a mapping of names of environment variables to their texts, without `=`", name)
        # A value may be a secret.
        if not isinstance(value, str) or "\0" in value:
            raise OptionError(f"expected `env[{name!r}]` to be a text without null characters, got another value")
    return dict(env)

"""Parses the arguments of a worker, and checks them against its processor."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_bull.core.errors import OptionError, expected
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.limits import SlotRange
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.tracing.tracer import MeterSource, TracerSource, check_sendable
from spark_bull.run.job.job_threads import is_coroutine_function
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.slot_state import Setup
from spark_bull.run.worker.processors import Processor, by_name, kinds_of

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

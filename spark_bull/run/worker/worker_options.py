"""Parses the arguments of a worker, and checks them against its engine and processor."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_bull.core.errors import OptionError, expected
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.slots import SlotRange
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.tracing.tracer import MeterSource, TracerSource, check_sendable
from spark_bull.run.job.job_tasks import is_coroutine_function
from spark_bull.run.job.outcome_policy import BackoffStrategy
from spark_bull.run.slot.slot_state import Setup
from spark_bull.run.worker.kinds import Processor, by_name, kind_of, kinds_of


@dataclass(frozen=True)
class Processing:
    """The arguments of a worker that are no options: what it calls to process jobs, and with what."""

    processor: Processor | Mapping[str, Processor]
    backoff_strategy: BackoffStrategy | None
    setup: Setup | None
    env: Mapping[str, str]
    tracer: TracerSource
    meter: MeterSource


#: Arguments without effect for an engine, and the reason.
_UNSUPPORTED: Final[Mapping[str, Mapping[str, str]]] = {
    "loop": {
        "checkpoint": "engine='loop' has no checkpoint; leave it out, or use engine='stream'",
    },
    "stream": {
        "concurrency": "engine='stream' processes whole micro-batches; set `slots`, or use engine='loop'",
        "minChunk": "engine='stream' processes whole micro-batches; leave it out, or use engine='loop'",
        "chunkWaitMs": "engine='stream' processes whole micro-batches; leave it out, or use engine='loop'",
        "targetWaitS": "engine='stream' has no range of slots; leave it out, or use engine='loop'",
        "maxStarted": "engine='stream' does not count starts; leave it out, or use engine='loop'",
        "retry": "engine='stream' settles rows, whose errors are texts without a class; set their column "
        "`unrecoverable`, or use engine='loop'",
        "shards": "engine='stream' processes one queue; start a Worker for each shard, such as mail{0}, or use "
        "engine='loop'",
    },
}
#: Arguments that only the Promoter needs. Slots need `max_stalled`, too: a process that ends returns its jobs.
_PROMOTER_ARGUMENTS: Final = {"auto": ("checkMs",), "loop": ("checkMs",), "stream": ("checkMs", "maxStalled")}


def worker_options(arguments: Mapping[str, Any], processor: Processor | Mapping[str, Processor]) -> WorkOptions:
    """Parses the arguments and resolves `engine`. Raises OptionError for an invalid argument or one without effect."""
    options = parse_arguments(arguments, WorkOptions)
    engine = _engine_of(options, processor)
    options = replace(options, engine=engine)
    check_combinations(options)
    if engine == "loop":
        _check_chunks(options, processor)
    if engine == "stream" and options.timeout_ms and kinds_of(processor) != {"UDF"}:
        raise OptionError(
            "`timeout_ms` has no effect here: engine='stream' cannot end a micro-batch of DataFrames; leave it out, or "
            "use engine='loop'"
        )
    if options.extend_timeout_on_progress and not _has_functions(engine, processor):
        raise OptionError(
            "`extend_timeout_on_progress` has no effect on UDFs and functions of DataFrames, which report no progress: "
            "leave it out, or use a function of a job"
        )
    return options


def _check_chunks(options: WorkOptions, processor: Processor | Mapping[str, Processor]) -> None:
    """Raises OptionError for sizes of chunks that the processors of the engine `loop` do not have."""
    kinds, most = kinds_of(processor), options.max_jobs_per_trigger
    if most is not None:
        name = options.spelled("maxJobsPerTrigger")
        if kinds != {"frames"}:
            raise OptionError(f"`{name}` has no effect here: it is for functions of DataFrames; set `chunk_size`")
        if options.chunk_size is not None:
            raise OptionError(f"expected one of `{name}` and `chunk_size`, which mean the same in slots, got both")
        if options.min_chunk > most:
            raise OptionError(f"expected `min_chunk` to be at most `{name}` ({most}), got: {options.min_chunk}")
    if "minChunk" in options.given and kinds == {"function"}:
        raise OptionError("`min_chunk` has no effect on functions of a job: leave it out, or use a UDF")


def check_combinations(options: WorkOptions) -> None:
    """Raises OptionError for arguments that contradict each other with any processor; the engine may be `auto`."""
    for name, why in _UNSUPPORTED.get(options.engine, {}).items():
        if name in options.given:
            raise OptionError(f"`{options.spelled(name)}` has no effect here: {why}")
    for name in ("limiter", "group") if options.shards is not None else ():
        if options.value(name) is not None:
            raise OptionError(
                f"expected no `{name}` with `shards`: a limit holds within one shard, not over all; leave it out, or "
                "use a queue without shards"
            )
    is_elastic = isinstance(options.slots, SlotRange)
    if is_elastic and options.engine == "stream":
        raise OptionError("expected `slots` to be one number with engine='stream', got a range: use engine='loop'")
    if "targetWaitS" in options.given and not is_elastic:
        name = options.spelled("targetWaitS")
        raise OptionError(
            f"`{name}` has no effect without a range of `slots`, such as (1, 40): give both, or leave it out"
        )
    if not options.promoter:
        for name in _PROMOTER_ARGUMENTS[options.engine]:
            if name in options.given:
                raise OptionError(
                    f"`{options.spelled(name)}` has no effect with promoter=False: leave it out, or pass it to the "
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
    engine: str,
    processor: Processor | Mapping[str, Processor],
    *,
    backoff_strategy: BackoffStrategy | None,
    setup: Setup | None,
    env: Mapping[str, str] | None,
    tracer: TracerSource,
    meter: MeterSource,
) -> Processing:
    """Returns these arguments. Raises OptionError for one that is invalid, or has no effect."""
    check_telemetry(tracer, meter, engine)
    check_setup(setup, engine, processor)
    variables = checked_env(env, engine, processor)
    return Processing(processor, backoff_strategy, setup, variables, tracer, meter)


def check_telemetry(tracer: TracerSource, meter: MeterSource, engine: str) -> None:
    """Raises OptionError for a tracer or a meter that cannot be sent to the executors, or has no effect."""
    check_sendable(tracer, meter)
    if meter and engine == "stream":
        raise OptionError(
            "`meter` has no effect here: engine='stream' settles jobs in short tasks of queries; leave it out, or use "
            "engine='loop'"
        )


def check_setup(setup: Setup | None, engine: str, processor: Processor | Mapping[str, Processor]) -> None:
    """Raises OptionError for a `setup` that cannot be called, or has no effect."""
    if setup is None:
        return
    if not _has_functions(engine, processor):
        raise OptionError(
            "`setup` has no effect on UDFs and functions of DataFrames: leave it out, and set up the state before the "
            "loop of a UDF over iterators, or use a function of a job"
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
    env: Mapping[str, str] | None, engine: str, processor: Processor | Mapping[str, Processor] | None = None
) -> Mapping[str, str]:
    """Returns the environment variables. Raises OptionError if one is invalid, or has no effect."""
    if env is None:
        return {}
    if processor is not None and "frames" in kinds_of(processor):
        raise OptionError(
            "`env` has no effect here: a function of DataFrames runs on the driver, and what it calls in the tasks of "
            "queries; set spark.executorEnv.<name>"
        )
    if engine == "stream":
        raise OptionError(
            "`env` has no effect here: engine='stream' runs in the tasks of queries; set spark.executorEnv.<name>, or "
            "use engine='loop'"
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


def _engine_of(options: WorkOptions, processor: Processor | Mapping[str, Processor]) -> str:
    given = options.engine
    if isinstance(processor, Mapping):
        if given == "stream":
            raise OptionError(
                "engine='stream' has no processors by name: branch on the column `name`, or use engine='loop'"
            )
        return "loop"
    if given != "auto":
        return str(given)
    # Only a query continues from a checkpoint.
    return "stream" if options.checkpoint is not None and kind_of(processor) == "frames" else "loop"


def _has_functions(engine: str, processor: Processor | Mapping[str, Processor]) -> bool:
    """Whether there is a function of a job: with the engine `stream`, each function is one of DataFrames."""
    return engine == "loop" and "function" in kinds_of(processor)

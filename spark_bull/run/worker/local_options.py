"""Parses the arguments of workers without Spark, and refuses those that need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.core.model.slots import SlotRange
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import WorkOptions
from spark_bull.run.job.job_runner import FunctionRunner
from spark_bull.run.worker.kinds import Processor, by_name, check_processors, kind_of
from spark_bull.run.worker.worker_options import worker_options

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

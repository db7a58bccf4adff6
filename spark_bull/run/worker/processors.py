"""The processors of workers: their kinds, and whether they can be sent to other processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from spark_bull.core.errors import OptionError, expected
from spark_bull.run.job.job_runner import ANY_NAME
from spark_bull.run.slot.slot_plan import SlotPlan

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

"""The arguments of a Worker: parsed by the table of options, and held against engine, processor and dialect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame

from spark_bull.dialects.base import Dialect
from spark_bull.errors import DialectError, OptionError
from spark_bull.options import WORK, Options, as_texts, parse_options
from spark_bull.settings import resolved
from spark_bull.spark.udf_runner import is_udf

Processor = Callable[..., Any]

#: Arguments that mean nothing to an engine, and why.
_MEANINGLESS: Final[Mapping[str, Mapping[str, str]]] = {
    "loop": {
        "checkpoint": "the engine `loop` keeps nothing between runs; it is for engine='stream'",
        "max_jobs_per_trigger": "the engine `loop` has no micro-batches: give `chunk_size`, or engine='stream'",
    },
    "stream": {},
}
_OF_PROMOTER: Final = ("max_stalled", "check_ms")


def worker_options(arguments: Mapping[str, Any], processor: Processor) -> Options:
    """The arguments as values, `engine` settled. Raises OptionError for one that is wrong or has no effect."""
    options = resolved(parse_options(as_texts(arguments), WORK))
    engine = _engine_of(options["engine"], processor)
    for name, why in _MEANINGLESS[engine].items():
        if name in options.given:
            raise OptionError(f"`{name}` has no effect here: {why}")
    if not options["promoter"]:
        for name in _OF_PROMOTER:
            if name in options.given:
                raise OptionError(f"`{name}` has no effect with promoter=False: give it to whatever runs the Promoter")
    if engine == "stream" and options["timeout"] and not is_udf(processor):
        raise OptionError(
            "`timeout` has no effect on a function of DataFrames: give it for a UDF or a function of a job"
        )
    return replace(options, values={**options.values, "engine": engine})


def check_dialect(options: Options, dialect: Dialect) -> None:
    """Raises DialectError for an argument that has no effect in this dialect."""
    for name in sorted(dialect.no_worker_options & options.given):
        if options[name]:
            raise DialectError(f"`{name}` has no effect in the dialect {dialect.name}, which knows no such thing")


def _engine_of(given: str, processor: Processor) -> str:
    takes_frames = not is_udf(processor) and _takes_frames(processor)
    if given == "loop" and takes_frames:
        raise OptionError("expected a function of a job, or a UDF, with engine='loop', got a function of DataFrames")
    if given != "auto":
        return given
    return "stream" if takes_frames else "loop"


def _takes_frames(processor: Processor) -> bool:
    """Whether a function's first parameter is annotated as a DataFrame."""
    try:
        parameters = list(inspect.signature(processor).parameters.values())
    except (TypeError, ValueError):
        return False
    annotation = parameters[0].annotation if parameters else None
    return annotation is DataFrame or (isinstance(annotation, str) and annotation.split(".")[-1] == "DataFrame")

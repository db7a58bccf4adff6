"""A sample of jobs, from which the types of their payloads and results are inferred."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from spark_bull.core.errors import OptionError
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.core.queue.jobs.read import read_jobs
from spark_bull.spark.inspect.source import matching, names_and_globs
from spark_bull.spark.json.json_schema import TYPED_COLUMNS, inferred

#: Number of jobs in a sample, from each queue.
SAMPLE: Final = 1_000


def inferred_type(options: ReadOptions, column: str) -> str:
    """Infers the type of `data` or `returnvalue` from the first jobs of each queue, in SQL. Raises OptionError."""
    options = options
    names, globs = names_and_globs(options)
    queues = dict.fromkeys([*names, *matching(options, globs)])
    found = inferred(chain.from_iterable(_texts(options, queue, column) for queue in queues))
    if found is None:
        raise OptionError(
            f"expected jobs to infer `{TYPED_COLUMNS[column]}` from, got none with `{column}`: give the type as DDL"
        )
    return found


def _texts(options: ReadOptions, queue: str, column: str) -> Iterator[bytes]:
    chunks = read_jobs(open_handle(options, queue), options.states, [column])
    raws = (raw for chunk in chunks for raw in chunk.column(column) if raw is not None)
    return islice(raws, SAMPLE)

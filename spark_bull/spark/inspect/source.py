"""Reading queues as a DataFrame.

Spark asks for partitions once per `load()` and uses them for every action on that DataFrame. So a partition is an open
slice, a part of whatever is there when it is read: a reused DataFrame shows new jobs, and doesn't miss removed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_bull.dialects.fields import FIELDS
from spark_bull.options import Options
from spark_bull.queue.find import find_queues, is_glob
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.read import Chunk, Slice, counts, read_ids, read_jobs
from spark_bull.spark.inspect.views import ROWS, Row, Share
from spark_bull.spark.job_columns import batch_of
from spark_bull.spark.schemas import columns_of, read_options
from spark_bull.store.connection import Connection
from spark_bull.store.settings import resolved, settings_of

#: Views that are read in slices; the others are small.
SLICED: Final = ("jobs", "logs")
JOBS_PER_PARTITION: Final = 100_000
MAX_PARTITIONS: Final = 16
#: Rows of the largest batch for Spark. The first is one chunk and each is twice the last: `show()` reads little.
BATCH_ROWS: Final = 8_000
#: Chunks, each limited in bytes, that one batch is made of at most.
BATCH_CHUNKS: Final = 16


@dataclass(frozen=True)
class Plan:
    """Everything about one read that its tasks need; made on the driver, picklable.

    `queues` are those of the option, and those that its globs matched when the plan was made.
    """

    options: Options
    schema: StructType
    columns: tuple[str, ...]
    queues: tuple[str, ...]
    globs: tuple[str, ...]

    def handles(self, *, new_ones: bool = False) -> Iterator[QueueHandle]:
        """The planned queues as they are now; or those that the globs match now and that weren't planned."""
        queues = self.queues
        if new_ones:
            found = _matching(self.options, self.globs)
            queues = tuple(queue for queue in found if queue not in self.queues)
        for queue in queues:
            yield open_handle(self.options, queue)


class OpenSlice(InputPartition):
    """A part of all queues, resolved when it is read."""

    def __init__(self, number: int, of: int) -> None:
        super().__init__(number)
        self.part = Slice(number, of)


def plan_read(raw: Mapping[str, str], schema: StructType) -> Plan:
    """Checks options, columns and Redis, and finds the queues.

    Raises OptionError, DialectError or ConnectionLost before any task has started.
    """
    options = resolved(read_options(raw))
    columns = tuple(columns_of(schema, options["view"]))
    given = [part.strip() for part in (options["queue"] or "*").split(",") if part.strip()]
    named, globs = [q for q in given if not is_glob(q)], tuple(q for q in given if is_glob(q))
    Connection(settings_of(options)).check(options["prefix"], named, write=False)
    queues = tuple(dict.fromkeys([*named, *_matching(options, globs)]))
    return Plan(options, schema, columns, queues, globs)


def _matching(options: Options, globs: tuple[str, ...]) -> list[str]:
    connection = Connection(settings_of(options))
    return [queue for glob in globs for queue in find_queues(connection, options["prefix"], glob)]


def batch_reader(raw: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of `spark.read.format("bull")`; for errors see `plan_read`."""
    return BatchReader(plan_read(raw, schema))


class BatchReader(DataSourceReader):
    """One `load()`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        count = _partition_count(self._plan)
        return [OpenSlice(number, count) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OpenSlice)
        plan = self._plan
        schema = to_arrow_schema(plan.schema, timezone="UTC")
        shares = _shares(plan, partition.part)
        if plan.options["view"] == "jobs":
            for gathered in _gathered(chunk for share in shares for chunk in _chunks(share, plan)):
                yield batch_of(gathered, plan.columns, schema)
        else:
            rows = (row for share in shares for row in ROWS[plan.options["view"]](share))
            for some in _some(rows):
                yield _batch_of_rows(some, plan.columns, schema)


def _partition_count(plan: Plan) -> int:
    """As many as asked for, else by the number of jobs there are now."""
    options = plan.options
    handles = list(plan.handles())
    if options["view"] not in SLICED:
        return 1
    if options["numPartitions"]:
        return int(options["numPartitions"])
    states = options["states"]
    jobs = len(options["jobIds"]) or sum(
        count for handle in handles for state, count in counts(handle).items() if not states or state in states
    )
    return max(1, min(MAX_PARTITIONS, -(-jobs // JOBS_PER_PARTITION)))


def _shares(plan: Plan, part: Slice) -> Iterator[Share]:
    for handle in plan.handles():
        yield Share(handle, plan.options, part)
    if plan.globs and part.number == 0:
        # One task alone looks for queues that have come since, and reads them whole.
        for handle in plan.handles(new_ones=True):
            yield Share(handle, plan.options, Slice())


def _chunks(share: Share, plan: Plan) -> Iterator[tuple[str, Chunk]]:
    options, part = share.options, share.part
    columns = [name for name in plan.columns if name in FIELDS]
    if options["jobIds"]:
        ids = options["jobIds"][part.number :: part.of]
        chunks = read_ids(share.handle, ids, options["states"], columns, options["chunkSize"])
    else:
        chunks = read_jobs(share.handle, options["states"], columns, part, options["chunkSize"])
    for chunk in chunks:
        yield share.handle.keys.queue, chunk


def _gathered(chunks: Iterator[tuple[str, Chunk]]) -> Iterator[list[tuple[str, Chunk]]]:
    """Chunks gathered to what makes a batch."""
    gathered: list[tuple[str, Chunk]] = []
    rows = target = 0
    for queue, chunk in chunks:
        gathered.append((queue, chunk))
        rows += len(chunk.ids)
        target = target or rows
        if rows >= target or len(gathered) >= BATCH_CHUNKS:
            yield gathered
            gathered, rows, target = [], 0, min(2 * target, BATCH_ROWS)
    if gathered:
        yield gathered


def _some(rows: Iterator[Row]) -> Iterator[list[Row]]:
    some: list[Row] = []
    for row in rows:
        some.append(row)
        if len(some) == BATCH_ROWS:
            yield some
            some = []
    if some:
        yield some


def _batch_of_rows(rows: list[Row], columns: tuple[str, ...], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array([_arrow_value(row[name], field.type) for row in rows], field.type)
        for name, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_value(value: Any, kind: pa.DataType) -> Any:
    """Times come in ms and go as what Arrow counts in, microseconds."""
    return value * 1000 if value is not None and pa.types.is_timestamp(kind) else value

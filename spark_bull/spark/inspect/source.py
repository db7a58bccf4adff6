"""Batch reads of queues.

Spark plans the partitions once per `load()` and reuses them for every action on that DataFrame. A partition is
therefore a relative slice of the queue, resolved when it is read: a reused DataFrame shows the current jobs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_bull.core.dialects.features import Feature
from spark_bull.core.dialects.fields import FIELDS, JSON_COLUMNS
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.dispatch.written import WrittenEnds, find_written, read_written, written_ids
from spark_bull.core.queue.events.event_log import span_of
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle, opening
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.core.queue.jobs.read import Chunk, counting, read_ids, read_jobs
from spark_bull.core.queue.monitor.find import find_queues, is_glob, warn_of_missing
from spark_bull.core.queue.shards.layout import selection_of
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import run_all
from spark_bull.core.well_formed import well_formed_json
from spark_bull.spark.inspect.events import event_batches
from spark_bull.spark.inspect.views import ROWS, QueueSlice, Row
from spark_bull.spark.json.job_columns import FIRST_MS, LAST_MS, batches_of, raw_batch
from spark_bull.spark.json.types import TYPED_COLUMNS, inferred
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.platform.datasource import begin_task
from spark_bull.spark.schemas import columns_of, read_options

log = logging.getLogger("spark_bull")

#: Views that are read in parallel slices; the others are small.
SLICED: Final = ("jobs", "logs", "dependencies", "flows")
JOBS_PER_PARTITION: Final = 100_000
#: The number of jobs from which a read of all states is said to be slower than one of some.
ADVISED_FROM: Final = 10_000
#: More partitions would wait for Redis, which sends the ids of all jobs to each of them.
MAX_PARTITIONS: Final = 4
#: Minimum numbers of groups of ids, in all and per partition, so that partitions have about equal numbers of jobs, and
#: the most characters of an id that tell the jobs of a group apart.
MIN_GROUPS: Final = 1_000
GROUPS_PER_PARTITION: Final = 100
MAX_IGNORED: Final = 3
#: What a dialect needs for a view of a named queue.
_FEATURES: Final[Mapping[str, Feature]] = {
    "dependencies": "flows",
    "flows": "flows",
    "schedulers": "schedulers",
    "metrics": "metrics",
    "events": "event-stream",
}
#: Rows per Arrow batch, at most in views other than `jobs`, at least in `jobs`, which begins with smaller ones.
BATCH_ROWS: Final = 8_000


@dataclass(frozen=True)
class ReadPlan:
    """The plan of a read, created on the driver for its tasks. Picklable.

    queues: the named queues, and those that matched the globs when the plan was created.
    """

    options: ReadOptions
    schema: StructType
    columns: tuple[str, ...]
    queues: tuple[str, ...]
    globs: tuple[str, ...]

    def handles(self, *, new_ones: bool = False) -> list[QueueHandle]:
        """Opens the planned queues; with `new_ones`, the queues that match the globs but were not planned."""
        queues = self.queues
        if new_ones:
            found = matching(self.options, self.globs)
            queues = tuple(queue for queue in found if queue not in self.queues)
        return run_all(Connection(self.options.redis), [opening(self.options, queue) for queue in queues])


class OpenSlice(InputPartition):
    """A relative slice of all queues, resolved when it is read."""

    def __init__(self, part: Slice) -> None:
        super().__init__(part.number)
        self.part = part


def plan_read(raw: Mapping[str, str], schema: StructType) -> ReadPlan:
    """Checks the options, columns and Redis, and finds the queues.

    Raises OptionError, DialectError or ConnectionLost before any task starts.
    """
    options = read_options(raw)
    columns = tuple(columns_of(schema, options.view))
    named, globs = names_and_globs(options)
    Connection(options.redis).check(options.prefix, named, write=False)
    feature = _FEATURES.get(options.view)
    if feature is not None:
        for queue in named:
            open_handle(options, queue).dialect.require(feature)
    if options.write_id is not None and options.view != "jobs":
        raise OptionError(f"expected `writeId` with view=jobs, got: view={options.view}; leave it out")
    warn_of_missing(Connection(options.redis), options.prefix, named)
    queues = tuple(dict.fromkeys([*named, *matching(options, globs)]))
    return ReadPlan(options, schema, columns, queues, globs)


def names_and_globs(options: ReadOptions) -> tuple[list[str], tuple[str, ...]]:
    """Splits the option `queue` into names, with the names of shards, and globs; without it, all queues."""
    given = selection_of(options) if options.queue else ["*"]
    return [one for one in given if not is_glob(one)], tuple(one for one in given if is_glob(one))


def matching(options: ReadOptions, globs: tuple[str, ...]) -> list[str]:
    """Returns the queues that match the globs now."""
    connection = Connection(options.redis)
    return [queue for glob in globs for queue in find_queues(connection, options.prefix, glob)]


def batch_reader(raw: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Creates the reader of `spark.read.format("bull")`. Raises the errors of `plan_read`."""
    return BatchReader(plan_read(raw, schema))


@short_errors
class BatchReader(DataSourceReader):
    """The reader of one `load()`."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        return [OpenSlice(part) for part in _slices(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OpenSlice)
        begin_task()
        plan = self._plan
        schema = to_arrow_schema(plan.schema)
        feature = _FEATURES.get(plan.options.view)
        # A queue of a dialect without the feature was found by a glob.
        queue_slices = (
            each for each in _queue_slices(plan, partition.part) if feature is None or each.handle.dialect.has(feature)
        )
        if plan.options.view == "events":
            for each in queue_slices:
                yield from _events(each.handle, plan, schema)
        elif plan.options.view == "jobs":
            raw = (batch for each in queue_slices for batch in _raw_batches(each, plan))
            yield from batches_of(raw, schema, _sizes())
        else:
            rows = (row for each in queue_slices for row in ROWS[plan.options.view](each))
            for gathered_rows in _gathered_rows(rows):
                yield _batch_of_rows(gathered_rows, plan.columns, schema)


def _events(handle: QueueHandle, plan: ReadPlan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The events that are kept when the read begins."""
    span = span_of(handle)
    size = plan.options.chunk_size
    yield from event_batches(handle, span.before, span.last.id, plan.columns, schema, size=size, strict=False)


def _slices(plan: ReadPlan) -> list[Slice]:
    """`numPartitions` slices, or a number that depends on the current number of jobs."""
    if plan.options.view not in SLICED:
        return [Slice()]
    jobs = _job_count(plan)
    count = plan.options.num_partitions or max(1, min(MAX_PARTITIONS, -(-jobs // JOBS_PER_PARTITION)))
    return slices_of(jobs, len(plan.queues), count)


def slices_of(jobs: int, queues: int, count: int) -> list[Slice]:
    """`count` slices of about equal numbers of jobs, for this number of jobs and of queues."""
    group = min(jobs // max(MIN_GROUPS, GROUPS_PER_PARTITION * count), jobs // max(1, queues))
    ignored = min(MAX_IGNORED, len(str(group)) - 1)
    return [Slice(number, count, ignored) for number in range(count)]


def _job_count(plan: ReadPlan) -> int:
    """The number of jobs that a read would find now. Raises OptionError for a write that has kept no ids."""
    options, handles = plan.options, plan.handles()
    if options.write_id is not None and (written := find_written(handles, options.write_id)).jobs:
        return written.jobs
    if options.job_ids:
        return len(options.job_ids)
    found = run_all(Connection(options.redis), [counting(handle) for handle in handles])
    by_state = sum(map(Counter, found), Counter[str]())
    if not options.states:
        _advise_states(options.queue, by_state)
    return sum(jobs for state, jobs in by_state.items() if not options.states or state in options.states)


def _advise_states(queue: str | None, by_state: Mapping[str, int]) -> None:
    """Logs that a read of many jobs in several states takes them all from Redis, whatever is filtered afterwards."""
    jobs = sum(by_state.values())
    if jobs >= ADVISED_FROM and len(by_state) > 1:
        counts = ", ".join(f"{state}: {count:,}" for state, count in sorted(by_state.items()))
        log.warning(
            "queue %s: reading %s jobs in all states (%s). `where state = …` is applied after the read: "
            "the option `states` reads only the jobs in some states, which is faster",
            queue or "*",
            f"{jobs:,}",
            counts,
        )


def _queue_slices(plan: ReadPlan, part: Slice) -> Iterator[QueueSlice]:
    for handle in plan.handles():
        yield QueueSlice(handle, plan.options, part._replace(queue=handle.keys.queue))
    if plan.globs and part.number == 0:
        # One task reads the queues that were created after planning, completely.
        for handle in plan.handles(new_ones=True):
            yield QueueSlice(handle, plan.options, Slice())


def _chunks(queue_slice: QueueSlice, plan: ReadPlan) -> Iterator[Chunk]:
    options, part = queue_slice.options, queue_slice.part
    columns = [name for name in plan.columns if name in FIELDS]
    if options.write_id is not None:
        since_ms = find_written(plan.handles(), options.write_id).since_ms
        ends = WrittenEnds(queue_slice.handle, since_ms, strict=options.fail_on_data_loss)
        written = written_ids(queue_slice.handle, options.write_id, part)
        return read_written(queue_slice.handle, written, options.states, columns, options.chunk_size, ends)
    if options.job_ids:
        ids = options.job_ids[part.number :: part.of]
        return read_ids(queue_slice.handle, ids, options.states, columns, options.chunk_size)
    return read_jobs(queue_slice.handle, options.states, columns, part, options.chunk_size)


def _raw_batches(queue_slice: QueueSlice, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    queue = queue_slice.handle.keys.queue
    for chunk in _chunks(queue_slice, plan):
        queues = [queue] * len(chunk.ids)
        known: dict[str, list[Any]] = {"queue": queues, "id": chunk.ids, "state": chunk.states, "runAt": chunk.run_at}
        yield raw_batch({name: known[name] if name in known else chunk.column(name) for name in plan.columns})


def _sizes() -> Iterator[int]:
    """The minimum numbers of rows of the batches, which double: `show()` reads little."""
    rows = 1
    while True:
        yield rows
        rows = min(2 * rows, BATCH_ROWS)


def _gathered_rows(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while gathered := list(islice(rows, BATCH_ROWS)):
        yield gathered


def _batch_of_rows(rows: list[Row], columns: tuple[str, ...], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.array([_arrow_value(name, row[name], field.type) for row in rows], field.type)
        for name, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_value(name: str, value: Any, kind: pa.DataType) -> Any:
    """Converts times from ms to microseconds, the unit of the Arrow schema, and maps to pairs.

    What Redis has may be larger than a column can hold: such a number, or time, is null.
    """
    if name in JSON_COLUMNS:
        return value and well_formed_json(value)
    if pa.types.is_map(kind):
        return list(value.items())
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return value * 1000 if FIRST_MS <= value <= LAST_MS else None
    if pa.types.is_integer(kind):
        return value if abs(value) < 2 ** (kind.bit_width - 1) else None
    return value


#: Number of jobs in a sample, from each queue.
SAMPLE: Final = 1_000


def inferred_type(options: ReadOptions, column: str) -> str:
    """Infers the type of `data` or `returnvalue` from the first jobs of each queue, in SQL. Raises OptionError."""
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

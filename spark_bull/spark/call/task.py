"""One task of a call: the function of mapInArrow, its open calls, and the columns that a call adds."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.fields import NO_VALUE
from spark_bull.core.errors import JobFailed, OptionError, PayloadUnreadable
from spark_bull.core.model.job_json import damaged_field
from spark_bull.core.queue.call.caller import ADDED, CallEnd, Caller, chunks, sweep
from spark_bull.core.queue.call.flight import EndedCall, Flight, Lease
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.well_formed import well_formed, well_formed_json
from spark_bull.spark.dispatch.rows import RowPlan
from spark_bull.spark.json.json_values import WrongPayload, payload_array
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.platform.datasource import begin_task
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.sink import this_attempt, this_batch

RESULT: Final = "result"
#: The columns beside RESULT.
_OTHERS: Final = {"error": StringType(), "jobId": StringType()}
#: The columns of details.
_DETAILS: Final = {"attemptsMade": IntegerType(), "durationMs": LongType()}


def output_schema(schema: StructType, result: DataType, *, details: bool) -> StructType:
    """The columns of a DataFrame and of the outcomes. Raises OptionError for a DataFrame that has one of these."""
    added = {RESULT: result, **_OTHERS, **(_DETAILS if details else {})}
    taken = {name.lower() for name in added}
    for name in schema.names:
        if name.lower() in taken:
            raise OptionError(f"expected no column `{name}`: call() adds {', '.join(added)}; rename it or drop it")
    return StructType([*schema.fields, *(StructField(name, kind) for name, kind in added.items())])


class Parsed(NamedTuple):
    """Outcomes as a column RESULT, and an error for each that is none."""

    values: pa.Array
    errors: list[str | None]


def parsed(ended: Sequence[EndedCall], result: DataType) -> Parsed:
    """The values of calls as a type; one that is not JSON, or does not match the type, is an error."""
    errors = [one.outcome.error for one in ended]
    values: list[Any] = [None] * len(ended)
    for position, (call, outcome) in enumerate(ended):
        if outcome.value is not None:
            try:
                values[position] = _read(outcome.value, result)
            except (ValueError, RecursionError) as error:
                text = outcome.value.decode("utf-8", "replace")
                errors[position] = damaged_field("returnvalue", call.job_id, f"JSON ({error})", text)
    kind = to_arrow_type(result)
    try:
        return Parsed(payload_array(values, kind), errors)
    except WrongPayload:
        for position, value in enumerate(values):
            try:
                payload_array([value], kind)
            except WrongPayload as error:
                values[position], errors[position] = None, f"return_schema: {error}"
        return Parsed(payload_array(values, kind), errors)


def _read(value: bytes, result: DataType) -> Any:
    """Parses a value; as a string, it is what get_json_object of Spark gives: a text without quotes, or JSON."""
    found = None if value in NO_VALUE else json.loads(value)
    if found is None or not isinstance(result, StringType):
        return found
    return well_formed(found) if isinstance(found, str) else well_formed_json(value.decode("utf-8", "replace"))


def with_outcomes(
    rows: pa.RecordBatch, outcomes: Parsed, ended: Sequence[EndedCall], *, details: bool
) -> pa.RecordBatch:
    """Rows with the columns of their outcomes."""
    added = {
        RESULT: outcomes.values,
        "error": pa.array(outcomes.errors, pa.string()),
        "jobId": pa.array([one.call.job_id for one in ended], pa.string()),
    }
    if details:
        found = [one.outcome.details for one in ended]
        added["attemptsMade"] = pa.array([one.attempts_made for one in found], pa.int32())
        added["durationMs"] = pa.array([one.duration_ms for one in found], pa.int64())
    return pa.RecordBatch.from_arrays([*rows.columns, *added.values()], names=[*rows.schema.names, *added])


#: The last column of the rows of a task: the partition that they were in before the call.
PARTITION: Final = "__spark_bull_partition"
#: Rows that a task gives at once, or fewer after this time, s.
_MOST_ROWS: Final = 1_000
_EMIT_S: Final = 0.2


@dataclass(frozen=True)
class CallPlan:
    """What each task of a call does. Picklable.

    columns: of the rows, and of the outcomes. call_id: identifies the call, in all actions. shared_id: the
    same in each program that makes this call, for streams. result: type of the results. defaults: properties of all
    jobs, as `encode` takes them.
    """

    handle: QueueHandle
    rows: RowPlan
    columns: StructType
    call_id: str
    shared_id: str
    result: DataType
    on_error: str
    timeout_ms: int
    in_flight: int
    keep_ms: int
    details: bool
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function of mapInArrow. The last column of the batches is PARTITION."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        with self.task(first) as task:
            for batch in chain([first], filled):
                yield from task.add(batch)
            yield from task.finish()

    @contextmanager
    def task(self, first: pa.RecordBatch) -> Iterator[Task]:
        """The calls of a partition, which have ended when the block is left without an error. first: its first rows."""
        begin_task()
        sweep(self.handle)
        name = self._caller_name(first.columns[-1][0].as_py())
        caller = Caller(self.handle, name, keep_ms=self.keep_ms, defaults=self.defaults, details=self.details)
        with Lease(caller):
            yield Task(self, Flight(caller, timeout_ms=self.timeout_ms))
        caller.close()

    def _caller_name(self, partition: int) -> str:
        """The same for all attempts of a task, and when the micro-batch of a stream is repeated."""
        context, batch = TaskContext.get(), this_batch()
        if batch is not None:
            scope: tuple[object, ...] = (self.shared_id, batch.app_id, batch.version)
        else:
            execution = context and context.getLocalProperty("spark.sql.execution.id")
            stage = context.stageId() if context and execution is None else None
            scope = (self.call_id, execution, stage)
        # Ids of jobs begin with this name, and Redis copies them several times per job: base64 is shorter than digits.
        digest = urlsafe_b64encode(hashlib.blake2b(json.dumps(scope).encode(), digest_size=9).digest()).decode()
        # After `coalesce`, a task has several partitions; in a union, several tasks have the same one.
        return f"{digest}-{this_attempt('').partition}-{partition}"


class Task:
    """Adds the rows of a task, and gives those whose jobs have ended, with their outcomes."""

    def __init__(self, plan: CallPlan, flight: Flight) -> None:
        self._plan, self._flight = plan, flight
        self._added = 0
        #: The rows whose calls have no result yet, by their numbers: batch and place.
        self._rows: dict[int, tuple[pa.RecordBatch, int]] = {}
        self._ended: list[EndedCall] = []
        self._emit_at = monotonic_s() + _EMIT_S

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Adds rows, whose last column is PARTITION."""
        for part in self._plan.rows.slices(batch.select(range(batch.num_columns - 1))):
            yield from self._add(part)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Waits for the jobs that have not ended."""
        yield from self._look_until(0)
        yield from self._emit()

    def _add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = range(self._added, self._added + batch.num_rows)
        self._added += batch.num_rows
        texts = self._plan.rows.rows(batch, numbers)["data"]
        # Workers go on with the other three quarters meanwhile.
        for start, stop in chunks(texts, max(1, min(ADDED, self._plan.in_flight // 4))):
            yield from self._look_until(self._plan.in_flight - (stop - start))
            self._rows |= {numbers[place]: (batch, place) for place in range(start, stop)}
            self._ended += self._flight.add(texts[start:stop], numbers[start:stop])

    def _look_until(self, most: int) -> Iterator[pa.RecordBatch]:
        """Looks for outcomes until at most `most` calls have none; gives rows from time to time."""
        while len(self._flight) > most:
            self._ended += self._flight.look()
            if len(self._ended) >= _MOST_ROWS or (self._ended and monotonic_s() >= self._emit_at):
                yield from self._emit()

    def _emit(self) -> Iterator[pa.RecordBatch]:
        """Gives the rows whose calls have ended, of each batch together."""
        ended, self._ended = self._ended, []
        self._emit_at = monotonic_s() + _EMIT_S
        of_batch: dict[int, list[EndedCall]] = defaultdict(list)
        for one in ended:
            of_batch[id(self._rows[one.call.row][0])].append(one)
        for group in of_batch.values():
            yield from self._given(group)

    def _given(self, group: Sequence[EndedCall]) -> Iterator[pa.RecordBatch]:
        places = [self._rows.pop(one.call.row) for one in group]
        if not self._plan.handle.payloads.is_plain:
            group = [one._replace(outcome=self._opened(one)) for one in group]
        outcomes = parsed(group, self._plan.result)
        rows = places[0][0].take(pa.array([place for _, place in places]))
        rows = with_outcomes(rows, outcomes, group, details=self._plan.details)
        if self._plan.on_error == "fail":
            for one, error in zip(group, outcomes.errors, strict=True):
                if error is not None:
                    raise self._failed(one, error)
        yield rows.filter(pa.array([error is None for error in outcomes.errors])) if self._drops else rows

    def _opened(self, one: EndedCall) -> CallEnd:
        """The outcome of a call, with its value as it was before it was kept.

        Raises PayloadUnreadable if the file system has failed: a task that is repeated finds the results again.
        """
        value = one.outcome.value
        if value is None:
            return one.outcome
        try:
            text = self._plan.handle.opened("returnvalue", one.call.job_id, value.decode())
        except PayloadUnreadable as error:
            if error.may_pass:
                raise
            return one.outcome._replace(value=None, error=str(error))
        return one.outcome._replace(value=text.encode())

    @property
    def _drops(self) -> bool:
        return self._plan.on_error == "drop"

    def _failed(self, one: EndedCall, error: str) -> JobFailed:
        queue = self._plan.handle.keys.queue
        where = f"row {one.call.row} of partition {this_attempt('').partition}"
        message = f"{where} (job {one.call.job_id} of queue {queue}): {error}"
        return JobFailed(message, queue=queue, job_id=one.call.job_id, reason=error)

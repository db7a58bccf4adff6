"""One task of a call: the function of mapInArrow, and the rows whose jobs have not ended."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.types import DataType, StructType

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import JobFailed, PayloadUnreadable
from spark_bull.core.queue.call.caller import Caller, Outcome, sweep
from spark_bull.core.queue.call.flight import Ended, Flight, Lease
from spark_bull.core.queue.call.verbs import ADDED, chunks
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.call.results import parsed, with_outcomes
from spark_bull.spark.dispatch.rows import RowPlan
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.platform.python_worker import begin_task
from spark_bull.spark.staging.task import this_attempt, this_batch

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
        self._ended: list[Ended] = []
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
        of_batch: dict[int, list[Ended]] = defaultdict(list)
        for one in ended:
            of_batch[id(self._rows[one.call.row][0])].append(one)
        for group in of_batch.values():
            yield from self._given(group)

    def _given(self, group: Sequence[Ended]) -> Iterator[pa.RecordBatch]:
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

    def _opened(self, one: Ended) -> Outcome:
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

    def _failed(self, one: Ended, error: str) -> JobFailed:
        queue = self._plan.handle.keys.queue
        where = f"row {one.call.row} of partition {this_attempt('').partition}"
        message = f"{where} (job {one.call.job_id} of queue {queue}): {error}"
        return JobFailed(message, queue=queue, job_id=one.call.job_id, reason=error)

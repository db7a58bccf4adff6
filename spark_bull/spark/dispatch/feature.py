"""What a feature of a write does at each step of the write, and what it is told.

`features/` has a file for each feature; the sink has their list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict

from pyspark.sql.types import StructType

from spark_bull.core.dialects.encode.chunks import EncodedJobs
from spark_bull.core.dialects.encode.flows import Flows
from spark_bull.core.options.table import WriteOptions
from spark_bull.core.queue.dispatch.write_records import Fields, Identity, QueuePlan
from spark_bull.core.queue.handle.admission import LengthLimit
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.dispatch.rows import RowPlan
from spark_bull.spark.staging.columns import QueueRows
from spark_bull.spark.staging.plan import CommitMessage, StagedPlan, TaskPart
from spark_bull.spark.staging.sink import Attempt

if TYPE_CHECKING:
    from spark_bull.core.model.queues import WriteRecord

Plan: TypeAlias = StagedPlan[RowPlan]
#: Splits rows of a queue by the queue that they go to instead.
Router: TypeAlias = Callable[[str, dict[str, list[Any]], Sequence[int]], Iterator[QueueRows]]


class WriteRequest(NamedTuple):
    """What a user asks for. overwrite: mode("overwrite")."""

    options: WriteOptions
    schema: StructType
    rows: RowPlan
    overwrite: bool


class AddTerms(TypedDict, total=False):
    """Arguments of `add_chunk`, for chunks that tasks add directly."""

    limit: LengthLimit
    write_id: str


@dataclass
class TaskWrite:
    """A task attempt of a write. defaults: properties of jobs whose rows do not give them."""

    plan: Plan
    attempt: Attempt
    identity: Identity | None
    defaults: dict[str, Any]
    handles: dict[str, QueueHandle] = field(default_factory=dict)

    @property
    def source(self) -> str | None:
        """Names the rows of this task, if they are added again when it is repeated."""
        if self.plan.exactly_once:
            return None
        return f"{self.identity or self.plan.write_id}:{self.attempt.partition}"

    def open(self, queues: Iterable[str]) -> None:
        """Opens the queues that are new, in shared round trips."""
        new = [queue for queue in dict.fromkeys(queues) if queue and queue not in self.handles]
        if new:
            self.handles |= self.plan.handles_of(new)

    def handle(self, queue: str) -> QueueHandle:
        self.open([queue])
        return self.handles[queue]

    def has_written(self, handle: QueueHandle) -> bool:
        """Whether the write was committed to a queue before."""
        return self.plan.has_written(handle, self.identity)


class TaskRows(NamedTuple):
    """Rows of a task for one queue. values: by column. numbers: row numbers, for errors."""

    task: TaskWrite
    handle: QueueHandle
    part: TaskPart
    values: dict[str, list[Any]]
    numbers: Sequence[int]


class WholeWrite(NamedTuple):
    """A write when it is committed. queues: names of all its queues."""

    plan: Plan
    id: str
    identity: Identity | None
    queues: Sequence[str]


class WriteFeature:
    """A feature of a write: each method is a step of the write, and does nothing unless the feature needs it.

    Picklable. Methods raise OptionError or DialectError for what the feature can't do.
    """

    @classmethod
    def planned(cls, request: WriteRequest) -> WriteFeature | None:
        """The feature as the options and columns ask for it; None: they do not. On the driver, with Redis reached."""
        raise NotImplementedError

    def check(self, handle: QueueHandle) -> None:
        """Checks a queue of the write when it is opened, on the driver or in a task."""

    def defaults(self, task: TaskWrite) -> Mapping[str, Any]:
        """Further defaults of the jobs of a task."""
        return {}

    def router(self, task: TaskWrite) -> Router | None:
        """What splits the rows of a task by queue."""
        return None

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        """Checks or changes the jobs of these rows."""
        return jobs

    def check_flows(self, flows: Flows, rows: TaskRows) -> None:
        """Checks or changes the flows of these rows."""

    def adding(self, task: TaskWrite) -> AddTerms:
        """Prepares a task that adds jobs directly, before its first chunk; returns the terms of its chunks."""
        return {}

    def committing(self, plan: Plan, written: list[CommitMessage]) -> list[CommitMessage]:
        """The messages that the commit registers."""
        return written

    def record(self, write: WholeWrite) -> Fields:
        """Fields of the record of a write, in all of its queues."""
        return {}

    def queue_record(self, plan: Plan, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        """Further fields of the record for one queue."""
        return {}

    def repeated(self, plan: Plan, plans: Sequence[QueuePlan], identity: Identity | None) -> Iterator[WriteRecord]:
        """Finishes what the same write has left when it was committed before; the records of finished writes."""
        yield from ()

    def aborted(self, plan: Plan, written: Sequence[CommitMessage]) -> None:
        """Undoes what a failed write has left. Raises SparkBullError."""

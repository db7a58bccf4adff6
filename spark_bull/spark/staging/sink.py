"""Writers of batches and streams whose tasks stage their rows: Spark calls `write` in tasks, the rest on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_bull.queue.dispatch.writes import Identity
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.staging.commit import discard_stages
from spark_bull.spark.staging.identity import identity_of, identity_of_batch
from spark_bull.spark.staging.messages import Written, written_of
from spark_bull.spark.staging.plan import StagedPlan

P = TypeVar("P", bound=StagedPlan)
W = TypeVar("W", bound=Written)
Batches: TypeAlias = "Iterator[pa.RecordBatch]"


@dataclass(frozen=True)
class Steps(Generic[P, W]):
    """What a mode of writes does with its plan. Picklable, if the functions are those of modules.

    stage: runs in a task. commit: runs on the driver, with the messages of all tasks.
    """

    stage: Callable[[P, Batches, Identity | None], W]
    commit: Callable[[P, Sequence[W], Identity | None], None]


class BatchStager(DataSourceArrowWriter, Generic[P, W]):
    """The writer of one `save()`."""

    def __init__(self, plan: P, steps: Steps[P, W]) -> None:
        self._plan = plan
        self._steps = steps

    def write(self, iterator: Batches) -> W:
        return self._steps.stage(self._plan, iterator, identity_of(self._plan.options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._steps.commit(self._plan, cast("list[W]", written_of(messages)), identity_of(self._plan.options))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_stages(self._plan.options, written_of(messages))


class StreamStager(DataSourceStreamArrowWriter, Generic[P, W]):
    """The writer of one micro-batch, whose identity is the query and the batch number."""

    def __init__(self, plan: P, steps: Steps[P, W]) -> None:
        self._plan = plan
        self._steps = steps

    def write(self, iterator: Batches) -> W:
        return self._steps.stage(self._plan, iterator, identity_of_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = cast("list[W]", written_of(messages))
        if any(message.parts for message in written):
            self._steps.commit(self._plan, written, written[0].identity)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard_stages(self._plan.options, written_of(messages))

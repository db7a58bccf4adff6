"""Options without a column: `maxLength` with `whenFull`, `keepIds`, and `encryptWith` with `offloadTo`.

`maxLength` says how long a queue may become, `whenFull` what a write does when the queue is full. With `keepIds`, a
write keeps the ids of its jobs, so that its results can be read. `encryptWith` and `offloadTo` encrypt payloads, or
store them elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_bull.core.dialects.encode.chunks import EncodedJobs
from spark_bull.core.errors import OptionError
from spark_bull.core.queue.dispatch.add import sealed
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.dispatch.write_records import Fields, Identity, QueuePlan, open_writes, read_record
from spark_bull.core.queue.handle.admission import LengthLimit, length_limit_of
from spark_bull.spark.dispatch.feature import (
    AddTerms,
    Plan,
    TaskRows,
    TaskWrite,
    WholeWrite,
    WriteFeature,
    WriteRequest,
)
from spark_bull.spark.dispatch.rows import CHILDREN

if TYPE_CHECKING:
    from spark_bull.core.model.queues import WriteRecord


@dataclass(frozen=True)
class MaxLength(WriteFeature):
    limit: LengthLimit

    @classmethod
    def planned(cls, request: WriteRequest) -> MaxLength | None:
        limit = length_limit_of(request.options)
        if limit is not None and CHILDREN in request.rows.columns:
            raise OptionError("expected no `maxLength` with a column `children`, got both: leave the option out")
        return None if limit is None else cls(limit)

    def adding(self, task: TaskWrite) -> AddTerms:
        return {"limit": self.limit}

    def record(self, write: WholeWrite) -> Fields:
        return self.limit.fields if write.plan.exactly_once else {}

    def repeated(self, plan: Plan, plans: Sequence[QueuePlan], identity: Identity | None) -> Iterator[WriteRecord]:
        """Finishes writes of the same query or application that were registered before, and still wait for room."""
        if identity is None or self.limit.when_full != "wait" or not plan.exactly_once:
            return
        for handle in (queue_plan.handle for queue_plan in plans):
            for write_id in open_writes(handle):
                record = read_record(handle, write_id)
                if record is not None and record.app_id == identity.app_id:
                    yield roll_forward(handle, write_id)


@dataclass(frozen=True)
class KeptIds(WriteFeature):
    @classmethod
    def planned(cls, request: WriteRequest) -> KeptIds | None:
        return cls() if request.options.keep_ids else None

    def adding(self, task: TaskWrite) -> AddTerms:
        return {"write_id": task.plan.write_id}

    def record(self, write: WholeWrite) -> Fields:
        return {"keepsIds": 1}


@dataclass(frozen=True)
class Sealing(WriteFeature):
    """The last feature, as sealed payloads can't be compared. Flows are sealed when they are cut into chunks."""

    @classmethod
    def planned(cls, request: WriteRequest) -> Sealing:
        return cls()

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        return sealed(rows.handle, jobs, rows.task.attempt.name, rows.numbers)

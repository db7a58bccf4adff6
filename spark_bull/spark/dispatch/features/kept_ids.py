"""The option `keepIds`: a write keeps the ids of its jobs, so that its results can be read."""

from __future__ import annotations

from dataclasses import dataclass

from spark_bull.core.queue.dispatch.write_records import Fields
from spark_bull.spark.dispatch.feature import AddTerms, TaskWrite, WholeWrite, WriteFeature, WriteRequest


@dataclass(frozen=True)
class KeptIds(WriteFeature):
    @classmethod
    def planned(cls, request: WriteRequest) -> KeptIds | None:
        return cls() if request.options.keep_ids else None

    def adding(self, task: TaskWrite) -> AddTerms:
        return {"write_id": task.plan.write_id}

    def record(self, write: WholeWrite) -> Fields:
        return {"keepsIds": 1}

"""The options `encryptWith` and `offloadTo`: payloads are encrypted, or stored elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from spark_bull.core.dialects.encode.chunks import EncodedJobs
from spark_bull.core.queue.dispatch.add import kept
from spark_bull.spark.dispatch.feature import TaskRows, WriteFeature, WriteRequest


@dataclass(frozen=True)
class Sealing(WriteFeature):
    """The last feature, as sealed payloads can't be compared. Flows are sealed when they are cut into chunks."""

    @classmethod
    def planned(cls, request: WriteRequest) -> Sealing:
        return cls()

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        return kept(rows.handle, jobs, rows.task.attempt.name, rows.numbers)

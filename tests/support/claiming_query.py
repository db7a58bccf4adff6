"""A query with mode=claim and a sink with mode=settle, without Spark: a test plans the batches and settles the rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_bull.queue.bull_queue import BullQueue
from spark_bull.spark.process.claim_stream import claim_reader
from spark_bull.spark.process.settle.plan import plan_settle
from spark_bull.spark.process.settle.task import settle_task

Row = dict[str, Any]
_COLUMNS = StructType(
    [StructField(name, StringType()) for name in ("id", "token", "returnvalue", "error")]
    + [StructField(name, LongType()) for name in ("delay", "rateLimit", "groupRateLimit")]
)


class ClaimingQuery:
    """Claims the jobs of a queue, batch by batch. `options`: further ones of the claim."""

    def __init__(self, queue: BullQueue, **options: Any) -> None:
        settings = queue.handle.connection.settings
        place = {"url": settings.url, "prefix": queue.handle.keys.prefix, "queue": queue.name}
        self._options = place | {"protocol": queue.protocol}
        self._more = {name: str(value) for name, value in options.items()}
        self._plan = plan_settle(self._options, _COLUMNS)
        self.reader = claim_reader(self._options | self._more)
        #: Offsets of the last batch.
        self.start = self.end = self.reader.initialOffset()

    def batch(self) -> list[Row]:
        """The rows of the next batch."""
        self.reader.commit(self.end)
        self.start, self.end = self.end, self.reader.latestOffset(self.end, self.reader.getDefaultReadLimit())
        return self._rows()

    def restart(self) -> list[Row]:
        """Restarts the query from its checkpoint, which repeats the last batch; returns its rows."""
        self.close()
        self.reader = claim_reader(self._options | self._more)
        return self._rows()

    def close(self) -> None:
        """Ends what in Spark ends with a process: the thread that extends locks, and a call that claims ahead."""
        if (claimer := self.reader._claimer) is not None:
            claimer._keeper.__exit__()
            claimer.end()

    def _rows(self) -> list[Row]:
        parts = self.reader.partitions(self.start, self.end)
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def settle(self, *rows: Row) -> Counter[str]:
        """Settles rows in one task; returns the number of jobs by what became of them."""
        columns = {name: [row.get(name) for row in rows] for name in _COLUMNS.names}
        return +Counter(settle_task(self._plan, iter([pa.RecordBatch.from_pydict(columns)])).counts)

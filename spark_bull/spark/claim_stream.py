"""Claiming as a stream: jobs of a queue, locked for this query, arrive as micro-batches.

latestOffset() runs in one process as long as the query does; it claims jobs and writes them into the ledger. An
offset is how many have been claimed so far, so a batch that comes again, after a restart too, is the same jobs.
read() runs in tasks and fetches what the jobs hold. Settling them is the sink's part (mode=settle).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from spark_bull.claim_ledger import ClaimLedger
from spark_bull.connection import resolved
from spark_bull.dialects.handle import QueueHandle, open_handle
from spark_bull.errors import ConnectionLost, OptionError
from spark_bull.options import CLAIM, Options, parse_options
from spark_bull.outcomes import ClaimedJob
from spark_bull.runtime.claim_keeper import ClaimKeeper
from spark_bull.runtime.worker_status import lag_of
from spark_bull.spark.tickets import ticket_of
from spark_bull.working import CHUNK_SIZE, Seat, read_claimed, relock

log = logging.getLogger("spark_bull")

ROWS_PER_PARTITION: Final = 5_000
_TEXT: Final = StringType()

#: Bull's own names; `token` is what the settling sink wants back with a job's `id`.
CLAIM_SCHEMA: Final = StructType(
    [
        StructField("queue", _TEXT),
        StructField("id", _TEXT),
        StructField("token", _TEXT),
        StructField("name", _TEXT),
        StructField("data", _TEXT),
        StructField("opts", _TEXT),
        StructField("timestamp", TimestampType()),
        StructField("attemptsMade", IntegerType()),
        StructField("attemptsStarted", IntegerType()),
        StructField("stalledCounter", IntegerType()),
        StructField("priority", LongType()),
        StructField("progress", _TEXT),
        StructField("parentKey", _TEXT),
        StructField("deferredFailure", _TEXT),
    ]
)


class Claims(InputPartition):
    """Positions start..stop of a ledger, the last one excluded."""

    def __init__(self, reader: str, start: int, stop: int) -> None:
        super().__init__((reader, start, stop))
        self.reader = reader
        self.start = start
        self.stop = stop


def claim_options(raw: Mapping[str, str]) -> Options:
    """The options of a claiming read. Raises OptionError for a bad one, and when there isn't exactly one queue."""
    options = parse_options(raw, CLAIM)
    if not options["queue"]:
        raise OptionError("expected the option `queue` (one queue) with mode=claim, got none")
    return options


def claim_reader(raw: Mapping[str, str]) -> ClaimReader:
    """The reader of `readStream … option("mode", "claim")`. Raises OptionError or ConnectionLost."""
    options = resolved(claim_options(raw))
    handle = open_handle(options, options["queue"])
    handle.connection.check(handle.keys.prefix, [handle.keys.queue], write=True)
    return ClaimReader(handle, options)


@dataclass
class _Target:
    """How many jobs an AvailableNow query still takes; None: any number."""

    left: int | None = None


class ClaimReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are {"claimed": jobs claimed so far, "reader": name of the ledger}."""

    def __init__(self, handle: QueueHandle, options: Options) -> None:
        self._handle = handle
        self._most: int = options["maxJobsPerTrigger"]
        self._rows: int = options["rowsPerPartition"]
        self._lock_ms: int = options["lockMs"]
        self._reader: str = options["readerId"] or uuid4().hex[:16]
        self._target = _Target()
        self._keepers: dict[str, ClaimKeeper] = {}

    def initialOffset(self) -> dict[str, Any]:
        return {"claimed": 0, "reader": self._reader}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target.left = lag_of(self._handle)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Claims jobs, unless some are claimed already that no batch has had yet."""
        self._reader = start["reader"]
        ledger = ClaimLedger(self._handle, self._reader)
        most = self._most if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self._most)
        try:
            end = ledger.end()
            if end <= start["claimed"]:
                end = max(end, start["claimed"]) + self._claim(ledger, most)
            else:
                self._keep(ledger, start["claimed"], end)
        except ConnectionLost as error:
            log.warning("queue %s: no jobs are claimed, trying again: %s", self._handle.keys.queue, error)
            return start
        return {"claimed": min(end, start["claimed"] + most), "reader": start["reader"]}

    def _claim(self, ledger: ClaimLedger, most: int) -> int:
        if self._target.left is not None:
            most = min(most, self._target.left)
        before = ledger.end()
        claimed = ledger.claim(Seat(ledger.reader, self._lock_ms), most)
        if self._target.left is not None:
            self._target.left -= claimed
        if claimed:
            self._keep(ledger, before, before + claimed)
        return claimed

    def _keep(self, ledger: ClaimLedger, start: int, stop: int) -> None:
        """Keeps the locks of these jobs; after a restart, gets those back that have expired."""
        keeper = self._keepers.get(ledger.reader)
        ids = ledger.ids(start, stop)
        if keeper is None:
            keeper = self._keepers[ledger.reader] = ClaimKeeper(self._handle, ledger.reader, self._lock_ms)
            relock(self._handle, ledger.reader, ids, self._lock_ms)
        keeper.hold(ids)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        # The reader of batch 0's start is another one after a restart, see initialOffset; that of its end is logged.
        ledger, first, last = ClaimLedger(self._handle, end["reader"]), int(start["claimed"]), int(end["claimed"])
        if ledger.reader not in self._keepers:
            self._keep(ledger, first, last)
        stops = range(first, last, self._rows)
        return [Claims(ledger.reader, position, min(position + self._rows, last)) for position in stops]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Claims)
        ids = ClaimLedger(self._handle, partition.reader).ids(partition.start, partition.stop)
        for start in range(0, len(ids), CHUNK_SIZE):
            jobs = read_claimed(self._handle, ids[start : start + CHUNK_SIZE])
            yield batch_of_jobs(self._handle, partition.reader, jobs)

    def commit(self, end: dict[str, Any]) -> None:
        ClaimLedger(self._handle, end["reader"]).cut(int(end["claimed"]))

    def reportLatestOffset(self) -> dict[str, Any]:
        """What the progress of the query shows as the newest: the jobs claimed, and those that wait."""
        waiting = lag_of(self._handle)
        return {"claimed": ClaimLedger(self._handle, self._reader).end() + waiting, "reader": self._reader}

    def stop(self) -> None:
        """Spark doesn't call it; threads end with their process."""


def batch_of_jobs(handle: QueueHandle, token: str, jobs: list[ClaimedJob]) -> pa.RecordBatch:
    """Claimed jobs as a batch of CLAIM_SCHEMA."""
    schema = to_arrow_schema(CLAIM_SCHEMA, timezone="UTC")
    columns: dict[str, list[Any]] = {
        "queue": [handle.keys.queue] * len(jobs),
        "id": [job.id for job in jobs],
        "token": [ticket_of(handle.dialect, token, job) for job in jobs],
        "name": [job.name for job in jobs],
        "data": [job.data for job in jobs],
        "opts": [job.opts for job in jobs],
        "timestamp": [job.timestamp * 1000 for job in jobs],
        "attemptsMade": [job.attempts_made for job in jobs],
        "attemptsStarted": [job.attempts_started for job in jobs],
        "stalledCounter": [job.stalled_counter for job in jobs],
        "priority": [job.priority for job in jobs],
        "progress": [job.progress for job in jobs],
        "parentKey": [job.parent_key for job in jobs],
        "deferredFailure": [job.deferred_failure for job in jobs],
    }
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)

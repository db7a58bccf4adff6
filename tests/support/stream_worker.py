"""The engine `stream` without Spark: micro-batches are claimed, transformed by a function of a job, and settled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.dialects.base import json_text
from spark_bull.errors import UnrecoverableError
from spark_bull.model.outcomes import ClaimedJob
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.process.claim import unpack_claimed
from spark_bull.queue.process.claim_ledger import ClaimLedger
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.process.claim_batch import claim_batch
from spark_bull.spark.process.error_columns import ERROR_SCHEMA, error_columns
from spark_bull.spark.process.settle.plan import plan_settle
from spark_bull.spark.process.settle.task import settle_task
from spark_bull.worker.job.job_runner import JobFunction
from spark_bull.worker.job.running_job import RunningJob
from tests.support.wait import PATIENCE_S
from tests.support.worker import behave

_SCHEMA = StructType([StructField(name, StringType()) for name in ("id", "token", "returnvalue")] + [*ERROR_SCHEMA])
_ARROW = to_arrow_schema(_SCHEMA)
#: How long an empty queue is left alone. Seconds.
_PAUSE_S = 0.05


class OurStream:
    """Processes a queue until the block is left."""

    def __init__(self, handle: QueueHandle, processor: JobFunction = behave) -> None:
        self._handle = handle
        self._processor = processor
        self._reader = uuid4().hex[:8]
        self._ledger = ClaimLedger(handle, self._reader)
        options = {
            "url": str(handle.connection.settings.url),
            "prefix": handle.keys.prefix,
            "queue": handle.keys.queue,
            "protocol": handle.dialect.name,
        }
        self._plan = plan_settle(options, _SCHEMA)
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> OurStream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the stream didn't stop"
        for error in self._errors:
            raise error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                portions = [taken.portion for taken in self._ledger.claim(ClaimSettings(self._reader), 10) if taken.ids]
                for portion in portions:
                    claimed = unpack_claimed(portion.packed)
                    rows = claim_batch(self._handle, portion.token, claimed).to_pylist()
                    settle_task(self._plan, iter([pa.RecordBatch.from_pylist(list(self._outcomes(rows)), _ARROW)]))
                if not portions:
                    self._stopping.wait(_PAUSE_S)
        except BaseException as error:
            self._errors.append(error)

    def _outcomes(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for row in rows:
            yield {"id": row["id"], "token": row["token"], **self._outcome(row)}

    def _outcome(self, row: dict[str, Any]) -> dict[str, Any]:
        claimed = ClaimedJob(row["id"], data=row["data"], opts=row["opts"], attempts_made=row["attemptsMade"])
        try:
            if row["deferredFailure"] is not None:
                raise UnrecoverableError(row["deferredFailure"])
            return {"returnvalue": json_text("returnvalue", self._processor(RunningJob(claimed, self._handle)))}
        except Exception as error:
            return error_columns(error)

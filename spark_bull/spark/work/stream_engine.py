"""The engine `stream`: transforms micro-batches of claimed jobs with a DataFrame function, and settles the result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_bull.core.errors import ConnectionLost, QueueDamaged, WorkerFailed
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.handle.handle import CHUNK_SIZE
from spark_bull.core.queue.work.claim import parts_to_return, work
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.core.threads import DaemonThread
from spark_bull.run.worker.picklable import OPEN_INSIDE, check_picklable
from spark_bull.spark.platform.checkpoint_files import plain_checkpoint_files
from spark_bull.spark.platform.jvm import is_remote
from spark_bull.spark.platform.query_start import start_query
from spark_bull.spark.platform.requirements import ensure_python
from spark_bull.spark.platform.spark_errors import first_line, reason_line
from spark_bull.spark.provider import register
from spark_bull.spark.work.batch_processor import BatchProcessor, extend_locked
from spark_bull.spark.work.stream_plan import StreamPlan
from spark_bull.spark.work.traced_batches import TracedBatches

log = logging.getLogger("spark_bull")

#: Interval at which stop() checks for the end of the current batch.
_POLL_S: Final = 0.2
#: Maximum time to wait for StreamingQuery.stop(); a transformation may block the driver.
STOP_TIMEOUT_S: Final = 30.0
#: The same if jobs get less time to finish.
MIN_STOP_S: Final = 5.0


class StreamEngine:
    """Runs a streaming query that claims, transforms and settles jobs. A bad row fails alone, not with its batch."""

    def __init__(self, spark: SparkSession, plan: StreamPlan) -> None:
        self._spark = spark
        self._plan = plan
        self._query: StreamingQuery | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._ledger = ClaimLedger(plan.handle, plan.reader)
        self._stopping = Event()
        self._ended = Event()
        self.error: BaseException | None = None
        #: Exports the spans of this process.
        self._flush: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Starts the query. Raises OptionError if a function of the plan cannot be sent to a Connect server."""
        ensure_python()
        if is_remote(self._spark):
            check_picklable(
                cloudpickle.dumps,
                OPEN_INSIDE,
                processor=self._plan.transform,
                backoff_strategy=self._plan.strategy,
                tracer=self._plan.tracer,
            )
        register(self._spark)
        checkpoint = self._plan.checkpoint
        # The folder of a Connect server is on another machine: Spark makes one there.
        if checkpoint is None and not is_remote(self._spark):
            self._folder = TemporaryDirectory(prefix="spark-bull-", ignore_cleanup_errors=True)
            checkpoint = str(Path(self._folder.name) / "checkpoint")
        source = self._spark.readStream.format("bull").schema(self._plan.columns)
        jobs = source.options(**self._plan.claim, mode="claim").load()
        writer = jobs.writeStream.foreachBatch(self._processor())
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        writer = writer.queryName(f"spark_bull-{self._plan.reader}")

        def start() -> StreamingQuery:
            with nullcontext() if self._folder is None else plain_checkpoint_files(self._spark):
                # For stop(), if a signal interrupts the wait for its sources.
                self._query = writer.start()
            return self._query

        self._query = start_query(start)
        DaemonThread("query", partial(self._watch, self._query)).start()

    def _processor(self) -> BatchProcessor | TracedBatches:
        processor = BatchProcessor(self._plan, self._stopping)
        if not self._plan.tracer:
            return processor
        traced = TracedBatches(processor, self._plan)
        self._flush = traced.flush
        return traced

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.isActive

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the query ends, at most `timeout_s`; returns whether it has."""
        return self._query is None or self._ended.wait(timeout_s)

    def _watch(self, query: StreamingQuery) -> None:
        """Waits for the end of the query, in a thread: a signal in a call to the JVM breaks its connection."""
        try:
            query.awaitTermination()
        except Exception as error:
            if not self._stopping.is_set():
                self.error = WorkerFailed(
                    f"the streaming query of worker {self._plan.reader} failed: {reason_line(error)}"
                )
                self.error.__cause__ = error
        self._flush()
        self._ended.set()

    def stop(self, timeout_s: float) -> bool:
        """Waits up to `timeout_s` for the current batch, then stops the query. Returns whether the batch finished.

        The jobs of a query that has failed return to the queue, too.
        """
        if self._query is None or not self._query.isActive:
            if self.error is not None and not self._stopping.is_set():
                self._stopping.set()
                self._return_jobs()
            return True
        finished = self._wait_for_batch(timeout_s)
        self._stopping.set()
        stopping = DaemonThread(self._plan.reader, self._stop_query)
        stopping.start()
        query_s = min(STOP_TIMEOUT_S, max(timeout_s, MIN_STOP_S))
        stopping.join(query_s)
        if stopping.is_alive():
            log.warning("worker %s: its query did not stop within %g s and keeps running", self._plan.reader, query_s)
        self._return_jobs()
        return finished

    def _return_jobs(self) -> None:
        try:
            self._return_unsettled()
        except (ConnectionLost, QueueDamaged) as error:
            log.warning(
                "worker %s: could not return its unsettled jobs, they are rescued after their locks expire: %s",
                self._plan.reader,
                error,
            )

    def _stop_query(self) -> None:
        try:
            if self._query is not None:
                self._query.stop()
        except Exception as error:  # For example because the session was stopped.
            log.warning("worker %s: could not stop its query: %s", self._plan.reader, first_line(error))

    def _return_unsettled(self) -> None:
        """Returns claimed jobs without an outcome to the queue: of the interrupted batch, or claimed ahead.

        Jobs claimed ahead have not started an attempt. A query that continues from the checkpoint leaves all of them
        out: they are claimed again.
        """
        begun, end = self._ledger.begun(), self._ledger.end()
        returned: dict[str, set[str]] = {}
        for start, stop, has_begun in ((begun, end, False), (0, begun, True)):
            for token, ids in reversed(self._ledger.claims(start, stop)):
                locked = extend_locked(self._plan, token, ids)
                returned.setdefault(token, set()).update(locked)
                for part in parts_to_return(locked, CHUNK_SIZE):
                    outcomes = Outcomes(token)
                    (outcomes.returned if has_begun else outcomes.unstarted).extend(part)
                    self._settle_directly(outcomes)
        if self._plan.checkpoint is not None:
            self._ledger.forget(returned)

    def _settle_directly(self, outcomes: Outcomes) -> None:
        work(self._plan.handle, ClaimSettings(f"stop:{self._plan.reader}"), outcomes, 0)

    def totals(self) -> dict[str, Any]:
        """Returns the counters of the worker. Raises ConnectionLost."""
        handle, reader = self._plan.handle, self._plan.reader
        raw = handle.connection.call("HGETALL", handle.keys.settled(reader))
        settled = {name.decode(): int(value) for name, value in raw.items()}
        counted = {name: settled.get(name, 0) for name in ("completed", "failed", "retried", "returned", "lost")}
        claimed = self._ledger.end()
        return counted | {
            "claimed": claimed,
            "restarts": 0,
            "slots": int(self.running),
            "busy": int(self._is_busy()),
        }

    def _is_busy(self) -> bool:
        return self.running and bool(self._query and self._query.status["isTriggerActive"])

    def _wait_for_batch(self, timeout_s: float) -> bool:
        """Waits until no batch is running. A query has no way to stop claiming, so another batch may start."""
        remaining = timeout_s
        while self._is_busy():
            if remaining <= 0:
                return False
            self.wait(_POLL_S)
            remaining -= _POLL_S
        return True

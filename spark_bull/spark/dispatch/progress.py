"""Shows the progress of a write while it runs: first the tasks that stage chunks, then the jobs added."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Final, TextIO

from pyspark.sql import SparkSession

from spark_bull.clock import monotonic_s
from spark_bull.errors import SparkBullError
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.dispatch.writes import open_writes, read_record

_WIDTH: Final = 30
#: Update interval on a terminal, and interval of the lines elsewhere, s.
_TERMINAL_S: Final = 0.2
_LOG_S: Final = 5.0


@dataclass(frozen=True)
class Step:
    """A step of a write: its name, and how much of it is done."""

    what: str
    done: int
    total: int

    def __str__(self) -> str:
        share = min(1.0, self.done / self.total) if self.total else 0.0
        bar = "#" * round(share * _WIDTH)
        return f"{self.what:8} [{bar:{_WIDTH}}] {share:4.0%}  {self.done:,} of {self.total:,}"


class WriteProgress:
    """Shows the progress of a write in this block: one updated line on a terminal, else a line every few seconds.

    with WriteProgress(spark, queue.handle):
        df.write.format("bull")...
    """

    def __init__(self, spark: SparkSession, handle: QueueHandle, stream: TextIO | None = None) -> None:
        self._spark = spark
        self._handle = handle
        self._stream = stream or sys.stderr
        self._stopped = Event()
        self._thread = Thread(target=self._show, name="spark-bull-progress", daemon=True)

    def __enter__(self) -> WriteProgress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if self._stream.isatty():
            self._stream.write("\r\033[K")

    def step(self) -> Step | None:
        """Returns the current step of the write; None if it is unknown."""
        for write_id in open_writes(self._handle):
            record = read_record(self._handle, write_id)
            if record is not None:
                return Step("adding", record.done, record.jobs)
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        if not running:
            return None
        return Step(
            "staging", sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
        )

    def _show(self) -> None:
        terminal = self._stream.isatty()
        last_line = monotonic_s()
        while not self._stopped.wait(_TERMINAL_S):
            if not terminal and monotonic_s() - last_line < _LOG_S:
                continue
            last_line = monotonic_s()
            try:
                step = self.step()
            except SparkBullError:
                # The write itself fails with the same error.
                continue
            if step is not None:
                self._stream.write(f"\r\033[K{step}" if terminal else f"{step}\n")
                self._stream.flush()

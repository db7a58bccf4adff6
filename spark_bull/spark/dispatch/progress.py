"""Shows the progress of a write while it runs: first the tasks that stage chunks, then the jobs added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TextIO

from pyspark.sql import SparkSession

from spark_bull.core.errors import SparkBullError
from spark_bull.core.queue.dispatch.write_records import open_writes, read_record
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.progress_line import ProgressLine

_WIDTH: Final = 30
_INTERVAL_S: Final = 0.2


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
    """Shows the progress of a write in this block.

    with WriteProgress(spark, [queue.handle]):
        df.write.format("bull")...
    """

    def __init__(self, spark: SparkSession, handles: Sequence[QueueHandle], stream: TextIO | None = None) -> None:
        self._spark = spark
        self._handles = handles
        self._line = ProgressLine(self._text, _INTERVAL_S, stream)

    def __enter__(self) -> WriteProgress:
        self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.stop()

    def step(self) -> Step | None:
        """Returns the current step of the write; None if it is unknown."""
        open_ones = [(handle, write_id) for handle in self._handles for write_id in open_writes(handle)[:1]]
        if open_ones:
            write_id = open_ones[0][1]
            records = [record for handle in self._handles if (record := read_record(handle, write_id))]
            return Step("adding", sum(one.done for one in records), sum(one.jobs for one in records))
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        if not running:
            return None
        return Step(
            "staging", sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
        )

    def _text(self) -> str | None:
        try:
            step = self.step()
        except SparkBullError:
            # The write itself fails with the same error.
            return None
        return None if step is None else str(step)

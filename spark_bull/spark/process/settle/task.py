"""One task attempt of mode=settle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spark_bull.queue.core.handle import open_handle
from spark_bull.spark.platform.python_worker import freeze_loaded_objects
from spark_bull.spark.process.settle.chunk import Chunk, Outcome
from spark_bull.spark.process.settle.follow_up_column import THEN
from spark_bull.spark.process.settle.plan import SettlePlan
from spark_bull.spark.process.settle.rows import by_queue_and_reader, without_repeats


class Settled(WriterCommitMessage):
    """The number of outcomes that one task has settled, by kind."""

    def __init__(self, counts: Mapping[Outcome, int]) -> None:
        self.counts = dict(counts)


def settle_task(plan: SettlePlan, batches: Iterator[pa.RecordBatch]) -> Settled:
    """Settles the rows of one task attempt, a chunk at a time."""
    freeze_loaded_objects()
    size, counts, handles = int(plan.options["chunkSize"]), Counter[Outcome](), plan.ask(plan.handles)
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            then = part.column(plan.names.index(THEN)) if plan.follow_ups else None
            for (queue, reader), rows in by_queue_and_reader(plan, part).items():
                if queue not in handles:
                    handles[queue] = plan.ask(partial(open_handle, plan.options, queue))
                for of_different_jobs in without_repeats(rows):
                    counts.update(Chunk(plan, handles[queue], reader, of_different_jobs, then).settle())
    return Settled(counts)

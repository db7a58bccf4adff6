"""The results of one write of Spark as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark_bull.core.errors import OptionError
from spark_bull.core.options.parse import as_texts, parse_options
from spark_bull.core.options.table import CollectOptions, ReadOptions
from spark_bull.core.queue.dispatch.written import find_written, wait_for_written
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.core.queue.shards.layout import selection_of
from spark_bull.spark.provider import register

_COLUMNS: Final = ("queue", "id", "state", "returnvalue", "failedReason", "attemptsMade", "processedOn", "finishedOn")


def write_results(
    spark: SparkSession,
    write_id: str,
    *,
    queue: str,
    timeout_s: float | None = None,
    stream: bool = False,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Reads what became of the jobs of a write.

    The write is one with the option `keepIds`, or an exactly-once write of jobs without ids of their own, whose numbers
    follow each other. A job of BullMQ that was removed when it had ended has the result of its last event.

    Parameters:
      spark: the session.
      write_id: id of the write, as in `view=writes`.
      queue: names of the queues of the write, comma separated; of a write of flows, also the queues of the children.
      timeout_s: how long to wait until all jobs have ended, s; default: not at all.
      stream: whether to return a streaming DataFrame: a row for each job when it has ended. After a wait, a query with
        the trigger `availableNow` has all of them, and ends.
      options: other options of the read, such as `url` and `prefix`, by their names in Spark.

    Returns:
      A row for each job of the write: queue, id, state, returnvalue, failedReason, attemptsMade, processedOn and
      finishedOn. Without `stream`, it shows the jobs at the time of each action; `state` is NULL for a job that was
      removed before it had ended.

    Raises:
      OptionError: for a wrong option, an unknown write, one that does not dispatch jobs, and one whose ids are not
        known.
      WaitTimeout: when a job has not ended in time.
      ResultsLost: in an action, when a job is gone and nothing tells how it has ended: the event stream was trimmed, or
        Bull keeps no events. Not if `failOnDataLoss` is false.
      ConnectionLost: when Redis can't be reached.
      SparkBullError: if PYSPARK_PYTHON names a Python that lacks required packages; with a local master only.
    """
    given = as_texts({**(options or {}), "queue": queue, "writeId": write_id})
    if "view" in given:
        raise OptionError("expected no `view`: the results of a write are jobs; leave it out")
    if timeout_s is not None:
        parsed = parse_options(given, CollectOptions if stream else ReadOptions)
        handles = [open_handle(parsed, name) for name in selection_of(parsed)]
        find_written(handles, write_id)
        wait_for_written(handles, write_id, timeout_s)
    register(spark)
    reader = spark.readStream if stream else spark.read
    return reader.format("bull").options(**given).load().select(*_COLUMNS)

"""The results of one write of Spark as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark_bull.clock import monotonic_s
from spark_bull.errors import OptionError
from spark_bull.options.parse import as_texts, parse_options
from spark_bull.options.table import READ
from spark_bull.queue.core.handle import open_handle
from spark_bull.queue.dispatch.written import check_kept, wait_for_written
from spark_bull.queue.shards.layout import selection_of

_COLUMNS: Final = ("queue", "id", "state", "returnvalue", "failedReason", "attemptsMade", "processedOn", "finishedOn")


def write_results(
    spark: SparkSession,
    write_id: str,
    *,
    queue: str,
    timeout_s: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Reads what became of the jobs of a write that has the option `keepIds`.

    Parameters:
      spark: the session.
      write_id: id of the write, as in `view=writes`.
      queue: names of the queues of the write, comma separated.
      timeout_s: how long to wait until all jobs have ended, s; default: not at all.
      options: other options of the read, such as `url` and `prefix`, by their names in Spark.

    Returns:
      A row for each job of the write: queue, id, state, returnvalue, failedReason, attemptsMade, processedOn and
      finishedOn. It shows the jobs at the time of each action. `state` is NULL for a job that was removed.

    Raises:
      OptionError: for a wrong option, an unknown write, and one that has kept no ids.
      WaitTimeout: when a job has not ended in time.
      ConnectionLost: when Redis can't be reached.
    """
    given = as_texts({**(options or {}), "queue": queue, "writeId": write_id})
    if "view" in given:
        raise OptionError("expected no `view`: the results of a write are jobs; leave it out")
    if timeout_s is not None:
        parsed = parse_options(given, READ)
        handles = [open_handle(parsed, name) for name in selection_of(parsed)]
        check_kept(handles, write_id)
        end_at = monotonic_s() + timeout_s
        for handle in handles:
            wait_for_written(handle, write_id, max(0.0, end_at - monotonic_s()))
    return spark.read.format("bull").options(**given).load().select(*_COLUMNS)

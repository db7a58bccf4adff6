"""Starting streaming queries on a machine that may be busy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from spark_bull.spark.python_check import check_python

log = logging.getLogger("spark_bull")

#: What Spark says when the Python process of a source has not connected within ten seconds, which no setting changes.
LATE: Final = "Python worker failed to connect back"
#: What that process says when Spark, for its part, took too long to answer.
UNANSWERED: Final = "CANNOT_OPEN_SOCKET"
TRIES: Final = 10
#: How the status of a query begins that has not begun, or that is about to end and counts as active still.
_UNDECIDED: Final = ("Initializing", "Stopped", "Terminated")
_LOOK_S: Final = 0.05


def is_late(error: Exception | None) -> bool:
    """Whether a query ended because the Python process of a source and Spark did not find each other in time."""
    return any(text in str(error) for text in (LATE, UNANSWERED))


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Starts a query and waits until its sources run, or it has ended.

    A query that ends because a source's Python process connected too late has read nothing: it is started again, a
    few times at most. A Python that lacks packages never connects: such a query is started once, and the log says why.
    """
    for _ in range(1, TRIES):
        query = start()
        while query.isActive and query.status["message"].startswith(_UNDECIDED):
            time.sleep(_LOOK_S)
        if query.isActive or not is_late(query.exception()) or not check_python():
            return query
        log.warning("query %s: the Python process of its source connected too late, starting it again", query.name)
    return start()

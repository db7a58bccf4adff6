"""Starts streaming queries, and retries when a source's Python process connects too late."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from spark_bull.spark.platform.requirements import ensure_python

log = logging.getLogger("spark_bull")

#: Error of Spark if the Python process of a source has not connected within ten seconds, which is not configurable.
LATE: Final = "Python worker failed to connect back"
#: Error of that process if Spark did not answer in time.
UNANSWERED: Final = "CANNOT_OPEN_SOCKET"
MAX_ATTEMPTS: Final = 10
#: Prefixes of the status message of a query that is starting or ending.
_TRANSITIONAL: Final = ("Initializing", "Stopped", "Terminated")
_POLL_S: Final = 0.05


def is_late(error: Exception | None) -> bool:
    """Whether a query failed because Spark and the Python process of a source did not connect in time."""
    return any(text in str(error) for text in (LATE, UNANSWERED))


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Starts a query, and waits until its sources are running or it has ended.

    A query that failed because a source's Python process connected too late has read nothing and is started again, up
    to MAX_ATTEMPTS times in total. Raises SparkBullError if the Python interpreter lacks packages.
    """
    for _ in range(1, MAX_ATTEMPTS):
        query = start()
        while query.isActive and query.status["message"].startswith(_TRANSITIONAL):
            time.sleep(_POLL_S)
        if query.isActive or not is_late(query.exception()):
            return query
        ensure_python()
        log.warning("query %s: the Python process of its source connected too late, starting it again", query.name)
    return start()

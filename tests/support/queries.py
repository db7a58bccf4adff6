"""Starting streaming queries on a machine that may be busy."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from tests.support.wait import wait_until

#: What Spark says when the Python process of a source has not connected within ten seconds, which no setting changes.
LATE = "Python worker failed to connect back"
TRIES = 10


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Starts a query and waits until its sources run; starts it again when a source's Python has connected too late.

    So queries start one after the other: several at once are late more often.
    """
    for _ in range(TRIES):
        query = start()
        wait_until(lambda query=query: _has_begun(query), "the query to begin")  # type: ignore[misc]
        if LATE not in str(query.exception() or ""):
            return query
        query.sparkSession.streams.resetTerminated()
    raise AssertionError(f"a query's Python connected too late, {TRIES} times in a row")


def _has_begun(query: StreamingQuery) -> bool:
    return not query.isActive or "Initializing" not in query.status["message"]

"""The identity of a write: a write with the identity of an earlier one changes nothing."""

from __future__ import annotations

from pyspark import TaskContext

from spark_bull.errors import OptionError
from spark_bull.options.parse import Options
from spark_bull.queue.dispatch.writes import Identity


def identity_of(options: Options) -> Identity | None:
    """Returns the identity of a batch write by its options `txnAppId` and `txnVersion`; None if not set."""
    if options["txnAppId"] is None:
        return None
    return Identity(options["txnAppId"], options["txnVersion"])


def identity_of_batch() -> Identity | None:
    """Returns query id and batch id, which Spark passes to tasks only."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Identity(query, int(batch)) if query and batch else None


def check_stream(options: Options) -> None:
    """Raises OptionError for options of a stream that give it an identity of its own."""
    if options["txnAppId"] is not None:
        raise OptionError("`txnAppId` is for batch writes: a stream is identified by its checkpoint; leave it out")

"""The data source `bull`, which Spark looks up for `format("bull")`.

Spark starts a Python process for each step of a query: schema inference, planning, reading, writing, streaming. Modules
are therefore imported in the method that needs them: most steps need neither redis-py nor Arrow's functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.options.table import ReadOptions
from spark_bull.spark.platform.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from spark_bull.spark.platform.positioned_reader import as_called
from spark_bull.spark.platform.sent_along import sent_along
from spark_bull.spark.schemas import CLAIM_SCHEMA, check_claimed_columns, mode_of, schema_of, shows_events

if TYPE_CHECKING:
    from spark_bull.spark.staging.sink import Sink


@short_errors
class BullDataSource(DataSource):
    """Data source for queues of Bull and BullMQ; docs/reference lists its options and columns.

    Examples
    --------
    >>> df.write.format("bull").option("queue", "mail").mode("append").save()  # doctest: +SKIP
    >>> spark.read.format("bull").option("queue", "mail").load()  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        return "bull"

    def __reduce__(self) -> tuple[Any, ...]:
        return sent_along(type(self), self.options)

    def schema(self) -> StructType | str:
        return CLAIM_SCHEMA if mode_of(self.options) == "claim" else schema_of(self.options, _infer)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._refuse_mode("claim", "it requires readStream; leave the option out to inspect jobs")
        self._refuse_writes()
        from spark_bull.spark.inspect.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return self._stream_reader(schema)
        except SparkBullError as error:
            from spark_bull.spark.platform.datasource import RefusedStream

            return RefusedStream(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        if mode_of(self.options) != "claim":
            self._refuse_writes()
            if shows_events(self.options):
                from spark_bull.spark.collect.events import event_reader

                return as_called(event_reader(self.options, schema))
            from spark_bull.spark.collect.stream import result_reader

            return as_called(result_reader(self.options, schema))
        check_claimed_columns(schema)
        from spark_bull.spark.work.claim_stream import claim_reader

        return as_called(claim_reader(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return self._sink(schema, overwrite, is_stream=False)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return self._sink(schema, overwrite, is_stream=True)

    def _sink(self, schema: StructType, overwrite: bool, *, is_stream: bool) -> Sink[Any, Any]:
        """Plans a write of any mode."""
        if mode_of(self.options) == "manage":
            from spark_bull.spark.manage import manage_sink

            return manage_sink(self.options, schema, overwrite, is_stream=is_stream)
        if mode_of(self.options) == "settle":
            from spark_bull.spark.work.settle.sink import settle_sink

            return settle_sink(self.options, schema, overwrite, is_stream=is_stream)
        if mode_of(self.options) == "schedule":
            from spark_bull.spark.schedule import schedule_sink

            return schedule_sink(self.options, schema, overwrite, is_stream=is_stream)
        if mode_of(self.options) == "limits":
            from spark_bull.spark.limits import limits_sink

            return limits_sink(self.options, schema, overwrite, is_stream=is_stream)
        self._refuse_mode("claim", "it requires readStream")
        from spark_bull.spark.dispatch.sink import write_sink

        return write_sink(self.options, schema, overwrite, is_stream=is_stream)

    def _refuse_writes(self) -> None:
        self._refuse_mode("settle", "it requires write or writeStream")
        self._refuse_mode("schedule", "it requires write or writeStream; `view=schedulers` reads job schedulers")
        self._refuse_mode("manage", "it requires write or writeStream")
        self._refuse_mode("limits", "it requires write or writeStream; `view=groups` reads the limits of groups")

    def _refuse_mode(self, mode: str, why: str) -> None:
        if mode_of(self.options) == mode:
            raise OptionError(f"mode={mode} is not supported here: {why}")


def _infer(options: ReadOptions, column: str) -> str:
    from spark_bull.spark.inspect.source import inferred_type

    return inferred_type(options, column)


def register(spark: SparkSession) -> None:
    """Registers format("bull") in a session that does not find the package by itself, and the table function
    `bull_call`. The session becomes the active one of this thread, which Spark requires for writes. Spark then starts
    the Python of this program, unless the environment variable PYSPARK_PYTHON names another one.

    Parameters:
      spark: the session.

    Raises:
      SparkBullError: if PYSPARK_PYTHON names a Python that lacks required packages; with a local master only.
    """
    from spark_bull.spark.platform.capabilities import CAPABILITIES
    from spark_bull.spark.platform.jvm import activate, finds, register_source
    from spark_bull.spark.platform.requirements import ensure_python

    # Spark would warn that it replaces the data source that it has found, and once more in each query of a stream.
    if not (ensure_python() and finds(spark, BullDataSource.name())):
        register_source(spark, BullDataSource)
    if CAPABILITIES["table-function"].has:
        from spark_bull.spark.call.table_function import register_function

        register_function(spark)
    activate(spark)

"""The data source `bull`, which Spark looks up for `format("bull")`.

Spark starts a Python process for each step of a query: schema inference, planning, reading, writing, streaming. Modules
are therefore imported in the method that needs them: most steps need neither redis-py nor Arrow's functions.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from spark_bull.errors import OptionError
from spark_bull.options.parse import Options
from spark_bull.spark.platform.sent_along import sent_along
from spark_bull.spark.schemas import CLAIM_SCHEMA, mode_of, schema_of, shows_events


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
        self._refuse_mode("schedule", "it requires write or writeStream; `view=schedulers` reads schedules")
        self._refuse_mode("manage", "it requires write or writeStream")
        from spark_bull.spark.inspect.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if mode_of(self.options) != "claim":
            self._refuse_mode("settle", "it requires write or writeStream")
            self._refuse_mode("schedule", "it requires write or writeStream")
            self._refuse_mode("manage", "it requires write or writeStream")
            if shows_events(self.options):
                from spark_bull.spark.collect.events import event_reader

                return event_reader(self.options, schema)
            from spark_bull.spark.collect.stream import result_reader

            return result_reader(self.options, schema)
        if schema != CLAIM_SCHEMA:
            raise OptionError(
                "expected no schema with mode=claim, whose columns are fixed: leave it out and select columns later"
            )
        from spark_bull.spark.process.claim_stream import claim_reader

        return claim_reader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if mode_of(self.options) == "manage":
            from spark_bull.spark.manage.sink import batch_manager

            return batch_manager(self.options, schema, overwrite)
        if mode_of(self.options) == "settle":
            from spark_bull.spark.process.settle.plan import plan_settle
            from spark_bull.spark.process.settle.sink import BatchSettler

            return BatchSettler(plan_settle(self.options, schema))
        if mode_of(self.options) == "schedule":
            from spark_bull.spark.schedule.sink import batch_scheduler

            return batch_scheduler(self.options, schema, overwrite)
        self._refuse_mode("claim", "it requires readStream")
        from spark_bull.spark.dispatch.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if mode_of(self.options) == "manage":
            from spark_bull.spark.manage.sink import stream_manager

            return stream_manager(self.options, schema, overwrite)
        if mode_of(self.options) == "settle":
            from spark_bull.spark.process.settle.plan import plan_settle
            from spark_bull.spark.process.settle.sink import StreamSettler

            return StreamSettler(plan_settle(self.options, schema))
        if mode_of(self.options) == "schedule":
            from spark_bull.spark.schedule.sink import stream_scheduler

            return stream_scheduler(self.options, schema, overwrite)
        self._refuse_mode("claim", "it requires readStream")
        from spark_bull.spark.dispatch.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _refuse_mode(self, mode: str, why: str) -> None:
        if mode_of(self.options) == mode:
            raise OptionError(f"mode={mode} is not supported here: {why}")


def _infer(options: Options, column: str) -> str:
    from spark_bull.spark.inspect.sample import inferred_type

    return inferred_type(options, column)


def register(spark: SparkSession) -> None:
    """Registers format("bull") in a session that does not find the package by itself, and makes that session the
    active one of this thread, which Spark requires for writes.

    Logs a warning if the Python interpreter of Spark's local processes lacks required packages.

    Parameters:
      spark: the session.
    """
    from spark_bull.spark.platform.active_session import activate
    from spark_bull.spark.platform.python_check import check_python
    from spark_bull.spark.platform.spark_log import errors_only

    # Spark warns that it replaces the data source that it has found by itself.
    with errors_only(spark, "org.apache.spark.sql.execution.datasources.DataSourceManager"):
        spark.dataSource.register(BullDataSource)
    activate(spark)
    check_python()

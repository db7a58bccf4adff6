"""`format("bull")`: the entry that Spark looks up.

Spark starts a Python process for each step of a query: one finds the schema, others plan, read, write or follow a
stream. So what a verb needs is imported where that verb begins: most steps need neither Redis nor Arrow's functions.
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
from spark_bull.spark.schemas import CLAIM_SCHEMA, mode_of, schema_of
from spark_bull.spark.sent_along import sent_along


class BullDataSource(DataSource):
    """Queues of Bull and BullMQ as a data source; docs/reference lists its options and columns.

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

    def schema(self) -> StructType:
        return CLAIM_SCHEMA if mode_of(self.options) == "claim" else schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._refuse_mode("claim", "readStream takes jobs to be processed; a read shows them")
        from spark_bull.spark.inspect.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if mode_of(self.options) != "claim":
            self._refuse_mode("settle", "it is for writes")
            from spark_bull.spark.collect.stream import result_reader

            return result_reader(self.options, schema)
        if schema != CLAIM_SCHEMA:
            raise OptionError("the columns of mode=claim are fixed: give no schema, and select what you need")
        from spark_bull.spark.process.claim_stream import claim_reader

        return claim_reader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if mode_of(self.options) == "settle":
            from spark_bull.spark.process.settle import BatchSettler, plan_settle

            return BatchSettler(plan_settle(self.options, schema))
        self._refuse_mode("claim", "it is for readStream")
        from spark_bull.spark.dispatch.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if mode_of(self.options) == "settle":
            from spark_bull.spark.process.settle import StreamSettler, plan_settle

            return StreamSettler(plan_settle(self.options, schema))
        self._refuse_mode("claim", "it is for readStream")
        from spark_bull.spark.dispatch.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _refuse_mode(self, mode: str, why: str) -> None:
        if mode_of(self.options) == mode:
            raise OptionError(f"mode={mode} doesn't go here: {why}")


def register(spark: SparkSession) -> None:
    """Makes format("bull") known to a session, where Spark doesn't find the package by itself.

    A warning is logged when the Python of Spark's local processes lacks what they need.

    Parameters:
      spark: the session.
    """
    from spark_bull.spark.python_check import check_python

    spark.dataSource.register(BullDataSource)
    check_python()

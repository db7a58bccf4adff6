"""`format("bull")`: the entry that Spark looks up."""

from __future__ import annotations

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
from spark_bull.spark.claim_batch import CLAIM_SCHEMA
from spark_bull.spark.claim_stream import claim_reader
from spark_bull.spark.result_stream import result_reader
from spark_bull.spark.schemas import mode_of, schema_of
from spark_bull.spark.settle import BatchSettler, StreamSettler, plan_settle
from spark_bull.spark.sink import batch_writer, stream_writer
from spark_bull.spark.source import batch_reader


class BullDataSource(DataSource):
    """Queues of Bull and BullMQ as a data source, see the README for options and columns.

    Examples
    --------
    >>> df.write.format("bull").option("queue", "mail").mode("append").save()  # doctest: +SKIP
    >>> spark.read.format("bull").option("queue", "mail").load()  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        return "bull"

    def schema(self) -> StructType:
        return CLAIM_SCHEMA if mode_of(self.options) == "claim" else schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._refuse_mode("claim", "readStream takes jobs to be processed; a read shows them")
        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if mode_of(self.options) != "claim":
            self._refuse_mode("settle", "it is for writes")
            return result_reader(self.options, schema)
        if schema != CLAIM_SCHEMA:
            raise OptionError("the columns of mode=claim are fixed: give no schema, and select what you need")
        return claim_reader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if mode_of(self.options) == "settle":
            return BatchSettler(plan_settle(self.options, schema))
        self._refuse_mode("claim", "it is for readStream")
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if mode_of(self.options) == "settle":
            return StreamSettler(plan_settle(self.options, schema))
        self._refuse_mode("claim", "it is for readStream")
        return stream_writer(self.options, schema, overwrite)

    def _refuse_mode(self, mode: str, why: str) -> None:
        if mode_of(self.options) == mode:
            raise OptionError(f"mode={mode} doesn't go here: {why}")


def register(spark: SparkSession) -> None:
    """Makes format("bull") known to a session, where Spark doesn't find the package by itself."""
    spark.dataSource.register(BullDataSource)

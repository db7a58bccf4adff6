"""`format("bull")`: the entry that Spark looks up."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from spark_bull.spark.schemas import schema_of
from spark_bull.spark.sink import BatchWriter, StreamWriter, batch_writer, stream_writer
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
        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return batch_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Makes format("bull") known to a session, where Spark doesn't find the package by itself."""
    spark.dataSource.register(BullDataSource)

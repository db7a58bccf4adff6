"""The results of the queue `mail` as a streaming table, and a job in the queue `receipts` for each of them."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink("receipts", "bull", {"queue": "receipts", "protocol": "bullmq"})


@dp.table
def sent() -> DataFrame:
    stream = spark.readStream.format("bull").option("queue", "mail")
    return stream.option("startingOffsets", "earliest").option("states", "completed").load()


@dp.append_flow(target="receipts")
def receipts() -> DataFrame:
    return spark.readStream.table("sent").selectExpr("id AS mail", "returnvalue AS result")

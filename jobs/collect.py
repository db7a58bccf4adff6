r"""Finished jobs of queues go into a table of files, once each, partitioned by queue and day.

    spark-submit jobs/collect.py --queue 'mail,reports-*' --output /lake/results --url redis://localhost:6379 --once
    spark-submit jobs/collect.py --queue mail --output s3a://lake/results --trigger "30 seconds" \
        --option removeOnRead=true

Runs until Ctrl-C or SIGTERM; with --once it ends when all that had finished at its start is written. The next run
goes on where this one ended: what is done is in the checkpoint.
"""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from session import pairs, session, until_stopped

from spark_bull.spark.query_start import start_query


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", required=True, help="queues: names, comma separated, or globs")
    parser.add_argument("--output", required=True, metavar="PATH", help="folder of the table")
    parser.add_argument("--checkpoint", metavar="PATH", help="what is done (OUTPUT/_checkpoint)")
    parser.add_argument(
        "--format", default="parquet", help="any that Spark streams into: parquet, orc, json, … (parquet)"
    )
    parser.add_argument("--trigger", default="10 seconds", metavar="TIME", help="how often to look (10 seconds)")
    parser.add_argument("--once", action="store_true", help="write what has finished by now, and end")
    parser.add_argument("--url", help="Redis; default: $SPARK_BULL_URL, else redis://localhost:6379")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="option of the stream")
    return parser.parse_args()


def results(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Finished jobs, with the day on which they finished (Bull 1 keeps no time: on which they were collected)."""
    jobs = spark.readStream.format("bull").options(**options).load()
    return jobs.withColumn("day", f.to_date(f.coalesce("finishedOn", f.current_timestamp())))


def start(
    jobs: DataFrame, output: str, checkpoint: str | None = None, file_format: str = "parquet", every: str | None = None
) -> StreamingQuery:
    """Begins to append them to the table; `every`: how often to look. Without it, once."""
    trigger: dict[str, Any] = {"processingTime": every} if every else {"availableNow": True}
    writer = jobs.writeStream.format(file_format).partitionBy("queue", "day").trigger(**trigger)
    writer = writer.option("checkpointLocation", checkpoint or f"{output.rstrip('/')}/_checkpoint")
    return start_query(lambda: writer.start(output))


def collect(spark: SparkSession, args: argparse.Namespace) -> None:
    """Writes finished jobs until it is stopped, or until all are written, and prints how many they were."""
    options = pairs(args.option) | {"queue": args.queue} | ({"url": args.url} if args.url else {})
    # What a run has written is added up from the reports on its batches, of which Spark keeps 100 otherwise.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 100_000)
    every = None if args.once else args.trigger
    query = start(results(spark, options), args.output, args.checkpoint, args.format, every)
    query.awaitTermination()
    rows = sum(batch["numInputRows"] for batch in query.recentProgress)
    print(f"{rows:,} finished jobs of {args.queue} written to {args.output}")


def main() -> None:
    args = arguments()
    with session(f"collect {args.queue}") as spark, until_stopped("collect"):
        collect(spark, args)


if __name__ == "__main__":
    main()

r"""Rows of files become jobs of a queue.

    spark-submit jobs/dispatch.py --input customers.parquet --queue mail --url redis://localhost:6379
    spark-submit jobs/dispatch.py --input customers.parquet --queue mail --option jobColumns=delay,priority
    spark-submit jobs/dispatch.py --input flights.csv --format csv --read header=true --read inferSchema=true \
        --query "SELECT struct(*) AS data, carrier AS name FROM input" --queue flights --option attempts=3
"""

from __future__ import annotations

import argparse
import time

from pyspark.sql import SparkSession
from session import pairs, session, until_stopped

from spark_bull.options import WRITE, parse_options
from spark_bull.queue.handle import open_handle
from spark_bull.queue.writes import records
from spark_bull.spark.dispatch.progress import Progress


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="file or folder that Spark can read")
    parser.add_argument("--format", default="parquet", help="parquet (default), csv, json, orc, …")
    parser.add_argument("--read", action="append", default=[], metavar="NAME=VALUE", help="option of that format")
    parser.add_argument(
        "--query", help="SQL that makes the jobs' columns out of the table `input`; default: each row is a payload"
    )
    parser.add_argument("--queue", required=True, help="queue that gets the jobs")
    parser.add_argument("--url", help="Redis; default: $SPARK_BULL_URL, else redis://localhost:6379")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="option of the write")
    return parser.parse_args()


def dispatch(spark: SparkSession, args: argparse.Namespace) -> None:
    """Writes the rows to the queue, and prints how many jobs they became."""
    options = pairs(args.option) | ({"url": args.url} if args.url else {})
    jobs = spark.read.format(args.format).options(**pairs(args.read)).load(args.input)
    if args.query:
        jobs.createOrReplaceTempView("input")
        jobs = spark.sql(args.query)
    handle = open_handle(parse_options(options, WRITE), args.queue)
    started = time.monotonic()
    with Progress(spark, handle):
        jobs.write.format("bull").options(**options).option("queue", args.queue).mode("append").save()
    seconds = time.monotonic() - started
    record = records(handle)[-1]
    print(
        f"{record.added:,} jobs added to queue {record.queue} ({handle.dialect.name}), "
        f"{record.duplicates:,} duplicates, {seconds:.1f} s, {record.added / seconds:,.0f} jobs/s",
        flush=True,
    )


def main() -> None:
    args = arguments()
    with session(f"dispatch to {args.queue}") as spark, until_stopped("dispatch"):
        dispatch(spark, args)


if __name__ == "__main__":
    main()

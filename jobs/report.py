"""Queues in figures, and any SQL over their jobs.

spark-submit jobs/report.py --queue "mail,invoice-*"
spark-submit jobs/report.py --queue mail --query "SELECT state, count(*) FROM jobs GROUP BY state"
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from session import pairs, session, until_stopped


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", required=True, help="queues: names, comma separated, or globs")
    parser.add_argument("--url", help="Redis; default: $SPARK_BULL_URL, else redis://localhost:6379")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="option of the read")
    parser.add_argument("--query", action="append", default=[], help="SQL over the view `jobs`; may be given again")
    return parser.parse_args()


def report(spark: SparkSession, args: argparse.Namespace) -> None:
    """Prints the answers to the queries, without any the counts of all states."""
    options = pairs(args.option) | {"queue": args.queue} | ({"url": args.url} if args.url else {})
    bull = spark.read.format("bull").options(**options)
    if args.query:
        bull.load().createOrReplaceTempView("jobs")
        for query in args.query:
            spark.sql(query).show(50, truncate=False)
    else:
        bull.option("view", "counts").load().where("jobs > 0").orderBy("queue", "state").show(1000, truncate=False)


def main() -> None:
    args = arguments()
    with session("report") as spark, until_stopped("report"):
        report(spark, args)


if __name__ == "__main__":
    main()

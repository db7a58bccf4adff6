"""Jobs of a queue are processed on the executors, by any function.

    spark-submit --py-files my_jobs.py jobs/work.py --queue mail --processor my_jobs:send --url redis://localhost:6379
    spark-submit jobs/work.py --queue flights --processor scores:score --payload-schema "origin STRING, dest STRING"

Runs until Ctrl-C or SIGTERM, then finishes what it has claimed; with --until-idle it ends when the queue is empty.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from session import pairs, session, until_stopped

from spark_bull import Worker


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", required=True, help="queue whose jobs are processed")
    parser.add_argument("--processor", required=True, metavar="MODULE:NAME", help="function of a job, or a UDF")
    parser.add_argument("--payload-schema", metavar="DDL", help="for UDFs: schema of the payloads")
    parser.add_argument(
        "--engine", choices=("auto", "loop", "stream"), default="auto", help="how jobs get there (auto)"
    )
    parser.add_argument("--slots", type=int, help="Spark tasks at work (all cores but one)")
    parser.add_argument("--timeout", type=int, default=0, metavar="MS", help="most time that a job may take (0: any)")
    parser.add_argument("--grace", type=float, default=30, metavar="S", help="time to finish in when stopped (30)")
    parser.add_argument("--until-idle", type=float, metavar="S", help="end when nothing was to be done for so long")
    parser.add_argument("--url", help="Redis; default: $SPARK_BULL_URL, else redis://localhost:6379")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="argument of the worker")
    return parser.parse_args()


def found(name: str) -> Any:
    """The object that MODULE:NAME stands for; a module may lie in the current folder."""
    module, separator, attribute = name.partition(":")
    if not separator:
        sys.exit(f"work: expected --processor MODULE:NAME, got: {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        sys.exit(f"work: expected --processor to be importable, got {name!r}: {error}")


def wait(worker: Worker, until_idle: float | None) -> None:
    """Until the worker ends, or has had nothing to do for `until_idle` s."""
    idle_since, finished = time.monotonic(), 0
    while not worker.await_termination(1.0):
        status = worker.status()
        if status.finished != finished or status.lag or status.busy or not status.slots:
            idle_since, finished = time.monotonic(), status.finished
        if until_idle is not None and time.monotonic() - idle_since >= until_idle:
            return


def work(spark: SparkSession, args: argparse.Namespace) -> None:
    """Runs a worker until it is stopped or idle, and prints what it has done."""
    # After the session, as @udf and @pandas_udf may need one.
    processor = found(args.processor)
    options: dict[str, Any] = pairs(args.option) | ({"url": args.url} if args.url else {})
    redis = {name[len("redis.") :]: options.pop(name) for name in [*options] if name.startswith("redis.")}
    worker = Worker(
        spark,
        args.queue,
        processor,
        payload_schema=args.payload_schema,
        engine=args.engine,
        slots=args.slots,
        timeout_ms=args.timeout,
        redis=redis,
        **options,
    )
    try:
        worker.start()
        wait(worker, args.until_idle)
    finally:
        status = worker.status()
        worker.stop(args.grace)
        print(worker.status() if status.slots else status)


def main() -> None:
    args = arguments()
    with session(f"work on {args.queue}") as spark, until_stopped("work"):
        work(spark, args)


if __name__ == "__main__":
    main()

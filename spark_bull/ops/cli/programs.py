"""Commands that run in Spark, in their own session or under spark-submit, and the checks before a JVM starts.

Modules that import PySpark are imported when such a command runs, so that the others start fast and do not need it.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from glob import glob
from typing import TYPE_CHECKING, Any, Final

from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import WriteOptions
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.core.queue.shards.layout import given_queues, queues_of
from spark_bull.ops.cli.arguments import (
    GUARDING,
    TIME,
    Argument,
    argument,
    comma_separated,
    duration,
    flag,
    guards_of,
    number,
    positive_milliseconds,
    positive_seconds,
    repeated,
    seconds,
)
from spark_bull.ops.cli.command import Output, check_queues, command, say_missing
from spark_bull.ops.cli.doctor.machine import MIN_JAVA, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_bull.core.model.guards import Guard
    from spark_bull.run.worker.local_worker import LocalWorker
    from spark_bull.run.worker.program import Functions


#: Formats of Spark that read files; others may have names of tables as paths.
_OF_FILES: Final = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
#: Variables of programs whose Spark runs already: spark-submit has started it, or Spark Connect has.
_RUNS: Final = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}
#: Variables whose files may name another file system than this machine's.
_CONFIGURES: Final = {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"}


def check_java() -> None:
    """Raises SparkBullError if there is no Java that Spark could start."""
    if not _RUNS & os.environ.keys() and find_java() is None:
        raise SparkBullError(
            f"expected Java {MIN_JAVA} or newer, which Spark needs, found none: install it, and set JAVA_HOME to its "
            "folder"
        )


def check_input(path: str, file_format: str, settings: Mapping[str, str]) -> None:
    """Raises OptionError if there is no file at a path that can only be one of this machine."""
    scheme, _, rest = path.rpartition(":")
    may_be_elsewhere = (_RUNS | _CONFIGURES) & os.environ.keys() or "spark.hadoop.fs.defaultFS" in settings
    if scheme not in ("", "file") or (not scheme and may_be_elsewhere):
        return
    # Braces are alternatives to Spark, but not to Python.
    if file_format in _OF_FILES and not re.search(r"[{}\\]", path) and not (os.path.exists(rest) or glob(rest)):
        raise OptionError(f"expected --input to be a file or a folder, got: {path!r}, where there is none")


@contextmanager
def _session(args: Namespace, queue: str) -> Iterator[SparkSession]:
    from spark_bull.spark.programs.session import errors_in_one_line, session

    check_java()
    with errors_in_one_line(), session(f"{args.command} {queue}", args.master, dict(args.conf)) as spark:
        yield spark


def _dispatch(args: Namespace) -> Output:
    from spark_bull.spark.programs.commands import Source, dispatch

    source, options = Source(args.input, args.format, dict(args.read), args.query), _options(args)
    parsed = parse_options(options, WriteOptions)
    check_input(args.input, args.format, dict(args.conf))
    handles = queues_of(parsed, args.queue)
    with _session(args, args.queue) as spark:
        return _output(dispatch(spark, source, args.queue, handles, options), args)


def _replay(args: Namespace) -> Output:
    from spark_bull.spark.programs.commands import replay

    options = _options(args)
    parsed = parse_options(options, WriteOptions)
    check_input(args.input, args.format, dict(args.conf))
    handle = open_handle(parsed, args.queue)
    with _session(args, args.queue) as spark:
        return _output(replay(spark, args.input, args.format, args.where, handle, options), args)


def _work(args: Namespace) -> Output:
    from spark_bull.run.worker.program import Functions, check, run

    given = {name: getattr(args, name) for name in ("payload_schema", "slots", "target_wait_s", "timeout_ms")}
    options = _options(args, "scan_keys") | {name: value for name, value in given.items() if value is not None}
    options |= {"retry": dict(args.retry)} if args.retry else {}
    functions, weights, env = Functions(args.processor, args.setup), dict(args.weight), dict(args.env)
    guards, adds_files = guards_of(args, args.queue), "spark.submit.pyFiles" in dict(args.conf)
    parsed = check(args.queue, functions, options, weights=weights, env=env, guards=guards, adds_files=adds_files)
    say_missing(args, parsed, args.queue)
    until = {"stop_timeout_s": args.stop_timeout, "until_idle_s": args.until_idle}
    if args.local:
        return _output(run(_local_worker(args, functions, options, weights, env, guards), **until), args)
    if args.processes:
        raise OptionError("`--processes` has no effect without --local: Spark's tasks have processes of their own")

    from spark_bull.spark.programs.commands import spark_worker

    with _session(args, ", ".join(args.queue)) as spark:
        worker = spark_worker(spark, args.queue, functions, options, weights=weights, env=env, guards=guards)
        return _output(run(worker, **until), args)


def _local_worker(
    args: Namespace,
    functions: Functions,
    options: Mapping[str, Any],
    weights: Mapping[str, int],
    env: Mapping[str, str],
    guards: Sequence[Guard],
) -> LocalWorker:
    """A worker without Spark, that has not been started."""
    from spark_bull.run.worker.local_worker import LocalWorker
    from spark_bull.run.worker.program import arguments_of

    for name in ("master", "conf"):
        if getattr(args, name):
            raise OptionError(f"`--{name}` has no effect with --local, which does not start Spark: leave one out")
    return LocalWorker(
        queues=args.queue,
        weights=weights,
        env=env or None,
        processes=args.processes,
        guards=guards,
        **arguments_of(options),
        **functions.imported(),
    )


def _collect(args: Namespace) -> Output:
    from spark_bull.run.services.collector import check_servers
    from spark_bull.spark.collect.stream import collect_options
    from spark_bull.spark.programs.commands import Table, collect

    table = Table(args.output, args.format, args.checkpoint)
    every = None if args.once else f"{args.trigger} milliseconds"
    options = _options(args) | {"queue": args.queue}
    check_servers(collect_options(options))
    with _session(args, args.queue) as spark:
        try:
            return _output(collect(spark, table, options, every), args)
        except KeyboardInterrupt:
            # The regular way to stop it.
            return None


def _report(args: Namespace) -> Output:
    from spark_bull.spark.programs.commands import report
    from spark_bull.spark.schemas import read_options

    options = _options(args) | {"queue": args.queue}
    parsed = read_options(options)
    check_queues(parsed, given_queues(parsed))
    with _session(args, args.queue) as spark:
        for frame in report(spark, options, args.query):
            if args.json:
                for row in frame.selectExpr("to_json(struct(*))").collect():
                    print(row[0])
            else:
                frame.show(1_000, truncate=False)


def _output(done: Any, args: Namespace) -> Output:
    return asdict(done) if args.json else str(done)


def _options(args: Namespace, scan_keys: str = "scanKeys") -> dict[str, Any]:
    """Returns the options given by --option, and the connection arguments. scan_keys: how that option is spelled."""
    common = {"url": args.url, "prefix": args.prefix, "protocol": args.protocol, "shards": args.shards}
    common[scan_keys] = "false" if args.no_scan else None
    return dict(args.option) | {name: value for name, value in common.items() if value is not None}


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ArgumentTypeError(f"expected name=value, got: {text!r}")
    return name, value


def _number_of(what: str) -> Callable[[str], tuple[str, int]]:
    """A parser of what=number."""

    def parse(text: str) -> tuple[str, int]:
        name, _, given = text.rpartition("=")
        if not name or (value := number(given)) < 0:
            raise ArgumentTypeError(f"expected {what}=number, got: {text!r}")
        return name, value

    return parse


_SPARK: Final = (
    argument("--master", help="Spark master, if not run by spark-submit"),
    repeated("--conf", "NAME=VALUE", "Spark configuration property", type=_setting),
)


def _option(help: str) -> Argument:
    return repeated("--option", "NAME=VALUE", help, type=_setting)


def _queue(help: str) -> Argument:
    return argument("--queue", required=True, help=help)


_WRITING: Final = (_queue("queue to add the jobs to"), _option("option of the write"), *_SPARK)
_QUEUES: Final = _queue("queues: names, comma separated, or globs")

COMMANDS: Final = (
    command(
        "dispatch",
        "in Spark: add rows of files as jobs",
        "dispatch --input customers.parquet --queue mail",
        _dispatch,
        argument("--input", required=True, help="file or folder to read"),
        argument("--format", default="parquet", help="parquet (default), csv, json, orc, …"),
        repeated("--read", "NAME=VALUE", "option of the input format", type=_setting),
        argument(
            "--query",
            help="SQL over the view `input` that returns the columns of the jobs; default: each row is a payload",
        ),
        *_WRITING,
        of_queue=False,
    ),
    command(
        "replay",
        "in Spark: add jobs of a table again, once",
        """replay --input results --where "state = 'failed'" --queue mail""",
        _replay,
        argument("--input", required=True, help="table of jobs, such as one that `collect` has written"),
        argument("--format", default="parquet", help="parquet (default), json, orc, delta, …"),
        argument("--where", metavar="SQL", help="only jobs for which this is true: \"state = 'failed'\""),
        *_WRITING,
        of_queue=False,
    ),
    command(
        "work",
        "in Spark, or --local: process jobs with a Python function",
        "work --queue mail --processor my_jobs:send",
        _work,
        argument("--processor", required=True, metavar="MODULE:NAME", help="function of a job, or a UDF"),
        argument("--setup", metavar="MODULE:NAME", help="function that makes the state of a slot"),
        repeated("--env", "NAME=VALUE", "environment variable of the slots; may be repeated", type=_setting),
        argument("--payload-schema", metavar="DDL", help="schema of the payloads, required for UDFs"),
        flag("--local", "process the jobs in this program, without Spark"),
        flag("--processes", "with --local: each slot has a process of its own, instead of a thread"),
        argument(
            "--slots",
            metavar="NUMBER",
            help="number of parallel Spark tasks, or the least and the largest one: 1-40 (default: all cores but one; "
            "--local: 1)",
        ),
        duration(
            "--target-wait",
            "with a range of slots: time within which waiting jobs are to start: 30s (default), 5m",
            dest="target_wait_s",
            type=positive_seconds,
        ),
        duration("--timeout", "maximum duration of a job: 30s, 5m", dest="timeout_ms"),
        duration(
            "--stop-timeout",
            "maximum time for jobs to finish after a stop: 5m (default: 30s; after Ctrl-C 5s)",
            type=seconds,
        ),
        duration("--until-idle", "exit after this time without jobs", type=seconds),
        argument(
            "--queue",
            type=comma_separated,
            action="extend",
            required=True,
            metavar="NAMES",
            help="queues to process, comma separated; jobs of the first are claimed before jobs of the others",
        ),
        repeated(
            "--weight",
            "QUEUE=NUMBER",
            "how often this queue is asked first, instead of the order of the queues; may be repeated",
            type=_number_of("queue"),
        ),
        repeated(
            "--retry",
            "ERROR=NUMBER",
            "maximum attempts after an error of this class, instead of the job's own; may be repeated",
            type=_number_of("error"),
        ),
        *GUARDING,
        _option("argument of the worker"),
        *_SPARK,
        of_queue=False,
    ),
    command(
        "collect",
        "in Spark: write finished jobs to files, exactly once",
        "collect --queue 'mail,report-*' --output results --once",
        _collect,
        argument("--output", required=True, metavar="PATH", help="output folder of the table"),
        argument("--checkpoint", metavar="PATH", help="checkpoint folder (default: OUTPUT/_checkpoint)"),
        argument(
            "--format",
            default="parquet",
            help="format of a streaming sink of Spark: parquet (default), orc, json, …",
        ),
        argument(
            "--trigger",
            type=positive_milliseconds,
            default=10_000,
            metavar=TIME,
            help="trigger interval (default: 10s)",
        ),
        flag("--once", "write the jobs that have finished so far, then exit"),
        _QUEUES,
        _option("option of the streaming read"),
        *_SPARK,
        of_queue=False,
    ),
    command(
        "report",
        "in Spark: run SQL over jobs",
        """report --queue mail --query 'SELECT state, count(*) FROM jobs GROUP BY state'""",
        _report,
        argument("--query", action="append", default=[], help="SQL over the view `jobs`; may be repeated"),
        _QUEUES,
        _option("option of the read"),
        *_SPARK,
        of_queue=False,
    ),
)

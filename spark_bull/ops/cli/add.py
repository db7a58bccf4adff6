"""`spark-bull add`: adds one job, or a job for each line of standard input."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import Final

from spark_bull.core.dialects.terms import AT_LEAST_ONCE, AT_MOST_ONCE
from spark_bull.core.errors import OptionError
from spark_bull.core.model.job_json import strict_json
from spark_bull.core.model.jobs import NewJob, RawJson
from spark_bull.core.options.values import deduplication, json_object
from spark_bull.ops.cli.arguments import argument, duration, number, priority_or_name
from spark_bull.ops.cli.command import Output, command, open_queue


def _add(args: Namespace) -> Output:
    if args.data == "-":
        added = open_queue(args).add_many(_jobs_of_lines(args, sys.stdin))
    else:
        added = open_queue(args).add_many([_job(args, json_argument(args.data, "data"))])
    # Ids of many jobs are for programs.
    ids = {"ids": added.ids} if args.json else {"id": None if args.data == "-" else added.ids[0]}
    return {**ids, "added": added.added, "duplicates": added.duplicates, "deduplicated": added.deduplicated}


def _jobs_of_lines(args: Namespace, lines: Iterable[str]) -> list[NewJob]:
    """A job per line. All lines are validated before the first job is added."""
    if args.job_id is not None:
        raise OptionError("expected --job-id only with a single job, got it with standard input: leave it out")
    return [_job(args, json_argument(line, f"line {number}")) for number, line in enumerate(lines, 1) if line.strip()]


def _job(args: Namespace, payload: RawJson) -> NewJob:
    return NewJob(
        payload,
        args.name,
        job_id=args.job_id,
        delay=args.delay,
        priority=args.priority,
        attempts=args.attempts,
        expire_after_ms=args.expire_after,
        spread_ms=args.spread,
        delivery=args.delivery,
        lock_ms=args.lock,
        deduplication=deduplication("deduplication", args.deduplication) if args.deduplication is not None else None,
        opts=json_object("opts", args.opts) if args.opts else {},
    )


def json_argument(text: str, what: str) -> RawJson:
    """Checks a payload. Raises OptionError."""
    try:
        strict_json(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"expected {what} to be JSON, got: {text[:200]!r} ({error})") from None
    return RawJson(text.strip())


COMMANDS: Final = (
    command(
        "add",
        "add a job, or one for each line of standard input",
        """add mail '{"to": "ada@example.org"}' --delay 1m""",
        _add,
        argument("data", help="payload as JSON; - reads one payload per line from standard input"),
        argument("--name", help="name of the job"),
        argument("--job-id", help="custom id of the job"),
        duration("--delay", "time until the job runs: 500ms, 30s, 5m, 1d"),
        argument(
            "--priority",
            type=priority_or_name,
            help="priority; 1 is the highest, 0 none; or critical, high, medium, normal, low (1 to 5)",
        ),
        argument("--attempts", type=number, help="maximum number of attempts"),
        duration("--expire-after", "a job that has not started by then fails: 30s, 5m"),
        duration("--spread", "delay jobs by different times up to this one"),
        argument("--delivery", choices=(AT_LEAST_ONCE, AT_MOST_ONCE), help="whether a job may run twice"),
        duration("--lock", "duration of a job's lock in workers of spark_bull: 30s, 5m"),
        argument(
            "--deduplication",
            metavar="ID|JSON",
            help="deduplication id, or JSON with id and a rule: nothing is added while an unfinished job has the id",
        ),
        argument("--opts", metavar="JSON", help="other job options of the Node library"),
    ),
)

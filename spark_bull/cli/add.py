"""`spark-bull add`: adds one job, or a job for each line of standard input."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Final

from spark_bull.cli.command import Command, Output, open_queue
from spark_bull.cli.times import milliseconds
from spark_bull.dialects.terms import AT_LEAST_ONCE, AT_MOST_ONCE
from spark_bull.errors import OptionError
from spark_bull.model.jobs import Added, NewJob, RawJson
from spark_bull.options.values import deduplication, json_object, priority


def _add(args: Namespace) -> Output:
    if args.data == "-":
        return _add_lines(args, sys.stdin)
    added = open_queue(args).add_many([_job(args, json_argument(args.data, "data"))])
    return {"id": added.ids[0], **_counts(args, added)}


def _add_lines(args: Namespace, lines: Iterable[str]) -> Output:
    """Adds a job per line. All lines are validated before the first job is added."""
    if args.job_id is not None:
        raise OptionError("expected --job-id only with a single job, got it with standard input: leave it out")
    payloads = [json_argument(line, f"line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    added = open_queue(args).add_many(_job(args, payload) for payload in payloads)
    ids = {"ids": added.ids} if args.json else {}
    return {**_counts(args, added), **ids}


def _counts(args: Namespace, added: Added) -> dict[str, int]:
    deduplicated = {"deduplicated": added.deduplicated} if args.deduplication or added.deduplicated else {}
    return {"added": added.added, "duplicates": added.duplicates, **deduplicated}


def _job(args: Namespace, payload: RawJson) -> NewJob:
    return NewJob(
        payload,
        args.name,
        job_id=args.job_id,
        delay=args.delay,
        priority=args.priority,
        attempts=args.attempts,
        expire_after=args.expire_after,
        spread_ms=args.spread,
        delivery=args.delivery,
        lock_ms=args.lock_ms,
        deduplication=deduplication("deduplication", args.deduplication) if args.deduplication is not None else None,
        opts=json_object("opts", args.opts) if args.opts else {},
    )


def json_argument(text: str, what: str) -> RawJson:
    """Checks a payload. Raises OptionError."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"expected {what} to be JSON, got: {text[:200]!r} ({error})") from None
    return RawJson(text.strip())


def _refuse_constant(name: str) -> None:
    """Rejects NaN and Infinity, which Python accepts but JSON does not."""
    raise ValueError(f"{name} is not JSON")


def _add_job_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("data", help="payload as JSON; - reads one payload per line from standard input")
    parser.add_argument("--name", help="name of the job")
    parser.add_argument("--job-id", help="custom id of the job")
    parser.add_argument(
        "--delay", type=milliseconds, metavar="TIME", help="time until the job runs: 500ms, 30s, 5m, 1d"
    )
    parser.add_argument(
        "--priority",
        type=lambda text: priority("priority", text),
        help="priority; 1 is the highest, 0 none; or critical, high, medium, normal, low (1 to 5)",
    )
    parser.add_argument("--attempts", type=int, help="maximum number of attempts")
    parser.add_argument(
        "--expire-after", type=milliseconds, metavar="TIME", help="a job that has not started by then fails: 30s, 5m"
    )
    parser.add_argument(
        "--spread", type=milliseconds, metavar="TIME", help="delay jobs by different times up to this one"
    )
    parser.add_argument("--delivery", choices=(AT_LEAST_ONCE, AT_MOST_ONCE), help="whether a job may run twice")
    parser.add_argument(
        "--lock-ms", type=milliseconds, metavar="TIME", help="duration of a job's lock in workers of spark_bull"
    )
    parser.add_argument(
        "--deduplication",
        metavar="ID|JSON",
        help="deduplication id, or JSON with id and a rule: nothing is added while an unfinished job has the id",
    )
    parser.add_argument("--opts", metavar="JSON", help="further job options of the Node library")


ADD: Final = Command(
    "add",
    "add a job, or one for each line of standard input",
    """add mail '{"to": "ada@example.org"}' --delay 1m""",
    _add,
    _add_job_arguments,
)

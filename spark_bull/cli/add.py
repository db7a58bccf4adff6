"""`spark-bull add`: one job of the command line, or a job for each line of standard input."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Final

from spark_bull.cli.command import Command, Found, open_queue
from spark_bull.cli.times import milliseconds
from spark_bull.errors import OptionError
from spark_bull.model import NewJob, RawJson
from spark_bull.options import json_object


def _add(args: Namespace) -> Found:
    if args.data == "-":
        return _add_lines(args, sys.stdin)
    added = open_queue(args).add_many([_job(args, _json(args.data, "data"))])
    return {"id": added.ids[0], "added": added.added, "duplicates": added.duplicates}


def _add_lines(args: Namespace, lines: Iterable[str]) -> Found:
    """All lines are checked before the first job is added."""
    if args.job_id is not None:
        raise OptionError("expected --job-id with the data of one job, got it with lines of standard input")
    payloads = [_json(line, f"line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    added = open_queue(args).add_many(_job(args, payload) for payload in payloads)
    ids = {"ids": added.ids} if args.json else {}
    return {"added": added.added, "duplicates": added.duplicates, **ids}


def _job(args: Namespace, payload: RawJson) -> NewJob:
    return NewJob(
        payload,
        args.name,
        job_id=args.job_id,
        delay=args.delay,
        priority=args.priority,
        attempts=args.attempts,
        opts=json_object("opts", args.opts) if args.opts else {},
    )


def _json(text: str, what: str) -> RawJson:
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"expected {what} to be JSON, got: {text[:200]!r} ({error})") from None
    return RawJson(text.strip())


def _refuse_constant(name: str) -> None:
    """Python reads NaN and Infinity, which JSON doesn't have."""
    raise ValueError(f"{name} is no JSON")


def _takes_job(parser: ArgumentParser) -> None:
    parser.add_argument("data", help="payload as JSON; - reads payloads from standard input, one in a line")
    parser.add_argument("--name", help="name of the job")
    parser.add_argument("--job-id", help="id of your own")
    parser.add_argument("--delay", type=milliseconds, metavar="TIME", help="run it so much later: 500ms, 30s, 5m, 1d")
    parser.add_argument("--priority", type=int)
    parser.add_argument("--attempts", type=int)
    parser.add_argument("--opts", metavar="JSON", help="further options of the Node library")


ADD: Final = Command(
    "add",
    "add a job, or one for each line of standard input",
    """add mail '{"to": "ada@example.org"}' --delay 1m""",
    _add,
    _takes_job,
)

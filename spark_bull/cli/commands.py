"""The verbs of the command line: what each takes, does and shows."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from spark_bull.cli.promoting import promote, takes_promote
from spark_bull.errors import JobMissing, OptionError
from spark_bull.job_json import json_or_text
from spark_bull.model import STATES, Job, NewJob, RawJson, WriteRecord
from spark_bull.options import READ, json_object, parse_options
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.find import describe, find_queues
from spark_bull.queue.handle import open_handle
from spark_bull.queue.read import counts
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

Found = Any


@dataclass(frozen=True)
class Command:
    """One verb. `run` gets the arguments; a queue's verb opens the queue itself."""

    name: str
    help: str
    example: str
    run: Callable[[Namespace], Found]
    arguments: Callable[[ArgumentParser], None] = lambda parser: None
    of_queue: bool = True


def open_queue(args: Namespace) -> BullQueue:
    return BullQueue(args.queue, url=args.url, prefix=args.prefix, protocol=args.protocol)


def _queues(args: Namespace) -> Found:
    given = {"url": args.url, "prefix": args.prefix, "protocol": args.protocol, "queue": args.glob}
    options = parse_options({name: value for name, value in given.items() if value is not None}, READ)
    rows = []
    for queue in find_queues(Connection(settings_of(options)), options["prefix"], args.glob):
        handle = open_handle(options, queue)
        summary = asdict(describe(handle))
        rows.append({"queue": queue, "protocol": handle.dialect.name, **summary, "jobs": sum(counts(handle).values())})
    return rows


def _counts(args: Namespace) -> Found:
    return [{"state": state, "jobs": jobs} for state, jobs in open_queue(args).counts().items()]


def _page(args: Namespace) -> Found:
    return [_short(job) for job in open_queue(args).page(args.state, args.start, args.stop)]


def _short(job: Job) -> dict[str, Any]:
    shown = ("id", "name", "attempts_made", "timestamp", "run_at", "finished_on", "priority", "failed_reason", "data")
    whole = _whole(job)
    return {name: whole[name] for name in shown}


def _whole(job: Job) -> dict[str, Any]:
    """All fields, the JSON ones parsed; what is no JSON stays a text."""
    fields = asdict(job)
    texts = {name: fields.pop(name) for name in list(fields) if name.endswith("_text")}
    return fields | {name.removesuffix("_text"): json_or_text(text) for name, text in texts.items()}


def _job(args: Namespace) -> Found:
    queue = open_queue(args)
    job = queue.get_job(args.id)
    if job is None:
        raise JobMissing(f"expected job {args.id} in queue {args.queue}, found none", queue=args.queue, job_id=args.id)
    return _whole(job)


def _logs(args: Namespace) -> Found:
    return open_queue(args).logs(args.id)


def _add(args: Namespace) -> Found:
    text = sys.stdin.read() if args.data == "-" else args.data
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"expected data to be JSON, got: {text[:200]!r} ({error})") from None
    job = NewJob(
        RawJson(text),
        args.name,
        job_id=args.job_id,
        delay=args.delay,
        priority=args.priority,
        attempts=args.attempts,
        opts=json_object("opts", args.opts) if args.opts else {},
    )
    added = open_queue(args).add_many([job])
    return {"id": added.ids[0], "added": added.added, "duplicates": added.duplicates}


def _refuse_constant(name: str) -> None:
    """Python reads NaN and Infinity, which JSON doesn't have."""
    raise ValueError(f"{name} is no JSON")


def _done(what: Callable[[BullQueue, Namespace], None]) -> Callable[[Namespace], Found]:
    def run(args: Namespace) -> Found:
        what(open_queue(args), args)
        return {"done": args.command, "queue": args.queue}

    return run


def _clean(args: Namespace) -> Found:
    removed = open_queue(args).clean(args.grace, args.limit, args.state)
    return {"removed": len(removed), "state": args.state}


def _drain(args: Namespace) -> Found:
    return {"removed": open_queue(args).drain(delayed=args.delayed)}


def _obliterate(args: Namespace) -> Found:
    if not args.yes:
        if not sys.stdin.isatty():
            raise OptionError(f"obliterate deletes queue {args.queue} with all its jobs: say --yes if you mean it")
        if input(f"Delete queue {args.queue} with all its jobs? Type its name: ") != args.queue:
            raise OptionError("nothing deleted")
    open_queue(args).obliterate(force=args.force)
    return {"done": "obliterate", "queue": args.queue}


def _recover(args: Namespace) -> Found:
    return [_record(record) for record in open_queue(args).recover()]


def _writes(args: Namespace) -> Found:
    return [_record(record) for record in open_queue(args).writes()]


def _record(record: WriteRecord) -> dict[str, Any]:
    return {**asdict(record), "duration_ms": record.duration_ms}


def _takes_id(parser: ArgumentParser) -> None:
    parser.add_argument("id", help="id of the job")


def _takes_page(parser: ArgumentParser) -> None:
    parser.add_argument("state", choices=STATES)
    parser.add_argument("start", type=int, nargs="?", default=0, help="first position (0)")
    parser.add_argument("stop", type=int, nargs="?", default=19, help="last position, included (19); -1 is the end")


def _takes_job(parser: ArgumentParser) -> None:
    parser.add_argument("data", help="payload as JSON; - reads it from standard input")
    parser.add_argument("--name", help="name of the job")
    parser.add_argument("--job-id", help="id of your own")
    parser.add_argument("--delay", type=int, metavar="MS")
    parser.add_argument("--priority", type=int)
    parser.add_argument("--attempts", type=int)
    parser.add_argument("--opts", metavar="JSON", help="further options of the Node library")


def _takes_retry(parser: ArgumentParser) -> None:
    _takes_id(parser)
    parser.add_argument("--state", choices=("failed", "completed"), default="failed", help="where it is (failed)")


def _takes_clean(parser: ArgumentParser) -> None:
    parser.add_argument("--state", choices=STATES, default="completed", help="which jobs (completed)")
    parser.add_argument("--grace", type=int, default=0, metavar="MS", help="only jobs older than that (0)")
    parser.add_argument("--limit", type=int, default=0, help="at most so many (0: all)")


def _takes_drain(parser: ArgumentParser) -> None:
    parser.add_argument("--delayed", action="store_true", help="delayed jobs, too")


def _takes_obliterate(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="even while jobs are active")
    parser.add_argument("--yes", action="store_true", help="don't ask")


def _takes_glob(parser: ArgumentParser) -> None:
    parser.add_argument("glob", nargs="?", default="*", help="which queues (all)")


COMMANDS: Final = (
    Command("queues", "list queues", "queues 'mail*'", _queues, _takes_glob, of_queue=False),
    Command("counts", "count the jobs of a queue by state", "counts mail", _counts),
    Command("page", "list jobs of a state", "page mail failed 0 49", _page, _takes_page),
    Command("job", "show one job", "job mail 42 --json", _job, _takes_id),
    Command("logs", "show what workers logged about a job", "logs mail 42", _logs, _takes_id),
    Command("add", "add a job", """add mail '{"to": "ada@example.org"}' --delay 60000""", _add, _takes_job),
    Command("pause", "stop workers from taking jobs", "pause mail", _done(lambda queue, _: queue.pause())),
    Command("resume", "let workers take jobs again", "resume mail", _done(lambda queue, _: queue.resume())),
    Command(
        "retry",
        "let a job that has ended run again",
        "retry mail 42",
        _done(lambda queue, args: queue.retry(args.id, args.state)),
        _takes_retry,
    ),
    Command(
        "promote",
        "let delayed jobs run when they are due, for as long as this runs; or one job (ID) now",
        "promote mail",
        promote,
        takes_promote,
        of_queue=False,
    ),
    Command("remove", "remove a job", "remove mail 42", _done(lambda queue, args: queue.remove(args.id)), _takes_id),
    Command("clean", "remove old jobs of a state", "clean mail --grace 86400000", _clean, _takes_clean),
    Command("drain", "remove all jobs that wait", "drain mail --delayed", _drain, _takes_drain),
    Command("obliterate", "delete a queue with all its jobs", "obliterate mail", _obliterate, _takes_obliterate),
    Command("writes", "list Spark's writes of the last 30 days", "writes mail", _writes),
    Command("recover", "finish writes whose committing process died", "recover mail", _recover),
)

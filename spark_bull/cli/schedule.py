"""Commands that list, create and remove schedules."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Final

from spark_bull.cli.add import json_argument
from spark_bull.cli.command import Command, Output, existing_queue, open_queue
from spark_bull.cli.times import milliseconds
from spark_bull.errors import SparkBullError
from spark_bull.model.job_json import json_or_text
from spark_bull.options.values import instant, json_object


def _schedules(args: Namespace) -> Output:
    return [_row(asdict(found)) for found in existing_queue(args).schedulers()]


def _row(found: dict[str, object]) -> dict[str, object]:
    data, opts = (str(found.pop(name) or "") for name in ("data_text", "opts_text"))
    del found["queue"]
    return found | {"data": json_or_text(data or None), "opts": json_or_text(opts or None)}


def _schedule(args: Namespace) -> Output:
    due = open_queue(args).upsert_scheduler(
        args.id,
        every=args.every,
        pattern=args.pattern,
        tz=args.tz,
        name=args.name,
        data=json_argument(args.data, "--data") if args.data is not None else None,
        limit=args.limit,
        offset=args.offset,
        start_date=instant("--start", args.start) if args.start is not None else None,
        end_date=instant("--end", args.end) if args.end is not None else None,
        opts=json_object("--opts", args.opts) if args.opts else None,
    )
    return {"done": "schedule", "id": args.id, "next": due}


def _unschedule(args: Namespace) -> Output:
    queue = existing_queue(args)
    missing = [schedule_id for schedule_id in args.ids if not queue.remove_scheduler(schedule_id)]
    if missing:
        removed = f"removed {len(args.ids) - len(missing)} of {len(args.ids)}; " if len(args.ids) > 1 else ""
        raise SparkBullError(
            f"{removed}no such schedule in queue {args.queue}: {', '.join(missing)}; `spark-bull schedules "
            f"{args.queue}` lists all"
        )
    return {"done": "unschedule", "queue": args.queue, "schedules": len(args.ids)}


def _add_schedule_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", help="id of the schedule; one that exists is changed")
    parser.add_argument("--every", type=milliseconds, metavar="TIME", help="interval: 30s, 5m, 2h, 1d")
    parser.add_argument(
        "--pattern", metavar="CRON", help="cron pattern of 5 fields, or 6 with seconds first, in place of --every"
    )
    parser.add_argument("--tz", metavar="ZONE", help="time zone of the pattern (default: that of this machine)")
    parser.add_argument("--name", help="name of the jobs")
    parser.add_argument("--data", metavar="JSON", help="payload of the jobs (default: {})")
    parser.add_argument("--limit", type=int, help="maximum number of jobs")
    parser.add_argument("--offset", type=milliseconds, metavar="TIME", help="shift from multiples of the interval")
    parser.add_argument("--start", metavar="TIME", help="no job runs before: ISO 8601 or ms since 1970")
    parser.add_argument("--end", metavar="TIME", help="no further job is added after: ISO 8601 or ms since 1970")
    parser.add_argument("--opts", metavar="JSON", help="further job options of the Node library")


def _add_ids_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", metavar="id", nargs="+", help="ids of schedules")


SCHEDULE: Final = (
    Command("schedules", "list the schedules of a queue", "schedules mail", _schedules),
    Command(
        "schedule",
        "create or change a schedule: a job again and again",
        "schedule mail daily --pattern '0 9 * * 1-5' --tz Europe/Berlin",
        _schedule,
        _add_schedule_arguments,
    ),
    Command("unschedule", "remove schedules", "unschedule mail daily", _unschedule, _add_ids_arguments),
)

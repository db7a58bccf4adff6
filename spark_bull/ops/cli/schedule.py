"""Commands that list, create and remove job schedulers."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from spark_bull.core.model.job_json import parsed
from spark_bull.core.options.values import instant, json_object
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.ops.cli.add import json_argument
from spark_bull.ops.cli.arguments import YES, argument, duration, number
from spark_bull.ops.cli.command import Deletion, Output, command, existing_queue, name_of, open_queue
from spark_bull.ops.cli.status import NotFound


def _schedulers(args: Namespace) -> Output:
    rows = [parsed(found) for found in existing_queue(args).schedulers()]
    return [{name: row[name] for name in row if name != "queue"} for row in rows]


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


def _run_scheduler(args: Namespace) -> Output:
    return {"done": "run-scheduler", "queue": args.queue, "id": existing_queue(args).run_scheduler(args.id)}


def _unschedule(args: Namespace) -> Output:
    queue = existing_queue(args)
    what = (
        f"the job {'scheduler' if len(args.ids) == 1 else 'schedulers'} {', '.join(args.ids)} of queue {name_of(args)}"
    )
    return Deletion(what, lambda: _unscheduled(args, queue))


def _unscheduled(args: Namespace, queue: BullQueue) -> Output:
    missing = [scheduler_id for scheduler_id in args.ids if not queue.remove_scheduler(scheduler_id)]
    if missing:
        removed = f"removed {len(args.ids) - len(missing)} of {len(args.ids)}; " if len(args.ids) > 1 else ""
        raise NotFound(
            f"{removed}no such job scheduler in queue {args.queue}: {', '.join(missing)}; `spark-bull schedulers "
            f"{args.queue}` lists all"
        )
    return {"done": "unschedule", "queue": args.queue, "schedulers": len(args.ids)}


COMMANDS: Final = (
    command(
        "schedulers",
        "list the job schedulers of a queue",
        "schedulers mail",
        _schedulers,
        empty=lambda args: f"no job schedulers in {args.queue}",
    ),
    command(
        "schedule",
        "create or change a job scheduler",
        "schedule mail daily --pattern '0 9 * * 1-5' --tz Europe/Berlin",
        _schedule,
        argument("id", help="id of the job scheduler; one that exists is changed"),
        duration("--every", "interval: 30s, 5m, 2h, 1d"),
        argument(
            "--pattern",
            metavar="CRON",
            help="cron pattern of 5 fields, or 6 with seconds first, in place of --every",
        ),
        argument("--tz", metavar="ZONE", help="time zone of the pattern (default: the zone of this machine)"),
        argument("--name", help="name of the jobs"),
        argument("--data", metavar="JSON", help="payload of the jobs (default: {})"),
        argument("--limit", type=number, help="maximum number of jobs"),
        duration("--offset", "shift from multiples of the interval"),
        argument("--start", metavar="TIME", help="no job runs before: ISO 8601 or ms since 1970"),
        argument("--end", metavar="TIME", help="no more jobs are added after: ISO 8601 or ms since 1970"),
        argument("--opts", metavar="JSON", help="other job options of the Node library"),
    ),
    command(
        "run-scheduler",
        "add a job of a job scheduler that runs at once",
        "run-scheduler mail daily",
        _run_scheduler,
        argument("id", help="id of the job scheduler"),
    ),
    command(
        "unschedule",
        "remove job schedulers",
        "unschedule mail daily",
        _unschedule,
        argument("ids", metavar="id", nargs="+", help="ids of job schedulers"),
        YES,
    ),
)

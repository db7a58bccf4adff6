"""Commands that modify queues and jobs, and the limits of queues."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from spark_bull.core import clock
from spark_bull.core.errors import OptionError
from spark_bull.core.model.jobs import STATES
from spark_bull.core.options.values import AUTO
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.roll_forward import advance_all
from spark_bull.core.queue.handle.handle import SWEEP_AFTER_MS
from spark_bull.core.queue.manage.limits import limits_of_group
from spark_bull.core.queue.shards.reshard import Draining, reshard
from spark_bull.ops.cli.arguments import GROUP, ID, YES, argument, duration, flag, number, positive_milliseconds
from spark_bull.ops.cli.command import Deletion, Output, command, existing_queue, name_of, open_queue, options_of
from spark_bull.ops.cli.show import records_of


def _run_for(
    of_queue: Callable[[BullQueue], None], of_group: Callable[[BullQueue, str], None]
) -> Callable[[Namespace], Output]:
    """What a command does with a queue, or with one of its groups."""

    def run(args: Namespace) -> Output:
        if args.group is None:
            of_queue(existing_queue(args))
        else:
            # Also before the first job is added.
            of_group(open_queue(args), args.group)
        return {"done": args.command, "queue": args.queue, "group": args.group}

    return run


def _close_intake(args: Namespace) -> Output:
    existing_queue(args).close_intake()
    return {"done": args.command, "queue": args.queue}


def _open_intake(args: Namespace) -> Output:
    # A queue whose intake was closed may not exist any more.
    open_queue(args).open_intake()
    return {"done": args.command, "queue": args.queue}


def _cancel(args: Namespace) -> Output:
    queue = existing_queue(args)
    if (args.id is None) != args.all:
        raise OptionError("expected either the id of a job or --all, got both or neither")
    if args.all:
        jobs = queue.cancel_all(args.reason)
    else:
        queue.cancel(args.id, args.reason)
        jobs = 1
    return {"done": "cancel", "queue": args.queue, "jobs": jobs}


def _clear_logs(args: Namespace) -> Output:
    queue = existing_queue(args)

    def clear() -> Output:
        queue.clear_logs(args.id, args.keep)
        return {"done": "clear-logs", "queue": args.queue, "job": args.id}

    kept = f" but its last {args.keep:,} rows" if args.keep else ""
    return Deletion(f"the log of job {args.id} of queue {name_of(args)}{kept}", clear)


def _trim_events(args: Namespace) -> Output:
    queue = existing_queue(args)
    what = f"all events of queue {name_of(args)} but the last {args.max_events:,}"
    return Deletion(what, lambda: {"removed": queue.trim_events(args.max_events)})


def _remove_orphans(args: Namespace) -> Output:
    queue = existing_queue(args)
    what = f"jobs of queue {name_of(args)} that are in no state"
    return Deletion(what, lambda: {"removed": queue.remove_orphans(args.limit)})


def _sweep(args: Namespace) -> Output:
    # With the name of a logical queue, it sweeps all shards; a queue that does not exist is refused.
    queue = open_queue(args, offload_to=args.offload_to)
    where = queue.handle.connection.settings.where
    return Deletion(
        f"stored payloads and results that no job of queue {name_of(args)} at {where} has",
        lambda: {"done": "sweep", "queue": args.queue, **asdict(queue.sweep_objects(args.older_than))},
    )


def _clean(args: Namespace) -> Output:
    queue = existing_queue(args)
    age = f" that are older than {clock.duration(args.grace)}" if args.grace else ""
    return Deletion(
        f"{args.state} jobs of queue {name_of(args)}{age}",
        lambda: {"removed": len(queue.clean(args.grace, args.limit, args.state)), "state": args.state},
    )


def _drain(args: Namespace) -> Output:
    queue = existing_queue(args)
    which = "all waiting and delayed jobs" if args.delayed else "all waiting jobs"
    return Deletion(f"{which} of queue {name_of(args)}", lambda: {"removed": queue.drain(delayed=args.delayed)})


def _obliterate(args: Namespace) -> Output:
    queue, name = existing_queue(args), name_of(args)

    def obliterate() -> Output:
        queue.obliterate(force=args.force)
        return {"done": "obliterate", "queue": args.queue}

    return Deletion(f"queue {name} with all its jobs", obliterate, name)


def _recover(args: Namespace) -> Output:
    queue = open_queue(args)
    # Those that wait for room, too: their state is `open`.
    return records_of(args, queue, advance_all(queue.handle))


_QUEUE: Final = (
    command(
        "pause",
        "pause a queue or a group: workers claim no jobs of it",
        "pause mail",
        _run_for(BullQueue.pause, BullQueue.pause_group),
        GROUP,
    ),
    command(
        "resume",
        "resume a paused queue or group",
        "resume mail --group ada",
        _run_for(BullQueue.resume, BullQueue.resume_group),
        GROUP,
    ),
    command(
        "close-intake",
        "refuse jobs from Spark and this command; workers go on",
        "close-intake mail",
        _close_intake,
    ),
    command("open-intake", "accept jobs again", "open-intake mail", _open_intake),
    command(
        "cancel",
        "end active jobs of Spark workers: they fail",
        "cancel mail 42",
        _cancel,
        argument("id", nargs="?", help="id of the job"),
        flag("--all", "all jobs that Spark workers of the queue process now"),
        argument("--reason", metavar="TEXT", help="why, for its `failedReason` (default: none)"),
    ),
    command(
        "remove-orphans",
        "remove jobs that are in no state: no worker gets them",
        "remove-orphans mail",
        _remove_orphans,
        argument("--limit", type=number, default=0, help="maximum number of jobs (default: 0, all)"),
        YES,
    ),
    command(
        "sweep",
        "delete stored payloads and results that no job has",
        "sweep mail --offload-to s3://bucket/jobs",
        _sweep,
        argument("--offload-to", metavar="URL", required=True, help="folder, as the option `offloadTo`"),
        duration("--older-than", "minimum age: 30s, 5m, 2h, 1d (default: 2d)", default=SWEEP_AFTER_MS),
        YES,
    ),
    command(
        "clear-logs",
        "remove rows of the log of a job",
        "clear-logs mail 42 --keep 100",
        _clear_logs,
        ID,
        argument("--keep", type=number, default=0, metavar="ROWS", help="number of last rows that stay (default: 0)"),
        YES,
    ),
    command(
        "trim-events",
        "remove the oldest events of a BullMQ queue",
        "trim-events mail 1000",
        _trim_events,
        argument("max_events", metavar="max", type=number, help="about how many events stay"),
        YES,
    ),
    command(
        "clean",
        "remove old jobs of a state",
        "clean mail --grace 1d",
        _clean,
        argument("--state", choices=STATES, default="completed", help="state of the jobs (default: completed)"),
        duration("--grace", "minimum age of the jobs: 30s, 5m, 2h, 1d (default: 0)", default=0),
        argument("--limit", type=number, default=0, help="maximum number of jobs (default: 0, all)"),
        YES,
    ),
    command(
        "drain",
        "remove all waiting jobs",
        "drain mail --delayed",
        _drain,
        flag("--delayed", "also remove delayed jobs"),
        YES,
    ),
    command(
        "obliterate",
        "delete a queue with all its jobs",
        "obliterate mail",
        _obliterate,
        flag("--force", "even if jobs are active"),
        YES,
    ),
    command(
        "recover",
        "finish writes that were interrupted in their commit",
        "recover mail",
        _recover,
        empty=lambda args: f"no interrupted writes to {args.queue}",
    ),
)


def _limits(args: Namespace) -> Output:
    """Sets or removes limits of a queue or of a group if there are arguments; shows them."""
    given = {"concurrency": args.concurrency, "max": args.max, "duration_ms": args.duration}
    is_setting = any(value is not None for value in given.values())
    if args.remove and is_setting:
        raise OptionError("expected either limits or --remove, got both")
    # Limits can be set before the first job is added.
    queue = open_queue(args) if is_setting else existing_queue(args)
    if args.group is not None:
        if is_setting:
            queue.set_group_limit(args.group, **given)
        elif args.remove:
            queue.remove_group_limit(args.group)
        limits = limits_of_group(queue.handle, args.group)
    else:
        if is_setting:
            queue.set_limits(**given)
        elif args.remove:
            queue.remove_limits()
        limits = queue.limits()
    shown = {name: "none" if value is None and not args.json else value for name, value in asdict(limits).items()}
    return {"queue": args.queue, "group": args.group, **shown}


def _groups(args: Namespace) -> Output:
    return [asdict(group) for group in existing_queue(args).groups()]


def _rate_limit(args: Namespace) -> Output:
    queue = existing_queue(args)
    if args.remove == (args.duration is not None):
        raise OptionError("expected either a duration or --remove, got both or neither")
    if args.remove:
        queue.remove_rate_limit()
    else:
        queue.rate_limit(args.duration)
    return asdict(queue.limits())


_LIMITS: Final = (
    command(
        "limits",
        "show, set or remove limits of a BullMQ queue or a group",
        "limits mail --concurrency 10 --max 100 --duration 1s",
        _limits,
        GROUP,
        argument("--concurrency", type=number, metavar="JOBS", help="maximum number of active jobs"),
        argument("--max", type=number, metavar="JOBS", help="maximum number of jobs that start in --duration"),
        duration("--duration", "period of --max: 500ms, 30s, 5m", type=positive_milliseconds),
        flag("--remove", "remove all limits"),
    ),
    command(
        "groups",
        "list the groups of a queue, with their limits",
        "groups mail",
        _groups,
        empty=lambda args: f"no groups of jobs in {args.queue}",
    ),
    command(
        "rate-limit",
        "start no jobs of a BullMQ queue for a time",
        "rate-limit mail 30s",
        _rate_limit,
        duration("duration", "for how long: 500ms, 30s, 5m", nargs="?", type=positive_milliseconds),
        flag("--remove", "end the current rate limit"),
    ),
)


def _reshard(args: Namespace) -> Output:
    if args.shards in (None, AUTO):
        raise OptionError("expected --shards with a number, the one that the queue is to have, got none")
    shown: list[str] = []

    def show(left: Draining) -> None:
        if str(left) not in shown[-1:]:
            shown.append(str(left))
            print(f"waiting for the present shards of {args.queue}, which have {left}", file=sys.stderr, flush=True)

    layout = reshard(options_of(args), args.queue, int(args.shards), show)
    return {"queue": layout.queue, "shards": layout.count}


COMMANDS: Final = (
    *_QUEUE,
    *_LIMITS,
    command(
        "reshard",
        "change the number of shards, once all shards are empty",
        "reshard mail --shards 16",
        _reshard,
    ),
)

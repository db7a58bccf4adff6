"""Commands for the limits of a BullMQ queue over all its workers, and for those of groups of jobs."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Final

from spark_bull.core.errors import OptionError
from spark_bull.core.queue.manage.limits import limits_of_group
from spark_bull.ops.cli.arguments import GROUP, argument, duration, flag
from spark_bull.ops.cli.command import Output, command, existing_queue, open_queue


def _limits(args: Namespace) -> Output:
    """Sets or removes limits of a queue or of a group if there are arguments; shows them."""
    given = {"concurrency": args.concurrency, "max": args.max, "duration_ms": args.duration}
    is_setting = any(value is not None for value in given.values())
    if args.remove and is_setting:
        raise OptionError("expected either limits or --remove, got both")
    # The limits of a queue can be set before its first job is added.
    queue = open_queue(args) if is_setting and args.group is None else existing_queue(args)
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
    return {"queue": args.queue, "group": args.group, **asdict(limits)}


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


LIMITS: Final = (
    command(
        "limits",
        "show, set or remove the limits of a BullMQ queue over all workers, or of a group of jobs",
        "limits mail --concurrency 10 --max 100 --duration 1s",
        _limits,
        GROUP,
        argument("--concurrency", type=int, metavar="JOBS", help="maximum number of active jobs"),
        argument("--max", type=int, metavar="JOBS", help="maximum number of jobs that start in --duration"),
        duration("--duration", "period of --max: 500ms, 30s, 5m"),
        flag("--remove", "remove all limits"),
    ),
    command("groups", "list the groups of jobs of a queue, with their limits", "groups mail", _groups),
    command(
        "rate-limit",
        "keep workers of a BullMQ queue from starting jobs for a time",
        "rate-limit mail 30s",
        _rate_limit,
        duration("duration", "for how long: 500ms, 30s, 5m", nargs="?"),
        flag("--remove", "end the current rate limit"),
    ),
)

"""`spark-bull retry` and `spark-bull manage`: change jobs that are given by id or selected by a condition."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import Any, Final

from spark_bull.core.dialects.changes import ACTIONS
from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.manage.changes import error_of
from spark_bull.ops.cli.add import json_argument
from spark_bull.ops.cli.arguments import YES, argument, duration, flag, priority_or_name
from spark_bull.ops.cli.command import Output, command, existing_queue
from spark_bull.ops.cli.confirm import Deletion
from spark_bull.ops.cli.selection import selected_ids, selection

#: Maximum number of jobs in an error.
_SHOWN: Final = 10


def _retry(args: Namespace) -> Output:
    queue = existing_queue(args)
    given = {"state": args.state, "reset_attempts": args.reset_attempts}
    changes = [Change(job_id, "retry", **given) for job_id in selected_ids(args, queue)]
    return change_each(queue, "retry", changes, skips=args.all)


def _manage(args: Namespace) -> Output:
    queue = existing_queue(args)
    args.state = args.state or _state_of(args.action)
    ids = selected_ids(args, queue)
    given: dict[str, Any] = {
        "data": None if args.data is None else json_argument(args.data, "--data"),
        "delay": args.delay,
        "priority": args.priority,
        "lifo": args.lifo or None,
        "reset_attempts": args.reset_attempts or None,
        "state": args.state,
        "failed_reason": args.reason,
        "returnvalue": None if args.returnvalue is None else json_argument(args.returnvalue, "--returnvalue"),
        "to": args.to,
    }
    return change_each(queue, args.action, [Change(job_id, args.action, **given) for job_id in ids], skips=args.all)


def _state_of(action: str) -> str:
    """The state of the jobs that an action is for, if it is for one state."""
    return "delayed" if action in ("promote", "delay") else "failed"


def change_each(queue: BullQueue, name: str, changes: list[Change], *, skips: bool = False) -> Output:
    """Changes jobs, or says which it would remove. Raises an error for those that were not changed, unless `skips`."""
    if name != "remove":
        return _changed(queue, name, changes, skips)
    what = f"{len(changes):,} {'job' if len(changes) == 1 else 'jobs'} of queue {queue.name}"
    return Deletion(what, lambda: _changed(queue, name, changes, skips))


def _changed(queue: BullQueue, name: str, changes: list[Change], skips: bool) -> Output:
    done: Counter[bool] = Counter()
    errors: list[SparkBullError] = []
    for change, changed in zip(changes, queue.manage(changes), strict=True):
        done[changed.outcome == "done"] += 1
        if changed.outcome != "done" and not skips:
            errors.append(error_of(queue.handle, changed, change.to))
    if errors and len(changes) == 1:
        raise errors[0]
    if errors:
        reasons = "; ".join(map(str, errors[:_SHOWN])) + ("; …" if len(errors) > _SHOWN else "")
        raise SparkBullError(f"succeeded for {done[True]} of {len(changes)} jobs, failed for the others: {reasons}")
    return {"done": name, "queue": queue.name, "jobs": done[True], "skipped": done[False]}


CHANGE: Final = (
    command(
        "retry",
        "retry failed or completed jobs",
        "retry mail --all",
        _retry,
        *selection(("failed", "completed")),
        flag("--reset-attempts", "count attempts from 0 again"),
    ),
    command(
        "manage",
        "change jobs: retry, promote, delay, prioritize, update, remove, fail, complete or move them",
        """manage mail move --all --where "failedReason = 'timeout'" --to late""",
        _manage,
        argument("action", choices=list(ACTIONS), metavar="action", help=", ".join(ACTIONS)),
        *selection(default=None, defaults="delayed for promote and delay, else failed"),
        argument("--data", metavar="JSON", help="the new payload"),
        duration("--delay", "of delay: time until the jobs run: 30s, 5m"),
        argument(
            "--priority",
            type=priority_or_name,
            help="of prioritize: 1 is the highest, 0 none; or critical, high, medium, normal, low",
        ),
        flag("--lifo", "of retry and prioritize: the jobs are the next ones"),
        flag("--reset-attempts", "of retry: count attempts from 0 again"),
        argument("--reason", metavar="TEXT", help="of fail: why the jobs fail"),
        argument("--returnvalue", metavar="JSON", help="of complete: the result"),
        argument("--to", metavar="QUEUE", help="of move: the other queue"),
        YES,
    ),
)

"""`spark-bull retry` and `spark-bull manage`: change jobs that are given by id or selected by a condition."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from typing import Any, Final

from spark_bull.cli.add import json_argument
from spark_bull.cli.command import Command, Output, existing_queue
from spark_bull.cli.confirm import add_yes_argument, confirm
from spark_bull.cli.selection import add_selection_arguments, selected_ids
from spark_bull.cli.times import milliseconds
from spark_bull.dialects.changes import ACTIONS
from spark_bull.errors import SparkBullError
from spark_bull.model.jobs import STATES, Change
from spark_bull.options.values import priority
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.manage.changes import error_of

#: Maximum number of jobs in an error.
_SHOWN: Final = 10


def _retry(args: Namespace) -> Output:
    queue = existing_queue(args)
    given = {"state": args.state, "reset_attempts": args.reset_attempts}
    return _change(queue, args, [Change(job_id, "retry", **given) for job_id in selected_ids(args, queue)])


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
    if args.all and args.action == "remove":
        confirm(args, f"this removes {len(ids):,} jobs of queue {args.queue}", "yes")
    return _change(queue, args, [Change(job_id, args.action, **given) for job_id in ids])


def _state_of(action: str) -> str:
    """The state of the jobs that an action is for, if it is for one state; else failed."""
    wanted = ACTIONS[action].wanted
    return wanted if wanted in STATES else "failed"


def _change(queue: BullQueue, args: Namespace, changes: list[Change]) -> Output:
    """Changes the jobs. Raises an error for given ids that were not changed; jobs of --all are skipped."""
    done: Counter[bool] = Counter()
    errors: list[SparkBullError] = []
    for change, changed in zip(changes, queue.manage(changes), strict=True):
        done[changed.outcome == "done"] += 1
        if changed.outcome != "done" and not args.all:
            errors.append(error_of(queue.handle, changed, change.to))
    if errors and len(changes) == 1:
        raise errors[0]
    if errors:
        reasons = "; ".join(map(str, errors[:_SHOWN])) + ("; …" if len(errors) > _SHOWN else "")
        raise SparkBullError(f"succeeded for {done[True]} of {len(changes)} jobs, failed for the others: {reasons}")
    skipped = {"skipped": done[False]} if args.all else {}
    name = args.action if args.command == "manage" else args.command
    return {"done": name, "queue": args.queue, "jobs": done[True], **skipped}


def _add_retry_arguments(parser: ArgumentParser) -> None:
    add_selection_arguments(parser, ("failed", "completed"))
    parser.add_argument("--reset-attempts", action="store_true", help="count attempts from 0 again")


def _add_manage_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=list(ACTIONS), metavar="action", help=", ".join(ACTIONS))
    add_selection_arguments(parser, default=None, defaults="delayed for promote and delay, else failed")
    parser.add_argument("--data", metavar="JSON", help="the new payload")
    parser.add_argument("--delay", type=milliseconds, metavar="TIME", help="of delay: time until the jobs run: 30s, 5m")
    parser.add_argument(
        "--priority",
        type=lambda text: priority("priority", text),
        help="of prioritize: 1 is the highest, 0 none; or critical, high, medium, normal, low",
    )
    parser.add_argument("--lifo", action="store_true", help="of retry and prioritize: the jobs are the next ones")
    parser.add_argument("--reset-attempts", action="store_true", help="of retry: count attempts from 0 again")
    parser.add_argument("--reason", metavar="TEXT", help="of fail: why the jobs fail")
    parser.add_argument("--returnvalue", metavar="JSON", help="of complete: the result")
    parser.add_argument("--to", metavar="QUEUE", help="of move: the other queue")
    add_yes_argument(parser)


CHANGE: Final = (
    Command("retry", "retry failed or completed jobs", "retry mail --all", _retry, _add_retry_arguments),
    Command(
        "manage",
        "change jobs: retry, promote, delay, prioritize, update, remove, fail, complete or move them",
        """manage mail move --all --where "failedReason = 'timeout'" --to late""",
        _manage,
        _add_manage_arguments,
    ),
)

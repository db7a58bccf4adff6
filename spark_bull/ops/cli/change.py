"""`spark-bull retry` and `spark-bull manage`: change jobs that are given by id or selected by a condition in SQL."""

from __future__ import annotations

import json
import sqlite3
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from spark_bull.core.dialects.changes import ACTIONS
from spark_bull.core.dialects.fields import FIELDS, value_of
from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.model.jobs import STATES, Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.read import Chunk, read_jobs
from spark_bull.core.queue.manage.changes import error_of
from spark_bull.ops.cli.add import json_argument
from spark_bull.ops.cli.arguments import IDS, YES, Argument, argument, duration, flag, priority_or_name
from spark_bull.ops.cli.command import Deletion, Output, command, existing_queue

#: Columns of the condition: the columns of jobs as DataFrames.
_COLUMNS: Final = ("id", "state", *FIELDS)


def selection(
    states: tuple[str, ...] = STATES, *, default: str | None = "failed", defaults: str = "failed"
) -> tuple[Argument, ...]:
    """The arguments that select jobs.

    default: state of the jobs; None: the caller's. defaults: how the help describes it.
    """
    return (
        IDS,
        flag("--all", "all jobs of the state"),
        argument("--state", choices=states, default=default, help=f"state of the jobs (default: {defaults})"),
        argument(
            "--where",
            metavar="SQL",
            help="with --all: only jobs for which this is true, in SQL of SQLite over the columns of jobs: "
            """"failedReason LIKE '%%timeout%%' AND data ->> '$.to' = 'ada'"; times are ms since 1970""",
        ),
    )


def selected_ids(args: Namespace, queue: BullQueue) -> list[str]:
    """The ids of the selected jobs. Raises OptionError for contradicting arguments and for a wrong condition."""
    if bool(args.ids) == args.all:
        raise OptionError("expected either ids of jobs or --all, got both or neither")
    if args.where is not None and not args.all:
        raise OptionError("expected --all with --where, got ids of jobs")
    if not args.all:
        return list(args.ids)
    return list(_ids(queue, args.state) if args.where is None else _matching(queue, args.state, args.where))


def _ids(queue: BullQueue, state: str) -> Iterator[str]:
    for chunk in read_jobs(queue.handle, [state], ()):
        yield from (job_id.decode("utf-8", "replace") for job_id in chunk.ids)


def _matching(queue: BullQueue, state: str, condition: str) -> Iterator[str]:
    with sqlite3.connect(":memory:") as database:
        names = ", ".join(f'"{name}"' for name in _COLUMNS)
        database.execute(f"CREATE TABLE jobs ({names})")
        query = f"SELECT id FROM jobs WHERE ({condition}\n)"
        insert = f"INSERT INTO jobs VALUES ({', '.join('?' * len(_COLUMNS))})"
        try:
            database.execute(query)
            for chunk in read_jobs(queue.handle, [state], tuple(FIELDS)):
                database.execute("DELETE FROM jobs")
                database.executemany(insert, _rows(chunk))
                yield from (row[0] for row in database.execute(query))
        except sqlite3.Error as error:
            raise OptionError(
                f"expected --where to be a condition in SQL of SQLite over the columns {', '.join(_COLUMNS)}, got: "
                f"{condition!r} ({error})"
            ) from None


def _rows(chunk: Chunk) -> Iterator[tuple[Any, ...]]:
    columns = [[_plain(value_of(field, raw)) for raw in chunk.column(name)] for name, field in FIELDS.items()]
    ids = [job_id.decode("utf-8", "replace") for job_id in chunk.ids]
    yield from zip(ids, chunk.states, *columns, strict=True)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float)) else json.dumps(value)


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
            errors.append(error_of(queue.handle, changed, change))
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

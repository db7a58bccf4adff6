"""Commands that change jobs, which are given by id or selected by a condition in SQL."""

from __future__ import annotations

import json
import sqlite3
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from spark_bull.core.dialects.fields import FIELDS, value_of
from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.read import Chunk, read_jobs
from spark_bull.core.queue.manage.bulk import BulkChange, abort_change, end_of, matching_ids
from spark_bull.core.queue.manage.manage import error_of
from spark_bull.ops.cli.add import json_argument
from spark_bull.ops.cli.arguments import IDS, YES, Argument, argument, duration, flag, priority_or_name
from spark_bull.ops.cli.command import Command, Deletion, Output, command, existing_queue
from spark_bull.run.progress_line import ProgressLine

#: Columns of the condition: the columns of jobs as DataFrames.
_COLUMNS: Final = ("id", "state", *FIELDS)


def selection(states: tuple[str, ...] = STATES, *, state: str = "failed") -> tuple[Argument, ...]:
    """The arguments that select jobs. states: those that --state can name; of one, there is no choice."""
    which = argument("--state", choices=states, default=state, help=f"state of the jobs (default: {state})")
    return (
        IDS,
        flag("--all", "all jobs of the state"),
        *([which] if len(states) > 1 else ()),
        argument(
            "--where",
            metavar="SQL",
            help="with --all: only jobs for which this is true, in SQL of SQLite over the columns of jobs: "
            """"failedReason LIKE '%%timeout%%' AND data ->> '$.to' = 'ada'". Times are ms since 1970""",
        ),
    )


def _check_selection(args: Namespace) -> None:
    """Raises OptionError for contradicting arguments."""
    if bool(args.ids) == args.all:
        raise OptionError("expected either ids of jobs or --all, got both or neither")
    if args.where is not None and not args.all:
        raise OptionError("expected --all with --where, got ids of jobs")


def _matching(queue: BullQueue, state: str, condition: str) -> Iterator[list[str]]:
    """The ids of the jobs of a state that meet a condition, chunk by chunk. Raises OptionError for a wrong one."""
    database, names = sqlite3.connect(":memory:"), ", ".join(f'"{name}"' for name in _COLUMNS)
    database.execute(f"CREATE TABLE jobs ({names})")
    query = f"SELECT id FROM jobs WHERE ({condition}\n)"

    def found(rows: Iterable[tuple[Any, ...]]) -> list[str]:
        try:
            database.execute("DELETE FROM jobs")
            database.executemany(f"INSERT INTO jobs VALUES ({', '.join('?' * len(_COLUMNS))})", rows)
            return [row[0] for row in database.execute(query)]
        except sqlite3.Error as error:
            raise OptionError(
                f"expected --where to be a condition in SQL of SQLite over the columns {', '.join(_COLUMNS)}, got: "
                f"{condition!r} ({error})"
            ) from None

    # Before anything is read.
    found(())
    return (found(_rows(chunk)) for chunk in read_jobs(queue.handle, [state], tuple(FIELDS)))


def _rows(chunk: Chunk) -> Iterator[tuple[Any, ...]]:
    columns = [[_plain(value_of(field, raw)) for raw in chunk.column(name)] for name, field in FIELDS.items()]
    ids = [job_id.decode("utf-8", "replace") for job_id in chunk.ids]
    yield from zip(ids, chunk.states, *columns, strict=True)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float)) else json.dumps(value)


#: Maximum number of jobs in an error.
_SHOWN: Final = 10


#: What the arguments of a command are, in a Change.
_PROPERTIES: Final = ("data", "delay", "priority", "lifo", "reset_attempts", "failed_reason", "returnvalue", "to")


def change_selected(args: Namespace) -> Output:
    """Makes the change that has the name of the command, to all selected jobs. Removal is a Deletion."""
    _check_selection(args)
    queue, given = existing_queue(args), {name: vars(args).get(name) for name in _PROPERTIES}
    texts = {name: given[name] for name in ("data", "returnvalue")}
    given |= {name: json_argument(text, f"--{name}") for name, text in texts.items() if text is not None}
    change = Change("", args.command, state=args.state, **given)
    if not args.all:
        return _confirmed(args, len(args.ids), lambda: _changed(args, queue, change))
    found = _matching(queue, args.state, args.where) if args.where else matching_ids(queue.handle, args.state)
    if args.command != "remove" or args.yes:
        return _all_changed(args, queue, change, found)
    # The jobs that the question is about, and no others.
    counted = list(found)
    return _confirmed(args, sum(map(len, counted)), lambda: _all_changed(args, queue, change, counted))


def _confirmed(args: Namespace, jobs: int, make: Callable[[], Output]) -> Output:
    """Makes a change, unless it is a removal, which has to be confirmed."""
    what = f"{jobs:,} {'job' if jobs == 1 else 'jobs'} of queue {args.queue}"
    return Deletion(what, make) if args.command == "remove" else make()


def _changed(args: Namespace, queue: BullQueue, change: Change) -> Output:
    """Changes the jobs that the arguments name. Raises an error for jobs that were not changed."""
    changes = [replace(change, id=job_id) for job_id in args.ids]
    outcomes = zip(changes, queue.manage(changes), strict=True)
    errors = [error_of(queue.handle, changed, one) for one, changed in outcomes if changed.outcome != "done"]
    if errors and len(changes) == 1:
        raise errors[0]
    if errors:
        reasons = "; ".join(map(str, errors[:_SHOWN])) + ("; …" if len(errors) > _SHOWN else "")
        raise SparkBullError(
            f"succeeded for {len(changes) - len(errors)} of {len(changes)} jobs, failed for the others: {reasons}"
        )
    return {"done": args.command, "queue": queue.name, "jobs": len(changes)}


def _all_changed(args: Namespace, queue: BullQueue, change: Change, found: Iterable[Sequence[str]]) -> Output:
    """Changes the jobs that are found, and shows how far that is. Ctrl-C aborts the write."""
    bulk = BulkChange(queue.handle, change)
    line = ProgressLine(lambda: f"{args.command} {queue.name}: {bulk.done:,} of {bulk.found:,} jobs", interval_s=1.0)
    line.start()
    try:
        return _output(args, bulk.run(found))
    except KeyboardInterrupt:
        if record := abort_change(queue.handle, bulk.write_id):
            print(f"spark-bull {args.command}: {end_of(record)}", file=sys.stderr)
        raise
    finally:
        line.stop()


def _output(args: Namespace, record: WriteRecord) -> Output:
    """Raises SparkBullError for a write that another process has aborted."""
    if record.state == "aborted":
        raise SparkBullError(end_of(record))
    skipped = record.locked + record.wrong_state
    counts = {"jobs": record.changed, "skipped": skipped, "missing": record.missing}
    return {"done": args.command, "queue": args.queue, "writes": (record.id,), **counts}


def _change(name: str, help: str, example: str, *arguments: Argument, state: str = "failed") -> Command:
    """A command for each action of `mode=manage`. state: the jobs that --all selects unless --state does."""
    return command(name, help, f"{name} mail {example}", change_selected, *selection(state=state), *arguments)


_PRIORITY: Final = argument(
    "--priority",
    type=priority_or_name,
    required=True,
    help="1 is the highest, 0 none; or critical, high, medium, normal, low",
)
_LIFO: Final = flag("--lifo", "the jobs are the next ones")
_DATA: Final = argument("--data", metavar="JSON", required=True, help="the new payload")

COMMANDS: Final = (
    command(
        "retry",
        "retry failed or completed jobs",
        "retry mail --all",
        change_selected,
        *selection(("failed", "completed")),
        flag("--reset-attempts", "count attempts from 0 again"),
        _LIFO,
    ),
    _change(
        "delay",
        "let waiting or delayed jobs run later",
        "42 --for 1h",
        duration("--for", "time until the jobs run", dest="delay", required=True),
        state="delayed",
    ),
    _change("prioritize", "change the priority of jobs", "42 43 --priority high", _PRIORITY, _LIFO, state="wait"),
    _change("update", "change the payload of jobs", """42 --data '{"to": "ada"}'""", _DATA),
    _change(
        "move",
        "move jobs to another queue",
        """--all --where "failedReason = 'timeout'" --to late""",
        argument("--to", metavar="QUEUE", required=True, help="the other queue"),
    ),
    _change(
        "complete",
        "complete jobs without running them",
        "42",
        argument("--returnvalue", metavar="JSON", help="the result (default: null)"),
        state="wait",
    ),
    _change(
        "fail",
        "fail jobs without running them",
        "42 --reason 'not needed'",
        argument("--reason", dest="failed_reason", metavar="TEXT", required=True, help="their `failedReason`"),
        state="wait",
    ),
    _change("remove", "remove jobs", "42 43", YES),
    _change("free", "let others have the deduplication ids of jobs", "42", state="wait"),
    _change("discard-children", "remove the children of jobs that have not run", "42", state="waiting-children"),
)

"""The jobs that a command changes: given ids, or all jobs of a state for which a condition in SQL is true."""

from __future__ import annotations

import json
import sqlite3
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Final

from spark_bull.core.dialects.fields import FIELDS, value_of
from spark_bull.core.errors import OptionError
from spark_bull.core.model.jobs import STATES
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.read import Chunk, read_jobs
from spark_bull.ops.cli.arguments import IDS, Argument, argument, flag

#: Columns of the condition: those of jobs as DataFrames.
_COLUMNS: Final = ("id", "state", *FIELDS)


def selection(
    states: tuple[str, ...] = STATES, *, default: str | None = "failed", defaults: str = "failed"
) -> tuple[Argument, ...]:
    """The arguments that select jobs.

    default: state of the jobs; None: that of the caller. defaults: how the help describes it.
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

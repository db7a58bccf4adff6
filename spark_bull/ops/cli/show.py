"""Commands that show queues and jobs."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from spark_bull.core.errors import JobMissing, OptionError
from spark_bull.core.model.job_json import parsed
from spark_bull.core.model.jobs import STATES
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.handle.handle import DEFAULT_DEPTH, DEFAULT_JOBS, opening
from spark_bull.core.queue.jobs.read import BY, counting, counts
from spark_bull.core.queue.monitor.activity import QueueFilter, selecting
from spark_bull.core.queue.monitor.find import describing, find_queues, workers
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import RoundTrips, run_all
from spark_bull.ops.cli.arguments import (
    ID,
    QUEUES,
    argument,
    duration,
    flag,
    number,
    number_or_zero,
    positive_seconds,
    rate,
)
from spark_bull.ops.cli.command import (
    Output,
    check_exists,
    command,
    existing_handle,
    existing_queue,
    open_queue,
    options_of,
    queues_of,
)

if TYPE_CHECKING:
    from spark_bull.core.model.queues import WriteRecord
    from spark_bull.core.model.read_jobs import Job
    from spark_bull.core.queue.bull_queue import BullQueue


def _queues(args: Namespace) -> Output:
    options = options_of(args)
    connection = Connection(options.redis)
    found = _selected(args, find_queues(connection, options.prefix, args.glob))
    return run_all(connection, [_row(options, one) for one in found])


def _filter_of(args: Namespace) -> QueueFilter:
    rates = args.min_added_per_second, args.min_finished_per_second
    return QueueFilter(args.min_length, args.max_length, *rates, args.min_idle_ms)


def _selected(args: Namespace, queues: Sequence[str]) -> list[str]:
    """The queues that the filters select; without filters, all of them."""
    options, wanted = options_of(args), _filter_of(args)
    if wanted == QueueFilter():
        return [*queues]

    def fits(queue: str) -> RoundTrips[bool]:
        return (yield from selecting((yield from opening(options, queue)), wanted))

    fit = run_all(Connection(options.redis), [fits(queue) for queue in queues])
    return [queue for queue, is_selected in zip(queues, fit, strict=True) if is_selected]


def _no_queues(args: Namespace, names: Sequence[str]) -> str:
    filters = "" if _filter_of(args) == QueueFilter() else " with these filters"
    return f"no queues match {', '.join(names)}{filters}"


def _row(options: ReadOptions, queue: str) -> RoundTrips[dict[str, Any]]:
    handle = yield from opening(options, queue)
    summary, jobs = (yield from describing(handle)), (yield from counting(handle))
    return {"queue": queue, "protocol": handle.dialect.name, **asdict(summary), "jobs": sum(jobs.values())}


def _show_counts(args: Namespace) -> Output:
    """Returns the counts of each queue by state; with `by`, the counts of each value of the queue."""
    if args.watch is not None:
        if args.by is not None:
            raise OptionError("expected one of --watch and --by, got both")
        if _filter_of(args) != QueueFilter():
            raise OptionError("expected no filter of queues with --watch, got one: leave it out")
        from spark_bull.ops.cli.watch import watch

        return watch(args)
    queues = _selected(args, queues_of(args, args.queues))
    found = [one for queue in queues for one in _counts_of(args, queue)]
    if args.logical and args.by is None:
        found = [{"queue": ",".join(args.logical), "counts": _added_up([one["counts"] for one in found])}, *found]
    return found if args.json else _counts_in_table(found)


def _counts_of(args: Namespace, queue: str) -> list[dict[str, Any]]:
    if args.by is None:
        return [{"queue": queue, "counts": counts(existing_handle(args, queue))}]
    by_value = defaultdict[Any, dict[str, int]](dict)
    for state, values in existing_queue(args, queue).counts_by(args.by).items():
        for value, jobs in values.items():
            by_value[value][state] = jobs
    return [{"queue": queue, args.by: value, "counts": by_value[value]} for value in sorted(by_value)]


def _added_up(found: Sequence[Mapping[str, int]]) -> dict[str, int]:
    states = [state for state in STATES if any(state in counted for counted in found)]
    return {state: sum(counted.get(state, 0) for counted in found) for state in states}


def _counts_in_table(found: Sequence[dict[str, Any]]) -> Output:
    """Counts for people: a column per state; a line per state for a single queue."""
    states = _added_up([one["counts"] for one in found])
    rows = [{**one, **{state: one["counts"].get(state) for state in states}, "counts": None} for one in found]
    return rows[0] if len(rows) == 1 else rows


def _page(args: Namespace) -> Output:
    return [_short(job) for job in _page_of(args)]


def _page_of(args: Namespace) -> list[Job]:
    queue = existing_queue(args)
    return queue.page(args.state, args.start, args.stop, name=args.name, descending=args.descending)


def _no_jobs(args: Namespace) -> str:
    named = f" named {args.name}" if args.name else ""
    return f"no {args.state} jobs{named} in {args.queue}" + (f" from position {args.start} on" if args.start else "")


def _short(job: Job) -> dict[str, Any]:
    shown = ("id", "name", "attempts_made", "timestamp", "run_at", "finished_on", "priority", "failed_reason", "data")
    whole = parsed(job)
    return {name: whole[name] for name in shown}


def _job(args: Namespace) -> Output:
    job = existing_queue(args).job(args.id)
    if job is None:
        raise _job_missing(args)
    return parsed(job)


def _job_missing(args: Namespace) -> JobMissing:
    return JobMissing(f"expected job {args.id} in queue {args.queue}, found none", queue=args.queue, job_id=args.id)


def _flow(args: Namespace) -> Output:
    found = existing_queue(args).get_flow(args.id, args.max_depth, args.max_jobs)
    if found is None:
        raise _job_missing(args)
    return [
        {
            "depth": node.depth,
            "queue": node.queue,
            "id": node.id,
            "name": node.job and node.job.name,
            "state": node.job and node.job.state,
            "parent_queue": node.parent_queue,
            "parent_id": node.parent_id,
            "dependency": node.dependency,
            "child_count": node.child_count,
        }
        for node in found.walk()
    ]


def _logs(args: Namespace) -> Output:
    queue = existing_queue(args)
    rows = queue.logs(args.id)
    if not rows and queue.job(args.id) is None:
        raise _job_missing(args)
    return rows


def _workers(args: Namespace) -> Output:
    """Lists workers, also of a queue without jobs, which does not exist yet."""
    handle = open_queue(args).handle
    found = [asdict(worker) for worker in workers(handle.connection, handle.keys)]
    if not found:
        check_exists(args, handle)
    return found


def _writes(args: Namespace) -> Output:
    queue = open_queue(args)
    return records_of(args, queue, queue.writes(args.limit or None))


def records_of(args: Namespace, queue: BullQueue, records: list[WriteRecord]) -> Output:
    """Returns the rows of a queue's writes. Raises SparkBullError as `check_exists` if there are none."""
    if not records:
        check_exists(args, queue.handle)
    return [{**asdict(record), "duration_ms": record.duration_ms} for record in records]


_FILTERS: Final = (
    argument(
        "--min-length",
        type=number,
        metavar="JOBS",
        help="only queues with at least JOBS jobs that are not active and have not ended",
    ),
    argument("--max-length", type=number, metavar="JOBS", help="only queues with at most JOBS such jobs"),
    argument(
        "--min-added-per-second",
        type=rate,
        metavar="JOBS",
        help="only queues to which at least JOBS jobs per second were added in the last minute (BullMQ)",
    ),
    argument(
        "--min-finished-per-second",
        type=rate,
        metavar="JOBS",
        help="only queues of which at least JOBS jobs per second have ended in the last minute",
    ),
    duration("--min-idle", "only queues in which nothing has happened for so long", dest="min_idle_ms"),
)

COMMANDS: Final = (
    command(
        "queues",
        "list queues",
        "queues 'mail*'",
        _queues,
        argument("glob", nargs="?", default="*", help="glob of queues (default: all)"),
        *_FILTERS,
        of_queue=False,
        empty=lambda args: _no_queues(args, [args.glob]),
    ),
    command(
        "counts",
        "count the jobs of queues by state",
        "counts mail 'report-*'",
        _show_counts,
        QUEUES,
        argument("--by", choices=BY, help="also count by priority, or by name"),
        duration(
            "--watch",
            "count again and again, with rates, until Ctrl-C; the interval is 2s, or the given one",
            type=positive_seconds,
            nargs="?",
            const=2.0,
        ),
        *_FILTERS,
        of_queue=False,
        empty=lambda args: _no_queues(args, args.queues),
    ),
    command(
        "page",
        "list jobs of a state",
        "page mail failed 0 49",
        _page,
        argument("state", choices=STATES),
        argument("start", type=number, nargs="?", default=0, help="first position (default: 0)"),
        argument(
            "stop",
            type=number,
            nargs="?",
            default=19,
            help="last position, inclusive (default: 19); -1 is the last job",
        ),
        argument("--name", help="only jobs of this name"),
        flag("--descending", "in the reverse order, the newest jobs first"),
        empty=_no_jobs,
    ),
    command("job", "show one job", "job mail 42 --json", _job, ID),
    command(
        "flow",
        "show a job of BullMQ with its children, and theirs",
        "flow books 42",
        _flow,
        ID,
        argument("--max-depth", type=number, default=DEFAULT_DEPTH, metavar="LEVELS", help="maximum number of levels"),
        argument("--max-jobs", type=number, default=DEFAULT_JOBS, metavar="JOBS", help="maximum number of jobs"),
    ),
    command(
        "logs",
        "show the log of a job",
        "logs mail 42",
        _logs,
        ID,
        empty=lambda args: f"job {args.id} of {args.queue} has no log",
    ),
    command(
        "workers",
        "list the connected workers of a queue",
        "workers mail",
        _workers,
        empty=lambda args: f"no workers of {args.queue} are connected",
    ),
    command(
        "writes",
        "list Spark's writes of the last 30 days",
        "writes mail",
        _writes,
        argument(
            "--limit",
            type=number_or_zero,
            default=50,
            metavar="WRITES",
            help="maximum number of writes, the newest ones and the unfinished ones (default: 50; 0: all)",
        ),
        empty=lambda args: f"no writes to {args.queue} in the last 30 days",
    ),
)

"""Commands that modify queues and jobs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Final

from spark_bull.cli.change import CHANGE
from spark_bull.cli.command import Command, Output, existing_queue, open_queue
from spark_bull.cli.confirm import add_yes_argument, confirm
from spark_bull.cli.show import records_of
from spark_bull.cli.times import milliseconds
from spark_bull.errors import JobError, SparkBullError
from spark_bull.model.jobs import STATES
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.dispatch.writes import advance_all


def _run(action: Callable[[BullQueue], None]) -> Callable[[Namespace], Output]:
    def run(args: Namespace) -> Output:
        action(existing_queue(args))
        return {"done": args.command, "queue": args.queue}

    return run


def _open_intake(args: Namespace) -> Output:
    # A queue whose intake was closed may not exist any more.
    open_queue(args).open_intake()
    return {"done": args.command, "queue": args.queue}


def _remove(args: Namespace) -> Output:
    _each(args.ids, existing_queue(args).remove)
    return {"done": "remove", "queue": args.queue, "jobs": len(args.ids)}


def _each(ids: Sequence[str], action: Callable[[str], None]) -> None:
    """Calls `action` for each job. Raises the error of a single job, else SparkBullError with all errors."""
    errors: list[JobError] = []
    for job_id in ids:
        try:
            action(job_id)
        except JobError as error:
            errors.append(error)
    if len(ids) == 1 and errors:
        raise errors[0]
    if errors:
        reasons = "; ".join(map(str, errors))
        raise SparkBullError(
            f"succeeded for {len(ids) - len(errors)} of {len(ids)} jobs, failed for the others: {reasons}"
        )


def _cancel(args: Namespace) -> Output:
    existing_queue(args).cancel(args.id, args.reason)
    return {"done": "cancel", "queue": args.queue, "job": args.id}


def _clean(args: Namespace) -> Output:
    removed = existing_queue(args).clean(args.grace, args.limit, args.state)
    return {"removed": len(removed), "state": args.state}


def _drain(args: Namespace) -> Output:
    queue = existing_queue(args)
    which = "all waiting and delayed jobs" if args.delayed else "all waiting jobs"
    confirm(args, f"drain removes {which} of queue {args.queue}", "yes")
    return {"removed": queue.drain(delayed=args.delayed)}


def _obliterate(args: Namespace) -> Output:
    queue = existing_queue(args)
    confirm(args, f"obliterate deletes queue {args.queue} with all its jobs", args.queue)
    queue.obliterate(force=args.force)
    return {"done": "obliterate", "queue": args.queue}


def _recover(args: Namespace) -> Output:
    queue = open_queue(args)
    # Those that wait for room, too: their state is `open`.
    return records_of(queue, advance_all(queue.handle))


def _add_ids_arguments(parser: ArgumentParser, nargs: str = "+") -> None:
    parser.add_argument("ids", metavar="id", nargs=nargs, help="ids of jobs")


def _add_cancel_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", help="id of the job")
    parser.add_argument("--reason", metavar="TEXT", help="why, for its `failedReason` (default: none)")


def _add_clean_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--state", choices=STATES, default="completed", help="state of the jobs (default: completed)")
    parser.add_argument(
        "--grace",
        type=milliseconds,
        default=0,
        metavar="TIME",
        help="minimum age of the jobs: 30s, 5m, 2h, 1d (default: 0)",
    )
    parser.add_argument("--limit", type=int, default=0, help="maximum number of jobs (default: 0, all)")


def _add_drain_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--delayed", action="store_true", help="also remove delayed jobs")
    add_yes_argument(parser)


def _add_obliterate_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="even if jobs are active")
    add_yes_argument(parser)


MANAGE: Final = (
    Command("pause", "pause a queue: workers claim no jobs", "pause mail", _run(BullQueue.pause)),
    Command("resume", "resume a paused queue", "resume mail", _run(BullQueue.resume)),
    Command(
        "close-intake",
        "let a queue accept no jobs from Spark and this command; workers go on",
        "close-intake mail",
        _run(BullQueue.close_intake),
    ),
    Command("open-intake", "let a queue accept jobs again", "open-intake mail", _open_intake),
    *CHANGE,
    Command(
        "cancel", "end an active job of a Spark worker: it fails", "cancel mail 42", _cancel, _add_cancel_arguments
    ),
    Command("remove", "remove jobs", "remove mail 42 43", _remove, _add_ids_arguments),
    Command("clean", "remove old jobs of a state", "clean mail --grace 1d", _clean, _add_clean_arguments),
    Command("drain", "remove all waiting jobs", "drain mail --delayed", _drain, _add_drain_arguments),
    Command(
        "obliterate", "delete a queue with all its jobs", "obliterate mail", _obliterate, _add_obliterate_arguments
    ),
    Command("recover", "complete writes that were interrupted in their commit", "recover mail", _recover),
)

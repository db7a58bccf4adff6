"""Waits for jobs: the exit status tells an orchestrator what has become of them."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from dataclasses import asdict
from typing import Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import JobFailed, OptionError, WaitTimeout
from spark_bull.core.model.jobs import NOT_STARTED
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.write_records import read_record
from spark_bull.core.queue.dispatch.written import PAUSE_S
from spark_bull.ops.cli.arguments import argument, duration, flag, positive_seconds
from spark_bull.ops.cli.command import Exit, Output, command, existing_queue
from spark_bull.ops.cli.status import FAILED, UNKNOWN, NotFound

_PENDING: Final = NOT_STARTED - {"delayed"} | {"active"}
#: Reasons that are shown.
_REASONS: Final = 10


def _wait(args: Namespace) -> Output:
    if sum((args.write is not None, args.job is not None, args.idle)) != 1:
        raise OptionError("expected one of --write, --job and --idle")
    queue = existing_queue(args)
    if args.idle:
        return _wait_until_idle(queue, args.timeout)
    return _wait_for_write(queue, args) if args.write is not None else _wait_for_job(queue, args)


def _wait_for_write(queue: BullQueue, args: Namespace) -> Output:
    if read_record(queue.handle, args.write) is None:
        raise NotFound(
            f"no such write to {queue.name}: {args.write}; `spark-bull writes {args.queue}` lists the newest"
        )
    end = asdict(queue.wait_for_write(args.write, args.timeout))
    reasons = end.pop("reasons")
    output = {"queue": args.queue, "write": args.write, **end}
    if end["failed"]:
        return Exit(output | {"reasons": dict(list(reasons.items())[:_REASONS])}, FAILED)
    return Exit(output, UNKNOWN) if end["unknown"] else output


def _wait_for_job(queue: BullQueue, args: Namespace) -> Output:
    output = {"queue": args.queue, "job": args.job}
    try:
        return output | {"returnvalue": queue.wait(args.job, args.timeout)}
    except JobFailed as error:
        return Exit(output | {"reason": error.reason}, FAILED)


def _wait_until_idle(queue: BullQueue, timeout_s: float | None) -> Output:
    end_at = math.inf if timeout_s is None else monotonic_s() + timeout_s
    # A job that changes its state between two counts is missed once.
    while pending := _pending(queue) or _pending(queue):
        left_s = end_at - monotonic_s()
        if left_s <= 0:
            raise WaitTimeout(
                f"expected queue {queue.name} to be idle within {timeout_s:g} s, got {pending}: wait longer, or see "
                "whether a worker processes the queue",
                queue=queue.name,
                job_id="",
            )
        time.sleep(min(left_s, PAUSE_S))
    return {"queue": queue.name, **queue.counts()}


def _pending(queue: BullQueue) -> dict[str, int]:
    return {state: count for state, count in queue.counts().items() if count and state in _PENDING}


COMMANDS = (
    command(
        "wait",
        "wait for jobs to end; the exit status tells how",
        "wait mail --idle --timeout 2h",
        _wait,
        argument(
            "--write",
            metavar="ID",
            help="the jobs of a write of Spark to the queue; `writes` lists the ids",
        ),
        argument("--job", metavar="ID", help="one job, such as the parent of others"),
        flag("--idle", "all jobs that wait or run; delayed ones do not count"),
        duration("--timeout", "how long to wait: 30s, 5m, 2h; default: unlimited", type=positive_seconds),
    ),
)

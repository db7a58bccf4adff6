"""The command that plans servers, cores and memory for a number of jobs, without Redis and Spark."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from dataclasses import asdict
from typing import Final

from spark_bull.capacity.costs import COMPACT_UP_TO
from spark_bull.capacity.model import USE, Load, Plan, plan
from spark_bull.cli.arguments import argument, duration
from spark_bull.cli.command import Output, command
from spark_bull.cli.sizes import positive, size, size_text
from spark_bull.cli.times import milliseconds

#: The memory of a server, if none is given.
_MEMORY: Final = "16GB"


def _plan(args: Namespace) -> Output:
    load = Load(
        jobs_per_day=args.jobs_per_day,
        peak=args.peak,
        payload=args.payload,
        job_s=args.job_time / 1e3,
        backlog_s=args.backlog / 1e3,
        keep_s=args.keep / 1e3,
        trigger_s=args.trigger / 1e3,
        memory=args.memory,
        compact_up_to=args.hash_max_listpack_value,
        executor_cores=args.executor_cores,
    )
    found = plan(load)
    return {"load": asdict(load), "plan": asdict(found)} if args.json else _lines(load, found)


def _lines(load: Load, found: Plan) -> dict[str, str]:
    limits = (f"{name} at {times:,.3g} x" for name, times in found.limits.items())
    return {
        "jobs": f"{load.average:,.0f}/s on average, {load.highest:,.0f}/s at the peak",
        "servers": f"{found.shards}, one shard each, at most {USE:.0%} busy",
        "Redis' CPU": f"{found.redis_cores:.2f} cores",
        "Redis' memory": f"{size_text(found.memory)} of {size_text(found.shards * load.memory)}",
        "Redis' network": f"{size_text(found.network)}/s",
        "executors": f"{found.executors} of {load.executor_cores} cores, at most {USE:.0%} busy",
        "Python's CPU": f"{found.python_cores:.2f} cores, {found.driver_cores:.2f} of them the driver's commit",
        "JVM's CPU": f"{found.jvm_cores:.2f} cores",
        "slots": f"{found.slots:,.1f} calls of the processor at the same time",
        "first limits": "one server or driver carries this load up to " + ", ".join(limits),
    }


def _positive_size(text: str) -> int:
    found = size(text)
    if not found:
        raise ArgumentTypeError(f"expected a size above 0, got: {text!r}")
    return found


def _positive_time(text: str) -> int:
    found = milliseconds(text)
    if not found:
        raise ArgumentTypeError(f"expected a time above 0, got: {text!r}")
    return found


def _cores(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"expected a number of cores, got: {text!r}")
    return int(text)


PLAN: Final = command(
    "plan",
    "say how many servers, cores and how much memory a number of jobs needs, by measured costs",
    "plan --jobs-per-day 1e8 --peak 5 --payload 1kB",
    _plan,
    argument("--jobs-per-day", type=positive, metavar="JOBS", required=True, help="jobs that are dispatched in a day"),
    argument("--peak", type=positive, default=1.0, metavar="X", help="highest rate, x the average (default: 1)"),
    argument("--payload", type=size, default=1_000, metavar="SIZE", help="JSON of a job: 200B, 1kB (default: 1kB)"),
    duration("--job-time", "how long the processor takes for a job (default: 0)", default=0),
    duration("--backlog", "how long jobs at the peak may wait (default: 1h)", type=_positive_time, default=3_600_000),
    duration("--keep", "how long completed jobs stay (default: 1h)", default=3_600_000),
    duration("--trigger", "interval of micro-batches (default: 10s)", type=_positive_time, default=10_000),
    argument(
        "--memory",
        type=_positive_size,
        default=size(_MEMORY),
        metavar="SIZE",
        help=f"memory of a server (default: {_MEMORY})",
    ),
    argument(
        "--hash-max-listpack-value",
        type=size,
        default=COMPACT_UP_TO,
        metavar="SIZE",
        help=f"as in redis.conf: the longest payload in compact form (default: {COMPACT_UP_TO}B)",
    ),
    argument("--executor-cores", type=_cores, default=4, metavar="CORES", help="cores of an executor (default: 4)"),
    of_queue=False,
)

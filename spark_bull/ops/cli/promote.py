"""`spark-bull promote`: promotes given jobs, or runs a Promoter."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict
from typing import Final

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import shard
from spark_bull.ops.cli.arguments import (
    GUARDING,
    argument,
    duration,
    flag,
    guards_of,
    number,
    positive_milliseconds,
    priority_or_name,
)
from spark_bull.ops.cli.change import change_selected, selection
from spark_bull.ops.cli.command import Output, command, options_of, say_missing, until_interrupted
from spark_bull.run.services.promoter import Promoter, PromoterStats

#: Interval at which changed counters are printed.
_REPORT_INTERVAL_S: Final = 5.0


def _promote(args: Namespace) -> Output:
    if args.ids or args.all:
        if args.shards is not None:
            raise OptionError(f"expected the name of a shard, such as {shard(args.queue, 0)}, with jobs, got --shards")
        args.state = "delayed"
        return change_selected(args)
    promoter = Promoter(
        args.url,
        [args.queue],
        rescue=not args.no_rescue,
        ageing=None if args.age_after is None else {"after_ms": args.age_after, "priority": args.age_priority},
        guards=guards_of(args, [args.queue]),
        check_ms=args.check,
        max_stalled=args.max_stalled,
        prefix=args.prefix,
        scan_keys=not args.no_scan,
        protocol=args.protocol,
        shards=args.shards,
    )
    say_missing(args, options_of(args), [args.queue])
    return asdict(promoter.once() if args.once else _until_interrupted(promoter))


def _until_interrupted(promoter: Promoter) -> PromoterStats:
    """Runs until SIGINT or SIGTERM, and prints the counters when they change."""
    reported = promoter.done
    with until_interrupted(), promoter:
        while not promoter.await_termination(_REPORT_INTERVAL_S):
            if promoter.done != reported:
                reported = promoter.done
                print(", ".join(f"{name} {count:,}" for name, count in asdict(reported).items()), file=sys.stderr)
    return promoter.done


COMMANDS: Final = (
    command(
        "promote",
        "promote due jobs and rescue stalled ones; or given jobs",
        "promote mail",
        _promote,
        argument("queue", nargs="?", default="*", help="name or glob of queues (default: all)"),
        *selection(("delayed",)),
        flag("--once", "promote and rescue what is due, then exit"),
        flag("--no-rescue", "do not rescue stalled jobs"),
        duration(
            "--check",
            "interval of the check for stalled jobs (default: 30s)",
            default=30_000,
            type=positive_milliseconds,
        ),
        argument("--max-stalled", type=number, default=1, help="stalls after which a job fails (default: 1)"),
        duration("--age-after", "give jobs that have waited so long a higher priority", type=positive_milliseconds),
        argument(
            "--age-priority",
            type=priority_or_name,
            default="critical",
            help="the priority that they get: 1 is the highest; or critical (default), high, medium, normal, low",
        ),
        *GUARDING,
        of_queue=False,
    ),
)

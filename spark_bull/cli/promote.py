"""`spark-bull promote`: promotes one delayed job, or runs a Promoter."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Final

from spark_bull.cli.command import Command, Output, existing_queue
from spark_bull.cli.interrupt import sigterm_as_sigint
from spark_bull.cli.times import milliseconds
from spark_bull.options.values import priority
from spark_bull.services.promoter import Promoter, PromoterStats

#: Interval at which changed counters are printed.
_REPORT_INTERVAL_S: Final = 5.0


def _add_promote_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", default="*", help="name or glob of queues (default: all)")
    parser.add_argument("id", nargs="?", help="id of a delayed job to promote now")
    parser.add_argument("--once", action="store_true", help="promote and rescue what is due, then exit")
    parser.add_argument("--no-rescue", action="store_true", help="do not rescue stalled jobs")
    parser.add_argument(
        "--check",
        type=milliseconds,
        default=30_000,
        metavar="TIME",
        help="interval of the check for stalled jobs (default: 30s)",
    )
    parser.add_argument(
        "--max-stalled", type=int, default=1, help="how often a job may stall before it fails (default: 1)"
    )
    parser.add_argument(
        "--age-after",
        type=milliseconds,
        metavar="TIME",
        help="give jobs that have waited for so long a higher priority",
    )
    parser.add_argument(
        "--age-priority",
        type=lambda text: priority("priority", text),
        default="critical",
        help="the priority that they get: 1 is the highest; or critical (default), high, medium, normal, low",
    )


def _promote(args: Namespace) -> Output:
    if args.id is not None:
        existing_queue(args).promote(args.id)
        return {"done": "promote", "queue": args.queue}
    promoter = Promoter(
        args.url,
        [args.queue],
        rescue=not args.no_rescue,
        ageing=None if args.age_after is None else {"after": args.age_after, "priority": args.age_priority},
        check_ms=args.check,
        max_stalled=args.max_stalled,
        prefix=args.prefix,
        protocol=args.protocol,
    )
    return asdict(promoter.once() if args.once else _until_interrupted(promoter))


def _until_interrupted(promoter: Promoter) -> PromoterStats:
    """Runs until SIGINT or SIGTERM, and prints the counters when they change."""
    sigterm_as_sigint()
    reported = promoter.done
    with promoter:
        try:
            while not promoter.await_termination(_REPORT_INTERVAL_S):
                if promoter.done != reported:
                    reported = promoter.done
                    print(", ".join(f"{name} {count:,}" for name, count in asdict(reported).items()), file=sys.stderr)
        except KeyboardInterrupt:
            pass
    return promoter.done


PROMOTE: Final = Command(
    "promote",
    "promote delayed jobs when they are due and rescue stalled ones, until Ctrl-C; or promote one job (ID) now",
    "promote mail",
    _promote,
    _add_promote_arguments,
    of_queue=False,
)

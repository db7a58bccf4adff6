"""`spark-bull promote`: one delayed job now, or all of them when they are due, for as long as it runs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Final

from spark_bull.cli.command import Command, Found, existing_queue
from spark_bull.cli.interrupt import sigterm_is_ctrl_c
from spark_bull.cli.times import milliseconds
from spark_bull.services.promoter import Promoter, PromoterStats

#: How often the command says what it has done, if that is anything new.
_REPORT_INTERVAL_S: Final = 5.0


def _takes_promote(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", default="*", help="name or glob (all queues)")
    parser.add_argument("id", nargs="?", help="let this delayed job run now, and end")
    parser.add_argument("--once", action="store_true", help="do what is due now, and end")
    parser.add_argument("--no-rescue", action="store_true", help="leave jobs alone whose worker is gone")
    parser.add_argument(
        "--check", type=milliseconds, default=30_000, metavar="TIME", help="how often to look for those (30s)"
    )
    parser.add_argument("--max-stalled", type=int, default=1, help="how often a job may lose its worker (1)")


def _promote(args: Namespace) -> Found:
    if args.id is not None:
        existing_queue(args).promote(args.id)
        return {"done": "promote", "queue": args.queue}
    promoter = Promoter(
        args.url,
        [args.queue],
        rescue=not args.no_rescue,
        check_ms=args.check,
        max_stalled=args.max_stalled,
        prefix=args.prefix,
        protocol=args.protocol,
    )
    return asdict(promoter.once() if args.once else _until_interrupted(promoter))


def _until_interrupted(promoter: Promoter) -> PromoterStats:
    """Runs until Ctrl-C or SIGTERM, and says now and then what it has done."""
    sigterm_is_ctrl_c()
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
    "let delayed jobs run when they are due, for as long as this runs; or one job (ID) now",
    "promote mail",
    _promote,
    _takes_promote,
    of_queue=False,
)

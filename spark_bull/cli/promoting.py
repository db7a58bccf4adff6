"""`spark-bull promote`: one delayed job now, or all of them when they are due, for as long as it runs."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from types import FrameType
from typing import Any, Final

from spark_bull.queue.bull_queue import BullQueue
from spark_bull.services.promoter import Promoter, PromoterStats

#: How often the command says what it has done, if that is anything new.
_TELL_S: Final = 5.0


def takes_promote(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", default="*", help="name or glob (all queues)")
    parser.add_argument("id", nargs="?", help="let this delayed job run now, and end")
    parser.add_argument("--once", action="store_true", help="do what is due now, and end")
    parser.add_argument("--no-rescue", action="store_true", help="leave jobs alone whose worker is gone")
    parser.add_argument("--check", type=int, default=30_000, metavar="MS", help="how often to look for those (30000)")
    parser.add_argument("--max-stalled", type=int, default=1, help="how often a job may lose its worker (1)")


def promote(args: Namespace) -> Any:
    if args.id is not None:
        BullQueue(args.queue, url=args.url, prefix=args.prefix, protocol=args.protocol).promote(args.id)
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

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    told = promoter.done
    with promoter:
        try:
            while not promoter.await_termination(_TELL_S):
                if promoter.done != told:
                    told = promoter.done
                    print(", ".join(f"{name} {count:,}" for name, count in asdict(told).items()), file=sys.stderr)
        except KeyboardInterrupt:
            pass
    return promoter.done

"""`spark-bull reshard`: changes the number of shards of a logical queue."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Final

from spark_bull.core.errors import OptionError
from spark_bull.core.options.values import AUTO
from spark_bull.core.queue.shards.reshard import Draining, reshard
from spark_bull.ops.cli.command import Output, command, options_of


def _reshard(args: Namespace) -> Output:
    if args.shards in (None, AUTO):
        raise OptionError("expected --shards with a number, the one that the queue is to have, got none")
    shown: list[str] = []

    def show(left: Draining) -> None:
        if str(left) not in shown[-1:]:
            shown.append(str(left))
            print(f"waiting for the present shards of {args.queue}, which have {left}", file=sys.stderr, flush=True)

    layout = reshard(options_of(args), args.queue, int(args.shards), show)
    return {"queue": layout.queue, "shards": layout.count}


RESHARD: Final = command(
    "reshard",
    "change the number of shards of a queue, once its shards have no unfinished jobs; new writes wait until then",
    "reshard mail --shards 16",
    _reshard,
)

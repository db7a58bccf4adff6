"""Programs with guards, to be run in a process of their own and ended: a promoter, and the command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from spark_bull.cli.main import main
from spark_bull.model.guards import Guard
from spark_bull.services.promoter import Promoter


def run(url: str, prefix: str, guard: Guard) -> None:
    with Promoter(url, ["q"], prefix=prefix, guards=guard) as promoter:
        promoter.await_termination()


def command(arguments: Sequence[str]) -> None:
    sys.exit(main(arguments))

"""A promoter with a guard, to be run in a process of its own and killed."""

from __future__ import annotations

from spark_bull.model.guards import Guard
from spark_bull.services.promoter import Promoter


def run(url: str, prefix: str, guard: Guard) -> None:
    with Promoter(url, ["q"], prefix=prefix, guards=guard) as promoter:
        promoter.await_termination()

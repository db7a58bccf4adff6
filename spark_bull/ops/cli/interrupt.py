"""Signal handling."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from spark_bull.run.job.interrupts import Terminated


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Lets SIGINT and SIGTERM end what runs within: the regular way to stop it."""
    sigterm_as_sigint()
    with suppress(KeyboardInterrupt):
        yield


def sigterm_as_sigint() -> None:
    """Makes SIGTERM raise KeyboardInterrupt, as SIGINT does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, interrupt)

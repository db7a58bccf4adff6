"""Signal handling."""

from __future__ import annotations

import signal
from types import FrameType

from spark_bull.worker.job.interrupts import Terminated


def sigterm_as_sigint() -> None:
    """Makes SIGTERM raise KeyboardInterrupt, as SIGINT does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, interrupt)

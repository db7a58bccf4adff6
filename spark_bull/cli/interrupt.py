"""Being told to stop."""

from __future__ import annotations

import signal
from types import FrameType


def sigterm_is_ctrl_c() -> None:
    """From now on SIGTERM ends the program as Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)

"""Ctrl-C while the main thread is in a function."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from inspect import unwrap
from typing import Any

from tests.support.wait import wait_until


def interrupt_in(function: Callable[..., Any]) -> None:
    """Sends SIGINT, from another thread, once the calling thread is in this function."""
    waiting = threading.get_ident()

    def is_in_function() -> bool:
        frame = sys._current_frames().get(waiting)
        while frame is not None and frame.f_code is not unwrap(function).__code__:
            frame = frame.f_back
        return frame is not None

    def interrupt() -> None:
        wait_until(is_in_function, "the main thread to be in the function")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()

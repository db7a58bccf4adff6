"""Acts while the main thread is in a function, such as Ctrl-C."""

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
    call_in(function, lambda: os.kill(os.getpid(), signal.SIGINT))


def call_in(function: Callable[..., Any], act: Callable[[], object]) -> None:
    """Calls `act`, in another thread, once the calling thread is in this function."""
    waiting = threading.get_ident()

    def is_in_function() -> bool:
        frame = sys._current_frames().get(waiting)
        while frame is not None and frame.f_code is not unwrap(function).__code__:
            frame = frame.f_back
        return frame is not None

    def wait_and_act() -> None:
        wait_until(is_in_function, "the main thread to be in the function")
        act()

    threading.Thread(target=wait_and_act, daemon=True).start()

"""Distinguishes a SIGINT that the process received from a KeyboardInterrupt that a processor raised.

The former ends the slot; the latter fails one job, as any other exception does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final

_received: Final = Event()


@contextmanager
def recording_interrupts() -> Iterator[None]:
    """Records a SIGINT in this block, then calls the previous handler. Has no effect outside the main thread."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return

    def record(number: int, frame: FrameType | None) -> None:
        _received.set()
        previous(number, frame)

    _received.clear()
    signal.signal(signal.SIGINT, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if the process has received a SIGINT, even if the first one was swallowed."""
    if _received.is_set():
        _received.clear()
        raise KeyboardInterrupt


@contextmanager
def exiting_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM raise SystemExit in this block, so that `with` and `finally` take effect.

    Has no effect outside the main thread, or if the program handles SIGTERM itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def exit_program(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, exit_program)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

"""Tells a SIGINT that the process received from a KeyboardInterrupt that a processor raised by itself.

The former ends the slot; the latter is the outcome of one job, as any exception is.
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
def watching_interrupts() -> Iterator[None]:
    """Notes in this block that a SIGINT arrives, then does what was to be done. Nothing outside the main thread."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        _received.set()
        previous(number, frame)

    _received.clear()
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt when the process has received a SIGINT, whatever became of the one raised then."""
    if _received.is_set():
        _received.clear()
        raise KeyboardInterrupt

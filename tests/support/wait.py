"""Waiting for effects of other threads, processes or servers, and acting or working in another thread."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from inspect import unwrap
from typing import Any, TypeVar

T = TypeVar("T")
Self = TypeVar("Self", bound="Background")

#: Time limit of all waits, s: says nothing about speed, only ends tests that hang.
PATIENCE_S = 600.0
#: The shortest and the longest time between two looks, s: a wait that looks often takes CPU from what it waits for.
OFTEN_S, SELDOM_S = 0.01, 0.1


def wait_until(condition: Callable[[], T], what: str, timeout: float = PATIENCE_S) -> T:
    """Polls until the condition is truthy, and returns its value. `what` names the condition in the error."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"waited {timeout:g} s for {what}; last seen: {found!r}")
        time.sleep(min(max(waited / 20, OFTEN_S), SELDOM_S))
    return found


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


class Background:
    """Work of a test: does `work` in a thread until the block is left, which raises the error of the thread."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def work(self) -> None:
        """Returns soon after `stopping` is set."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits until the work has ended. Raises its error."""
        self.stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"expected {type(self).__name__} to stop"
        if self.error is not None:
            raise self.error

    def __enter__(self: Self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

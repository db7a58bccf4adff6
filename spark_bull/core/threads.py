"""The threads of this package."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
Self = TypeVar("Self", bound="PollingThread")


class DaemonThread(Thread):
    """A thread that no process waits for at its exit. Its name begins with `spark-bull-`.

    Python before 3.13 takes a thread for ended when Ctrl-C interrupts a join() of it; this one is alive until it ends.
    """

    def __init__(self, name: str, target: Callable[[], object]) -> None:
        super().__init__(target=target, name=f"spark-bull-{name}", daemon=True)
        self._over = Event()

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._over.set()

    def is_alive(self) -> bool:
        return self.ident is not None and not self._over.is_set()

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self._over.wait(timeout)
        else:
            super().join(timeout)


def started(name: str, function: Callable[[], T]) -> Future[T]:
    """Calls a function in a DaemonThread with this name; returns the Future of its result."""
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    DaemonThread(name, run).start()
    return future


class PollingThread(DaemonThread):
    """Calls `poll` at an interval in a block, until it returns True."""

    def __init__(self, name: str, interval_s: float) -> None:
        super().__init__(name, self._repeat)
        self._interval_s = interval_s
        self._stopping = Event()

    def poll(self) -> bool:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(1)

    def _repeat(self) -> None:
        while not self._stopping.wait(self._interval_s) and not self.poll():
            pass

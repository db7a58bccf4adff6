"""Something that goes on in a thread until it is stopped, whatever happens to Redis meanwhile."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from threading import Event, Thread
from types import TracebackType
from typing import TypeVar

from spark_bull.errors import ConnectionLost
from spark_bull.worker.job_signal import RECONNECT_PAUSE_S

log = logging.getLogger("spark_bull")

Self = TypeVar("Self", bound="Service")


class Service(ABC):
    """A daemon thread that makes one round after the other; a context manager, too.

    When Redis is away for longer than a call waits, the service says so once and goes on trying. Any other error
    ends it and is raised by await_termination() and stop().
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._over = Event()
        self._thread = Thread(target=self._run, name=f"spark-bull-{name}", daemon=True)
        self._error: Exception | None = None

    @abstractmethod
    def round(self) -> None:
        """One round: does what there is to be done, then waits for more, for some seconds at most."""

    def wake(self) -> None:  # noqa: B027 - most rounds need no waking
        """Ends the waiting of a round early, once it is to stop."""

    def start(self: Self) -> Self:
        """Starts the thread, and returns at once.

        Returns:
          This service.
        """
        self._thread.start()
        return self

    @property
    def started(self) -> bool:
        """Whether start() was called."""
        return self._thread.ident is not None

    @property
    def running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self, grace_s: float = 5.0) -> None:
        """Ends after the round that is going on; stopping again does nothing.

        Parameters:
          grace_s: maximum time to wait for that, s.

        Raises:
          SparkBullError: what ended the service before.
        """
        self._over.set()
        if self.running:
            self.wake()
            self._thread.join(grace_s)
        self._raise()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Waits until the service ends.

        Parameters:
          timeout_s: maximum time to wait, s; None: unlimited.

        Returns:
          Whether it has ended.

        Raises:
          SparkBullError: what ended it.
        """
        self._thread.join(timeout_s)
        self._raise()
        return not self.running

    def __enter__(self: Self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        away = False
        while not self._over.is_set():
            try:
                self.round()
            except ConnectionLost as error:
                if not away and not self._over.is_set():
                    log.warning("%s lost Redis, retrying: %s", self._name, error)
                away = True
                self._over.wait(RECONNECT_PAUSE_S)
                continue
            except Exception as error:
                log.exception("%s ends", self._name)
                self._error = error
                return
            if away:
                log.warning("%s reconnected to Redis", self._name)
                away = False

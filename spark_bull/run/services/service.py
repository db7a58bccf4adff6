"""A background thread that runs until it is stopped, and reconnects when Redis is unreachable."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from threading import Event
from types import TracebackType
from typing import TypeVar

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import ConnectionLost
from spark_bull.core.threads import DaemonThread
from spark_bull.run.claims.waits import RECONNECT_PAUSE_S

log = logging.getLogger("spark_bull")

Self = TypeVar("Self", bound="Service")


@short_errors
class Service(ABC):
    """A daemon thread that calls round() repeatedly. Also a context manager.

    While Redis is unreachable, the service logs one warning and retries. Any other error ends it, and is raised by
    await_termination() and stop().
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._over = Event()
        self._thread = DaemonThread(name, self._run)
        self._error: Exception | None = None

    @abstractmethod
    def round(self) -> None:
        """Processes what is due, then waits for more work, for at most some seconds."""

    def wake(self) -> None:  # noqa: B027 - optional
        """Ends the wait of the current round; called by stop()."""

    def start(self: Self) -> Self:
        """Starts the thread and returns immediately.

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
        """Whether the thread is running."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stops after the current round. Calling it again has no effect.

        Parameters:
          timeout_s: maximum time to wait for the end of the round, s.

        Raises:
          SparkBullError: the error that ended the service before.
        """
        self._over.set()
        if self.running:
            self.wake()
            self._thread.join(timeout_s)
        self._release()
        self._raise()

    def _release(self) -> None:  # noqa: B027 - optional
        """Ends what the service has started; called by stop()."""

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Waits until the service ends.

        Parameters:
          timeout_s: maximum time to wait, s; None: unlimited.

        Returns:
          Whether it has ended.

        Raises:
          SparkBullError: the error that ended it.
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
        disconnected = False
        while not self._over.is_set():
            try:
                self.round()
            except ConnectionLost as error:
                if not disconnected and not self._over.is_set():
                    log.warning("%s lost Redis, retrying: %s", self._name, error)
                disconnected = True
                self._over.wait(RECONNECT_PAUSE_S)
                continue
            except Exception as error:
                log.exception("%s failed", self._name)
                self._error = error
                return
            if disconnected:
                log.warning("%s reconnected to Redis", self._name)
                disconnected = False

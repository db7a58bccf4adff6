"""Work of a test that goes on in another thread."""

from __future__ import annotations

from threading import Event, Thread
from typing import TypeVar

from tests.support.wait import PATIENCE_S

Self = TypeVar("Self", bound="Background")


class Background:
    """Does `work` in a thread until the block is left, which raises the error of the thread."""

    def __init__(self) -> None:
        self.stopping = Event()
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

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

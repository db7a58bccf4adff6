"""One line that shows how a worker is doing, on a terminal or in a notebook."""

from __future__ import annotations

import sys
from threading import Event, Thread
from typing import Final, Protocol, TextIO

from spark_bull.errors import SparkBullError
from spark_bull.worker.status import WorkerStatus

_EVERY_S: Final = 1.0


class Watched(Protocol):
    def status(self) -> WorkerStatus: ...


class WorkerProgress:
    """Draws `watched.status()` anew every second, between start() and stop()."""

    def __init__(self, watched: Watched, stream: TextIO | None = None) -> None:
        self._watched = watched
        self._stream = stream or sys.stderr
        self._over = Event()
        self._thread = Thread(target=self._show, name="spark-bull-progress", daemon=True)

    def start(self, *, force: bool = False) -> None:
        """Starts where somebody looks, with `force` anywhere."""
        if force or self._stream.isatty() or "ipykernel" in sys.modules:
            self._thread.start()

    def stop(self) -> None:
        """Draws the last state and ends the line."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
            self._draw()
            self._stream.write("\n")

    def _show(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._draw()

    def _draw(self) -> None:
        try:
            line = str(self._watched.status())
        except SparkBullError as error:
            line = str(error)
        self._stream.write(f"\r\033[K{line}" if self._stream.isatty() else f"\r{line}   ")
        self._stream.flush()

"""Shows the progress of a worker as one line, on a terminal or in a notebook."""

from __future__ import annotations

import sys
from threading import Event, Thread
from typing import Final, Protocol, TextIO

from spark_bull.errors import SparkBullError
from spark_bull.worker.slot.status import WorkerStatus

_INTERVAL_S: Final = 1.0


class HasStatus(Protocol):
    def status(self) -> WorkerStatus: ...


class WorkerProgress:
    """Prints `worker.status()` every second between start() and stop()."""

    def __init__(self, worker: HasStatus, stream: TextIO | None = None) -> None:
        self._worker = worker
        self._stream = stream or sys.stderr
        self._stopped = Event()
        self._thread = Thread(target=self._show, name="spark-bull-progress", daemon=True)

    def start(self, *, force: bool = False) -> None:
        """Starts on a terminal and in a notebook; with `force` anywhere."""
        if force or self._stream.isatty() or "ipykernel" in sys.modules:
            self._thread.start()

    def stop(self) -> None:
        """Prints the last state and ends the line."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
            self._print()
            self._stream.write("\n")

    def _show(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            self._print()

    def _print(self) -> None:
        try:
            line = str(self._worker.status())
        except SparkBullError as error:
            line = str(error)
        self._stream.write(f"\r\033[K{line}" if self._stream.isatty() else f"\r{line}   ")
        self._stream.flush()

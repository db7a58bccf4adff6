"""Shows the progress of a worker as one line, on a terminal or in a notebook."""

from __future__ import annotations

from typing import Final, Protocol, TextIO

from spark_bull.errors import SparkBullError
from spark_bull.progress_line import ProgressLine
from spark_bull.worker.slot.status import WorkerStatus

_INTERVAL_S: Final = 1.0


class HasStatus(Protocol):
    def status(self) -> WorkerStatus: ...


class WorkerProgress:
    """Shows `worker.status()` every second between start() and stop()."""

    def __init__(self, worker: HasStatus, stream: TextIO | None = None) -> None:
        self._worker = worker
        self._line = ProgressLine(self._text, _INTERVAL_S, stream)

    def start(self, *, force: bool = False) -> None:
        """Starts on a terminal and in a notebook; with `force` anywhere."""
        if force or self._line.in_place:
            self._line.start()

    def stop(self) -> None:
        """Shows the last state and ends the line."""
        self._line.stop(self._text)

    def _text(self) -> str:
        try:
            return str(self._worker.status())
        except SparkBullError as error:
            return str(error)

"""A line that shows a progress: updated in place on a terminal and in a notebook, else a further line every 5 s."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from threading import Event
from typing import Any, Final, TextIO

from spark_bull.core.threads import DaemonThread

#: Minimum interval of the lines where they are not updated in place, s.
_LOG_S: Final = 5.0


class ProgressLine:
    """Shows `text()` every `interval_s`, unless it is None, between start() and stop(). stream: default: stderr."""

    def __init__(self, text: Callable[[], str | None], interval_s: float, stream: TextIO | None = None) -> None:
        self._text = text
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._in_notebook = stream is None and _has_cells()
        self._interval_s = interval_s if self.in_place else max(interval_s, _LOG_S)
        self._output: Any = None
        self._stopped = Event()
        self._thread = DaemonThread("progress", self._run)

    @property
    def in_place(self) -> bool:
        """Whether the line is updated in place."""
        return self._is_terminal or self._in_notebook

    def start(self) -> None:
        if self._in_notebook:
            # In this thread, so that it belongs to the cell that runs.
            self._output = import_module("IPython.display").display(_plain(""), raw=True, display_id=True)
        self._thread.start()

    def stop(self, last: Callable[[], str | None] = lambda: None) -> None:
        """Ends the line with a last text; None: removes it from a terminal or notebook. No effect if not started."""
        if self._thread.ident is None or self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join()
        text = last()
        if self._output is not None:
            self._output.update(_plain(text or ""), raw=True)
        else:
            self._write(("\r\033[K" if self._is_terminal else "") + (f"{text}\n" if text else ""))

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            text = self._text()
            if text is not None:
                self._show(text)

    def _show(self, text: str) -> None:
        if self._output is not None:
            self._output.update(_plain(text), raw=True)
        elif self._is_terminal:
            # A longer line would be wrapped, and only its last part replaced.
            self._write(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _has_cells() -> bool:
    """Whether the program runs in a kernel of Jupyter. Other programs may have imported IPython, too."""
    ipython: Any = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


def _plain(text: str) -> dict[str, str]:
    """A text as the output of a cell."""
    return {"text/plain": text}
